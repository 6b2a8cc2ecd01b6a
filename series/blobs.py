# SPDX-License-Identifier: Apache-2.0
"""Single files of commits: their modes and ids, their hunks, and trees of them."""

import os
import re
from dataclasses import dataclass

from .git import Repository
from .mail import ABSENT
from .scratch import Scratch

_HUNK = re.compile(rb"^@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@(.*)$")
_DIFF = (
    "--no-ext-diff",
    "--no-textconv",
    "--no-color",
    "--diff-algorithm=myers",
    "--inter-hunk-context=0",
)


@dataclass(frozen=True)
class Entry:
    """A file of a tree; ABSENT ids and mode 000000 stand for no file."""

    mode: str
    oid: str

    @property
    def there(self) -> bool:
        """Whether the file exists."""
        return self.oid != ABSENT


NOTHING = Entry("000000", ABSENT)


@dataclass(frozen=True)
class Hunk:
    """One change of a file, without context.

    Args:
        line: Where it starts in the old file, from 1.
        where: The enclosing definition, as git shows it.
        removed: The lines that go.
        added: The lines that come.
    """

    line: int
    where: str
    removed: tuple[bytes, ...]
    added: tuple[bytes, ...]


def entries(repo: Repository, tree: str, paths: list[str]) -> dict[str, Entry]:
    """The files of a commit or tree that are among paths."""
    if not paths:
        return {}
    out = repo.git("ls-tree", "-r", "-z", "--full-tree", tree, "--", *paths)
    return _parsed(out)


def all_entries(repo: Repository, tree: str) -> dict[str, Entry]:
    """All files of a commit or tree."""
    return _parsed(repo.git("ls-tree", "-r", "-z", "--full-tree", tree))


def _parsed(out: bytes) -> dict[str, Entry]:
    found = {}
    for item in os.fsdecode(out).split("\0")[:-1]:
        meta, path = item.split("\t", 1)
        mode, _, oid = meta.split(" ")
        found[path] = Entry(mode, oid)
    return found


def changed_paths(repo: Repository, before: str, after: str) -> list[str]:
    """The paths that differ between two commits or trees, modes alone included."""
    flags = ["-r", "-z", "--name-only", "--no-renames"]
    out = repo.git("diff-tree", *flags, before, after)
    return os.fsdecode(out).split("\0")[:-1]


def read(repo: Repository, oid: str) -> bytes:
    """The content of a blob; nothing for ABSENT."""
    return b"" if oid == ABSENT else repo.git("cat-file", "blob", oid)


def hunks(repo: Repository, before: str, after: str) -> list[Hunk]:
    """The changes between two blobs, none for equal or binary ones."""
    if before == after or ABSENT in (before, after):
        return []
    out = repo.git("diff", *_DIFF, "-U0", before, after)
    found: list[Hunk] = []
    lines = iter(out.split(b"\n"))
    for line in lines:
        head = _HUNK.match(line)
        if not head:
            continue
        minus, plus = (int(head[n]) if head[n] else 1 for n in (2, 4))
        removed, added = [], []
        while minus or plus:
            line = next(lines)
            if line[:1] == b"-":
                removed.append(line[1:])
                minus -= 1
            elif line[:1] == b"+":
                added.append(line[1:])
                plus -= 1
        where = head[5].decode("utf-8", "replace").strip()
        found.append(Hunk(int(head[1]), where, tuple(removed), tuple(added)))
    return found


def images(repo: Repository, before: str, after: str) -> list[tuple[bytes, bytes]]:
    """Each change between two blobs as old and new text, with three lines around."""
    if before == after or ABSENT in (before, after):
        return []
    out = repo.git("diff", *_DIFF, "-U3", before, after)
    found: list[tuple[list[bytes], list[bytes]]] = []
    for line in out.split(b"\n"):
        if _HUNK.match(line):
            found.append(([], []))
        elif found and line[:1] in (b" ", b"-", b"+"):
            for side, other in ((0, b"+"), (1, b"-")):
                if line[:1] != other:
                    found[-1][side].append(line[1:])
    return [(b"\n".join(old), b"\n".join(new)) for old, new in found]


def tree_with(scratch: Scratch, tree: str, changes: dict[str, Entry]) -> str:
    """A tree with some files replaced, added, or gone (NOTHING)."""
    index = {"GIT_INDEX_FILE": str(scratch.folder / "index-of-tree")}
    scratch.git("read-tree", tree, env=index)
    lines = [f"{entry.mode} {entry.oid}\t{path}" for path, entry in changes.items()]
    data = os.fsencode("".join(f"{line}\0" for line in lines))
    scratch.git("update-index", "-z", "--index-info", stdin=data, env=index)
    # Blobs that no patch touches may be absent from a partial clone.
    return scratch.line("write-tree", "--missing-ok", env=index)


def store(scratch: Scratch, data: bytes) -> str:
    """Write a blob; returns its id."""
    out = scratch.git("hash-object", "-w", "--stdin", "--no-filters", stdin=data)
    return out.decode().strip()
