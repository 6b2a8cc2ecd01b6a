# SPDX-License-Identifier: Apache-2.0
"""What the lines of a journal say of where they were made."""

from pathlib import Path
from typing import Any

import pytest

from evals import ab_runs, witness
from evals.arms import Arm, VoidError
from evals.blocks import plan
from evals.journal import Journal, JournalError


def line(arm: str, device: str = "x", blob: str = "1", key: str = "arm") -> Any:
    facts = {"machine": {"device": device}, "sources": {"kernel.py": blob}}
    return {key: arm, "facts": facts, "calls": {}, "notes": {}}


def test_facts_of_runs_and_counts_are_one() -> None:
    lines = [line("on"), line("off", blob="2"), line("on", key="witness")]
    found = witness.same_facts(lines)
    # Arms may be different trees.
    assert found == {"machine": {"device": "x"}, "sources": {"kernel.py": "2"}}
    assert witness.same_facts([{"arm": "on", "facts": {}}])["machine"] == {}


@pytest.mark.parametrize(
    ("last", "named"),
    [
        (line("on", device="y"), "run 2 was on another machine"),
        (line("on", device="y", key="witness"), "what on calls was .* another machine"),
        (line("on", blob="2"), "run 2 was with other files than the first run of on"),
        (line("on", blob="2", key="witness"), "what on calls was .* other files"),
        # The control is the first arm once more.
        (line("control", blob="2"), "run 2 was with other files than the first run"),
    ],
)
def test_another_machine_or_other_files_void(last: Any, named: str) -> None:
    with pytest.raises(VoidError, match=named):
        witness.same_facts([line("on"), line("off"), last])


ARMS = [Arm(name, [name]) for name in ("on", "off", "control")]
SLOTS = plan([arm.name for arm in ARMS], 2)
RUNS = [line(s.arm) | {"values": {"ms": 1.0}, "seconds": 2.0} for s in SLOTS]
TOLD = [line(arm.name, key="witness") for arm in ARMS]


@pytest.mark.parametrize("number", range(len(RUNS) + len(TOLD) + 1))
def test_runs_come_before_counts_and_each_arm_has_one(number: int) -> None:
    whole = [*RUNS, *TOLD]
    ab_runs.require_runs(Journal(Path("j"), whole[:number]), ARMS, SLOTS, True)
    wrong = {
        "a count again": [*whole[:number], TOLD[0], TOLD[0]],
        "of no arm": [*whole[:number], line("none", key="witness")],
        "one too many": [*whole[:number], *whole, TOLD[0]],
        "no text": [*whole[:number], line("on", key="witness") | {"witness": []}],
    }
    for lines in wrong.values():
        with pytest.raises(JournalError, match=r"line \d+ is not"):
            ab_runs.require_runs(Journal(Path("j"), lines), ARMS, SLOTS, True)
    alone = [*RUNS, TOLD[0]]
    with pytest.raises(JournalError, match=f"line {len(RUNS) + 2} "):
        ab_runs.require_runs(Journal(Path("j"), alone), ARMS, SLOTS, False)
