# SPDX-License-Identifier: Apache-2.0
"""A carried series goes onto its branch: checked by content, moved last."""

from dataclasses import dataclass
from pathlib import Path

from . import health
from .branch import (
    BranchError,
    Plan,
    move_branch,
    plan_move,
    recorded_tip,
    require_own_ref,
    saved_ref,
)
from .carry import Step
from .checkout import head_branch, holders
from .errors import SeriesError
from .git import Repository
from .manifest import Manifest
from .pins import IDENTITY_EMAIL
from .scratch import Scratch
from .sources import Rebase
from .stack import read_commits
from .state import State
from .switch import (
    finish_switch,
    move_under_head,
    require_ready,
    save_edits,
    switch_to,
)
from .target import Say


class LandingError(SeriesError):
    """What applied does not hold, or the branch is not where it was."""


@dataclass(frozen=True)
class Landed:
    """The branch after a rebase.

    Args:
        branch: Its name.
        tip: Its last commit.
        tree: The tree of that commit.
        where: The work tree, or the git directory of a bare repository.
        moved: Whether it moved; False: it was there already.
        switched: Whether the work tree has it checked out.
        saved: Refs that keep what --force gave up.
    """

    branch: str
    tip: str
    tree: str
    where: Path
    moved: bool
    switched: bool
    saved: tuple[str, ...] = ()


def land(
    rebase: Rebase, manifest: Manifest, state: State, steps: list[Step], say: Say
) -> Landed:
    """Move the series branch to the carried commits.

    Raises:
        SeriesError: Something is wrong with them or with the branch; nothing moved.
    """
    repo, scratch, branch = rebase.repo, rebase.scratch, state.branch
    base, tip = state.commit, rebase.carrier.tip
    faults = [
        *health.syntax_faults(scratch, base, tip),
        *health.symbol_faults(scratch, manifest, steps, tip, rebase.carrier.need),
        *health.round_trip_faults(scratch, base, tip),
    ]
    if faults:
        raise LandingError(
            f"The series applies to {state.onto}, but is broken there: "
            f"{'; '.join(faults)}.",
            "Nothing was moved. Correct it in a conflict's work tree, or record an "
            "adaptation.",
        )
    finish_switch(repo, branch, own=state.own)
    # A run that was killed after it had moved the branch finds it done.
    if (repo.resolve(f"refs/heads/{branch}") or "") not in (state.old, tip):
        raise LandingError(
            f"The branch {branch} has moved since this rebase began.",
            "Nothing was moved. Give the rebase up and begin anew: apply.py abort",
        )
    built = read_commits(scratch, base, tip)
    plan = _plan(repo, scratch, branch, base, tip, built, force=state.force)
    here = head_branch(repo) == branch and repo.worktree is not None
    _require_free(repo, branch, under_head=here and state.switch)
    switch = state.switch and (plan.moves or not here)
    if switch and not (state.own and state.force):
        require_ready(repo, branch, own=state.own)
    saved = save_edits(repo, branch) if switch and state.own and state.force else []
    give_range(scratch, repo, base, tip)
    if plan.moves and here:
        move_under_head(repo, branch, base, plan, own=state.own)
    else:
        move_branch(repo, branch, base, plan)
        if switch and not here:
            switch_to(repo, branch, own=state.own)
    kept = (*([plan.saved] if plan.saved else []), *saved)
    tree = scratch.tree_of(tip)
    where = repo.worktree or repo.gitdir
    now = head_branch(repo) == branch and repo.worktree is not None
    return Landed(branch, plan.new, tree, where, plan.moves, now, tuple(kept))


def _plan(
    repo: Repository,
    scratch: Scratch,
    branch: str,
    base: str,
    tip: str,
    built: list,
    *,
    force: bool,
) -> Plan:
    """As for the pin; a branch on another base must be the one that was recorded."""
    require_own_ref(repo, branch)
    old = repo.resolve(f"refs/heads/{branch}^{{commit}}")
    if old is None or old == tip:
        return Plan(old, tip)
    if recorded_tip(repo, branch) == old:
        ours = repo.ask("log", "-1", "--format=%ce", old) == IDENTITY_EMAIL
        return Plan(old, tip, "" if ours else saved_ref(branch, old))
    return plan_move(repo, scratch, branch, base, built, force=force)


def _require_free(repo: Repository, branch: str, *, under_head: bool) -> None:
    held = holders(repo, branch)
    if under_head and repo.worktree is not None:
        held = [path for path in held if not path.samefile(repo.worktree)]
    if held:
        raise BranchError(
            f"The branch {branch} is checked out in {held[0]} and would be moved.",
            f"Leave it first: git -C '{held[0]}' switch --detach (or use --switch "
            "there).",
        )


def give_range(scratch: Scratch, receiver: Repository, base: str, tip: str) -> None:
    """Hand the commits between base and tip to a repository, wherever they lie."""
    if base == tip:
        return
    spec = f"{tip}\n^{base}\n".encode()
    flags = ["--objects", "--missing=allow-any", "--no-object-names", "--stdin"]
    listed = scratch.git("rev-list", *flags, stdin=spec)
    pack = scratch.git("pack-objects", "--stdout", "-q", stdin=listed)
    receiver.git("unpack-objects", "-q", stdin=pack)
