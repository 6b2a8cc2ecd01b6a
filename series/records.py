# SPDX-License-Identifier: Apache-2.0
"""The recorded measurements of a change set, as a submission may quote them."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .carry import Source
from .git import Repository

# What upstream asks evidence of, and the kinds of record that give it.
WANTED = {
    "kernel benchmark": ("bench", "dot", "gdn", "kernel"),
    "AMD code generation": ("codegen",),
    "end-to-end serving": ("ab", "serve", "latency", "e2e"),
    "model evaluation": ("eval", "gsm8k", "gpqa", "niah"),
}


@dataclass(frozen=True)
class Evidence:
    """The records of a change set.

    Args:
        current: Records of the patches as they are.
        stale: Names of records of an earlier form of them.
        missing: What has no current record, in words.
    """

    current: tuple[dict[str, Any], ...]
    stale: tuple[str, ...]
    missing: tuple[str, ...]


def evidence_for(results: Path, repo: Repository, sources: list[Source]) -> Evidence:
    """The records that are about the patches of a change set.

    Args:
        results: The folder of records, one JSON file each.
        repo: A repository, to ask git for patch ids.
        sources: The patches.
    """
    ids = {_patch_id(repo, source): source.patch.file for source in sources}
    files = set(ids.values())
    current, stale = [], []
    for path in sorted(results.glob("*.json")):
        record = _read(path)
        about = record.get("patches", {})
        if not isinstance(about, dict) or not about:
            continue
        if set(about.values()) & set(ids):
            current.append({**record, "name": record.get("name", path.stem)})
        elif set(about) & files:
            stale.append(path.stem)
    missing = [
        what
        for what, kinds in WANTED.items()
        if not any(_is_of(record, kinds) for record in current)
    ]
    return Evidence(tuple(current), tuple(stale), tuple(missing))


def lines_of(record: dict[str, Any]) -> list[str]:
    """One record for a description: what ran where, and the numbers that it names."""
    machine = record.get("machine", {})
    device = machine.get("device", "an unnamed machine")
    command = record.get("command", [])
    words = " ".join(command) if isinstance(command, list) else str(command)
    date = str(record.get("date", ""))[:10]
    lines = [f"- `{record['name']}` ({record.get('kind', '?')}), {device}, {date}:"]
    lines.append(f"  `{words}`" if words else "  no command recorded")
    for line in _summary(record.get("data", {})):
        lines.append(f"  {line}")
    return lines


def _summary(data: Any) -> list[str]:
    """The lines that a record gives as its own summary; samples are not retold."""
    said = data.get("summary", []) if isinstance(data, dict) else []
    if isinstance(said, str):
        return said.splitlines()
    if isinstance(said, dict):
        return [f"{key}: {value}" for key, value in said.items()]
    return [str(line) for line in said]


def _is_of(record: dict[str, Any], kinds: tuple[str, ...]) -> bool:
    kind = str(record.get("kind", "")).lower()
    return any(kind == word or kind.startswith(f"{word}-") for word in kinds)


def _patch_id(repo: Repository, source: Source) -> str:
    out = repo.git("patch-id", "--stable", stdin=source.mail.diff)
    return out.decode().partition(" ")[0]


def _read(path: Path) -> dict[str, Any]:
    try:
        data = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return data if isinstance(data, dict) else {}
