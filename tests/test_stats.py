# SPDX-License-Identifier: Apache-2.0
"""Verdicts on synthetic arms whose truth is known."""

import math
import random
from collections.abc import Callable

import pytest

pytest.importorskip("scipy", reason="the statistics need requirements/evals.txt")

from evals import stats
from evals.blocks import Slot, plan
from evals.stats import Verdict

Disturb = Callable[[int, Slot], float]


def still(number: int, slot: Slot) -> float:
    return 1.0


def drift(number: int, slot: Slot) -> float:
    """Every run is 1 % slower than the one before: heat."""
    return 1.0 + 0.01 * number


def second_loses(number: int, slot: Slot) -> float:
    """Whichever arm runs second in its pair is 10 % slower."""
    return 1.1 if slot.place else 1.0


def both(number: int, slot: Slot) -> float:
    return drift(number, slot) * second_loses(number, slot)


def runs(
    truth: dict[str, float],
    disturb: Disturb = still,
    *,
    blocks: int = 6,
    noise: float = 0.003,
    seed: int = 0,
    order: str = "abba",
) -> list[tuple[Slot, float]]:
    """A series of runs of arms whose true times are given."""
    random_ = random.Random(seed)
    return [
        (slot, truth[slot.arm] * disturb(at, slot) * random_.gauss(1.0, noise))
        for at, slot in enumerate(plan([*truth], blocks, order, seed))
    ]


@pytest.mark.parametrize("disturb", [still, drift, second_loses, both])
@pytest.mark.parametrize(
    ("slowdown", "verdict"),
    [(1.0, Verdict.SAME), (1.02, Verdict.SLOWER), (0.98, Verdict.FASTER)],
)
def test_neither_drift_nor_order_changes_a_verdict(
    disturb: Disturb, slowdown: float, verdict: Verdict
) -> None:
    for seed in range(8):
        for order in ("abba", "random"):
            series = runs({"a": 9.7, "b": 9.7 * slowdown}, disturb, seed=seed)
            found = stats.compare("a", "b", series, seed=seed)
            assert found.verdict is verdict, (seed, order, found)
            assert found.low <= found.ratio <= found.high
            assert found.ratio == pytest.approx(slowdown, abs=0.006)


def test_an_order_effect_would_fool_a_fixed_order() -> None:
    slots = [
        (Slot(n, half, at, arm), 1.1 if at else 1.0)
        for n in range(6)
        for half in (0, 1)
        for at, arm in enumerate("ab")
    ]
    naive = sum(v for s, v in slots if s.arm == "b") / sum(
        v for s, v in slots if s.arm == "a"
    )
    assert naive > 1.09


def test_three_arms_are_each_judged_against_the_base() -> None:
    series = runs({"a": 50.0, "b": 49.0, "c": 20.0}, both, blocks=6)
    assert stats.compare("a", "b", series).verdict is Verdict.FASTER
    found = stats.compare("a", "c", series)
    assert found.verdict is Verdict.FASTER
    assert found.ratio == pytest.approx(0.4, rel=0.02)


def test_noise_wider_than_the_margin_is_ambiguous() -> None:
    series = runs({"a": 1.0, "b": 1.0}, noise=0.05, seed=3)
    found = stats.compare("a", "b", series)
    assert found.verdict is Verdict.AMBIGUOUS
    assert "not within" in found.reason


def test_one_wild_run_moves_no_verdict() -> None:
    series = runs({"a": 18.9, "b": 18.9}, blocks=6)
    series[5] = (series[5][0], 4471.0)
    found = stats.compare("a", "b", series)
    assert found.ratio == pytest.approx(1.0, abs=0.01)
    assert found.verdict in (Verdict.SAME, Verdict.AMBIGUOUS)


@pytest.mark.parametrize("blocks", [0, 1])
def test_too_few_runs_are_refused(blocks: int) -> None:
    series = runs({"a": 1.0, "b": 9.0}, blocks=blocks)
    found = stats.compare("a", "b", series)
    assert found.verdict is Verdict.REFUSED
    assert "4 are needed" in found.reason
    assert math.isnan(found.ratio)
    assert found.as_dict()["ratio"] is None


def test_an_unfinished_block_does_not_count() -> None:
    series = runs({"a": 1.0, "b": 1.5}, blocks=3)
    whole = stats.compare("a", "b", series[:8])
    assert stats.compare("a", "b", series[:11]) == whole
    assert whole.runs == 4


def test_fewest_blocks_are_those_that_can_reach_alpha() -> None:
    assert stats.least_blocks(0.05) == 2
    assert stats.least_p(4, 4) == pytest.approx(2 / 70)
    series = runs({"a": 1.0, "b": 1.5}, blocks=stats.least_blocks())
    assert stats.compare("a", "b", series).verdict is Verdict.SLOWER


def test_many_comparisons_together_raise_no_false_alarm() -> None:
    """Every run has its own lasting offset, as a captured graph does."""
    series = [runs({"a": 1.0, "b": 1.0}, noise=0.02, seed=n) for n in range(64)]

    def called(levels: stats.Levels) -> int:
        found = [stats.compare("a", "b", one, levels=levels) for one in series]
        return sum(one.verdict in (Verdict.FASTER, Verdict.SLOWER) for one in found)

    assert called(stats.Levels()) > 0
    assert called(stats.over(64)) == 0
    true = runs({"a": 1.0, "b": 0.9}, noise=0.02, seed=1)
    assert stats.compare("a", "b", true, levels=stats.over(64)).verdict == "FASTER"


def test_fewer_runs_than_many_comparisons_need_are_refused() -> None:
    series = runs({"a": 1.0, "b": 0.5}, blocks=2)
    assert stats.compare("a", "b", series).verdict is Verdict.FASTER
    found = stats.compare("a", "b", series, levels=stats.over(32))
    assert found.verdict is Verdict.REFUSED
    assert "4 runs of each arm in whole blocks, 8 are needed" in found.reason


@pytest.mark.parametrize("value", [0.0, -0.02])
def test_a_run_without_a_time_refuses_its_own_arm_alone(value: float) -> None:
    series = runs({"a": 1.0, "b": 0.9, "c": 1.0})
    at = next(n for n, (slot, _) in enumerate(series) if slot.arm == "c")
    series[at] = (series[at][0], value)
    for base, arm in (("a", "c"), ("c", "a")):
        found = stats.compare(base, arm, series)
        assert found.verdict is Verdict.REFUSED
        assert found.reason == "a run of c measured no time"
    assert stats.compare("a", "b", series).verdict is Verdict.FASTER


def test_the_interval_of_equal_values_is_a_point() -> None:
    series = [(slot, 2.0) for slot in plan(["a", "b"], 3)]
    found = stats.compare("a", "b", series)
    assert (found.low, found.ratio, found.high) == (1.0, 1.0, 1.0)
    assert found.verdict is Verdict.SAME
