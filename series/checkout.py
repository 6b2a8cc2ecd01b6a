# SPDX-License-Identifier: Apache-2.0
"""The work trees of a repository: what is checked out, edited, or under way."""

import os
from pathlib import Path

from .errors import SeriesError
from .git import Repository

_UNDER_WAY = {
    "rebase-merge": "a rebase",
    "rebase-apply": "an am or a rebase",
    "MERGE_HEAD": "a merge",
    "CHERRY_PICK_HEAD": "a cherry-pick",
    "REVERT_HEAD": "a revert",
    "BISECT_LOG": "a bisect",
}


class CheckoutError(SeriesError):
    """The work tree is in a state that must not be touched."""


def head_branch(repo: Repository) -> str:
    """The branch that is checked out here, empty for a detached HEAD."""
    name = repo.ask("symbolic-ref", "-q", "HEAD") or ""
    return name.removeprefix("refs/heads/")


def under_way(repo: Repository) -> str:
    """What is in progress in this work tree: 'a rebase', …; empty for nothing."""
    names = (what for name, what in _UNDER_WAY.items() if (repo.gitdir / name).exists())
    return next(names, "")


def edited(repo: Repository, *, own: bool) -> list[str]:
    """Tracked files that differ from HEAD, in the index or in the work tree.

    Args:
        own: The tree is build/vllm: a user's line-end settings do not count.
    """
    flags = ["--porcelain=v1", "-z", "--untracked-files=no", "--no-renames"]
    out = repo.git("status", *flags, "--ignore-submodules=all", user=not own)
    return [os.fsdecode(entry[3:]) for entry in out.split(b"\0") if entry]


def holders(repo: Repository, branch: str) -> list[Path]:
    """The work trees that have a branch checked out, or are rebasing it."""
    found: list[Path] = []
    path = Path()
    out = repo.git("worktree", "list", "--porcelain")
    for line in os.fsdecode(out).splitlines():
        if line.startswith("worktree "):
            path = Path(line.removeprefix("worktree "))
        elif line == f"branch refs/heads/{branch}" and path.exists():
            found.append(path)
    folders = [repo.common, *(repo.common / "worktrees").glob("*")]
    for folder in folders:
        for name in ("rebase-merge/head-name", "rebase-apply/head-name"):
            head = folder / name
            if head.is_file() and head.read_text().strip() == f"refs/heads/{branch}":
                found.append(_tree_of(folder))
    return found


def _tree_of(gitdir: Path) -> Path:
    """The work tree of a git directory, main or linked."""
    link = gitdir / "gitdir"
    return Path(link.read_text().strip()).parent if link.is_file() else gitdir.parent


def require_quiet(repo: Repository, *, own: bool) -> None:
    """Refuse to switch a work tree that is bare, edited, or in the middle of a step.

    Raises:
        CheckoutError: Naming what is in the way.
    """
    if repo.worktree is None:
        raise CheckoutError(
            f"{repo.gitdir} is bare: there is no work tree to switch.",
            "Leave --switch out.",
        )
    if what := under_way(repo):
        raise CheckoutError(
            f"{repo.worktree} is in the middle of {what}.",
            "Finish or abort it, then switch.",
        )
    if files := edited(repo, own=own):
        more = f" and {len(files) - 3} more" if len(files) > 3 else ""
        raise CheckoutError(
            f"{repo.worktree} has uncommitted changes: {', '.join(files[:3])}{more}.",
            "Commit or undo them first."
            if not own
            else "Commit them and run `apply.py export`, or drop them with --force.",
        )
