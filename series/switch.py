# SPDX-License-Identifier: Apache-2.0
"""Checking the series branch out, so that a run killed half-way can be finished.

Before files change, refs/series/next/BRANCH names the commit that the work tree is
going to; it is there only while that is under way.
"""

from pathlib import Path

from .branch import Plan, drop_stale_lock, move_branch
from .checkout import edited, head_branch
from .errors import SeriesError
from .git import GitError, Repository


class SwitchError(SeriesError):
    """git refused to check the branch out; no file was changed."""


def switch_to(repo: Repository, branch: str, *, own: bool) -> None:
    """Check the branch out; the work tree is clean."""
    new = repo.line("rev-parse", f"refs/heads/{branch}")
    _begin(repo, branch, new)
    _or_end(repo, branch, "switch", "-q", "--no-overwrite-ignore", branch, own=own)
    _end(repo, branch)


def move_under_head(
    repo: Repository, branch: str, base: str, plan: Plan, *, own: bool
) -> None:
    """Move the branch that is checked out here, and the clean work tree with it."""
    _begin(repo, branch, plan.new)
    _or_end(repo, branch, "checkout", "-q", "--detach", plan.new, own=own)
    move_branch(repo, branch, base, plan)
    _attach(repo, branch)
    _end(repo, branch)


def finish_switch(repo: Repository, branch: str, *, own: bool) -> None:
    """Undo what a killed run left of a switch, where nothing but its work is there.

    Files that a user edited since then stay, and the switch is refused later on as
    for every edited work tree.
    """
    going = repo.resolve(f"refs/series/next/{branch}")
    if going is None or repo.worktree is None:
        return
    lock = repo.gitdir / "index.lock"
    if lock.exists():
        drop_stale_lock(lock)
    files = edited(repo, own=own)
    head = repo.line("rev-parse", "HEAD")
    if files and all(_is_half(repo, path, (head, going)) for path in files):
        repo.git("reset", "-q", "--hard", "HEAD", user=not own)
        files = []
    if not files:
        _remove_new(repo, head, going)
        if head == going == repo.resolve(f"refs/heads/{branch}"):
            _attach(repo, branch)
        _end(repo, branch)


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
    return [ref]


def _begin(repo: Repository, branch: str, new: str) -> None:
    repo.git("update-ref", f"refs/series/next/{branch}", new)


def _or_end(repo: Repository, branch: str, *words: str, own: bool) -> None:
    """Change the work tree; git refuses before it touches a file, then all is over.

    Raises:
        SwitchError: With git's own reason.
    """
    try:
        repo.git(*words, user=not own)
    except GitError as error:
        _end(repo, branch)
        reason = " ".join(error.stderr.split())[:400]
        raise SwitchError(
            f"{repo.worktree} could not be switched to {branch}: {reason}",
            "Move what is in the way (a file, or the other work tree that has the "
            "branch), then switch.",
        ) from error


def _end(repo: Repository, branch: str) -> None:
    repo.git("update-ref", "-d", f"refs/series/next/{branch}")


def _attach(repo: Repository, branch: str) -> None:
    if head_branch(repo) != branch:
        why = "apply.py: check the series out"
        repo.git("symbolic-ref", "-m", why, "HEAD", f"refs/heads/{branch}")


def _is_half(repo: Repository, path: str, commits: tuple[str, str]) -> bool:
    """Whether a file holds what one of two commits has, whole or cut off."""
    assert repo.worktree is not None
    there = _read(repo.worktree / path)
    blobs = [_blob(repo, commit, path) for commit in commits]
    if blobs[0] == blobs[1]:
        return False
    if there is None:
        return True
    return any(blob is not None and blob.startswith(there) for blob in blobs)


def _remove_new(repo: Repository, head: str, going: str) -> None:
    """Remove untracked files that the switch had already written."""
    assert repo.worktree is not None
    flags = ["-r", "-z", "--name-only", "--no-renames", "--diff-filter=A"]
    out = repo.git("diff-tree", *flags, head, going)
    for name in out.decode("utf-8", "surrogateescape").split("\0")[:-1]:
        there = _read(repo.worktree / name)
        blob = _blob(repo, going, name)
        if there is not None and blob is not None and blob.startswith(there):
            (repo.worktree / name).unlink()


def _blob(repo: Repository, commit: str, path: str) -> bytes | None:
    if repo.resolve(f"{commit}:{path}") is None:
        return None
    return repo.git("cat-file", "blob", f"{commit}:{path}")


def _read(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except OSError:
        return None
