# SPDX-License-Identifier: Apache-2.0
"""What is done of a comparison, one line each, safe against any end."""

import json
import os
from collections.abc import Callable, Mapping
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
        plan: What is compared and how, as it was when the file was begun.
        lines: What is done, in order.
    """

    path: Path
    plan: dict[str, Any]
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
        journal = cls(path, dict(plan), [])
        journal._append({"plan": journal.plan})
        return journal

    @classmethod
    def resume(
        cls,
        path: Path,
        plan: Mapping[str, Any],
        counts: Callable[[dict[str, Any]], dict[str, Any]] = dict,
    ) -> "Journal":
        """Reads what an interrupted comparison left.

        Args:
            path: The file.
            plan: What is compared and how.
            counts: What of a plan must be as it was; all, if left out.

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
        begun = lines[0]["plan"]
        then, now = counts(begun), counts(json.loads(json.dumps(dict(plan))))
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
        return cls(path, begun, lines[1:])

    def add(self, line: Mapping[str, Any]) -> None:
        """Keeps what is done."""
        self._append(line)
        self.lines.append(dict(line))

    def _append(self, line: Mapping[str, Any]) -> None:
        with named(self.path), self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
            file.flush()
            os.fsync(file.fileno())
