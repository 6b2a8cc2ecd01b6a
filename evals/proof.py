# SPDX-License-Identifier: Apache-2.0
"""The arm that is asked for, and whether a server is that one."""

import contextlib
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from series.errors import SeriesError

TAIL_LINES = 30
TAIL_BYTES = 64 << 10
METADATA = ".series-metadata"
"""Where a tree keeps the metadata of its own installation."""
_KERNEL = re.compile(
    r"GDN spec decode kernel: .*|Falling back to the Triton GDN spec decode path: .*"
)
# At the end of a line of vLLM's log, behind its process, time and place.
_ERROR = re.compile(r"(?<!\S)[A-Z]\w*(?:Error|Exception): .+")


class ServerError(SeriesError):
    """A server did not start, or ended, or is not the one asked for."""


class ServerDied(ServerError):
    """The server's process is gone."""


class NotReadyError(ServerError):
    """The server runs and does not answer a request."""


class WrongServerError(ServerError):
    """What answers is not the arm that was asked for."""


@dataclass(frozen=True)
class Arm:
    """What is served.

    Attributes:
        name: "stock" or "patched".
        tree: A vLLM tree with what it needs compiled.
        python: The interpreter whose environment runs that tree.
        patch_ids: `git patch-id --stable` of the series' commits; none for stock.
    """

    name: str
    tree: Path
    python: Path
    patch_ids: tuple[str, ...] = ()


def metadata(tree: Path) -> list[Path]:
    """The folders that hold the tree's own distribution metadata, if it has any."""
    return sorted(
        path.parent.absolute()
        for path in (tree / METADATA).glob("**/vllm-*.dist-info")
        if path.is_dir()
    )


def require_tree(arm: Arm) -> None:
    """Refuses an arm whose tree is none.

    Raises:
        ServerError: There is no vLLM in it.
    """
    if not (arm.tree / "vllm/__init__.py").is_file():
        raise ServerError(
            f"{arm.tree} is no vLLM tree: vllm/__init__.py is missing.",
            "Run `make apply`, and name that tree.",
        )


def tail(log: Path, lines: int = TAIL_LINES) -> str:
    """The end of a log."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - TAIL_BYTES))
            text = file.read().decode(errors="replace")
    except OSError:
        return ""
    kept = [line.rstrip() for line in text.splitlines() if line.strip()]
    return "\n".join(f"  {line[:300]}" for line in kept[-lines:])


def errors(log: Path, most: int = 3) -> list[str]:
    """The first errors that a log names: the cause, and not what followed from it."""
    found: dict[str, None] = {}
    with contextlib.suppress(OSError), log.open(errors="replace") as file:
        for line in file:
            if match := _ERROR.search(line):
                found.setdefault(match[0].strip()[:300])
            if len(found) == most:
                break
    return list(found)


def with_tail(what: str, log: Path) -> str:
    """A sentence, and under it the end of a log."""
    end = tail(log)
    if not end:
        return f"{what} {log} is empty."
    above = [f"  {error}" for error in errors(log) if error not in end]
    first = "\n".join(["Its first errors:", *above, ""]) if above else ""
    return f"{what} {first}The end of {log}:\n{end}"


def died(name: str, code: int, log: Path) -> ServerDied:
    """The error for a server that is gone, with the end of its log."""
    how = f"ended with {code}" if code >= 0 else f"was killed by signal {-code}"
    return ServerDied(
        with_tail(f"The {name} server {how}.", log), "The log above says why."
    )


def kernel_line(log: Path) -> str | None:
    """What the log says of the decode kernel, None when it says nothing."""
    with log.open(encoding="utf-8", errors="replace") as file:
        for line in file:
            if match := _KERNEL.search(line):
                return match[0].strip()
    return None


def require_arm(arm: Arm, pid: int, facts: dict[str, Any]) -> None:
    """Refuses a server that is not the arm asked for.

    Args:
        arm: What was asked for.
        pid: Of the process that was started.
        facts: What the server's process wrote about itself.

    Raises:
        WrongServerError: Another process, tree or state of the tree, or other patches.
    """
    if facts["pid"] != pid:
        raise WrongServerError(
            f"The {arm.name} server runs as process {facts['pid']}, not as the one "
            f"started ({pid}).",
            "Name the interpreter itself, not a script that starts it.",
        )
    module = Path(facts["module"])
    tree = arm.tree.resolve()
    if not module.is_relative_to(tree):
        raise WrongServerError(
            f"The {arm.name} server imported {module}, not the vLLM in {tree}.",
            f"{arm.python} puts another vLLM first: uninstall that one.",
        )
    if facts.get("changed"):
        raise WrongServerError(
            f"{tree} is not as it was made: {', '.join(facts['changed'])} differ.",
            "Remove that tree and run it again.",
        )
    found = tuple(facts.get("patch_ids", ()))
    if found != arm.patch_ids:
        raise WrongServerError(
            f"The tree of the {arm.name} server has {len(found)} patches of the "
            f"series ({_short(found)}), not the {len(arm.patch_ids)} asked for "
            f"({_short(arm.patch_ids)}).",
            "Remove that tree and run it again.",
        )


def _short(ids: tuple[str, ...]) -> str:
    return ", ".join(one[:8] for one in ids) or "none"
