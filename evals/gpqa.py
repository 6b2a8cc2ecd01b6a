# SPDX-License-Identifier: Apache-2.0
"""GPQA Diamond from the user's own file, asked twice with the choices shuffled.

Its authors ask that no question appear in plain text where a crawler may find it. So
nothing of the file is kept: journals and records have digests and letters alone.
"""

import csv
import io
import random
import re
from pathlib import Path

from evals.questions import Item, Question, Task, sha
from series.errors import SeriesError

NAME = "gpqa"
COUNT = 198
REPEATS = 2
MAX_TOKENS = 24 * 1024
LETTERS = "ABCD"
COLUMNS = (
    "Question",
    "Correct Answer",
    "Incorrect Answer 1",
    "Incorrect Answer 2",
    "Incorrect Answer 3",
)
SETTINGS = {"temperature": 0.6, "top_p": 0.95, "top_k": 20}
_END_OF_THOUGHT = "</think>"
_ANSWER = re.compile(
    r"(?i:answer)\b[\s:*_`]*(?:is\b[\s:*_`]*)?(?:\\?\$)?(?:\\(?:boxed|text)\s*\{)*"
    r"[\s*_`({\[]*([A-D])(?![A-Za-z])"
)
_HEAD = (
    "Here is a question with four choices, of which exactly one is right. Reason it "
    "through first. Then close with a line of its own that reads 'Answer: X', where X "
    "is the letter of your choice: A, B, C or D."
)


class GpqaError(SeriesError):
    """The file is not GPQA's."""


def load(path: Path) -> list[list[str]]:
    """The question and its choices, the right one first, of every row.

    Raises:
        GpqaError: It cannot be read, or has no such columns.
    """
    hint = "Get gpqa_diamond.csv from its authors, and name it with --gpqa."
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is no text"
        raise GpqaError(f"{path} cannot be read: {reason}.", hint) from error
    table = csv.DictReader(io.StringIO(text, newline=""))
    missing = [name for name in COLUMNS if name not in (table.fieldnames or ())]
    if missing:
        raise GpqaError(f"{path} has no column {', '.join(missing)}.", hint)
    found = []
    for number, row in enumerate(table, start=1):
        cells = [(row[name] or "").strip() for name in COLUMNS]
        if not all(cells):
            raise GpqaError(f"{path}: row {number} lacks a question or a choice.", hint)
        found.append(cells)
    if not found:
        raise GpqaError(f"{path} has no row.", hint)
    return found


def read(text: str) -> str:
    """The letter that an answer ends in; what was thought before does not count."""
    said = text.rpartition(_END_OF_THOUGHT)[2]
    found = _ANSWER.findall(said)
    return found[-1] if found else ""


def group(id_: str) -> str:
    """What the answers to one question have in common in their ids."""
    return id_.rpartition("-")[0]


def prompt(question: str, choices: list[str]) -> str:
    """One question with its choices in the order given."""
    listed = [f"{letter}) {c}" for letter, c in zip(LETTERS, choices, strict=True)]
    return "\n\n".join([_HEAD, question, "\n".join(listed)])


def task(
    path: Path,
    seed: int,
    *,
    count: int | None = None,
    repeats: int = REPEATS,
    max_tokens: int = MAX_TOKENS,
    chat: bool = True,
) -> Task:
    """Every question as often as asked, each time with its choices shuffled anew.

    Args:
        path: The user's file.
        seed: Of the shuffles and, with the question, of the sampling.
        count: The first so many alone.
        repeats: How often each is asked.
        max_tokens: Of an answer, what is thought included.
        chat: Whether the model's chat template is used, its thinking switched on.
    """
    items = []
    for repeat in range(repeats):
        for row in load(path)[:count]:
            digest = sha(row[0])
            chance = random.Random(f"{seed} {repeat} {digest}")
            order = chance.sample(range(4), 4)
            choices = [row[1 + place] for place in order]
            settings: dict[str, object] = {
                **SETTINGS,
                "max_tokens": max_tokens,
                "seed": chance.randrange(2**31),
            }
            if chat:
                settings["chat_template_kwargs"] = {"enable_thinking": True}
            asked = prompt(row[0], choices)
            question = Question(f"{NAME}-{digest}-{repeat}", asked, chat, settings)
            items.append(Item(question, LETTERS[order.index(0)]))
    return Task(NAME, items, read, keeps_text=False)
