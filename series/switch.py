# SPDX-License-Identifier: Apache-2.0
"""Checking the series branch out, so that a run cut off half-way can be finished.

Before files change, two refs of this work tree alone, refs/worktree/series/from/BRANCH
and next/BRANCH, name the commits that it leaves and goes to; they are there until all
files are those of one commit again, and count only while HEAD is at one of the two.
"""

from contextlib import suppress

from .branch import Plan, move_branch
from .checkout import edited, head_branch, require_quiet, under_way
from .disk import brief
from .errors import SeriesError
from .git import GitError, Repository
from .halfway import (
    drop_lock,
    in_the_way,
    put_back,
    require_no_git,
    strangers,
    unwritten,
)

_CAREFUL = ("-q", "--no-overwrite-ignore")


class SwitchError(SeriesError):
    """The branch could not be checked out; it says whether files are half-way."""


def switch_to(repo: Repository, branch: str, *, own: bool) -> None:
    """Check the branch out; the work tree is clean."""
    new = repo.line("rev-parse", f"refs/heads/{branch}")
    words = ("switch", *_CAREFUL, branch)
    _go(repo, branch, new, *words, own=own)
    _end(repo, branch)


def move_under_head(
    repo: Repository, branch: str, base: str, plan: Plan, *, own: bool
) -> None:
    """Move the branch that is checked out here, and the clean work tree with it."""
    words = ("checkout", *_CAREFUL, "--detach", plan.new)
    _go(repo, branch, plan.new, *words, own=own)
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
    if repo.worktree is None or not any(map(repo.resolve, _journal(branch))):
        return
    other = _other_end(repo, branch)
    if other is None:
        # HEAD went elsewhere since: what lies there is the user's.
        _end(repo, branch)
        return
    try:
        if put_back(repo, other, own=own) is None:
            return
    except SeriesError as error:
        raise _half_way(repo, branch, error) from error
    with suppress(SeriesError):
        require_no_git(repo)
    going = repo.resolve(_journal(branch)[1])
    if going == repo.resolve("HEAD") == repo.resolve(f"refs/heads/{branch}"):
        _attach(repo, branch)
    _end(repo, branch)


def require_ready(repo: Repository, branch: str, *, own: bool) -> None:
    """Refuse to switch a work tree that is bare, edited, or in the middle of a step.

    Raises:
        SeriesError: Naming what is in the way.
    """
    other = _other_end(repo, branch)
    if other and repo.worktree and (mine := strangers(repo, other, own=own)):
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
    _begin(repo, branch, new)
    try:
        repo.git(*words, user=not own)
        # git passes over a file that it cannot create, and says that all is well.
        if left := unwritten(repo, own=own):
            raise SeriesError(f"git did not write {', '.join(left[:3])}.")
    except SeriesError as error:
        drop_lock(repo, error)
        count = _put_back(repo, branch, error, own=own)
        if repo.resolve("HEAD") == new:
            return
        _end(repo, branch)
        undone = ". What it had written is undone." if count else ""
        raise SwitchError(
            f"{what}: {_reason(error)}{undone}", error.hint or hint
        ) from error


def _put_back(repo: Repository, branch: str, error: SeriesError, *, own: bool) -> int:
    """Put the files right after a git that failed; returns how many were not.

    Raises:
        SwitchError: That failed too.
    """
    other = _other_end(repo, branch)
    if other is None:
        return 0
    try:
        count = put_back(repo, other, own=own)
    except SeriesError as again:
        raise _half_way(repo, branch, again) from error
    if count is None:
        raise _half_way(repo, branch, error) from error
    return count


def _go_back(
    repo: Repository, branch: str, plan: Plan, error: SeriesError, *, own: bool
) -> None:
    """Check the branch out where it still is, after it could not be moved.

    Raises:
        SwitchError: That failed too.
    """
    try:
        words = ("switch", *_CAREFUL, branch)
        _go(repo, branch, plan.old or plan.new, *words, own=own)
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


def _journal(branch: str) -> tuple[str, str]:
    """The refs of a switch that is under way, of this work tree alone."""
    return (
        f"refs/worktree/series/from/{branch}",
        f"refs/worktree/series/next/{branch}",
    )


def _begin(repo: Repository, branch: str, new: str) -> None:
    ends = (repo.resolve("HEAD") or new, new)
    pairs = zip(_journal(branch), ends, strict=True)
    listed = "".join(f"update {ref} {commit}\n" for ref, commit in pairs)
    repo.git("update-ref", "--stdin", stdin=listed.encode())


def _other_end(repo: Repository, branch: str) -> str | None:
    """Where a switch that has not ended leads, seen from HEAD; None without one."""
    start, going = map(repo.resolve, _journal(branch))
    head = repo.resolve("HEAD")
    if start is None or going is None or head not in (start, going):
        return None
    return going if head == start else start


def _end(repo: Repository, branch: str) -> None:
    for ref in _journal(branch):
        try:
            repo.git("update-ref", "-d", ref)
        except SeriesError:
            # From HEAD to HEAD it means nothing.
            with suppress(SeriesError):
                repo.git("update-ref", ref, "HEAD")


def _attach(repo: Repository, branch: str) -> None:
    if not head_branch(repo) and not under_way(repo):
        why = "apply.py: check the series out"
        repo.git("symbolic-ref", "-m", why, "HEAD", f"refs/heads/{branch}")
