# SPDX-License-Identifier: Apache-2.0
"""A private repository over another's objects: commits are built and read there.

It has no settings, attributes, hooks, replacements or remotes, so nothing that a
user configured can change a byte, and nothing that is built is seen in the user's
repository before `give` hands it over.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .git import Repository, make_repository
from .locks import scratch_folder


class Scratch(Repository):
    """The private repository; its index holds what was read into it."""

    @property
    def folder(self) -> Path:
        """A folder for files of this run."""
        return self.gitdir.parent

    def begin_at(self, base: str) -> None:
        """Make base the first commit: a shallow clone has nothing below it."""
        (self.gitdir / "shallow").write_text(f"{base}\n")

    def has(self, oid: str) -> bool:
        """Whether an object is there, in this repository or the one below."""
        return self.ask("cat-file", "-e", oid) is not None

    def missing(self, oids: list[str]) -> list[str]:
        """Those of the object ids that are not there."""
        return missing_from(self, oids)

    def give(self, receiver: Repository) -> None:
        """Hand every object that was made here to another repository."""
        objects = self.gitdir / "objects"
        made = [f.parent.name + f.name for f in objects.glob("[0-9a-f][0-9a-f]/*")]
        if not made:
            return
        listed = "".join(f"{oid}\n" for oid in sorted(made)).encode()
        pack = self.git("pack-objects", "--stdout", "-q", stdin=listed)
        receiver.git("unpack-objects", "-q", stdin=pack)


def missing_from(repo: Repository, oids: list[str]) -> list[str]:
    """Those of the object ids that a repository does not have."""
    asked = "".join(f"{oid}\n" for oid in oids).encode()
    said = repo.git("cat-file", "--batch-check", stdin=asked).decode()
    return [line.split()[0] for line in said.splitlines() if "missing" in line]


@contextmanager
def scratch_over(repo: Repository) -> Iterator[Scratch]:
    """A scratch repository that sees the objects of another."""
    with scratch_folder() as folder:
        path = folder / "scratch.git"
        made = make_repository(path, bare=True)
        scratch = Scratch(made.gitdir, made.common)
        objects = os.fsencode(object_folder(repo))
        (path / "objects" / "info").mkdir(exist_ok=True)
        (path / "objects" / "info" / "alternates").write_bytes(objects + b"\n")
        yield scratch


def object_folder(repo: Repository) -> Path:
    """Where a repository keeps its objects."""
    out = repo.git("rev-parse", "--path-format=absolute", "--git-path", "objects")
    return Path(os.fsdecode(out.removesuffix(b"\n")))
