# SPDX-License-Identifier: Apache-2.0
"""Do two arms say the same, word for word, and does it mean anything?"""

import itertools
from collections.abc import Sequence

from evals import cli
from evals.eval_outcome import Outcome


def differing(outcome: Outcome) -> list[str]:
    """What is not the same in both arms, in words; empty where they agree."""
    found = list(outcome.problems)
    for task, by_arm in outcome.compared.items():
        for one in by_arm.values():
            if one.other_texts:
                found.append(
                    f"{task}: {one.other_texts} of {one.pairs.n} texts are others, "
                    f"{len(one.other_answers)} with another answer"
                )
    return found


def apart(first: str, second: str, around: int = 40) -> str:
    """Where two texts part, with what each says there."""
    pairs = zip(first, second, strict=False)
    same = itertools.takewhile(lambda pair: pair[0] == pair[1], pairs)
    at = sum(1 for _ in same)
    said = [text[max(0, at - around) : at + around] for text in (first, second)]
    return f"from character {at}: {said[0]!r} / {said[1]!r}"


def senseless(outcome: Outcome) -> list[str]:
    """Arms that found no needle: two that are broken alike agree as well."""
    return [
        f"niah: {arm} finds no needle, so what it answers means nothing"
        for arm, answers in outcome.answers.get("niah", {}).items()
        if not any(one.right for one in answers)
    ]


def show(found: Sequence[tuple[str, Outcome]]) -> None:
    """Prints, a line a model and task, on how much the arms agree."""
    rows = []
    for model, outcome in found:
        for task, by_arm in outcome.compared.items():
            for one in by_arm.values():
                n = one.pairs.n
                alike = f"{n - len(one.other_answers)} of {n}"
                texts = f"{n - one.other_texts} of {n}"
                right = f"{one.pairs.both + one.pairs.first} / "
                right += f"{one.pairs.both + one.pairs.second}"
                rows.append((model, task, alike, texts, right))
    columns = ("model", "task", "same answer", "same text", "right, stock / patched")
    cli.show("Do the arms agree?", columns, rows)
