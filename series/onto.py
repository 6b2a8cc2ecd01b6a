# SPDX-License-Identifier: Apache-2.0
"""The series onto another base: begun, and taken up again after a conflict.

Everything is built in a scratch repository. Only a conflict that needs a person makes a
work tree, in build/onto/; the series branch moves when all patches are decided.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from . import desk
from .carry import LANDED, Source, Step
from .errors import SeriesError, of_system
from .git import Repository, require_git
from .landing import Landed, land
from .locks import locked
from .manifest import Manifest, load_manifest
from .sources import Rebase, digest_series, find_onto, rebase_over
from .state import Session, State, StateError, new_session, session_for
from .switch import finish_switch, require_ready
from .target import Say
from .threeway import Clash, merge_patch
from .tree import tree_at


@dataclass(frozen=True)
class Progress:
    """Where a rebase stands.

    Args:
        onto: The name of the new base.
        commit: Its id.
        steps: What became of each patch so far; the last one waits in a conflict.
        total: How many patches there are.
        tree: Where the conflict is resolved, None when all is done.
        landed: The branch, None while a conflict waits.
        recorded: Adaptations that were written.
    """

    onto: str
    commit: str
    steps: tuple[Step, ...]
    total: int
    tree: Path | None = None
    landed: Landed | None = None
    recorded: tuple[Path, ...] = ()


def begin(
    series: Path,
    build: Path,
    name: str,
    say: Say,
    *,
    vllm: Path | None = None,
    switch: bool = False,
    force: bool = False,
    anew: bool = False,
    edit: tuple[str, ...] = (),
) -> Progress:
    """Put the series onto a release or revision, up to the first conflict.

    Args:
        series: series.toml.
        build: The folder of build/vllm, the releases and waiting rebases.
        name: A release, or a revision of the clone.
        vllm: The clone, None for build/vllm.
        switch: Check the branch out at the end.
        force: Give up what is in the way of the branch; it is kept.
        anew: Leave recorded adaptations out.
        edit: Numbers of patches to stop at though they land, to adapt them by hand.

    Raises:
        SeriesError: It could not be done, and nothing was moved.
    """
    require_git()
    manifest = load_manifest(series)
    repo = Repository.find(vllm) if vllm else tree_at(build, manifest.pin)
    if repo is None:
        raise SeriesError(
            f"There is no pinned tree in {build} yet.", "Run `apply.py apply` first."
        )
    with locked(repo.common, lambda: say("Another run is at work here: waiting.")):
        if waiting := session_for(build, repo):
            state = waiting.load()
            raise StateError(
                f"A rebase onto {state.onto} is under way here, in {waiting.tree}.",
                "Finish it (apply.py continue | skip) or give it up (apply.py abort).",
            )
        own = vllm is None
        if own:
            finish_switch(repo, manifest.series.branch, own=True)
        if own and not force:
            require_ready(repo, manifest.series.branch, own=True)
        onto = find_onto(repo, manifest, name, build, say, own=own)
        with rebase_over(repo, manifest, onto, say, anew=anew) as rebase:
            state = State(
                gitdir=str(repo.gitdir),
                common=str(repo.common),
                worktree=str(repo.worktree or ""),
                own=own,
                branch=manifest.series.branch,
                old=repo.resolve(f"refs/heads/{manifest.series.branch}") or "",
                onto=onto.name,
                commit=onto.commit,
                series=digest_series(manifest),
                manifest=str(series.absolute()),
                switch=switch or own,
                force=force,
                anew=anew,
                edit=edit,
                tip=onto.commit,
            )
            return go_on(rebase, manifest, state, None, build, say)


def go_on(
    rebase: Rebase,
    manifest: Manifest,
    state: State,
    session: Session | None,
    build: Path,
    say: Callable[[str], None],
    recorded: tuple[Path, ...] = (),
) -> Progress:
    """Carry what is left; land the branch, or wait at the first conflict."""
    for source in left_out(rebase, state):
        rebase.carrier.give_up(source)
    total = len(rebase.sources)
    for source in rebase.sources[len(state.steps) :]:
        step = carry_one(rebase, source, state)
        state = replace(state, steps=(*state.steps, step))
        if step.state != "conflict":
            state = replace(state, tip=rebase.carrier.tip)
            continue
        session = _lay_out(rebase, state, session, build)
        steps = state.steps
        where = session.tree
        return Progress(state.onto, state.commit, steps, total, where, None, recorded)
    if session:
        rebase.scratch.give(session.repo)
        session.save(state)
    landed = land(rebase, manifest, state, list(state.steps), say)
    if session:
        session.remove()
    return Progress(
        state.onto, state.commit, state.steps, total, None, landed, recorded
    )


def _lay_out(
    rebase: Rebase, state: State, session: Session | None, build: Path
) -> Session:
    """Make a work tree of the conflict; one that cannot be made is not waited for.

    Raises:
        SeriesError: The disk is full, say; the same command works once it is not.
    """
    there = session or new_session(build, rebase.repo)
    try:
        if session is None:
            desk.set_up(there, rebase.scratch, rebase.repo)
        rebase.scratch.give(there.repo)
        there.save(replace(state, ready=False))
        desk.lay_out(there, rebase.scratch, state.tip, rebase.carrier.files)
        there.save(replace(state, ready=True))
    except (SeriesError, OSError) as error:
        # What was decided before stays; `continue` lays the conflict out again.
        if session is None:
            there.remove()
        if isinstance(error, OSError):
            raise of_system(error, there.folder) from error
        raise
    return there


def carry_one(rebase: Rebase, source: Source, state: State) -> Step:
    """Carry a patch; one that is to be edited stops as if it were in conflict."""
    carrier = rebase.carrier
    tip = carrier.tip
    step = carrier.carry(source)
    if step.state not in LANDED or source.patch.file[:4] not in state.edit:
        return step
    carrier.files = merge_patch(rebase.scratch, tip, step.commit, tip)
    carrier.tip = tip
    clash = Clash(carrier.files[0].onto, "it lands, and you asked to edit it")
    return replace(step, state="conflict", commit="", clashes=(clash,))


def left_out(rebase: Rebase, state: State) -> list[Source]:
    return [
        source
        for source, step in zip(rebase.sources, state.steps, strict=False)
        if step.state == "skipped"
    ]
