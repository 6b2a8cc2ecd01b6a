# SPDX-License-Identifier: Apache-2.0
"""Which cases run under the interpreter: the list in selection.toml, never a guess."""

import fnmatch
import tomllib
from dataclasses import dataclass
from pathlib import Path

LIST = Path(__file__).parent.parent / "selection.toml"


@dataclass(frozen=True)
class Rule:
    """Of one test file, the cases an interpreted run keeps, and why only those."""

    file: str
    keep: tuple[str, ...]
    reason: str

    def covers(self, path: str) -> bool:
        """Whether the rule speaks of that test file."""
        return f"/{path}".endswith(f"/{self.file}")

    def keeps(self, case: str) -> bool:
        """Whether the case, test[param] in its file, matches a pattern to keep."""
        # Brackets are part of a case's name, not a character class.
        return any(
            fnmatch.fnmatchcase(case, pattern.replace("[", "[[]"))
            for pattern in self.keep
        )


def load(path: Path = LIST) -> list[Rule]:
    """Reads the list.

    Raises:
        ValueError: An entry has no file, nothing to keep or no reason.
    """
    entries = tomllib.loads(path.read_text(encoding="utf-8")).get("interpreted", [])
    rules = []
    for entry in entries:
        if not (entry.get("file") and entry.get("keep") and entry.get("reason")):
            raise ValueError(f"{path}: needs file, keep and reason: {entry}")
        rules.append(Rule(entry["file"], tuple(entry["keep"]), entry["reason"]))
    return rules


def left_out(path: str, case: str, rules: list[Rule]) -> str:
    """The reason why an interpreted run leaves a case out, empty where it runs."""
    covering = [rule for rule in rules if rule.covers(path)]
    if not covering or any(rule.keeps(case) for rule in covering):
        return ""
    return covering[0].reason
