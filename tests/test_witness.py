# SPDX-License-Identifier: Apache-2.0
"""What the lines of a journal say of where they were made."""

from typing import Any

import pytest

from evals import witness
from evals.arms import VoidError


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
    ],
)
def test_another_machine_or_other_files_void(last: Any, named: str) -> None:
    with pytest.raises(VoidError, match=named):
        witness.same_facts([line("on"), line("off"), last])
