# SPDX-License-Identifier: Apache-2.0
"""GSM8K's questions as the tree's own evaluator asks them, five worked ones ahead.

Prompt, stops, limit and seed are that evaluator's, so that the two ways to score differ
in what they make of the answers alone.
"""

from pathlib import Path

from evals.extract import answer, shown
from evals.gsm8k_data import DataError, Row, rows
from evals.questions import Item, Question, Task

NAME = "gsm8k"
ALL = 1319
SHOTS = 5
MAX_TOKENS = 256
SEED = 42
STOPS = ("Question", "Assistant:", "<|separator|>")


def prompt(shots: list[Row], question: str) -> str:
    """The worked questions, then the one to be answered."""
    blocks = [f"Question: {row.question}\nAnswer: {row.answer}\n\n" for row in shots]
    return "".join(blocks) + f"Question: {question}\nAnswer:"


def read(text: str) -> str:
    """The answer in a text, in one spelling."""
    return shown(answer(text))


def task(data: Path, count: int, max_tokens: int = MAX_TOKENS) -> Task:
    """The first questions of the test set.

    Args:
        data: The folder with the checked files.
        count: How many.
        max_tokens: Of an answer.
    """
    shots = rows(data / "train.jsonl")[:SHOTS]
    settings = {
        "temperature": 0.0,
        "max_tokens": max_tokens,
        "until": list(STOPS),
        "seed": SEED,
    }
    items = []
    for number, row in enumerate(rows(data / "test.jsonl")[:count]):
        target = read(row.answer)
        if not target:
            raise DataError(f"{data}: question {number} has no answer.")
        question = Question(
            f"{NAME}-{number:04d}", prompt(shots, row.question), False, settings
        )
        items.append(Item(question, target))
    return Task(NAME, items, read)
