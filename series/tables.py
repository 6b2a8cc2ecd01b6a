# SPDX-License-Identifier: Apache-2.0
"""series.toml after an export: the tables that stay, move, come and go."""

import json
import re
import tomllib
from dataclasses import dataclass

from .manifest import Manifest, ManifestError, Patch

_PATCH = re.compile(r"\[\[\s*patch\s*\]\]")
_PART = re.compile(r"\[\[?\s*patch\s*\.")
_SERIES = re.compile(r"\[\s*series\s*\]")


@dataclass(frozen=True)
class Entry:
    """A commit on its way to a patch file.

    Args:
        file: The name of its file.
        title: Its subject.
        known: The table that it had, None for a new commit.
    """

    file: str
    title: str
    known: Patch | None


def match_entries(
    patches: list[Patch], subjects: list[str], names: list[str]
) -> tuple[list[Entry], list[Patch]]:
    """Give each commit its table: by subject, else by place where only words changed.

    Args:
        patches: The tables of series.toml.
        subjects: The subjects of the commits, in order.
        names: The file names that new commits would get.

    Returns:
        The entries in order, and the tables whose commit is gone.
    """
    by_title = {patch.title: patch for patch in patches}
    known = [by_title.get(subject) for subject in subjects]
    left = [patch for patch in patches if patch.title not in subjects]
    if len(patches) == len(subjects) and known.count(None) == len(left):
        # Same number of commits: what matches nothing was reworded in its place.
        for index, patch in enumerate(patches):
            if known[index] is None and patch in left:
                known[index] = patch
                left.remove(patch)
    entries = []
    for number, (subject, name) in enumerate(zip(subjects, names, strict=True), 1):
        table = known[number - 1]
        if table is None or table.title != subject:
            file = re.sub(r"[-.]+\.patch$", ".patch", name)
        else:
            file = f"{number:04}{table.file[4:]}"
        entries.append(Entry(file, subject, table))
    return entries, left


def new_text(text: str, manifest: Manifest, entries: list[Entry], tree: str) -> str:
    """series.toml with the tables of entries and the tree id; every other byte stays.

    Args:
        text: The file as it is.
        manifest: The same, read.
        entries: The patches in order.
        tree: The tree id of the series, empty where it is not known.

    Raises:
        ManifestError: The file is laid out in a way that cannot be updated.
    """
    head, tables, tail = _split(text)
    head = [_with(s, "tree", tree) if _SERIES.match(s) else s for s in head]
    old = [patch.file for patch in manifest.patch]
    known = [entry.known.file if entry.known else "" for entry in entries]
    kept = dict(zip(old, tables, strict=False))
    series = manifest.change_set[0].name if manifest.change_set else ""
    chunks = []
    for entry in entries:
        if entry.known is not None:
            series = entry.known.series
        chunk = kept[entry.known.file] if entry.known else _skeleton(entry, series)
        chunks.append(_with(_with(chunk, "file", entry.file), "title", entry.title))
    if known != old:
        ended = [part.rstrip("\n") + "\n" for part in ["".join(head), *chunks]]
        result = "\n".join([*ended, *(["".join(tail)] if tail else [])])
    else:
        result = "".join([*head, *chunks, *tail])
    _require_read(result, manifest, entries, tree)
    return result


def _split(text: str) -> tuple[list[str], list[str], list[str]]:
    """The sections before the patch tables, these tables, and what follows."""
    head: list[str] = []
    tables: list[str] = []
    tail: list[str] = []
    for section in re.split(r"(?m)^(?=\[)", text):
        if _PATCH.match(section):
            tables.append(section)
        elif tables and (_PART.match(section) or not section.startswith("[")):
            tables[-1] += section
        else:
            (tail if tables else head).append(section)
    return head, tables, tail


def _with(section: str, key: str, value: str) -> str:
    """A section with another text as the value of one key."""
    pattern = rf"(?m)^(\s*{key}\s*=\s*)(\"(?:[^\"\\]|\\.)*\"|'[^']*')"
    match = re.search(pattern, section)
    if match is None or tomllib.loads(f"v = {match[2]}")["v"] == value:
        return section
    return section[: match.start(2)] + _quoted(value) + section[match.end(2) :]


def _quoted(value: str) -> str:
    return json.dumps(value, ensure_ascii=False)


def _skeleton(entry: Entry, series: str) -> str:
    purpose = re.sub(r"^(\[[^\]]*\]\s*)+", "", entry.title) or entry.title
    return f"""[[patch]]
file = {_quoted(entry.file)}
title = {_quoted(entry.title)}
purpose = {_quoted(purpose)}
series = {_quoted(series)}
upstream = {{ state = "not submitted" }}
symbols = []
tests = []
"""


def _require_read(
    text: str, manifest: Manifest, entries: list[Entry], tree: str
) -> None:
    """Refuse a result that does not read as what it was meant to be."""
    try:
        data = tomllib.loads(text)
        found = [(table["file"], table["title"]) for table in data.get("patch", [])]
        right = data["series"]["tree"] == tree
    except (tomllib.TOMLDecodeError, KeyError):
        found, right = [], False
    if not right or found != [(entry.file, entry.title) for entry in entries]:
        raise ManifestError(
            f"{manifest.path.name} is laid out in a way that cannot be updated.",
            'Give each [[patch]] and [series] plain `key = "value"` lines.',
        )
