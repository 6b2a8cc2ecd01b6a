# SPDX-License-Identifier: Apache-2.0
"""What is to be tested: a tree on disk, and per patch its tests and kernels."""

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Patch:
    """One patch as the tests see it.

    Attributes:
        name: The patch file's name without its ending.
        tests: Paths, relative to the tree or to this repository, with `::case` allowed.
        kernels: Triton kernels the patch adds or changes, as "module.function".
        changed: Files the patch adds or changes, relative to the tree.
    """

    name: str
    tests: tuple[str, ...] = ()
    kernels: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()


@dataclass(frozen=True)
class Plan:
    """A tree with the patches that are in it.

    Attributes:
        path: The tree's folder.
        version: The release that the tree is, as its distribution would say.
        commit: The commit it stands at.
        branch: The branch that commit is of.
        dirty: Whether files differ from that commit.
        extensions: Folders that may hold vLLM's compiled extensions.
    """

    path: Path
    version: str
    commit: str
    branch: str
    patches: tuple[Patch, ...]
    dirty: bool = False
    extensions: tuple[Path, ...] = field(default=())

    def dump(self) -> str:
        """The plan as JSON, without the paths of the machine that made it."""
        fields = asdict(self)
        del fields["path"], fields["extensions"]
        return json.dumps(fields, indent=1, sort_keys=True)


def load(text: str, path: Path) -> Plan:
    """Reads what `Plan.dump` wrote, for a tree that now lies at `path`."""
    fields = json.loads(text)
    patches = tuple(
        Patch(
            name=entry["name"],
            tests=tuple(entry["tests"]),
            kernels=tuple(entry["kernels"]),
            changed=tuple(entry["changed"]),
        )
        for entry in fields.pop("patches")
    )
    return Plan(path=path, patches=patches, **fields)
