# SPDX-License-Identifier: Apache-2.0
"""The words of an A/B comparison: its arms, their claims, its order and its limits."""

import argparse
import shlex
from collections.abc import Sequence
from math import inf, isfinite
from pathlib import Path

from evals import stats
from evals.arms import CONTROL, Arm
from series.errors import UsageError

OUT = Path(__file__).resolve().parent.parent / "build/ab"


def parse(argv: Sequence[str], description: str | None = None) -> argparse.Namespace:
    """Reads the command line."""
    parser = argparse.ArgumentParser(
        prog="evals.ab",
        description=description,
        allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--arm", action="append", default=[], metavar="NAME=COMMAND")
    add("--ran", action="append", default=[], metavar="ARM:CALL", help="must be made")
    add("--idle", action="append", default=[], metavar="ARM:CALL", help="must not be")
    add("--blocks", type=int, default=4, help="each runs every arm twice")
    add("--order", choices=["abba", "random"], default="abba")
    add("--seed", type=int, default=0, help="of a random order and of the bootstrap")
    add("--no-control", action="store_true", help="leave the A/A control out")
    add("--margin", type=float, default=stats.MARGIN, help="what counts as the same")
    add("--higher", action="append", default=[], help="a metric to be large")
    add("--unchanged", action="append", default=[], help="a metric that must be SAME")
    add("--cool", type=float, metavar="C", help="start no run hotter than this")
    add("--patience", type=float, default=300.0, metavar="S", help="to cool down")
    add("--pause", type=float, default=0.0, metavar="S", help="before every run")
    add("--timeout", type=float, metavar="S", help="of one run")
    add("--out", type=Path, default=OUT, help="folder of the runs")
    add("--resume", action="store_true", help="go on with what is in --out")
    args = parser.parse_args(argv)
    _require_limits(args)
    return args


def _require_limits(args: argparse.Namespace) -> None:
    """Refuses numbers that mean nothing, before anything runs."""
    for option, good, need in (
        ("blocks", args.blocks >= 1, "one or more"),
        ("seed", args.seed >= 0, "zero or more"),
        # 0.01 is a percent.
        ("margin", 0 < args.margin < 1, "between 0 and 1"),
        ("cool", args.cool is None or isfinite(args.cool), "degrees"),
        ("patience", 0 <= args.patience < inf, "seconds, zero or more"),
        ("pause", 0 <= args.pause < inf, "seconds, zero or more"),
        ("timeout", args.timeout is None or 0 < args.timeout < inf, "seconds"),
    ):
        if not good:
            raise UsageError(f"--{option} {getattr(args, option)}: it is {need}.")


def named(texts: Sequence[str], mark: str, option: str) -> list[tuple[str, str]]:
    """Splits NAME<mark>VALUE words.

    Raises:
        UsageError: One has no such mark, or nothing beside it.
    """
    pairs = []
    for text in texts:
        name, found, value = text.partition(mark)
        if not (found and name and value):
            raise UsageError(f"{option} {text!r}: NAME{mark}VALUE is needed.")
        pairs.append((name, value))
    return pairs


def arms_of(args: argparse.Namespace) -> list[Arm]:
    """The arms that the words ask for, the control among them.

    Raises:
        UsageError: There are fewer than two, a name is twice or unknown, or a
            command has no words.
    """
    commands = dict(named(args.arm, "=", "--arm"))
    if len(commands) != len(args.arm) or CONTROL in commands:
        raise UsageError(f"every --arm needs a name of its own; {CONTROL} is taken.")
    if len(commands) < 2 and args.no_control:
        raise UsageError("--arm: at least two are needed.")
    claims: dict[str, dict[str, list[str]]] = {
        name: {"ran": [], "idle": []} for name in commands
    }
    for kind in ("ran", "idle"):
        for name, call in named(getattr(args, kind), ":", f"--{kind}"):
            if name not in claims:
                raise UsageError(f"--{kind} {name}:{call}: there is no such arm.")
            claims[name][kind].append(call)
    found = [
        Arm(name, _words(name, command), **claims[name])
        for name, command in commands.items()
    ]
    if not found:
        raise UsageError("--arm: at least one is needed.")
    if not args.no_control:
        first = found[0]
        found.append(Arm(CONTROL, first.command, first.ran, first.idle))
    return found


def _words(name: str, command: str) -> list[str]:
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise UsageError(f"--arm {name}: {command!r}: {error}.") from error
    if not words:
        raise UsageError(f"--arm {name}: its command is empty.")
    return words
