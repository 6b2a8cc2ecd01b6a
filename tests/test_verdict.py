# SPDX-License-Identifier: Apache-2.0
"""What two arms' answers show: each verdict, and its words."""

import pytest

pytest.importorskip("scipy")

from hypothesis import given, settings
from hypothesis import strategies as st

from evals import verdict
from evals.verdict import Answer, Comparison, Verdict


def answers(rights: str, reads: str = "") -> list[Answer]:
    """One answer a letter: 1 right, 0 wrong."""
    reads = reads or rights
    return [
        Answer(f"q{n:04d}", read, right == "1", read, "stop", 5)
        for n, (right, read) in enumerate(zip(rights, reads, strict=True))
    ]


def compared(first: list[Answer], second: list[Answer]) -> Comparison:
    found = verdict.compare("stock", "patched", {"stock": first, "patched": second})
    assert found is not None
    return found


def test_the_same_answers() -> None:
    one = compared(answers("1" * 150 + "0" * 50), answers("1" * 150 + "0" * 50))
    assert one.verdict is Verdict.SAME
    assert not one.verdict.differs
    assert one.p == 1
    assert (one.other_answers, one.other_texts) == ((), 0)
    words = one.words()
    assert "answer all 200 questions alike" in words
    assert "between -1.9 and +1.9 points" in words
    assert (
        "200 questions find a true difference of 3.9 points four times of five" in words
    )


def test_wrong_in_another_way_is_not_the_same() -> None:
    one = compared(answers("1" * 199 + "0"), answers("1" * 199 + "0", "1" * 199 + "x"))
    assert one.pairs.discordant == 0
    assert one.other_answers == ("q0199",)
    assert one.verdict is Verdict.WITHIN
    assert "1 have another answer" in one.words()


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ("1" * 20 + "0" * 80, "0" * 20 + "0" * 80, Verdict.WORSE),
        ("0" * 20 + "0" * 80, "1" * 20 + "0" * 80, Verdict.BETTER),
        ("1" * 6, "0" * 6, Verdict.WORSE),
        # Five that all fall to one side are no evidence.
        ("1" * 5, "0" * 5, Verdict.UNSEEN),
        ("1" * 51, "0" + "1" * 50, Verdict.UNSEEN),
        ("1" * 1319, "0" + "1" * 1318, Verdict.WITHIN),
    ],
)
def test_what_a_comparison_shows(first: str, second: str, expected: Verdict) -> None:
    one = compared(answers(first), answers(second))
    assert one.verdict is expected
    assert one.verdict.differs == (expected in (Verdict.WORSE, Verdict.BETTER))


def test_what_is_below_what_n_can_see_says_what_n_sees() -> None:
    one = compared(answers("1" * 45 + "0" * 5), answers("1" * 42 + "0" * 8))
    assert one.verdict is Verdict.UNSEEN
    words = one.words()
    assert "3 of 50 questions are scored differently (3 right in stock alone" in words
    assert "none is excluded" in words
    assert "50 questions find a true difference of 15.4 points" in words
    few = compared(answers("10110"), answers("10111"))
    assert few.smallest is None
    assert "too few to find any difference" in few.words()


def test_a_question_that_one_arm_did_not_answer_does_not_count() -> None:
    first, second = answers("1111"), answers("0111")
    one = compared(first, second[1:])
    assert one.pairs.n == 3
    assert one.verdict is Verdict.SAME
    assert verdict.compare("a", "b", {"a": first[:1], "b": second[1:]}) is None


def test_two_answers_to_one_question_are_no_two_questions() -> None:
    first, second = answers("1" * 6 + "0" * 30), answers("0" * 36)
    found = {"stock": first, "patched": second}
    apart = verdict.compare("stock", "patched", found)
    twice = verdict.compare(
        "stock", "patched", found, group=lambda id_: str(int(id_[1:]) // 2)
    )
    assert apart is not None
    assert twice is not None
    assert (apart.verdict, twice.verdict) == (Verdict.WORSE, Verdict.UNSEEN)
    assert (apart.p, twice.p) == (2 / 64, 2 / 8)
    assert twice.low < apart.low
    assert (twice.smallest or 1) > (apart.smallest or 1)


def test_the_order_of_the_answers_does_not_matter() -> None:
    first, second = answers("110100"), answers("011100")
    assert compared(first, second) == compared(first, second[::-1])


@settings(deadline=None, max_examples=60)
@given(st.text("01", min_size=1, max_size=80), st.data())
def test_the_arms_may_change_places(first: str, data: st.DataObject) -> None:
    second = data.draw(st.text("01", min_size=len(first), max_size=len(first)))
    one = compared(answers(first), answers(second))
    other = compared(answers(second), answers(first))
    turned = {Verdict.WORSE: Verdict.BETTER, Verdict.BETTER: Verdict.WORSE}
    assert other.verdict is turned.get(one.verdict, one.verdict)
    assert (one.verdict is Verdict.SAME) == (first == second)
    kept = one.as_dict()
    assert kept["right"] == {"stock": first.count("1"), "patched": second.count("1")}
    assert kept["verdict"] == str(one.verdict)
