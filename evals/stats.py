# SPDX-License-Identifier: Apache-2.0
"""Says whether one arm is faster than another, and refuses where it cannot know.

Runs come in blocks: every arm once, then every arm once more in reverse, so that a
drift in time and an advantage of running first hit all arms alike. Both are estimated
from the runs and taken out before the arms are compared; all in logarithms, because
what disturbs a time multiplies it.
"""

import math
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from statistics import median

import numpy as np
from scipy import optimize
from scipy import stats as scipy_stats

ALPHA = 0.05
"""Largest p of the Mann-Whitney test at which arms count as different."""
MARGIN = 0.01
"""Ratios within 1 ± this are the same for every purpose here."""
RESAMPLES = 9999


class Verdict(StrEnum):
    """What the runs say of an arm against the base arm."""

    FASTER = "FASTER"
    SLOWER = "SLOWER"
    SAME = "SAME"
    AMBIGUOUS = "AMBIGUOUS"
    REFUSED = "REFUSED"


@dataclass(frozen=True)
class Slot:
    """When a run takes place.

    Attributes:
        block: Number of its block.
        half: 0 on the way out, 1 on the way back.
        place: Its place within the half.
        arm: The arm that runs.
    """

    block: int
    half: int
    place: int
    arm: str


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


def plan(
    arms: Sequence[str], blocks: int, order: str = "abba", seed: int = 0
) -> list[Slot]:
    """The order of the runs.

    Args:
        arms: Names of the arms.
        blocks: Number of blocks; each runs every arm twice.
        order: "abba" lets every arm begin in turn; "random" shuffles each block.
        seed: Of the shuffle.
    """
    shuffler = random.Random(seed)
    slots = []
    for block in range(blocks):
        turn = block % len(arms)
        out = [*arms[turn:], *arms[:turn]]
        if order == "random":
            shuffler.shuffle(out)
        for half, names in enumerate((out, out[::-1])):
            slots += [Slot(block, half, at, name) for at, name in enumerate(names)]
    return slots


def least_p(first: int, second: int) -> float:
    """The smallest two-sided p that the Mann-Whitney test can give for two sizes."""
    return 2 / math.comb(first + second, first)


def least_blocks(alpha: float = ALPHA) -> int:
    """Blocks below which no difference, however large, can be called one."""
    return next(n for n in range(1, 20) if least_p(2 * n, 2 * n) <= alpha)


def whole(runs: Sequence[tuple[Slot, float]]) -> list[tuple[Slot, float]]:
    """The runs of finished blocks: half a block balances nothing."""
    size = 2 * len({slot.arm for slot, _ in runs})
    count = Counter(slot.block for slot, _ in runs)
    return [(slot, value) for slot, value in runs if count[slot.block] == size]


def adjusted(runs: Sequence[tuple[Slot, float]]) -> dict[str, list[float]]:
    """Logarithms of the values by arm, without the level of the block, half and place.

    A robust fit of block + half + place + arm, so that one wild run moves nothing but
    itself. What is left of each run is widened by the freedom that the fit took, as a
    fit always hugs its own data.

    Args:
        runs: When each run of the finished blocks took place, and its value (> 0).
    """
    arms = sorted({slot.arm for slot, _ in runs})
    names = ["block", "half", "place", "arm"]
    columns, kinds = [], []
    for kind in names:
        levels = sorted({getattr(slot, kind) for slot, _ in runs})
        # The first level of each is what the others are measured from.
        for level in levels[0 if kind == "block" else 1 :]:
            columns.append([getattr(slot, kind) == level for slot, _ in runs])
            kinds.append(kind)
    design = np.array(columns, dtype=float).T
    logs = np.log([value for _, value in runs])
    effects = robust_fit(design, logs)
    left = logs - design @ effects
    freedom = len(logs) - np.linalg.matrix_rank(design)
    left = left * math.sqrt(len(logs) / freedom) if freedom > 0 else left
    keep = np.array([kind == "arm" for kind in kinds])
    values = design[:, keep] @ effects[keep] + left
    result: dict[str, list[float]] = {arm: [] for arm in arms}
    for (slot, _), value in zip(runs, values, strict=True):
        result[slot.arm].append(float(value))
    return result


def robust_fit(design: np.ndarray, logs: np.ndarray) -> np.ndarray:
    """Effects of a linear model: least absolute deviations, then a soft least squares.

    Args:
        design: A row a run, a column an effect.
        logs: What the runs measured.
    """
    count, width = design.shape
    eye = np.eye(count)
    start = optimize.linprog(
        np.r_[np.zeros(width), np.ones(2 * count)],
        A_eq=np.hstack([design, eye, -eye]),
        b_eq=logs,
        bounds=[(None, None)] * width + [(0, None)] * (2 * count),
    ).x[:width]
    # As many deviations as there are effects are zero by construction.
    deviations = np.sort(np.abs(logs - design @ start))[min(width, count - 1) :]
    scale = 1.5 * float(np.median(deviations))
    if scale < 1e-12:
        return start
    return optimize.least_squares(
        lambda effects: design @ effects - logs, start, loss="soft_l1", f_scale=scale
    ).x


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
    alpha: float = ALPHA,
    confidence: float = 0.95,
    seed: int = 0,
) -> Comparison:
    """Compares two arms of a series of runs.

    SAME where the whole interval lies within 1 ± margin; FASTER or SLOWER where the
    interval excludes 1 and the Mann-Whitney test agrees; AMBIGUOUS else; REFUSED
    where no outcome of so few runs could reach alpha.

    Args:
        base: The arm compared with.
        arm: The arm judged; a smaller value is faster.
        runs: When each run of any arm took place, and its value.
        margin: Half width of what counts as the same.
        alpha: Largest p that counts as a difference.
        confidence: Level of the interval.
        seed: Of the bootstrap.
    """
    runs = whole(runs)
    count = sum(slot.arm == arm for slot, _ in runs)
    if not count or least_p(count, count) > alpha:
        need = 2 * least_blocks(alpha)
        reason = f"{count} runs of each arm in whole blocks, {need} are needed"
        nan = math.nan
        return Comparison(base, arm, Verdict.REFUSED, nan, nan, nan, nan, count, reason)
    logs = adjusted(runs)
    first, second = logs[base], logs[arm]
    ratio = math.exp(median(second) - median(first))
    low, high = interval(first, second, confidence, seed)
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
        reason = f"the interval is wider than 1 ± {margin:g} and p is {p:.2g}"
    return Comparison(base, arm, verdict, ratio, low, high, p, count, reason)


def spread(values: Sequence[float]) -> float:
    """Half the range of the middle half of the values, over their median."""
    quarter, three = np.percentile(values, [25, 75])
    return float(three - quarter) / 2 / median(values)


def medians(samples: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """The median of each arm's samples."""
    return {arm: median(values) for arm, values in samples.items()}
