# SPDX-License-Identifier: Apache-2.0
"""Says whether one arm is faster than another, and refuses where it cannot know.

The runs come in mirrored blocks (evals.blocks), of which only finished ones count. What
drift and order did to them is taken out before the arms are compared; all in
logarithms, because what disturbs a time multiplies it.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from statistics import median

import numpy as np
from scipy import stats as scipy_stats

from evals.blocks import Slot, adjusted, whole

ALPHA = 0.05
"""Largest p of the Mann-Whitney test at which arms count as different."""
MARGIN = 0.01
"""Ratios within 1 ± this are the same for every purpose here."""
CONFIDENCE = 0.95
"""Of the interval of a ratio."""
RESAMPLES = 9999


class Verdict(StrEnum):
    """What the runs say of an arm against the base arm."""

    FASTER = "FASTER"
    SLOWER = "SLOWER"
    SAME = "SAME"
    AMBIGUOUS = "AMBIGUOUS"
    REFUSED = "REFUSED"


@dataclass(frozen=True)
class Comparison:
    """An arm against the base arm.

    Attributes:
        ratio: Median of the arm over that of the base, nuisances taken out.
        low: Lower end of the interval of the ratio.
        high: Upper end of the interval of the ratio.
        p: Two-sided p of the Mann-Whitney test.
        runs: Runs of each arm that count.
        reason: Why there is no verdict, or an ambiguous one.
    """

    base: str
    arm: str
    verdict: Verdict
    ratio: float
    low: float
    high: float
    p: float
    runs: int
    reason: str = ""

    def as_dict(self) -> dict:
        """The comparison as plain data; what is not a number becomes None."""
        data = asdict(self)
        for key, value in data.items():
            if isinstance(value, float) and not math.isfinite(value):
                data[key] = None
        return {**data, "verdict": str(self.verdict)}

    def words(self) -> str:
        """One phrase: the verdict, the ratio and its interval."""
        if self.verdict is Verdict.REFUSED:
            return f"{self.verdict}: {self.reason}"
        shown = f"{self.ratio:.3f} [{self.low:.3f}, {self.high:.3f}]"
        return f"{self.verdict} {shown}"


def least_p(first: int, second: int) -> float:
    """The smallest two-sided p that the Mann-Whitney test can give for two sizes."""
    return 2 / math.comb(first + second, first)


def least_blocks(alpha: float = ALPHA) -> int:
    """Blocks below which no difference, however large, can be called one."""
    return next(n for n in range(1, 20) if least_p(2 * n, 2 * n) <= alpha)


@dataclass(frozen=True)
class Levels:
    """What a verdict is held to.

    Attributes:
        alpha: Largest p of the Mann-Whitney test that counts as a difference.
        confidence: Level of the interval.
    """

    alpha: float = ALPHA
    confidence: float = CONFIDENCE


def over(points: int) -> Levels:
    """Levels of one of several comparisons at which all of them together keep theirs.

    Bonferroni's: of 32 controls one in twenty would else be called different.

    Args:
        points: How many.
    """
    return Levels(ALPHA / points, 1 - (1 - CONFIDENCE) / points)


def interval(
    base: Sequence[float], other: Sequence[float], confidence: float, seed: int
) -> tuple[float, float]:
    """Bootstrap interval of the ratio of two medians, given logarithms."""
    if len({*base}) == 1 and len({*other}) == 1:
        point = math.exp(other[0] - base[0])
        return point, point

    def difference(first: np.ndarray, second: np.ndarray, axis: int) -> np.ndarray:
        return np.median(second, axis=axis) - np.median(first, axis=axis)

    found = scipy_stats.bootstrap(
        (np.asarray(base), np.asarray(other)),
        difference,
        confidence_level=confidence,
        n_resamples=RESAMPLES,
        method="percentile",
        vectorized=True,
        rng=np.random.default_rng(seed),
    ).confidence_interval
    return math.exp(found.low), math.exp(found.high)


def compare(
    base: str,
    arm: str,
    runs: Sequence[tuple[Slot, float]],
    *,
    margin: float = MARGIN,
    levels: Levels = Levels(),
    seed: int = 0,
) -> Comparison:
    """Compares two arms of a series of runs.

    SAME where the whole interval lies within 1 ± margin; FASTER or SLOWER where the
    interval excludes 1 and the Mann-Whitney test agrees; AMBIGUOUS else; REFUSED
    where no outcome of so few runs could reach alpha, and where a run of either
    measured no time: what a difference of two times can come to.

    Args:
        base: The arm compared with.
        arm: The arm judged; a smaller value is faster.
        runs: When each run of any arm took place, and its value.
        margin: Half width of what counts as the same.
        levels: What the verdict is held to.
        seed: Of the bootstrap.
    """
    alpha = levels.alpha
    runs = whole(runs)
    count = sum(slot.arm == arm for slot, _ in runs)
    if not count or least_p(count, count) > alpha:
        need = 2 * least_blocks(alpha)
        reason = f"{count} runs of each arm in whole blocks, {need} are needed"
        return _refused(base, arm, count, reason)
    timeless = {slot.arm for slot, value in runs if value <= 0}
    if timeless & {base, arm}:
        name = arm if arm in timeless else base
        return _refused(base, arm, count, f"a run of {name} measured no time")
    runs = [(slot, value) for slot, value in runs if slot.arm not in timeless]
    logs = adjusted(runs)
    first, second = logs[base], logs[arm]
    ratio = math.exp(median(second) - median(first))
    low, high = interval(first, second, levels.confidence, seed)
    p = float(scipy_stats.mannwhitneyu(first, second).pvalue)
    reason = ""
    if 1 - margin <= low and high <= 1 + margin:
        verdict = Verdict.SAME
    elif high < 1 and p <= alpha:
        verdict = Verdict.FASTER
    elif low > 1 and p <= alpha:
        verdict = Verdict.SLOWER
    else:
        verdict = Verdict.AMBIGUOUS
        reason = f"the interval is not within 1 ± {margin:g} and p is {p:.2g}"
    return Comparison(base, arm, verdict, ratio, low, high, p, count, reason)


def _refused(base: str, arm: str, count: int, reason: str) -> Comparison:
    nan = math.nan
    return Comparison(base, arm, Verdict.REFUSED, nan, nan, nan, nan, count, reason)


def spread(values: Sequence[float]) -> float:
    """Half the range of the middle half of the values, over their median."""
    quarter, three = np.percentile(values, [25, 75])
    return float(three - quarter) / 2 / median(values)


def medians(samples: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """The median of each arm's samples."""
    return {arm: median(values) for arm, values in samples.items()}
