# SPDX-License-Identifier: Apache-2.0
"""Runs one arm of an A/B comparison once, as a process of its own."""

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from series.errors import SeriesError

RESULT_VARIABLE, ARM_VARIABLE, RUN_VARIABLE = "AB_RESULT", "AB_ARM", "AB_RUN"
GRACE_S = 10.0
MOST = sys.float_info.max
CONTROL = "control"
"""Name of the first arm where it runs once more."""


class ArmError(SeriesError):
    """An arm failed, or did not say what it measured."""


class VoidError(SeriesError):
    """An arm did not run what it claims: the comparison shows nothing."""


@dataclass(frozen=True)
class Arm:
    """One side of the comparison.

    Attributes:
        name: What the tables call it.
        command: The words that start it.
        ran: Names of calls that it must have made.
        idle: Names of calls that it must not have made.
    """

    name: str
    command: Sequence[str]
    ran: Sequence[str] = field(default_factory=tuple)
    idle: Sequence[str] = field(default_factory=tuple)


@dataclass(frozen=True)
class Outcome:
    """What one run of an arm said.

    Attributes:
        values: What it measured, by metric.
        calls: How often it called what, by name.
        facts: The machine and the measured files, where it tells them.
        notes: Whatever else it tells, to be kept as it is.
    """

    values: dict[str, float]
    calls: dict[str, float]
    facts: dict[str, Any]
    notes: dict[str, Any] = field(default_factory=dict)


class Host(Protocol):
    """What can be every arm in turn, so that runs need no process of their own."""

    def warm(self) -> None:
        """Makes every arm ready to be timed; not called where no run is left."""

    def run(self, arm: Arm) -> Outcome:
        """Measures an arm once; calls may be left out."""

    def witness(self, arm: Arm) -> Outcome:
        """What an arm calls; asked for after all runs, whether warm or not."""


def parse(text: str, name: str) -> Outcome:
    """Reads what an arm said.

    Args:
        text: Its result file, or its standard output, of which the last line that is
            a JSON object counts.
        name: Of the arm.

    Raises:
        ArmError: There is no such line, or it holds no number greater than zero.
    """
    said = None
    for line in reversed(text.splitlines()):
        try:
            said = json.loads(line)
        except ValueError:
            continue
        if isinstance(said, dict):
            break
    if not isinstance(said, dict):
        raise ArmError(
            f"{name} printed no JSON object.",
            'An arm ends with one line such as {"values": {"ms": 1.5}}.',
        )
    values = said.get("values", {"value": said["value"]} if "value" in said else {})
    if not (values and are_numbers(values) and min(values.values()) > 0):
        raise ArmError(f"{name} measured {values!r}: numbers above zero are needed.")
    calls, notes = said.get("calls", {}), said.get("notes", {})
    facts = {key: said[key] for key in ("machine", "sources") if key in said}
    if not are_numbers(calls):
        raise ArmError(f"{name} told calls {calls!r}: a number by name is needed.")
    for key, told in {"notes": notes, **facts}.items():
        if not isinstance(told, dict):
            raise ArmError(f"{name} told {key} {told!r}: a JSON object is needed.")
    if not are_texts(facts.get("sources", {})):
        what = f"{name} told sources {facts['sources']!r}: a text by file is needed."
        raise ArmError(what)
    return Outcome(
        {key: float(value) for key, value in values.items()},
        {key: float(value) for key, value in calls.items()},
        facts,
        dict(notes),
    )


def are_numbers(found: Any) -> bool:
    """Whether it is an object of numbers that a float can hold, none below zero."""
    return isinstance(found, dict) and all(
        isinstance(value, int | float)
        and not isinstance(value, bool)
        and 0 <= value <= MOST
        for value in found.values()
    )


def are_texts(found: Any) -> bool:
    """Whether it is an object of texts."""
    return isinstance(found, dict) and all(isinstance(v, str) for v in found.values())


def require_claims(arm: Arm, outcome: Outcome) -> None:
    """Refuses a run that did not run what its arm claims.

    Raises:
        VoidError: A call is missing, or one was made that must not be.
    """
    calls = outcome.calls
    told = ", ".join(f"{name} {count:g}" for name, count in calls.items()) or "none"
    for name in arm.ran:
        if not calls.get(name):
            raise VoidError(
                f"{arm.name} never called {name} (calls: {told}): the comparison is "
                "void."
            )
    for name in arm.idle:
        # Not counted is not the same as not called.
        if name not in calls:
            raise VoidError(
                f"{arm.name} does not count calls of {name} (calls: {told}): the "
                "comparison is void."
            )
        if calls[name]:
            raise VoidError(
                f"{arm.name} called {name} {calls[name]:g} times, it claims none: the "
                "comparison is void."
            )


def run(arm: Arm, number: int, timeout_s: float | None = None) -> Outcome:
    """Runs an arm once and reads what it measured.

    Args:
        arm: Which one.
        number: Of the run, told to it in AB_RUN.
        timeout_s: Seconds after which it is stopped.

    Raises:
        ArmError: It does not start, fails, takes too long, or says nothing.
        VoidError: It did not run what it claims.
    """
    with tempfile.TemporaryDirectory(prefix="ab-") as folder:
        result = Path(folder) / "result.json"
        env = {
            **os.environ,
            RESULT_VARIABLE: str(result),
            ARM_VARIABLE: arm.name,
            RUN_VARIABLE: str(number),
        }
        output = _output(arm, env, timeout_s)
        if result.exists():
            # On one line, whatever its layout is.
            try:
                output = json.dumps(json.loads(result.read_text(encoding="utf-8")))
            except ValueError as error:
                what = f"{arm.name} wrote no JSON to {RESULT_VARIABLE}: {error}."
                raise ArmError(what) from error
    outcome = parse(output, arm.name)
    require_claims(arm, outcome)
    return outcome


def _output(arm: Arm, env: dict[str, str], timeout_s: float | None) -> str:
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as errors:
        try:
            # A session of its own, so that an interrupt reaches this process alone
            # and everything that the arm started ends with it.
            child = subprocess.Popen(
                arm.command,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                encoding="utf-8",
                errors="replace",
                start_new_session=True,
            )
        except OSError as error:
            what = f"{arm.name}: {arm.command[0]} does not start: {error.strerror}."
            raise ArmError(what) from error
        try:
            output, _ = child.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired as error:
            raise ArmError(f"{arm.name} took longer than {timeout_s:g} s.") from error
        finally:
            _end(child)
        if child.returncode:
            errors.seek(0)
            last = [line for line in errors.read().splitlines() if line.strip()][-5:]
            shown = "\n  ".join(last) or "it gave no reason"
            raise ArmError(f"{arm.name} ended with {child.returncode}:\n  {shown}")
        return output


def _end(child: "subprocess.Popen[str]") -> None:
    """Ends a child that still runs, and what it started."""
    if child.poll() is not None:
        return
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(child.pid, number)
            child.wait(GRACE_S)
            return
        except ProcessLookupError:
            return
        except subprocess.TimeoutExpired:
            continue
