# SPDX-License-Identifier: Apache-2.0
"""The matrix: every patch on every release and on a clone's main."""

import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from . import health, imports
from .carry import Step
from .errors import SeriesError
from .expected import load_expected, unexpected
from .git import Repository
from .manifest import Manifest
from .releases import known_releases, release_store
from .sources import Onto, Rebase, find_onto, rebase_over, release_in
from .target import Say


@dataclass(frozen=True)
class Column:
    """The series on one base.

    Args:
        onto: The base.
        commit: Its id.
        steps: What became of each patch.
        faults: What is broken though it applied.
        notes: What was not looked at, and why.
        changed: Cells that are not the expected ones, in words.
        tree: The tree of the series there.
    """

    onto: str
    commit: str
    steps: tuple[Step, ...]
    faults: tuple[str, ...]
    notes: tuple[str, ...]
    changed: tuple[str, ...]
    tree: str

    @property
    def conflicts(self) -> list[Step]:
        """The patches that do not land."""
        return [step for step in self.steps if step.state == "conflict"]


@dataclass(frozen=True)
class Matrix:
    """All columns, and whether all is as it should be."""

    columns: tuple[Column, ...]

    @property
    def good(self) -> bool:
        """Nothing broken, nothing unexpected, and no conflict that is not expected."""
        return not any(c.faults or c.changed for c in self.columns)


def check(
    manifest: Manifest,
    build: Path,
    say: Say,
    *,
    clone: Path | None = None,
    onto: list[str] | None = None,
    python: str = "",
    compare: bool = True,
) -> Matrix:
    """Carry the series onto every base and look at what came out.

    Args:
        clone: A clone; its remote's main is a column then, as last fetched.
        onto: The bases instead: releases, or revisions of the clone.
        python: An interpreter with torch for the imports; empty: this one, if it has.
        compare: Compare with the recorded outcomes.
    """
    expected = load_expected(manifest) if compare else {}
    interpreter = python or sys.executable
    torch = imports.has_torch(interpreter)
    if python and not torch:
        raise SeriesError(f"{python} does not start, or has no torch.", "Name another.")
    found: list[tuple[Onto, list[Step], list[str], list[str], imports.Import]] = []
    with ExitStack() as stack:
        for repo, base in _bases(manifest, build, say, clone, onto):
            say(f"Carrying {len(manifest.patch)} patches onto {base.name}.")
            rebase = stack.enter_context(rebase_over(repo, manifest, base, say))
            steps = [rebase.carrier.carry(source) for source in rebase.sources]
            faults = _faults(rebase, manifest, steps)
            notes = [note for note in [rebase.carrier.history.missing] if note]
            job = _import(rebase, manifest)
            if torch and not imports.is_whole(job):
                notes.append("imports were not tried: this partial clone lacks files")
                job = replace(job, modules=())
            found.append((base, steps, faults, notes, job))
        if torch:
            say("Importing what changed.")
            jobs = [job for *_, job in found]
            said = imports.import_faults(jobs, interpreter, build / "check")
            for (_, _, faults, _, _), more in zip(found, said, strict=True):
                faults.extend(more)
    columns = []
    for base, steps, faults, notes, job in found:
        if not torch:
            notes.append("imports were not tried: no torch here (--python names one)")
        changed = unexpected(expected, base.name, steps) if compare else []
        rows = (tuple(steps), tuple(faults), tuple(notes), tuple(changed))
        columns.append(Column(base.name, base.commit, *rows, job.tree))
    return Matrix(tuple(columns))


def _bases(
    manifest: Manifest,
    build: Path,
    say: Say,
    clone: Path | None,
    onto: list[str] | None,
) -> Iterator[tuple[Repository, Onto]]:
    known = known_releases(manifest)
    if clone is not None:
        repo = Repository.find(clone)
        for name in onto or [_main_of(repo)]:
            yield repo, find_onto(repo, manifest, name, build, say, own=False)
        if onto:
            return
    elif onto:
        by_name = {name: pin for pin in known for name in (pin.release, pin.tag)}
        if unknown := [name for name in onto if name not in by_name]:
            names = ", ".join(pin.release for pin in known)
            raise SeriesError(
                f"{unknown[0]} is no recorded release; there are {names}.",
                "For a revision, name the clone that has it with --vllm.",
            )
        known = [by_name[name] for name in onto]
    store = release_store(build, [manifest.pin, *known], say)
    for pin in known:
        yield store, release_in(store, pin)


def _main_of(repo: Repository) -> str:
    """The remote's main branch, as it was last fetched."""
    names = ["refs/remotes/origin/HEAD", "refs/remotes/origin/main"]
    for name in names:
        if repo.resolve(f"{name}^{{commit}}"):
            full = repo.ask("rev-parse", "--abbrev-ref", name) or name
            return full.removeprefix("refs/remotes/")
    raise SeriesError(
        f"{repo.worktree or repo.gitdir} has no origin/main.",
        "Fetch it, or name a revision with --onto.",
    )


def _faults(rebase: Rebase, manifest: Manifest, steps: list[Step]) -> list[str]:
    scratch, onto, tip = rebase.scratch, rebase.onto.commit, rebase.carrier.tip
    return [
        *health.syntax_faults(scratch, onto, tip),
        *health.symbol_faults(scratch, manifest, steps, tip, rebase.carrier.need),
        *health.round_trip_faults(scratch, onto, tip),
    ]


def _import(rebase: Rebase, manifest: Manifest) -> imports.Import:
    scratch, onto, tip = rebase.scratch, rebase.onto.commit, rebase.carrier.tip
    paths = health.changed_python(scratch, onto, tip)
    modules = tuple(health.module_names(paths))
    releases = {pin.tag: pin.release for pin in known_releases(manifest)}
    version = releases.get(rebase.onto.name, manifest.pin.release)
    return imports.Import(scratch, scratch.tree_of(tip), version, modules)
