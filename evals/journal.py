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
            JournalError: There is nothing, or it is another comparison's.
        """
        if not path.exists():
            raise JournalError(f"{path} is not there: nothing to resume.")
        text = path.read_text(encoding="utf-8")
        # A line that was cut off has no end; what came before it is whole.
        whole = text[: text.rfind("\n") + 1]
        lines = [json.loads(line) for line in whole.splitlines()]
        if not lines or "plan" not in lines[0]:
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
        if whole != text:
            os.truncate(path, len(whole.encode()))
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
