# SPDX-License-Identifier: Apache-2.0
"""What each arm of a comparison calls, where one process is all of them in turn.

A profiler disturbs what is timed after it, so that this is asked once all runs are
done. Each answer is kept in the journal at once, as a line of its own after the runs.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from evals.arms import CONTROL, Arm, Host, Outcome, VoidError, require_claims
from evals.eval_progress import to_stderr
from evals.journal import Journal

AGAIN = "The comparison is void: make it again, in another --out."
_KEY = "witness"


def timed(lines: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """The runs among a journal's lines, in their order."""
    return [line for line in lines if _KEY not in line]


def told(lines: Iterable[Mapping[str, Any]]) -> dict[str, Outcome]:
    """What arms are known to call, by their names, from a journal's lines."""
    return {
        line[_KEY]: Outcome({}, line["calls"], line["facts"], line["notes"])
        for line in lines
        if _KEY in line
    }


def same_facts(lines: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """What the arms said of the machine and the files, from a journal's lines.

    Raises:
        VoidError: The machine or the files of an arm changed under way.
    """
    machine: dict[str, Any] = {}
    sources: dict[str, dict[str, str]] = {}
    base = ""
    for number, line in enumerate(lines):
        arm = line.get(_KEY, line.get("arm"))
        base = base or arm
        # The control is the first arm once more.
        arm = base if arm == CONTROL else arm
        what = f"what {arm} calls was counted" if _KEY in line else f"run {number} was"
        said = line["facts"].get("machine", {})
        if machine and said and said != machine:
            what += " on another machine than the first run."
            raise VoidError(what, AGAIN)
        machine = machine or said
        files = line["facts"].get("sources", {})
        if files != sources.setdefault(arm, files):
            what += f" with other files than the first run of {arm}."
            raise VoidError(what, AGAIN)
    merged: dict[str, str] = {}
    for files in sources.values():
        merged |= files
    return {"machine": machine, "sources": merged}


def ask(found: Sequence[Arm], journal: Journal, host: Host) -> None:
    """Asks what every arm calls of which the journal does not tell yet."""
    known = told(journal.lines)
    for number, arm in enumerate(found, 1):
        if arm.name in known:
            continue
        to_stderr(f"counting what {arm.name} calls, {number} of {len(found)}")
        outcome = host.witness(arm)
        journal.add(
            {
                _KEY: arm.name,
                "calls": outcome.calls,
                "notes": outcome.notes,
                "facts": outcome.facts,
            }
        )


def add(
    found: Sequence[Arm],
    runs: Sequence[dict[str, Any]],
    known: Mapping[str, Outcome],
) -> list[str]:
    """Puts what every arm calls beside its runs.

    Args:
        found: Every arm.
        runs: Of all arms; they are changed.
        known: What each arm calls, by its name.

    Returns:
        How arms did not run what they claim; the runs are kept all the same.
    """
    problems = []
    for arm in found:
        outcome = known[arm.name]
        try:
            require_claims(arm, outcome)
        except VoidError as error:
            problems.append(error.what.removesuffix("."))
        own = [run for run in runs if run["arm"] == arm.name]
        own[0]["notes"] = own[0]["notes"] | outcome.notes
        for run in own:
            run["calls"] = outcome.calls
    return problems
