# SPDX-License-Identifier: Apache-2.0
"""What a run says: a table and the next step for people, data for programs."""

import json
import shlex
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from .place import Outcome


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
    lines = [
        f"{state}: {count} on {outcome.base[:12]}, branch {outcome.branch}.",
        f"Tree {outcome.tree[:12]} in {where}"
        + (", checked out." if outcome.switched else ", not checked out."),
        *(f"What was given up is kept as {ref}." for ref in outcome.saved),
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


def print_facts(facts: Sequence[tuple[str, str]]) -> None:
    """Print named facts, one a line."""
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in facts:
        table.add_row(escape(name), escape(value))
    Console(highlight=False).print(table)


def say(line: str) -> None:
    """Tell about something that takes time; never on the output of --json."""
    Console(stderr=True, highlight=False).print(escape(line), soft_wrap=True)


def show_path(path: Path) -> str:
    """A path, shortened where it lies below the current folder."""
    try:
        return str(path.relative_to(Path.cwd()))
    except (ValueError, OSError):
        return str(path)
