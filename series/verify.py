# SPDX-License-Identifier: Apache-2.0
"""Whether a base is the right one, and whether a built series is what it must be."""

import re

from .errors import ConflictError, SeriesError
from .git import GitError
from .mail import ABSENT, Mail
from .manifest import Manifest, Symbol
from .scratch import Scratch
from .stack import Commit, diff_files


class BaseError(ConflictError):
    """A file of the base is not the one that the patches were made for."""


class ResultError(SeriesError):
    """The built series is not what series.toml says; nothing was moved."""


def first_images(mails: list[Mail]) -> dict[str, tuple[str, str]]:
    """For each touched path: its blob before the series, and the patch that says so.

    Raises:
        BaseError: A patch does not go on from where the ones before it end.
    """
    first: dict[str, tuple[str, str]] = {}
    last: dict[str, str] = {}
    for mail in mails:
        for change in mail.changes:
            path = change.path
            if path in last and last[path] != change.pre:
                raise BaseError(
                    f"{mail.name} was not made on the patches before it: {path} is "
                    f"{last[path][:12]} there, {change.pre[:12]} in the patch.",
                    "Export the whole series anew with `apply.py export`.",
                )
            first.setdefault(path, (change.pre, mail.name))
            last[path] = change.post
    return first


def require_base(scratch: Scratch, base: str, mails: list[Mail]) -> None:
    """Refuse a base whose touched files are not the ones that the patches expect.

    Raises:
        BaseError: Naming the first file that differs.
    """
    expected = first_images(mails)
    there = blob_ids(scratch, base, list(expected))
    for path, (pre, name) in expected.items():
        found = there.get(path, ABSENT)
        if found == pre:
            continue
        if pre == ABSENT:
            what = f"{path} exists in the base, and {name} adds it."
        elif found == ABSENT:
            what = f"{path} is not in the base, and {name} changes it."
        else:
            what = f"{path} is {found[:12]} in the base; {name} needs {pre[:12]}."
        raise BaseError(
            f"The base {base[:12]} is not the pinned tree: {what}",
            "Nothing was changed. Use a clone that has the pinned release.",
        )


def blob_ids(scratch: Scratch, commit: str, paths: list[str]) -> dict[str, str]:
    """The blob id of each of the paths that a commit has."""
    if not paths:
        return {}
    out = scratch.git("ls-tree", "-r", "-z", "--full-tree", commit, "--", *paths)
    found: dict[str, str] = {}
    for entry in out.decode("utf-8", "surrogateescape").split("\0")[:-1]:
        meta, path = entry.split("\t", 1)
        found[path] = meta.split(" ")[2]
    return found


def require_result(
    scratch: Scratch, manifest: Manifest, base: str, commits: list[Commit]
) -> None:
    """Refuse a built series that is not, by content, what it must be.

    Raises:
        ResultError: Number of commits, order, a symbol or the tree id is wrong.
    """
    hint = "Nothing was moved. patches/ is inconsistent: restore it from git."
    if len(commits) != len(manifest.patch):
        raise ResultError(
            f"{len(commits)} commits were built from {len(manifest.patch)} patches.",
            hint,
        )
    for patch, commit in zip(manifest.patch, commits, strict=True):
        if patch.title != commit.subject:
            raise ResultError(
                f"{patch.file} has the subject {commit.subject!r}, series.toml the "
                f"title {patch.title!r}.",
                "Make the two equal, or run `apply.py export`.",
            )
    tip = commits[-1].oid if commits else base
    for patch in manifest.patch:
        for symbol in patch.symbols:
            _require_symbol(scratch, tip, patch.file, symbol)
    recorded = manifest.series.tree
    tree = scratch.tree_of(tip)
    on_pin = scratch.tree_of(base) == manifest.pin.tree
    if on_pin and recorded and tree != recorded:
        raise ResultError(
            f"The tree of the series is {tree[:12]}, series.toml has {recorded[:12]}.",
            "Nothing was moved. Patches were edited by hand: `apply.py export` "
            "records what the branch has.",
        )


def require_images(scratch: Scratch, base: str, tip: str, mails: list[Mail]) -> None:
    """Refuse a tip that differs from base in other blobs than the patches name.

    Raises:
        ResultError: Naming the files.
    """
    expected = {path: pre for path, (pre, _) in first_images(mails).items()}
    wanted = {}
    for mail in mails:
        for change in mail.changes:
            wanted[change.path] = change.post
    done = {
        change.path: change.post
        for change in diff_files(scratch, base, tip)
        if change.pre != change.post
    }
    said = {path: post for path, post in wanted.items() if post != expected[path]}
    if wrong := sorted(
        path for path in done.keys() | said.keys() if done.get(path) != said.get(path)
    ):
        raise ResultError(
            f"The series does not lead to the blobs that its patches name: "
            f"{', '.join(wrong)}.",
            "Nothing was moved.",
        )


def count_symbol(text: str, symbol: Symbol) -> int:
    """How often a file defines a name, or holds a text that is no name."""
    name = re.escape(symbol.symbol)
    if symbol.symbol.isidentifier() and symbol.file.endswith(".py"):
        defined = rf"^[ \t]*(?:(?:async[ \t]+)?def|class)[ \t]+{name}\b"
        assigned = rf"^[ \t]*{name}[ \t]*(?::[^=\n]+)?=(?!=)"
        return len(re.findall(f"{defined}|{assigned}", text, re.MULTILINE))
    return text.count(symbol.symbol)


def _require_symbol(scratch: Scratch, tip: str, name: str, symbol: Symbol) -> None:
    try:
        data = scratch.git("cat-file", "blob", f"{tip}:{symbol.file}")
    except GitError as error:
        raise ResultError(
            f"{name} should leave {symbol.symbol!r} in {symbol.file}, which the "
            "patched tree does not have.",
            "Nothing was moved. Correct `symbols` in series.toml.",
        ) from error
    times = count_symbol(data.decode("utf-8", "replace"), symbol)
    if times != 1:
        raise ResultError(
            f"{name} should leave {symbol.symbol!r} in {symbol.file} once; it is "
            f"there {times} times.",
            "Nothing was moved. Correct the patch, or `symbols` in series.toml.",
        )
