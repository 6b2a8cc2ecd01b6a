# SPDX-License-Identifier: Apache-2.0
"""Paired statistics against enumeration, and in what must hold for any counts."""

import math
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("scipy")

from scipy import stats as scipy_stats

from evals import paired
from evals.paired import Pairs

counts = st.integers(0, 400)
pairs = st.builds(Pairs, counts, counts, counts, counts).filter(lambda p: p.n > 0)


def test_pairs_are_counted_by_question() -> None:
    first = [True, True, True, False, False]
    second = [True, False, False, True, False]
    found = Pairs.of(first, second)
    assert found == Pairs(both=1, first=2, second=1, neither=1)
    assert (found.n, found.discordant, found.difference) == (5, 3, -0.2)
    with pytest.raises(ValueError):
        Pairs.of([True], [])


@pytest.mark.parametrize(
    ("first", "second", "p"), [(0, 0, 1), (5, 5, 1), (0, 6, 2 / 64), (1, 7, 18 / 256)]
)
def test_the_exact_test_is_the_binomials(first: int, second: int, p: float) -> None:
    assert paired.mcnemar(first, second) == pytest.approx(p)


@given(counts, counts)
def test_the_test_does_not_care_which_arm_is_first(one: int, other: int) -> None:
    found = paired.mcnemar(one, other)
    assert found == pytest.approx(paired.mcnemar(other, one))
    assert 0 <= found <= 1
    total = one + other
    exact = 2 * scipy_stats.binom.cdf(min(one, other), total, 0.5)
    assert found == pytest.approx(min(1, exact))


@given(st.integers(0, 60), st.integers(0, 60))
def test_groups_of_one_are_mcnemars_test(one: int, other: int) -> None:
    found = paired.sign_flip([1] * one + [-1] * other + [0] * 5)
    assert found == pytest.approx(paired.mcnemar(one, other))


@given(st.lists(st.integers(-3, 3), max_size=9))
def test_the_sign_flip_test_is_the_enumeration(differences: list[int]) -> None:
    seen = abs(sum(differences))
    sums = [
        abs(sum(sign * one for sign, one in zip(signs, differences, strict=True)))
        for signs in product((1, -1), repeat=len(differences))
    ]
    exact = sum(one >= seen for one in sums) / len(sums)
    assert paired.sign_flip(differences) == pytest.approx(exact)


def test_answers_that_hang_together_count_less() -> None:
    both = Pairs(80, 0, 20, 100)
    # Twenty gains of ten questions asked twice, and of twenty.
    assert paired.design_effect([2] * 10, both, 2) == 2
    assert paired.design_effect([1] * 20, both, 2) == 1
    assert paired.design_effect([0] * 20, Pairs(80, 10, 10, 100), 2) == 1
    assert paired.design_effect([0] * 20, Pairs(100, 0, 0, 100), 2) == 2
    assert paired.sign_flip([2] * 10) == pytest.approx(paired.mcnemar(0, 10))
    wide = paired.interval(both, effect=2.0)
    half = paired.interval(Pairs(40, 0, 10, 50))
    assert wide == pytest.approx(half)


@given(pairs)
def test_the_interval_holds_the_estimate_and_turns_with_the_arms(found: Pairs) -> None:
    low, high = paired.interval(found)
    assert -1 <= low <= found.difference + 1e-9
    assert found.difference - 1e-9 <= high <= 1
    turned = Pairs(found.both, found.second, found.first, found.neither)
    other_low, other_high = paired.interval(turned)
    assert (low, high) == pytest.approx((-other_high, -other_low), abs=1e-9)
    wide_low, wide_high = paired.interval(found, 0.99)
    assert wide_low <= low + 1e-9
    assert high <= wide_high + 1e-9


@given(pairs)
def test_the_interval_ends_where_the_score_test_turns(found: Pairs) -> None:
    low, high = paired.interval(found)
    for end, z in ((low, 1.959964), (high, -1.959964)):
        if abs(end) < 1:
            assert paired._score(found, end) == pytest.approx(z, abs=1e-3)


@pytest.mark.parametrize(
    ("pairs_", "confidence", "low", "high"),
    [
        # Of R's PropCIs (scoreci.mp), and of a study that textbooks compute it for.
        (Pairs(565, 25, 28, 0), 0.90, -0.0148, 0.0247),
        (Pairs(1, 7, 1, 12), 0.95, -0.517, -0.026),
    ],
)
def test_the_interval_is_the_published_one(
    pairs_: Pairs, confidence: float, low: float, high: float
) -> None:
    found = paired.interval(pairs_, confidence)
    assert found == pytest.approx((low, high), abs=6e-4)


def test_the_exact_test_is_the_published_one() -> None:
    # Armitage and Berry's two media: 12 and 2 discordant of 50.
    assert paired.mcnemar(12, 2) == pytest.approx(0.0129, abs=5e-5)


def test_no_difference_seen_is_not_no_difference() -> None:
    z2 = scipy_stats.norm.ppf(0.975) ** 2
    for n in (16, 200, 1319):
        low, high = paired.interval(Pairs(n - 3, 0, 0, 3))
        assert high == pytest.approx(z2 / (n + z2))
        assert low == pytest.approx(-high)


@pytest.mark.parametrize(("up", "down"), [(0.02, 0.02), (0.1, 0.05), (0.3, 0.05)])
def test_the_interval_covers_the_truth_as_often_as_it_says(
    up: float, down: float
) -> None:
    n, covered = 60, 0.0
    for gained, lost in product(range(n + 1), repeat=2):
        if gained + lost > n:
            continue
        rest = n - gained - lost
        chance = scipy_stats.multinomial.pmf(
            [gained, lost, rest], n, [up, down, 1 - up - down]
        )
        if chance < 1e-7:
            continue
        low, high = paired.interval(Pairs(rest, lost, gained, 0))
        covered += chance * (low - 1e-12 <= up - down <= high + 1e-12)
    assert 0.925 <= covered <= 0.995


def test_power_agrees_with_enumeration() -> None:
    n, discordant, difference = 40, 0.3, 0.2
    up, down = (discordant + difference) / 2, (discordant - difference) / 2
    found = 0.0
    for gained in range(n + 1):
        for lost in range(n + 1 - gained):
            if paired.mcnemar(lost, gained) <= paired.ALPHA:
                found += scipy_stats.multinomial.pmf(
                    [gained, lost, n - gained - lost], n, [up, down, 1 - discordant]
                )
    assert paired.power(n, discordant, difference) == pytest.approx(found, abs=1e-6)


def test_no_outcome_of_five_questions_is_a_difference() -> None:
    assert paired.smallest(5, 0.1) is None
    assert paired.smallest(0, 0.1) is None
    # Six that all fall to one side are: 2/64 is below 0.05.
    assert paired.smallest(6, 0.1) == pytest.approx(0.8 ** (1 / 6), abs=1e-4)


@settings(max_examples=40, deadline=None)
@given(st.integers(20, 2000), st.floats(0.005, 0.5))
def test_what_n_sees_is_found_with_the_power_it_says(n: int, share: float) -> None:
    found = paired.smallest(n, share)
    assert found is not None
    assert paired.power(n, max(share, found), found) == pytest.approx(0.8, abs=0.01)
    more = paired.smallest(4 * n, share)
    assert more is not None
    assert more < found


def test_how_many_questions_a_claim_needs() -> None:
    for claim, share in ((0.02, 0.05), (0.01, 0.05), (0.03, 0.1)):
        n = paired.needed(claim, share)
        assert n is not None
        found = paired.smallest(n, share)
        assert found == pytest.approx(claim, rel=0.05)
    assert paired.needed(0.0005, 0.1, limit=10_000) is None


def test_a_gate_of_fifty_questions_fails_an_honest_run() -> None:
    assert paired.gate_fails(50, 0.861, 0.01) == pytest.approx(0.393, abs=5e-4)
    assert paired.gate_fails(1319, 0.861, 0.01) == pytest.approx(0.148, abs=5e-4)
    assert paired.gate_fails(1319, 0.861, 0.03) < 0.002
    # 42 of 50 reach a gate of 0.84.
    below = math.fsum(math.comb(50, k) * 0.85**k * 0.15 ** (50 - k) for k in range(42))
    assert paired.gate_fails(50, 0.85, 0.01) == pytest.approx(below)
