# SPDX-License-Identifier: Apache-2.0
"""Reads the final number out of a worked answer, exactly or not at all."""

import re
from decimal import Decimal, localcontext
from fractions import Fraction

MARK = "####"
LONGEST = 100
"""Characters above which digits are no number."""
_WHOLE = r"\d+(?:,\d+)*"
_NUMBER = re.compile(
    # A version or a date is no number.
    r"(?P<chain>\d+(?:\.\d+){2,})|"
    # A hyphen between two words or digits joins them and is no sign.
    r"(?:(?<![\w)\].,$])(?P<sign>[-+\u2212])\s?)?"
    r"(?:[$\u20ac\u00a3]\s?(?P<inner>[-\u2212])?)?"
    rf"(?:(?P<mixed>\d+)\s(?={_WHOLE}/\d))?"
    rf"(?P<whole>{_WHOLE})?(?P<part>\.\d+)?"
    r"(?P<power>[eE][-+]?\d{1,3}(?!\w))?"
    rf"(?:\s?/\s?(?P<below>{_WHOLE})(?![\d.]))?"
)


def numbers(text: str) -> list[Fraction]:
    """Every number of a text, in order.

    Commas between digits are dropped, as the authors of GSM8K do; a sign or a currency
    sign may stand before a number; `1/2` and `3 1/2` are one number, `1/0` is none.
    """
    found = []
    for match in _NUMBER.finditer(text):
        if match["whole"] is None and match["part"] is None:
            continue
        # A model that repeats itself writes digits without end.
        if len(match[0]) > LONGEST:
            continue
        digits = _plain(match["whole"] or "0") + (match["part"] or "")
        value = Fraction(digits + (match["power"] or ""))
        if match["below"]:
            below = int(_plain(match["below"]))
            if not below:
                continue
            value = value / below + int(match["mixed"] or 0)
        minus = (match["sign"] or "+") in "-\u2212"
        found.append(-value if minus != bool(match["inner"]) else value)
    return found


def _plain(digits: str) -> str:
    return digits.replace(",", "")


def answer(text: str) -> Fraction | None:
    """The number that a worked answer ends in.

    The documents of GSM8K end in a line `#### number`. What follows the first mark that
    has a number on its line counts: the first number there, or, of an equation, the one
    right of the last equals sign. An answer without any mark ends in its last number.

    Returns:
        The number, or None where there is none.
    """
    for tail in text.split(MARK)[1:]:
        line = tail.strip(" \t#*").partition("\n")[0]
        right = numbers(line.rpartition("=")[2])
        found = right or numbers(line)
        if found:
            return found[0]
    found = numbers(text)
    return found[-1] if found else None


def shown(value: Fraction | None) -> str:
    """A number for people and records: whole or decimal where that is exact."""
    if value is None:
        return ""
    below = value.denominator
    for prime in (2, 5):
        while below % prime == 0:
            below //= prime
    if below != 1 or value.denominator == 1:
        return str(value)
    with localcontext(prec=1200):
        return f"{Decimal(value.numerator) / Decimal(value.denominator):f}"
