# SPDX-License-Identifier: Apache-2.0
"""The order of runs in mirrored blocks, and what it disturbed taken out again.

A block runs every arm once, then every arm once more in reverse, so that a drift in
time and an advantage of running first hit all arms alike. Both are estimated from the
runs themselves. As many blocks as there are arms are a Williams design: each arm has
run in every place, and right after each of the others, equally often.
"""

import math
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import optimize


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


def plan(
    arms: Sequence[str], blocks: int, order: str = "abba", seed: int = 0
) -> list[Slot]:
    """The order of the runs.

    Args:
        arms: Names of the arms.
        blocks: Number of blocks; each runs every arm twice.
        order: "abba" balances places and neighbours; "random" shuffles each block.
        seed: Of the shuffle.
    """
    shuffler = random.Random(seed)
    # 0, 1, n - 1, 2, n - 2 and so on: no two neighbours are equally far apart.
    steps = [(at + 1) // 2 * (1 if at % 2 else -1) for at in range(len(arms))]
    slots = []
    for block in range(blocks):
        out = [arms[(block + step) % len(arms)] for step in steps]
        if order == "random":
            shuffler.shuffle(out)
        for half, names in enumerate((out, out[::-1])):
            slots += [Slot(block, half, at, name) for at, name in enumerate(names)]
    return slots


def whole(runs: Sequence[tuple[Slot, float]]) -> list[tuple[Slot, float]]:
    """The runs of finished blocks: half a block balances nothing."""
    size = 2 * len({slot.arm for slot, _ in runs})
    count = Counter(slot.block for slot, _ in runs)
    return [(slot, value) for slot, value in runs if count[slot.block] == size]


def by_arm(runs: Sequence[tuple[Slot, float]]) -> dict[str, list[float]]:
    """The values of each arm, in the order of the runs."""
    samples: dict[str, list[float]] = {}
    for slot, value in runs:
        samples.setdefault(slot.arm, []).append(value)
    return samples


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
