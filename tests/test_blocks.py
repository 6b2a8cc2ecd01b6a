# SPDX-License-Identifier: Apache-2.0
"""The order of runs: what it balances, whatever the arms."""

from collections import Counter
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from evals.blocks import plan, whole


@given(st.integers(2, 12), st.integers(1, 3))
def test_as_many_blocks_as_arms_balance_places_and_neighbours(
    count: int, times: int
) -> None:
    arms = [f"arm {number}" for number in range(count)]
    slots = plan(arms, count * times)
    places = Counter((slot.arm, slot.place) for slot in slots)
    assert places == {(arm, at): 2 * times for arm in arms for at in range(count)}
    after = Counter(
        (first.arm, second.arm)
        for first, second in pairwise(slots)
        if (first.block, first.half) == (second.block, second.half)
    )
    others = [(one, two) for one in arms for two in arms if one != two]
    assert after == dict.fromkeys(others, 2 * times)


@given(st.integers(2, 12), st.integers(1, 9), st.sampled_from(["abba", "random"]))
def test_a_block_runs_every_arm_and_is_mirrored(
    count: int, blocks: int, order: str
) -> None:
    arms = [f"arm {number}" for number in range(count)]
    slots = plan(arms, blocks, order, seed=blocks)
    for at in range(0, len(slots), 2 * count):
        out = [slot.arm for slot in slots[at : at + count]]
        back = [slot.arm for slot in slots[at + count : at + 2 * count]]
        assert sorted(out) == sorted(arms)
        assert back == out[::-1]
    runs = [(slot, 1.0) for slot in slots]
    assert whole(runs[:-1]) == runs[: -2 * count]


def test_a_seeded_order_is_the_same_every_time() -> None:
    first = plan(["a", "b"], 8, "random", seed=4)
    assert first == plan(["a", "b"], 8, "random", seed=4)
    assert first != plan(["a", "b"], 8, "random", seed=5)
