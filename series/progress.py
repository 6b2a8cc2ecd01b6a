# SPDX-License-Identifier: Apache-2.0
"""What a rebase says: each patch, the conflict and both its sides, the way out."""

import shlex
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape

from .carry import LANDED
from .errors import ConflictError
from .matrix import step_lines
from .onto import Progress
from .repin import Repinned
from .state import Session, State, sessions
from .submit import Submission
from .threeway import Clash

_SHOWN = 12


def progress_data(progress: Progress) -> dict[str, Any]:
    """A rebase as plain data."""
    data = asdict(progress)
    data["state"] = "landed" if progress.landed else "conflict"
    return data


def print_progress(progress: Progress) -> None:
    """Print what became of each patch, and where that leaves the user."""
    console = Console(highlight=False)
    lines = []
    for step in progress.steps:
        lines.append(f"{step.file[:4]}  {step.state:<9} {step.title}")
        if step.state != "conflict":
            lines += [f"      {line[5:]}" for line in step_lines(step)]
    lines += [f"kept the resolution: {path}" for path in progress.recorded]
    if landed := progress.landed:
        count = sum(step.state in LANDED for step in progress.steps)
        state = "are" if landed.moved else "were already"
        lines.append(
            f"{count} of {progress.total} patches {state} on {progress.onto} "
            f"({progress.commit[:12]}), branch {landed.branch}."
        )
        out = "checked out" if landed.switched else "not checked out"
        lines.append(f"Tree {landed.tree[:12]} in {landed.where}, {out}.")
        lines += [f"What was given up is kept as {ref}." for ref in landed.saved]
    for line in lines:
        console.print(escape(line), soft_wrap=True)


def conflict_of(progress: Progress) -> ConflictError | None:
    """The error that a waiting conflict ends a command with."""
    if progress.landed or progress.tree is None:
        return None
    step = progress.steps[-1]
    parts = [f"{step.file} conflicts with {progress.onto}:"]
    for clash in step.clashes:
        parts.append(_told(clash))
    parts += [f"  ({note})" for note in step.notes]
    return ConflictError("\n".join(parts), _way_out(progress.tree, step.file))


def _told(clash: Clash) -> str:
    place = f"{clash.path}:{clash.line}" if clash.line else clash.path
    where = f", in {clash.where}" if clash.where else ""
    lines = [f"  {place}{where}: {clash.reason}"]
    if clash.line:
        lines += ["    upstream has:", *_quoted(clash.upstream)]
        lines += ["    the patch has:", *_quoted(clash.patch)]
    return "\n".join(lines)


def _quoted(text: str) -> list[str]:
    lines = text.splitlines()
    more = [f"      … {len(lines) - _SHOWN} more lines"] if len(lines) > _SHOWN else []
    shown = [f"      | {line}" for line in lines[:_SHOWN]]
    return (shown or ["      (nothing)"]) + more


def _way_out(tree: Path, file: str) -> str:
    where = shlex.quote(str(tree))
    words = (
        f"Nothing was moved. Edit the marked files in {where}, then: apply.py continue",
        f"Leave {file[:4]} out: apply.py skip. Give it all up: apply.py abort",
    )
    return "\n       ".join(words)


def waiting_data(build: Path) -> list[dict[str, Any]]:
    """The rebases that wait for a person, as plain data."""
    return [_entry(session, session.load()) for session in sessions(build)]


def _entry(session: Session, state: State) -> dict[str, Any]:
    return {
        "repository": state.worktree or state.gitdir,
        "onto": state.onto,
        "patch": state.waiting.file,
        "files": sorted({clash.path for clash in state.waiting.clashes}),
        "tree": str(session.tree),
        "next": "apply.py continue | skip | abort",
    }


def print_waiting(build: Path) -> None:
    """Print the rebases that wait for a person, and the way out of each."""
    console = Console(highlight=False)
    for entry in waiting_data(build):
        lines = [
            f"A rebase of {entry['repository']} onto {entry['onto']} waits at "
            f"{entry['patch']}: {', '.join(entry['files'])}.",
            f"Resolve it in {entry['tree']}, then: {entry['next']}",
        ]
        for line in lines:
            console.print(escape(line), soft_wrap=True)


def print_repinned(done: Repinned) -> None:
    """Print what moving the pin changed, the range-diff first."""
    console = Console(highlight=False)
    lines = [done.difference.rstrip("\n"), ""]
    lines += [f"{step.file[:4]}  {step.state:<9} {step.title}" for step in done.steps]
    lines += [f"wrote {name}" for name in (*done.written, *done.adapted)]
    lines += [f"removed {name}" for name in done.removed]
    lines.append(f"The pin is {done.new} ({done.commit}); it was {done.old}.")
    if len(done.commit) < 40:
        lines.append(
            "Its commit is abbreviated: a clone (--vllm) would give all 40 digits."
        )
    lines.append("Nothing is committed: review it with `git diff patches`.")
    for line in lines:
        console.print(escape(line), soft_wrap=True)


def print_submission(made: Submission) -> None:
    """Print what was made for upstream, and what a person does with it."""
    console = Console(highlight=False)
    lines = [f"{step.file[:4]}  {step.state:<9} {step.title}" for step in made.steps]
    lines += [f"told in the body: {why}" for why in made.refusals]
    lines.append(f"Branch {made.branch} at {made.tip[:12]}, on {made.base}.")
    lines.append(f"Cover letter, patches and body: {made.folder}")
    lines += [f"linters {line}" for line in made.lints]
    lines += [f"not measured: {what}" for what in made.missing]
    lines += ["Look for the same work first:", *(f"  {line}" for line in made.check)]
    lines += [
        "Read every line, run the tests, then send it yourself:",
        *(f"  {line}" for line in made.send),
    ]
    for line in lines:
        console.print(escape(line), soft_wrap=True)
