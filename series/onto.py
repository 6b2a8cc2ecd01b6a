# SPDX-License-Identifier: Apache-2.0
"""The series onto another base: begun, and taken up again after a conflict.

Everything is built in a scratch repository. Only a conflict that needs a person makes a
work tree, in build/onto/; the series branch moves when all patches are decided.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from . import adapt, desk
from .adapt import folder_for
from .carry import LANDED, Source, Step
from .checkout import require_quiet
from .errors import SeriesError
from .git import Repository, require_git
from .landing import Landed, land
from .locks import locked
from .manifest import Manifest, load_manifest
from .sources import Onto, Rebase, digest_series, find_onto, rebase_over
from .stack import commit_mail
from .state import Session, State, StateError, new_session, session_for, the_session
from .switch import finish_switch
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
            require_quiet(repo, own=True)
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
            return _go_on(rebase, manifest, state, None, build, say)


def resume(build: Path, vllm: Path | None, say: Say, *, skip: bool = False) -> Progress:
    """Take the resolution of the waiting patch, or leave the patch out, and go on.

    Raises:
        SeriesError: No rebase waits, the conflict is not resolved, or something has
            changed since.
    """
    require_git()
    session = the_session(build, vllm)
    repo = session.load().repo
    _require_present(repo, session.load())
    with locked(session.folder), locked(repo.common):
        state = session.load()
        manifest = load_manifest(Path(state.manifest))
        if digest_series(manifest) != state.series:
            raise StateError(
                "patches/ has changed since this rebase began.",
                "Give it up and begin anew: apply.py abort",
            )
        onto = Onto(state.onto, state.commit)
        waits = state.waiting.state == "conflict"
        if waits and state.ready:
            desk.require_untouched(session, state)
        with rebase_over(
            repo, manifest, onto, say, anew=state.anew, objects=session.repo
        ) as rebase:
            rebase.carrier.tip = state.tip
            if not waits:
                # All was decided, and only the branch could not be moved.
                return _go_on(rebase, manifest, state, session, build, say)
            if not state.ready:
                return _lay_out_again(rebase, session, state)
            take = _skip if skip else _take
            state, recorded = take(rebase, session, state, manifest)
            return _go_on(rebase, manifest, state, session, build, say, recorded)


def abort(build: Path, vllm: Path | None) -> tuple[State, Session]:
    """Forget a waiting rebase; nothing else was changed by it.

    Raises:
        SeriesError: No rebase waits, or its work tree is in use.
    """
    session = the_session(build, vllm)
    with locked(session.folder):
        state = session.load()
        if session.tree.exists():
            desk.require_idle(session)
        session.remove()
    return state, session


def _go_on(
    rebase: Rebase,
    manifest: Manifest,
    state: State,
    session: Session | None,
    build: Path,
    say: Callable[[str], None],
    recorded: tuple[Path, ...] = (),
) -> Progress:
    """Carry what is left; land the branch, or wait at the first conflict."""
    for source in _left_out(rebase, state):
        rebase.carrier.give_up(source)
    total = len(rebase.sources)
    for source in rebase.sources[len(state.steps) :]:
        step = _carry(rebase, source, state)
        state = replace(state, steps=(*state.steps, step))
        if step.state != "conflict":
            state = replace(state, tip=rebase.carrier.tip)
            continue
        if session is None:
            session = new_session(build, rebase.repo)
            desk.set_up(session, rebase.scratch, rebase.repo)
        rebase.scratch.give(session.repo)
        session.save(replace(state, ready=False))
        desk.lay_out(session, rebase.scratch, state.tip, rebase.carrier.files)
        session.save(replace(state, ready=True))
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


def _carry(rebase: Rebase, source: Source, state: State) -> Step:
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


def _left_out(rebase: Rebase, state: State) -> list[Source]:
    return [
        source
        for source, step in zip(rebase.sources, state.steps, strict=False)
        if step.state == "skipped"
    ]


def _lay_out_again(rebase: Rebase, session: Session, state: State) -> Progress:
    """A killed run had not laid the conflict out yet: do it now."""
    for source in _left_out(rebase, state):
        rebase.carrier.give_up(source)
    _carry(rebase, rebase.sources[len(state.steps) - 1], state)
    desk.lay_out(session, rebase.scratch, state.tip, rebase.carrier.files)
    session.save(replace(state, ready=True))
    total = len(rebase.sources)
    return Progress(state.onto, state.commit, state.steps, total, session.tree)


def _take(
    rebase: Rebase, session: Session, state: State, manifest: Manifest
) -> tuple[State, tuple[Path, ...]]:
    """The person's resolution as a commit, kept as an adaptation as well."""
    source = rebase.sources[len(state.steps) - 1]
    tree = desk.resolved_tree(session, state)
    commit = commit_mail(rebase.scratch, source.mail, state.tip, tree)
    folder = folder_for(manifest, state.onto)
    name, mail = source.patch.file, source.mail
    path = adapt.record(rebase.scratch, folder, name, mail, state.tip, commit)
    rebase.carrier.tip = commit
    waiting = state.waiting
    step = Step(waiting.file, waiting.title, "resolved", "by hand", commit=commit)
    return replace(state, tip=commit, steps=(*state.steps[:-1], step)), (path,)


def _skip(
    rebase: Rebase, session: Session, state: State, manifest: Manifest
) -> tuple[State, tuple[Path, ...]]:
    waiting = state.waiting
    step = Step(waiting.file, waiting.title, "skipped", "by hand")
    return replace(state, steps=(*state.steps[:-1], step)), ()


def _require_present(repo: Repository, state: State) -> None:
    if not Path(state.common).exists():
        raise StateError(
            f"{state.common} is gone.", "Give the rebase up: apply.py abort"
        )
    if repo.resolve(f"{state.commit}^{{commit}}") is None:
        raise StateError(
            f"{state.onto} ({state.commit[:12]}) is no longer in {state.common}.",
            "Fetch it again, or give the rebase up: apply.py abort",
        )
