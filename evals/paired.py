# SPDX-License-Identifier: Apache-2.0
"""Two arms on the same questions: what differs, and what could not have been seen.

Only questions that the arms score differently (discordant pairs) tell them apart. The
test is McNemar's, exact; the interval of the difference is Tango's score interval
(Statistics in Medicine 17, 1998), which holds where no pair is discordant.
"""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from scipy import optimize
from scipy import stats as scipy_stats

ALPHA = 0.05
POWER = 0.8
CONFIDENCE = 0.95


@dataclass(frozen=True)
class Pairs:
    """How many questions each arm got right.

    Attributes:
        both: Right in both arms.
        first: Right in the first arm alone.
        second: Right in the second arm alone.
        neither: Right in none.
    """

    both: int
    first: int
    second: int
    neither: int

    @classmethod
    def of(cls, first: Sequence[bool], second: Sequence[bool]) -> "Pairs":
        """Counts two arms' scores of the same questions in the same order."""
        pairs = list(zip(first, second, strict=True))
        return cls(*(pairs.count(one) for one in _KINDS))

    @property
    def n(self) -> int:
        """Questions in all."""
        return self.both + self.first + self.second + self.neither

    @property
    def discordant(self) -> int:
        """Questions that the arms score differently."""
        return self.first + self.second

    @property
    def difference(self) -> float:
        """Score of the second arm less that of the first, -1 to 1."""
        return (self.second - self.first) / self.n

    def as_dict(self) -> dict[str, Any]:
        """The counts as plain data."""
        return asdict(self)


_KINDS = ((True, True), (True, False), (False, True), (False, False))


def mcnemar(first: int, second: int) -> float:
    """Exact two-sided p: both kinds of discordant pairs are equally likely."""
    if first + second == 0:
        return 1.0
    return float(scipy_stats.binomtest(first, first + second).pvalue)


def sign_flip(differences: Sequence[int]) -> float:
    """Exact two-sided p where several answers hang together, as those to one question.

    Under no difference each group's net difference is as likely the other way round.
    With one answer a group this is McNemar's test.

    Args:
        differences: Of each group, right answers of the second arm less the first's.
    """
    chance = np.ones(1)
    for size in (abs(one) for one in differences):
        # The sum moves up or down by the size: its distribution widens by both.
        if size:
            wider = np.zeros(len(chance) + 2 * size)
            wider[: len(chance)] += chance / 2
            wider[2 * size :] += chance / 2
            chance = wider
    sums = np.abs(np.arange(len(chance)) - len(chance) // 2)
    return float(min(1.0, chance[sums >= abs(sum(differences))].sum()))


def design_effect(differences: Sequence[int], pairs: Pairs, largest: int) -> float:
    """How many answers that hang together count as one, at least 1.

    Args:
        differences: Of each group, as for `sign_flip`.
        pairs: The answers in all.
        largest: Answers in a group, which holds where no pair is discordant.
    """
    if not pairs.discordant:
        return float(largest)
    return max(1.0, sum(one * one for one in differences) / pairs.discordant)


def _score(pairs: Pairs, delta: float, effect: float = 1.0) -> float:
    """Tango's statistic for a true difference of delta, standard normal there."""
    n, up, down = pairs.n / effect, pairs.second / effect, pairs.first / effect
    # The share of the second arm's losses that is likeliest under that difference.
    a = 2 * n
    b = -up - down + (2 * n - up + down) * delta
    c = -down * delta * (1 - delta)
    lost = (math.sqrt(max(b * b - 4 * a * c, 0.0)) - b) / (2 * a)
    variance = n * (2 * lost + delta * (1 - delta))
    away = up - down - n * delta
    if variance <= 0:
        return math.copysign(math.inf, away) if away else 0.0
    return away / math.sqrt(variance)


def interval(
    pairs: Pairs, confidence: float = CONFIDENCE, effect: float = 1.0
) -> tuple[float, float]:
    """Interval of the true difference, second less first.

    Args:
        pairs: How the arms scored the questions.
        confidence: Of the interval.
        effect: How many answers count as one; see `design_effect`.

    Raises:
        ValueError: There is no pair.
    """
    if pairs.n == 0:
        raise ValueError("no pairs")
    z = float(scipy_stats.norm.ppf((1 + confidence) / 2))
    middle = pairs.difference

    def end(sign: int) -> float:
        edge = sign * (1 - 1e-12)
        if sign * middle >= 1 - 1e-9:
            return float(sign)

        def beyond(delta: float) -> float:
            return _score(pairs, delta, effect) + sign * z

        if beyond(edge) * sign > 0:
            return float(sign)
        # At the estimate itself the statistic is 0, or not defined.
        start = middle + sign * 1e-12
        return float(optimize.brentq(beyond, start, edge, xtol=1e-12))

    return end(-1), end(1)


@lru_cache(maxsize=65536)
def _largest(count: int, alpha: float) -> int:
    """The most pairs of the rarer kind, of so many, that still are significant."""
    found = int(scipy_stats.binom.ppf(alpha / 2, count, 0.5))
    while found >= 0 and 2 * scipy_stats.binom.cdf(found, count, 0.5) > alpha:
        found -= 1
    return found


def power(n: int, discordant: float, difference: float, alpha: float = ALPHA) -> float:
    """How likely the exact test finds a true difference.

    Args:
        n: Questions.
        discordant: Share of them that the arms score differently.
        difference: Of the two scores, at most `discordant`.
        alpha: Largest p that counts.
    """
    worse = (discordant + abs(difference)) / (2 * discordant)
    spread = 8 * math.sqrt(n * discordant) + 8
    low = max(0, int(n * discordant - spread))
    high = min(n, int(n * discordant + spread))
    counts = np.arange(low, high + 1)
    tails = np.array([_largest(int(count), alpha) for count in counts])
    found = scipy_stats.binom.cdf(tails, counts, worse)
    found += scipy_stats.binom.cdf(tails, counts, 1 - worse)
    chance = scipy_stats.binom.pmf(counts, n, discordant)
    return float(np.sum(chance * np.where(tails >= 0, found, 0.0)))


def smallest(
    n: int, discordant: float, wanted: float = POWER, alpha: float = ALPHA
) -> float | None:
    """The smallest true difference that n questions find with the wanted power.

    Args:
        n: Questions.
        discordant: Share that the arms score differently; where it is smaller than
            the difference, the difference itself.
        wanted: The power.
        alpha: Largest p that counts.

    Returns:
        A share of 1, or None where no difference at all could be found.
    """

    def lacking(difference: float) -> float:
        return power(n, max(discordant, difference), difference, alpha) - wanted

    if n < 1 or lacking(1.0) < 0:
        return None
    return float(optimize.brentq(lacking, 1e-9, 1.0, xtol=1e-5))


def needed(difference: float, discordant: float, limit: int = 200_000) -> int | None:
    """About how many questions find a true difference with 80% power.

    Returns:
        A number of questions to three figures, or None above the limit.
    """

    def enough(n: int) -> bool:
        return power(n, max(discordant, difference), difference) >= POWER

    high = 8
    while not enough(high):
        high *= 2
        if high > limit:
            return None
    low = high // 2
    while high - low > max(1, high // 500):
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def gate_fails(n: int, score: float, margin: float) -> float:
    """How often an honest run falls below a gate that lies a margin under its score.

    Args:
        n: Questions.
        score: What the model truly gets, a share of 1.
        margin: How far below that the gate is.
    """
    # Floating point must not turn 42 of 50 into less than 0.84.
    least = math.ceil((score - margin) * n - 1e-9)
    return float(scipy_stats.binom.cdf(least - 1, n, score))
