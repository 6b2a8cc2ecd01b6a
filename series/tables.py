# SPDX-License-Identifier: Apache-2.0
"""series.toml after an export: the tables that stay, move, come and go."""

import re
from dataclasses import dataclass
from typing import Any

import tomlkit
from tomlkit.items import AoT, Table

from .manifest import Manifest, Patch


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
    """series.toml with the tables of entries and the tree id; the rest untouched.

    Args:
        text: The file as it is.
        manifest: The same, read.
        entries: The patches in order.
        tree: The tree id of the series, empty where it is not known.
    """
    document: dict[str, Any] = tomlkit.parse(text)
    if manifest.series.tree != tree:
        document["series"]["tree"] = tree
    old = [patch.file for patch in manifest.patch]
    if [entry.known.file if entry.known else "" for entry in entries] != old:
        tables = {table["file"]: table for table in document.get("patch", [])}
        series = manifest.change_set[0].name if manifest.change_set else ""
        order: AoT = tomlkit.aot()
        for entry in entries:
            if entry.known is None:
                order.append(_skeleton(entry, series))
            else:
                series = entry.known.series
                order.append(tables[entry.known.file])
        document["patch"] = order
    for table, entry in zip(document.get("patch", []), entries, strict=True):
        for key, value in (("file", entry.file), ("title", entry.title)):
            if table[key] != value:
                table[key] = value
    return tomlkit.dumps(document)  # type: ignore[arg-type]


def _skeleton(entry: Entry, series: str) -> Table:
    table = tomlkit.table()
    table["file"] = entry.file
    table["title"] = entry.title
    table["purpose"] = re.sub(r"^(\[[^\]]*\]\s*)+", "", entry.title) or entry.title
    table["series"] = series
    upstream = tomlkit.inline_table()
    upstream["state"] = "not submitted"
    table["upstream"] = upstream
    table["symbols"] = tomlkit.array()
    table["tests"] = tomlkit.array()
    return table
