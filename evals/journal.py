# SPDX-License-Identifier: Apache-2.0
"""What is done of a comparison, one line each, safe against any end."""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from series.errors import SeriesError
from series.writing import named


class JournalError(SeriesError):
    """The journal is of another comparison, or would be overwritten."""


@dataclass
class Journal:
    """A file of JSON lines: first what is compared and how, then what is done.

    Attributes:
        path: The file.
        lines: What is done, in order.
    """

    path: Path
    lines: list[dict[str, Any]]

    @classmethod
    def start(cls, path: Path, plan: Mapping[str, Any]) -> "Journal":
        """Starts a new one.

        Raises:
            JournalError: There is one already.
        """
        if path.exists():
            raise JournalError(
                f"{path} holds runs already.", "Go on with --resume, or name --out."
            )
        path.parent.mkdir(parents=True, exist_ok=True)
        journal = cls(path, [])
        journal._append({"plan": dict(plan)})
        return journal

    @classmethod
    def resume(cls, path: Path, plan: Mapping[str, Any]) -> "Journal":
        """Reads what an interrupted comparison left.

        Raises:
            JournalError: There is nothing, it is another comparison's, or damaged.
        """
        if not path.exists():
            raise JournalError(f"{path} is not there: nothing to resume.")
        data = path.read_bytes()
        # A line that was cut off has no end; what came before it is whole.
        whole = data[: data.rfind(b"\n") + 1]
        lines = [
            _object(path, number, line)
            for number, line in enumerate(whole.splitlines(), 1)
        ]
        if not lines or not isinstance(lines[0].get("plan"), dict):
            raise JournalError(f"{path} is no journal of runs.", "Name another --out.")
        then, now = lines[0]["plan"], json.loads(json.dumps(dict(plan)))
        differ = sorted(
            key for key in now.keys() | then if now.get(key) != then.get(key)
        )
        if differ:
            raise JournalError(
                f"{path} was begun with another {', '.join(differ)}.",
                "Give the same words as then, or name another --out.",
            )
        if whole != data:
            os.truncate(path, len(whole))
        return cls(path, lines[1:])

    def add(self, line: Mapping[str, Any]) -> None:
        """Keeps what is done."""
        self._append(line)
        self.lines.append(dict(line))

    def _append(self, line: Mapping[str, Any]) -> None:
        with named(self.path), self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
            file.flush()
            os.fsync(file.fileno())


def _object(path: Path, number: int, line: bytes) -> dict[str, Any]:
    try:
        found = json.loads(line)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise JournalError(
            f"{path}: line {number} is damaged.", "Make it again, in another --out."
        )
    return found
