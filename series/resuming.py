# SPDX-License-Identifier: Apache-2.0
"""A waiting rebase taken up again: continued, a patch left out, or given up."""

from dataclasses import replace
from pathlib import Path

from . import adapt, desk
from .adapt import folder_for
from .carry import Step
from .git import Repository, require_git
from .locks import locked
from .manifest import Manifest, load_manifest
from .onto import Progress, carry_one, go_on, left_out
from .sources import Onto, Rebase, digest_series, rebase_over
from .stack import commit_mail
from .state import Session, State, StateError, the_session
from .target import Say


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
                return go_on(rebase, manifest, state, session, build, say)
            if not state.ready:
                return _lay_out_again(rebase, session, state)
            take = _skip if skip else _take
            state, recorded = take(rebase, session, state, manifest)
            return go_on(rebase, manifest, state, session, build, say, recorded)


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


def _lay_out_again(rebase: Rebase, session: Session, state: State) -> Progress:
    """A killed run had not laid the conflict out yet: do it now."""
    for source in left_out(rebase, state):
        rebase.carrier.give_up(source)
    carry_one(rebase, rebase.sources[len(state.steps) - 1], state)
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
