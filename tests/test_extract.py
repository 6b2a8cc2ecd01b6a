# SPDX-License-Identifier: Apache-2.0
"""The number that an answer ends in, beside what the tree's own evaluator reads."""

import ast
import re
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evals.extract import answer, numbers, shown

SCRIPT = Path(__file__).parent.parent / "build/vllm/tests/evals/gsm8k/gsm8k_eval.py"
INVALID = -9999999

# What the model wrote, the number, and what the tree's evaluator makes of it.
TABLE = [
    ("#### 18", "18", 18),
    ("She has 18 eggs.", "18", 18),
    ("$29.00", "29", 0),
    ("#### $29.00", "29", 0),
    ("#### -3", "-3", 3),
    ("#### \u22123", "-3", 3),
    ("#### - 3", "-3", 3),
    ("-$3", "-3", 3),
    ("$-3", "-3", 3),
    ("x = -4", "-4", 4),
    ("1,234", "1234", 1234),
    ("#### $1,234.50.", "1234.50", 50),
    ("12,345,678", "12345678", 12345678),
    ("05", "5", INVALID),
    ("2.5", "2.5", 5),
    (".5", "0.5", 5),
    ("3.", "3", 3),
    ("50%", "50", 50),
    ("1/2", "0.5", 2),
    ("3 1/2", "3.5", 2),
    ("1.5e3", "1500", 3),
    ("10-3", "3", 3),
    ("5-7", "7", 7),
    ("(-5)", "-5", 5),
    ("#### 12 34", "12", 34),
    ("#### 7 eggs, 3 a day", "7", 3),
    ("#### 3 + 4 = 7", "7", 7),
    ("#### 20 / 4 =", "5", 4),
    ("#### 2:30", "2", 30),
    ("#### **42**", "42", 42),
    ("\\boxed{42}", "42", 42),
    ("#### 5\n\nNext: 2 + 5\n#### 7", "5", 7),
    ("#### \n#### 5", "5", 5),
    ("5 of 9 are red.\n#### red", "9", 9),
    ("release 1.2.3", "", 3),
    ("1/0", "", 0),
    ("none", "", INVALID),
    ("", "", INVALID),
    ("\u00bd", "", INVALID),
]


@pytest.mark.parametrize(("text", "number", "_tree"), TABLE)
def test_the_number_that_an_answer_ends_in(text: str, number: str, _tree: int) -> None:
    found = answer(text)
    assert found == (Fraction(number) if number else None)


@pytest.mark.skipif(not SCRIPT.exists(), reason="build/vllm is not there: make apply")
@pytest.mark.parametrize(("text", "_number", "tree"), TABLE)
def test_what_the_trees_evaluator_makes_of_it(
    text: str, _number: str, tree: int
) -> None:
    parsed = ast.parse(SCRIPT.read_text())
    wanted = [
        node
        for node in parsed.body
        if isinstance(node, ast.FunctionDef) and node.name == "get_answer_value"
    ]
    names = {"re": re, "ast": ast, "INVALID": INVALID}
    exec(compile(ast.Module(wanted, []), str(SCRIPT), "exec"), names)
    assert names["get_answer_value"](text) == tree  # type: ignore[operator]


def test_the_two_disagree_on_much_of_it() -> None:
    differ = [
        text
        for text, number, tree in TABLE
        if (Fraction(number) if number else None) != (None if tree == INVALID else tree)
    ]
    assert len(differ) >= len(TABLE) // 3


@given(st.integers(-(10**15), 10**15), st.sampled_from(["", "$", "$ "]))
def test_any_whole_number_is_read_back(value: int, money: str) -> None:
    for text in (f"{value}", f"{value:,}"):
        sign, digits = ("-", text[1:]) if value < 0 else ("", text)
        assert answer(f"so 3 + 4 is\n#### {sign}{money}{digits}") == value
        assert answer(f"It comes to {sign}{money}{digits}.") == value


@given(st.decimals(allow_nan=False, allow_infinity=False, places=3, max_value=10**9))
def test_any_decimal_is_read_back_and_shown(value: object) -> None:
    found = answer(f"#### {value:f}")
    assert found == Fraction(str(value))
    assert Fraction(shown(found)) == found


@given(st.text())
def test_no_text_is_too_odd(text: str) -> None:
    found = answer(text)
    assert found is None or found in numbers(text)
    assert (shown(found) == "") == (found is None)


def test_digits_without_end_are_no_number() -> None:
    assert answer("9" * 10_000) is None
    assert answer("#### 5\n" + "1" * 10_000) == 5


def test_a_number_is_shown_as_people_write_it() -> None:
    shown_as = {
        "5": "5",
        "-5/2": "-2.5",
        "1/8": "0.125",
        "1/3": "1/3",
        "1/200": "0.005",
    }
    for text, wanted in shown_as.items():
        assert shown(Fraction(text)) == wanted
    assert shown(None) == ""
