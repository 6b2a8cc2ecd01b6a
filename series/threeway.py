# SPDX-License-Identifier: Apache-2.0
"""One patch onto another tree: each file merged three-way, in memory.

The sides of a file are the tree that the patch was made for (pin), that tree with the
patch (patch), and the tree that it goes onto (upstream). Context lines are never
searched, so a look-alike elsewhere in the file cannot catch a hunk.
"""

import difflib
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import PurePosixPath

from .blobs import NOTHING, Entry, all_entries, changed_paths, entries, hunks, read
from .blobs import store as store_blob
from .git import GitError
from .scratch import Scratch

_OURS, _BASE, _THEIRS = "upstream", "pin", "patch"
_ALIKE = 0.5
_SIDES = re.compile(
    rb"^<<<<<<< upstream\r?\n(.*?)^=======\r?\n(.*?)^>>>>>>> patch\r?$",
    re.MULTILINE | re.DOTALL,
)
MARKS = re.compile(
    rb"^(<<<<<<< upstream|\|\|\|\|\|\|\| pin|>>>>>>> patch)\r?$", re.MULTILINE
)


@dataclass(frozen=True)
class Clash:
    """A place where a person must decide.

    Args:
        path: The file, as the tree has it that the patch goes onto.
        reason: Why, in words.
        line: Where upstream's side starts, 0 where the whole file is meant.
        where: The definition that the patch's change is in.
        upstream: Upstream's lines there.
        patch: The patch's lines there.
    """

    path: str
    reason: str
    line: int = 0
    where: str = ""
    upstream: str = ""
    patch: str = ""


@dataclass(frozen=True)
class FileMerge:
    """What became of one file of a patch.

    Args:
        path: Its name in the patch.
        onto: Its name in the tree that it goes onto.
        sides: The file at the pin, with the patch, and upstream.
        result: The file afterwards; with conflict marks where clashes are.
        offsets: By how many lines each hunk has moved.
        there: How many of its hunks upstream has already.
        hunks: How many hunks it has.
        clashes: What a person must decide.
    """

    path: str
    onto: str
    sides: tuple[Entry, Entry, Entry]
    result: Entry
    offsets: tuple[int, ...] = ()
    there: int = 0
    hunks: int = 0
    clashes: tuple[Clash, ...] = ()

    @property
    def nothing_left(self) -> bool:
        """Whether the tree that it goes onto stays as it is."""
        return not self.clashes and self.result == self.sides[2]


def merge_patch(
    scratch: Scratch,
    before: str,
    after: str,
    onto: str,
    need: Callable[[list[str]], None] = lambda oids: None,
) -> list[FileMerge]:
    """Merge what changes from before to after into onto, file by file.

    Args:
        before: The commit that the patch was made for.
        after: The same with the patch.
        onto: The commit that it goes onto.
        need: Called with blobs before they are read; a partial clone fetches them.
    """
    paths = changed_paths(scratch, before, after)
    pin, patched = entries(scratch, before, paths), entries(scratch, after, paths)
    upstream = entries(scratch, onto, paths)
    merged = []
    for path in paths:
        sides = tuple(t.get(path, NOTHING) for t in (pin, patched, upstream))
        base, theirs, ours = sides
        name = path
        need([entry.oid for entry in (base, theirs, ours) if entry.there])
        if base.there and theirs.there and not ours.there:
            moved = _moved_to(scratch, path, base, before, onto, need)
            name, ours = moved or (path, ours)
        merged.append(_merge_file(scratch, path, name, base, theirs, ours))
    return merged


def _merge_file(
    scratch: Scratch, path: str, onto: str, base: Entry, theirs: Entry, ours: Entry
) -> FileMerge:
    sides = (base, theirs, ours)
    count = len(hunks(scratch, base.oid, theirs.oid)) or 1
    if ours == base:
        return FileMerge(path, onto, sides, theirs, (0,) * count, 0, count)
    if ours == theirs:
        return FileMerge(path, onto, sides, ours, (), count, count)
    if reason := _whole_file(base, theirs, ours):
        kept = ours if ours.there else theirs
        clash = Clash(onto, reason)
        return FileMerge(path, onto, sides, kept, (), 0, count, (clash,))
    mode = theirs.mode if ours.mode == base.mode else ours.mode
    if theirs.oid == base.oid or ours.oid == theirs.oid:
        return FileMerge(path, onto, sides, Entry(mode, ours.oid), (0,), 0, count)
    if ours.oid == base.oid:
        done = Entry(mode, theirs.oid)
        return FileMerge(path, onto, sides, done, (0,) * count, 0, count)
    data, clashes = _merge_text(scratch, onto, base.oid, theirs.oid, ours.oid)
    result = Entry(mode, store_blob(scratch, data)) if data is not None else ours
    if clashes:
        return FileMerge(path, onto, sides, result, (), 0, count, clashes)
    offsets, there = _landed(scratch, base.oid, theirs.oid, ours.oid, result.oid)
    return FileMerge(path, onto, sides, result, offsets, there, count)


def _whole_file(base: Entry, theirs: Entry, ours: Entry) -> str:
    """Why no lines can be merged, empty where they can."""
    if not base.there:
        return "the patch adds this file, and upstream has another one of that name"
    if not theirs.there:
        return "the patch removes this file, and upstream has changed it"
    if not ours.there:
        return "the patch changes this file, and upstream has it no more"
    if {base.mode, theirs.mode, ours.mode} - {"100644", "100755"}:
        return "a link or a submodule changed on both sides"
    return ""


def _merge_text(
    scratch: Scratch, path: str, base: str, theirs: str, ours: str
) -> tuple[bytes | None, tuple[Clash, ...]]:
    """The merged lines; with marks, and what clashes, where they do not merge."""
    names = []
    for name, oid in ((_OURS, ours), (_BASE, base), (_THEIRS, theirs)):
        file = scratch.folder / f"side-{name}"
        file.write_bytes(read(scratch, oid))
        names.append(str(file))
    labels = ["-L", _OURS, "-L", _BASE, "-L", _THEIRS]
    try:
        return scratch.git("merge-file", "-p", *labels, *names), ()
    except GitError as error:
        if not error.stdout:
            return None, (Clash(path, "the file is binary, and changed on both sides"),)
        clashes = _clashes(scratch, path, error.stdout, base, theirs)
    try:
        scratch.git("merge-file", "-p", "--diff3", *labels, *names)
    except GitError as error:
        return error.stdout, clashes
    raise AssertionError("a conflict that shows without its base vanished with it")


def _clashes(
    scratch: Scratch, path: str, marked: bytes, base: str, theirs: str
) -> tuple[Clash, ...]:
    changes = hunks(scratch, base, theirs)
    found = []
    extra = 0
    for match in _SIDES.finditer(marked):
        ours, patch = match[1], match[2]
        line = marked.count(b"\n", 0, match.start()) + 1 - extra
        extra += 3 + patch.count(b"\n")
        lines = set(patch.splitlines())
        where = next((h.where for h in changes if lines & set(h.added)), "")
        reason = "upstream and the patch change the same lines"
        sides = (side.decode("utf-8", "replace") for side in (ours, patch))
        found.append(Clash(path, reason, line, where, *sides))
    return tuple(found)


def _landed(
    scratch: Scratch, base: str, theirs: str, ours: str, result: str
) -> tuple[tuple[int, ...], int]:
    """The offsets of the hunks that landed, and how many were there before."""
    wanted = hunks(scratch, base, theirs)
    done = hunks(scratch, ours, result)
    offsets = []
    for hunk in done:
        texts = (hunk.removed, hunk.added)
        same = [h for h in wanted if (h.removed, h.added) == texts]
        if same:
            first = min(same, key=lambda h: abs(h.line - hunk.line))
            offsets.append(hunk.line - first.line)
            wanted.remove(first)
    return tuple(offsets), len(wanted)


def _moved_to(
    scratch: Scratch,
    path: str,
    base: Entry,
    before: str,
    onto: str,
    need: Callable[[list[str]], None],
) -> tuple[str, Entry] | None:
    """Where upstream has moved a file: the same content, or its name elsewhere."""
    old = all_entries(scratch, before)
    new = {p: e for p, e in all_entries(scratch, onto).items() if p not in old}
    same = [(p, e) for p, e in new.items() if e.oid == base.oid]
    if len(same) == 1:
        return same[0]
    name = PurePosixPath(path).name
    named = [(p, e) for p, e in new.items() if PurePosixPath(p).name == name]
    need([entry.oid for _, entry in named])
    lines = read(scratch, base.oid).splitlines()
    alike = []
    for candidate in named:
        other = read(scratch, candidate[1].oid).splitlines()
        ratio = difflib.SequenceMatcher(None, lines, other, autojunk=False).ratio()
        if ratio >= _ALIKE:
            alike.append(candidate)
    return alike[0] if len(alike) == 1 else None
