# SPDX-License-Identifier: Apache-2.0
"""What a run says: a table and the next step for people, data for programs."""

import json
import shlex
from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from .export import Exported
from .place import Outcome
from .status import Status


def outcome_data(outcome: Outcome, *, own: bool) -> dict[str, Any]:
    """The outcome of `apply` as plain data."""
    return {
        "state": "applied" if outcome.moved else "already applied",
        "branch": outcome.branch,
        "base": outcome.base,
        "tip": outcome.tip,
        "tree": outcome.tree,
        "where": str(outcome.where),
        "switched": outcome.switched,
        "fetched_from": outcome.fetched,
        "saved": list(outcome.saved),
        "edited": outcome.edited,
        "patches": [asdict(row) for row in outcome.rows],
        "next": next_step(outcome, own=own),
    }


def next_step(outcome: Outcome, *, own: bool) -> str:
    """The command that a user most likely wants now."""
    where = shlex.quote(str(outcome.where))
    if own:
        return "make test"
    if outcome.switched:
        return f"make test VLLM={where}"
    if outcome.bare:
        return f"git -C {where} worktree add ../{outcome.branch} {outcome.branch}"
    return f"git -C {where} switch {outcome.branch}"


def print_outcome(outcome: Outcome, *, own: bool) -> None:
    """Print what `apply` did: the patches, where they are, what comes next."""
    console = Console(soft_wrap=False, highlight=False)
    if outcome.rows:
        console.print(_patches(outcome))
    count = f"{len(outcome.rows)} patches" if len(outcome.rows) != 1 else "1 patch"
    state = "Applied" if outcome.moved else "Already applied, nothing to do"
    where = outcome.where
    edited = bool(outcome.edited)
    lines = [
        f"{state}: {count} on {outcome.base[:12]}, branch {outcome.branch}.",
        f"Tree {outcome.tree[:12]} in {where}"
        + (", checked out." if outcome.switched else ", not checked out."),
        *([f"The base was fetched from {outcome.fetched}."] * bool(outcome.fetched)),
        *(f"What was given up is kept as {ref}." for ref in outcome.saved),
        *([f"{outcome.edited} files there are edited, not committed."] * edited),
        f"Next: {next_step(outcome, own=own)}",
    ]
    for line in lines:
        console.print(escape(line), soft_wrap=True)


def _patches(outcome: Outcome) -> Table:
    table = Table(box=None, pad_edge=False)
    for name in ("patch", "commit"):
        table.add_column(name, no_wrap=name == "commit")
    for name in ("files", "+", "-"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("what it does", ratio=1)
    for row in outcome.rows:
        counts = (str(row.files), str(row.added), str(row.removed))
        name = escape(row.file[:4])
        table.add_row(name, row.commit[:12], *counts, escape(row.purpose))
    return table


def print_data(data: dict[str, Any]) -> None:
    """Print data as JSON, and nothing else."""
    print(json.dumps(data, indent=2, ensure_ascii=False, default=str))


def print_export(done: Exported) -> None:
    """Print what `export` wrote."""
    console = Console(highlight=False)
    lines = [f"wrote {name}" for name in done.written]
    lines += [f"removed {name}" for name in done.removed]
    if not lines:
        lines = [f"patches/ already has what {done.branch} has: nothing to do."]
    for name in done.new:
        lines.append(
            f"{name} is new: fill in purpose, series, upstream, drop_when, symbols and "
            "tests of its table in series.toml."
        )
    if not done.tree:
        lines.append(
            "The tree id is not recorded: run `apply.py apply`, then `apply.py export`."
        )
    if done.note:
        lines.append(f"As it is, `apply` will refuse it: {done.note}")
    for line in lines:
        console.print(escape(line), soft_wrap=True)


def print_status(facts: Status) -> None:
    """Print where everything is, one fact a line."""
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in asdict(facts).items():
        table.add_row(name, escape(str(value)))
    Console(highlight=False).print(table)


def say(line: str) -> None:
    """Tell about something that takes time; never on the output of --json."""
    Console(stderr=True, highlight=False).print(escape(line), soft_wrap=True)
