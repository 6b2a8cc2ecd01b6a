# SPDX-License-Identifier: Apache-2.0
"""Checking the series branch out, so that a run cut off half-way can be finished.

Before files change, refs/series/next/BRANCH names the commit that the work tree is
going to; it is there until all files are those of one commit again.
"""

from .branch import Plan, drop_stale_lock, move_branch
from .checkout import edited, head_branch, require_quiet
from .disk import brief
from .errors import SeriesError
from .git import GitError, Repository
from .halfway import drop_lock, in_the_way, put_back, strangers


class SwitchError(SeriesError):
    """The branch could not be checked out; it says whether files are half-way."""


def switch_to(repo: Repository, branch: str, *, own: bool) -> None:
    """Check the branch out; the work tree is clean."""
    new = repo.line("rev-parse", f"refs/heads/{branch}")
    words = ("switch", "-q", "--no-overwrite-ignore", branch)
    _go(repo, branch, new, *words, own=own)
    _end(repo, branch)


def move_under_head(
    repo: Repository, branch: str, base: str, plan: Plan, *, own: bool
) -> None:
    """Move the branch that is checked out here, and the clean work tree with it."""
    _go(repo, branch, plan.new, "checkout", "-q", "--detach", plan.new, own=own)
    try:
        move_branch(repo, branch, base, plan)
    except SeriesError as error:
        _go_back(repo, branch, plan, error, own=own)
        raise
    _attach(repo, branch)
    _end(repo, branch)


def finish_switch(repo: Repository, branch: str, *, own: bool) -> None:
    """Undo what a run that was cut off left of a switch.

    Where a user has edited files since then, all stay as they are.

    Raises:
        SwitchError: It cannot be undone: the disk is full, say.
    """
    going = repo.resolve(f"refs/series/next/{branch}")
    if going is None or repo.worktree is None:
        return
    lock = repo.gitdir / "index.lock"
    if lock.exists():
        drop_stale_lock(lock)
    try:
        if put_back(repo, going, own=own) is None:
            return
    except SeriesError as error:
        raise _half_way(repo, branch, error) from error
    if going == repo.resolve("HEAD") == repo.resolve(f"refs/heads/{branch}"):
        _attach(repo, branch)
    _end(repo, branch)


def require_ready(repo: Repository, branch: str, *, own: bool) -> None:
    """Refuse to switch a work tree that is bare, edited, or in the middle of a step.

    Raises:
        SeriesError: Naming what is in the way.
    """
    going = repo.resolve(f"refs/series/next/{branch}")
    if going and repo.worktree and (mine := strangers(repo, going, own=own)):
        more = f" and {len(mine) - 3} more" if len(mine) > 3 else ""
        raise SwitchError(
            f"A switch of {repo.worktree} to {branch} was cut off half-way, and files "
            f"were edited since: {', '.join(mine[:3])}{more}.",
            "Do not commit yet. Move your edits aside, undo them there (git checkout "
            "HEAD -- FILE), and run it again: the rest is put back then.",
        )
    require_quiet(repo, own=own)


def save_edits(repo: Repository, branch: str) -> list[str]:
    """Keep the uncommitted changes of a work tree under a ref, then undo them.

    Returns:
        The ref, or nothing where there were no changes.
    """
    if not edited(repo, own=True):
        return []
    kept = repo.line("stash", "create")
    ref = f"refs/series/saved/{branch}/{kept[:12]}"
    repo.git("update-ref", ref, kept)
    repo.git("reset", "-q", "--hard", "HEAD")
    finish_switch(repo, branch, own=True)
    return [ref]


def _go(repo: Repository, branch: str, new: str, *words: str, own: bool) -> None:
    """Change the work tree; where that fails, put it back.

    git looks before it touches a file, but where a write fails it leaves what it has
    written and removed so far.

    Raises:
        SwitchError: With git's own reason.
    """
    what = f"{repo.worktree} could not be switched to {branch}"
    hint = (
        "Move what is in the way (a file, or the other work tree that has the "
        "branch), then switch."
    )
    if there := in_the_way(repo, new):
        raise SwitchError(f"{what}: {there[0]} is there and not tracked.", hint)
    repo.git("update-ref", f"refs/series/next/{branch}", new)
    try:
        repo.git(*words, user=not own)
    except SeriesError as error:
        drop_lock(repo, error)
        try:
            count = put_back(repo, new, own=own)
        except SeriesError as again:
            raise _half_way(repo, branch, again) from error
        if count is None:
            raise _half_way(repo, branch, error) from error
        _end(repo, branch)
        undone = ". What it had written is undone." if count else ""
        raise SwitchError(
            f"{what}: {_reason(error)}{undone}", error.hint or hint
        ) from error


def _go_back(
    repo: Repository, branch: str, plan: Plan, error: SeriesError, *, own: bool
) -> None:
    """Check the branch out where it still is, after it could not be moved.

    Raises:
        SwitchError: That failed too.
    """
    try:
        _go(repo, branch, plan.old or plan.new, "switch", "-q", branch, own=own)
        _end(repo, branch)
    except SeriesError as again:
        raise SwitchError(
            f"{error.what} {repo.worktree} could not go back to the branch either; it "
            f"has {plan.new[:12]}, detached: {again.what}",
            again.hint or error.hint,
        ) from error


def _half_way(repo: Repository, branch: str, error: SeriesError) -> SwitchError:
    return SwitchError(
        f"{repo.worktree} is half-way between two commits: a switch to {branch} was "
        f"cut off, and could not be undone: {_reason(error)}",
        "Do not commit there. Make room on its disk (or mend what else it says), and "
        "run the same command again: it puts the files right first.",
    )


def _reason(error: SeriesError) -> str:
    if isinstance(error, GitError):
        return brief(error.stderr) or error.what
    return error.what


def _end(repo: Repository, branch: str) -> None:
    repo.git("update-ref", "-d", f"refs/series/next/{branch}")


def _attach(repo: Repository, branch: str) -> None:
    if head_branch(repo) != branch:
        why = "apply.py: check the series out"
        repo.git("symbolic-ref", "-m", why, "HEAD", f"refs/heads/{branch}")
