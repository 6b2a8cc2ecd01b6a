# SPDX-License-Identifier: Apache-2.0
"""Says in words what two arms' answers to the same questions show, and what not."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from evals import paired
from evals.paired import Pairs

MARGIN = 0.03
"""Half width within which two scores count as the same: upstream's own tolerance."""


class Verdict(StrEnum):
    """What a comparison shows."""

    SAME = "SAME ANSWERS"
    WITHIN = "SAME WITHIN THE MARGIN"
    WORSE = "DIFFER: WORSE"
    BETTER = "DIFFER: BETTER"
    UNSEEN = "BELOW WHAT N CAN SEE"

    @property
    def differs(self) -> bool:
        """Whether the arms were shown to differ."""
        return self in (Verdict.WORSE, Verdict.BETTER)


@dataclass(frozen=True)
class Answer:
    """One arm's answer to one question.

    Attributes:
        id: The question's.
        read: What was read out of the text, "" if nothing.
        right: Whether that is right.
        text: A digest of the whole text.
        finish: "stop", or "length" where it was cut off.
        tokens: Of the text.
    """

    id: str
    read: str
    right: bool
    text: str
    finish: str
    tokens: int


@dataclass(frozen=True)
class Comparison:
    """An arm against another on the questions that both answered.

    Attributes:
        pairs: How each arm scored them.
        other_answers: Ids of questions with another answer, right or wrong.
        other_texts: Questions with another text.
        p: Of McNemar's exact test, of the sign-flip test where answers hang together.
        low: Lower end of the 95% interval of the difference, second less first.
        high: Upper end.
        smallest: The smallest true difference that so many questions find four times
            of five, at the share of differently scored ones seen; None if none.
    """

    base: str
    arm: str
    verdict: Verdict
    pairs: Pairs
    other_answers: tuple[str, ...]
    other_texts: int
    p: float
    low: float
    high: float
    smallest: float | None
    margin: float = MARGIN

    def as_dict(self) -> dict[str, Any]:
        """The comparison as plain data."""
        return {
            "base": self.base,
            "arm": self.arm,
            "verdict": str(self.verdict),
            "questions": self.pairs.n,
            "right": {
                self.base: self.pairs.both + self.pairs.first,
                self.arm: self.pairs.both + self.pairs.second,
            },
            "pairs": self.pairs.as_dict(),
            "other_answers": list(self.other_answers),
            "other_texts": self.other_texts,
            "difference": self.pairs.difference,
            "p": self.p,
            "low": self.low,
            "high": self.high,
            "smallest": self.smallest,
            "margin": self.margin,
            "words": self.words(),
        }

    def words(self) -> str:
        """What the verdict means, for a reader who has seen no statistics."""
        n = self.pairs.n
        seen = (
            f"{n} questions find a true difference of {points(self.smallest)} four "
            "times of five"
            if self.smallest is not None
            else f"{n} questions are too few to find any difference"
        )
        between = f"between {signed(self.low)} and {signed(self.high)}"
        if self.verdict is Verdict.SAME:
            return (
                f"Both arms answer all {n} questions alike. The true difference lies "
                f"{between} points: {seen}."
            )
        apart = (
            f"{self.pairs.discordant} of {n} questions are scored differently "
            f"({self.pairs.first} right in {self.base} alone, {self.pairs.second} in "
            f"{self.arm} alone; p = {self.p:.2g}), "
            f"{len(self.other_answers)} have another answer. The true difference lies "
            f"{between} points."
        )
        meaning = {
            Verdict.WORSE: f"More than chance: {self.arm} loses answers.",
            Verdict.BETTER: f"More than chance: {self.arm} gains answers.",
            Verdict.WITHIN: f"That is within ±{100 * self.margin:g} points.",
            Verdict.UNSEEN: (
                f"No difference is shown, and none is excluded beyond that: {seen}."
            ),
        }[self.verdict]
        return f"{apart} {meaning}"


def points(share: float | None) -> str:
    """A share of 1 in percentage points."""
    return "none" if share is None else f"{100 * share:.1f} points"


def signed(share: float) -> str:
    """A difference in percentage points, with its sign."""
    return f"{100 * share:+.1f}"


def compare(
    base: str,
    arm: str,
    answers: Mapping[str, Sequence[Answer]],
    margin: float = MARGIN,
    group: Callable[[str], str] = str,
) -> Comparison | None:
    """Compares an arm with the base on the questions that both answered.

    Args:
        base: Name of the arm compared with.
        arm: Name of the arm judged.
        answers: By arm.
        margin: Half width within which two scores are the same.
        group: Names what a question's answer hangs together with, by its id.

    Returns:
        The comparison, or None where they share no question.
    """
    first = {one.id: one for one in answers[base]}
    second = {one.id: one for one in answers[arm]}
    shared = [id_ for id_ in first if id_ in second]
    if not shared:
        return None
    pairs = Pairs.of(
        [first[id_].right for id_ in shared], [second[id_].right for id_ in shared]
    )
    other = tuple(id_ for id_ in shared if first[id_].read != second[id_].read)
    texts = sum(first[id_].text != second[id_].text for id_ in shared)
    grouped: dict[str, list[int]] = {}
    for id_ in shared:
        gained = int(second[id_].right) - int(first[id_].right)
        grouped.setdefault(group(id_), []).append(gained)
    net = [sum(gains) for gains in grouped.values()]
    effect = paired.design_effect(net, pairs, max(map(len, grouped.values())))
    p = paired.sign_flip(net)
    low, high = paired.interval(pairs, effect=effect)
    share = max(pairs.discordant, 1) / pairs.n
    if not other:
        verdict = Verdict.SAME
    elif p <= paired.ALPHA:
        verdict = Verdict.WORSE if pairs.difference < 0 else Verdict.BETTER
    elif -margin <= low and high <= margin:
        verdict = Verdict.WITHIN
    else:
        verdict = Verdict.UNSEEN
    return Comparison(
        base=base,
        arm=arm,
        verdict=verdict,
        pairs=pairs,
        other_answers=other,
        other_texts=texts,
        p=p,
        low=low,
        high=high,
        smallest=paired.smallest(int(pairs.n / effect), share),
        margin=margin,
    )
