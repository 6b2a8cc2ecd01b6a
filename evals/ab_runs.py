# SPDX-License-Identifier: Apache-2.0
"""Makes the runs of an A/B comparison that are not done yet, and keeps each."""

import argparse
import time
from collections.abc import Callable, Sequence
from statistics import median

from evals import arms, cooling, sensors, witness
from evals.arms import Arm, Host
from evals.blocks import Slot
from evals.eval_progress import to_stderr
from evals.journal import Journal

Hosted = Callable[[Sequence[Arm]], Host]
"""Makes what can be every arm."""


def progress(done: int, total: int, seconds: Sequence[float], name: str) -> None:
    """Says which run begins, and how long the rest will take."""
    left = ""
    if seconds:
        left = f", about {median(seconds) * (total - done) / 60:.1f} min left"
    to_stderr(f"run {done + 1} of {total}: {name}{left}")


def run_all(
    found: Sequence[Arm],
    slots: Sequence[Slot],
    journal: Journal,
    sensor: sensors.Sensor,
    args: argparse.Namespace,
    host: Host | None = None,
) -> None:
    """Runs what is not done yet, in order, and keeps each run when it ends."""
    by_name = {arm.name: arm for arm in found}
    # What arms call is kept behind the last run: where one is left, all lines are runs.
    left = range(len(journal.lines), len(slots))
    if host and left:
        host.warm()
    for number in left:
        slot = slots[number]
        seconds = [run["seconds"] for run in journal.lines]
        progress(number, len(slots), seconds, slot.arm)
        time.sleep(args.pause)
        if args.cool is not None:
            before = cooling.cool_down(sensor, args.cool, args.patience)
        else:
            before = sensor.read().as_dict() if sensor.read else None
        start = time.monotonic()
        arm = by_name[slot.arm]
        outcome = host.run(arm) if host else arms.run(arm, number, args.timeout)
        journal.add(
            {
                "arm": slot.arm,
                "values": outcome.values,
                "calls": outcome.calls,
                "notes": outcome.notes,
                "facts": outcome.facts,
                "seconds": time.monotonic() - start,
                "before": before,
                "after": sensor.read().as_dict() if sensor.read else None,
            }
        )


def measure(
    found: Sequence[Arm],
    slots: Sequence[Slot],
    journal: Journal,
    sensor: sensors.Sensor,
    args: argparse.Namespace,
    hosted: Hosted | None,
) -> None:
    """Runs and asks what is not done yet; starts nothing where nothing is left."""
    if hosted is None:
        run_all(found, slots, journal, sensor, args)
    elif len(journal.lines) < len(slots) + len(found):
        host = hosted(found)
        run_all(found, slots, journal, sensor, args, host)
        witness.ask(found, journal, host)


def kept(found: Sequence[Arm], slots: Sequence[Slot], journal: Journal) -> str:
    """What is left of a comparison that was cut off, and how to go on."""
    said = f"{len(witness.timed(journal.lines))} of {len(slots)} runs"
    if known := witness.told(journal.lines):
        said += f" and the calls of {len(known)} of {len(found)} arms"
    return f"{said} are kept in {journal.path}; --resume goes on"
