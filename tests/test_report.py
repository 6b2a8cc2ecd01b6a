# SPDX-License-Identifier: Apache-2.0
import json
from dataclasses import replace
from pathlib import Path

import pytest

from series import report
from series.export import Exported
from series.place import Outcome, Row

OUTCOME = Outcome(
    branch="rocm-series",
    base="a" * 40,
    tip="b" * 40,
    tree="c" * 40,
    rows=(Row("0001-x.patch", "[x] T", "does [bold]it[/bold]", "d" * 40, 2, 30, 4),),
    where=Path("/my clone/it's"),
    bare=False,
    moved=True,
    switched=False,
)


def test_the_table_and_the_next_step(capsys: pytest.CaptureFixture[str]) -> None:
    report.print_outcome(OUTCOME, own=False)
    out = capsys.readouterr().out
    row = next(line for line in out.splitlines() if line.startswith("0001"))
    assert row.split() == ["0001", "d" * 12, "2", "30", "4", "does", "[bold]it[/bold]"]
    assert "Applied: 1 patch on aaaaaaaaaaaa, branch rocm-series." in out
    assert "not checked out" in out
    assert """Next: git -C '/my clone/it'"'"'s' switch rocm-series""" in out


@pytest.mark.parametrize(
    ("changes", "own", "words"),
    [
        ({}, True, "make test"),
        ({"switched": True}, False, "make test VLLM='/my clone"),
        ({"bare": True}, False, "worktree add ../rocm-series rocm-series"),
    ],
)
def test_next_steps(changes: dict, own: bool, words: str) -> None:
    assert words in report.next_step(replace(OUTCOME, **changes), own=own)


def test_a_second_run_and_what_was_saved(capsys: pytest.CaptureFixture[str]) -> None:
    done = replace(
        OUTCOME,
        moved=False,
        switched=True,
        saved=("refs/x",),
        rows=(),
        fetched="origin",
        edited=3,
    )
    report.print_outcome(done, own=True)
    out = capsys.readouterr().out
    assert "Already applied, nothing to do: 0 patches" in out
    assert ", checked out." in out
    assert "kept as refs/x" in out
    assert "The base was fetched from origin." in out
    assert "3 files there are edited, not committed." in out
    assert report.outcome_data(done, own=True)["state"] == "already applied"


def test_data_is_json(capsys: pytest.CaptureFixture[str]) -> None:
    report.print_data(report.outcome_data(OUTCOME, own=False))
    data = json.loads(capsys.readouterr().out)
    assert data["patches"][0]["commit"] == "d" * 40
    assert data["where"] == "/my clone/it's"


def test_what_an_export_says(capsys: pytest.CaptureFixture[str]) -> None:
    nothing = Exported("rocm-series", "b" * 40, (), (), (), "c" * 40, "")
    report.print_export(nothing)
    assert "nothing to do" in capsys.readouterr().out
    done = replace(
        nothing,
        written=("0002-y.patch",),
        removed=("0002-x.patch",),
        new=("0002-y.patch",),
        tree="",
        note="symbols",
    )
    report.print_export(done)
    out = capsys.readouterr().out
    for words in (
        "wrote 0002-y.patch",
        "removed 0002-x.patch",
        "0002-y.patch is new: fill in purpose",
        "tree id is not recorded",
        "`apply` will refuse it: symbols",
    ):
        assert words in out


def test_progress_goes_to_the_other_stream(capsys: pytest.CaptureFixture[str]) -> None:
    report.say("[red]fetching[/red]")
    streams = capsys.readouterr()
    assert streams.out == ""
    assert streams.err == "[red]fetching[/red]\n"
