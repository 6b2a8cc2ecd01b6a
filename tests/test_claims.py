# SPDX-License-Identifier: Apache-2.0
"""The page on evaluating says what is computed, and claims no more than that."""

import re
from itertools import pairwise
from pathlib import Path

import pytest

pytest.importorskip("scipy")

from evals import claims, paired
from series.errors import SeriesError

from .full_disk import full_disk

TEXT = claims.PAGE.read_text(encoding="utf-8")


def cells(name: str) -> dict[str, list[str]]:
    return {row[0]: list(row[1:]) for row in claims.TABLES[name]()[1]}


def test_the_page_has_the_tables_as_they_are_computed() -> None:
    assert claims.filled(TEXT) == TEXT
    for name in claims.TABLES:
        assert f"<!-- claims:{name} -->" in TEXT


def test_a_table_that_there_is_not() -> None:
    with pytest.raises(SeriesError, match="no table other"):
        claims.filled("<!-- claims:other -->\n<!-- /claims -->")


def test_a_page_that_does_not_fit_on_the_disk_is_as_it_was(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    page = tmp_path / "page.md"
    old = "<!-- claims:asked -->\n<!-- /claims -->\n"
    page.write_text(old)
    monkeypatch.setattr(claims, "PAGE", page)
    with full_disk(100), pytest.raises(OSError) as raised:
        claims.main(["--write"])
    assert raised.value.filename == str(page)
    assert [one.read_text() for one in tmp_path.iterdir()] == [old]
    assert claims.main(["--write"]) == 0
    assert page.read_text() == claims.filled(old)


def test_more_questions_see_less_and_fewer_differences_see_more() -> None:
    found = [[float(cell) for cell in row] for row in cells("seen").values()]
    for before, after in pairwise(found):
        assert all(a >= b for a, b in zip(before, after, strict=True))
    assert all(row == sorted(row) for row in found)


def test_what_the_text_says_of_n_is_so() -> None:
    seen = cells("seen")
    # At 5% that differ, as after the order of a sum changes: two and five points.
    assert float(seen["1319"][2]) <= 2
    assert float(seen["400"][2]) <= 5
    half = paired.needed(0.005, claims.SHARES[0])
    assert half is not None
    assert half > 1319
    assert float(seen["1319"][0]) > 100 * (0.861 - 0.855)


def test_what_the_text_says_of_gates_is_so() -> None:
    gates = cells("gates")
    assert gates["50"][0] == "39% / 37%"
    assert gates["1319"][3] == "0% / 98%"
    assert f"gate {100 * claims.UPSTREAM:g} below" == "gate 5.1 below"


def test_the_page_names_no_option_that_there_is_not() -> None:
    pytest.importorskip("lm_eval", reason="requirements/client.txt is not installed")
    from evals import eval as command

    known = set(re.findall(r'add\("(--[a-z-]+)"', _source(command.__file__)))
    named = set(re.findall(r"(?<![\w-])(--[a-z][a-z-]+)", TEXT))
    assert named - known <= {"--tensor-parallel-size", "--ci"}


def _source(path: str | None) -> str:
    assert path is not None
    with open(path, encoding="utf-8") as file:
        return file.read()
