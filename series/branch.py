# SPDX-License-Identifier: Apache-2.0
"""The series branch: whether it may be moved, and moving it in one step.

A branch is ours to move when its tip is the one that was last written or exported
here (recorded in refs/series/tip/BRANCH), or every commit from the base on was
committed under this tool's own identity. Commits of somebody else that are exported
may be gone from patches/ again: the old tip then stays under refs/series/saved.
"""

import time
from dataclasses import dataclass
from pathlib import Path

from .errors import SeriesError
from .git import GitError, Repository
from .pins import IDENTITY_EMAIL, IDENTITY_NAME
from .scratch import Scratch
from .stack import Commit, read_commits

_STALE_S = 3.0


class BranchError(SeriesError):
    """The branch holds what would be lost, or cannot be moved now."""


@dataclass(frozen=True)
class Plan:
    """What is to happen to the branch.

    Args:
        old: Its tip now, None when it does not exist.
        new: Its tip afterwards.
        saved: The ref that keeps the old tip where --force gives it up.
    """

    old: str | None
    new: str
    saved: str = ""

    @property
    def moves(self) -> bool:
        """Whether the branch changes at all."""
        return self.old != self.new


def plan_move(
    repo: Repository,
    scratch: Scratch,
    branch: str,
    base: str,
    built: list[Commit],
    *,
    force: bool,
) -> Plan:
    """Decide where the branch goes; commits of the same content stay as they are.

    Raises:
        BranchError: Commits would be lost, which it names.
    """
    require_own_ref(repo, branch)
    new = built[-1].oid if built else base
    old = repo.resolve(f"refs/heads/{branch}^{{commit}}")
    if old is None or old == new:
        return Plan(old, new)
    saved = saved_ref(branch, old)
    there = commits_between(repo, scratch, base, old)
    if there is not None:
        if [commit.content for commit in there] == [c.content for c in built]:
            return Plan(old, old)
        if all(
            c.committer == (IDENTITY_NAME, IDENTITY_EMAIL) and len(c.parents) == 1
            for c in there
        ):
            return Plan(old, new)
    if force or recorded_tip(repo, branch) == old:
        return Plan(old, new, saved)
    where = repo.worktree or repo.gitdir
    raise BranchError(
        f"The branch {branch} in {where} has commits that are not in patches/: "
        f"{_lost(there, built, old)}.",
        "Keep them with `apply.py export` (in a clone of yours: apply.py export --vllm "
        f"'{where}'), rename the branch, or give them up with --force (make: "
        "ARGS=--force).",
    )


def saved_ref(branch: str, old: str) -> str:
    """The ref that keeps a tip which the branch leaves."""
    return f"refs/series/saved/{branch}/{old[:12]}"


def require_own_ref(repo: Repository, branch: str) -> None:
    """Refuse a branch that stands for another: moving it would move that one.

    Raises:
        BranchError: It is a symbolic ref.
    """
    if target := repo.ask("symbolic-ref", "-q", f"refs/heads/{branch}"):
        raise BranchError(
            f"The branch {branch} is a symbolic ref to {target.strip()}.",
            f"Remove it: git symbolic-ref -d refs/heads/{branch}",
        )


def commits_between(
    repo: Repository, scratch: Scratch, base: str, tip: str
) -> list[Commit] | None:
    """The commits from base to tip, None where tip does not stand on base."""
    if repo.ask("merge-base", "--is-ancestor", base, tip) is None:
        return None
    return read_commits(scratch, base, tip)


def recorded_tip(repo: Repository, branch: str) -> str | None:
    """The tip that this tool last wrote or exported."""
    return repo.resolve(f"refs/series/tip/{branch}")


def move_branch(repo: Repository, branch: str, base: str, plan: Plan) -> None:
    """Move the branch and the records of it, all or nothing.

    Raises:
        BranchError: Somebody moved or locked the branch meanwhile.
    """
    record = recorded_tip(repo, branch)
    lines = []
    if plan.moves:
        lines.append(f"update refs/heads/{branch} {plan.new} {plan.old or '0' * 40}")
    if record != plan.new:
        lines.append(f"update refs/series/tip/{branch} {plan.new}")
    if repo.resolve(f"refs/series/base/{branch}") != base:
        lines.append(f"update refs/series/base/{branch} {base}")
    if plan.saved and plan.old:
        lines.append(f"update {plan.saved} {plan.old}")
    if not lines:
        return
    words = "".join(f"{line}\n" for line in lines).encode()
    message = ["-m", "apply.py: put the series here"]
    for last in (False, True):
        try:
            repo.git("update-ref", *message, "--stdin", stdin=words)
            return
        except GitError as error:
            if last or "File exists" not in error.stderr:
                in_the_way = f"refs/heads/{branch}/" in error.stderr
                raise BranchError(
                    f"The branch {branch} could not be moved: {error.said}",
                    "Nothing was moved. Rename or delete the branch in the way."
                    if in_the_way
                    else "Nothing was moved. Run it again.",
                ) from error
            _drop_stale_locks(repo.common, branch)


def drop_stale_lock(path: Path) -> None:
    """Remove a lock that a killed git left: it stays the same for three seconds.

    The caller holds the repository, so no run of this tool owns the lock.
    """
    try:
        before = path.lstat().st_mtime_ns
        time.sleep(_STALE_S)
        if path.lstat().st_mtime_ns == before:
            path.unlink()
    except FileNotFoundError:
        return


def _drop_stale_locks(common: Path, branch: str) -> None:
    refs = [f"heads/{branch}", f"series/tip/{branch}", f"series/base/{branch}"]
    for ref in refs:
        lock = common / "refs" / f"{ref}.lock"
        if lock.exists():
            drop_stale_lock(lock)


def _lost(there: list[Commit] | None, built: list[Commit], old: str) -> str:
    """The commits that would be lost, named by subject."""
    if there is None:
        return f"its tip {old[:12]} does not stand on the pinned commit"
    known = {commit.content for commit in built}
    names = [f"{c.oid[:9]} {c.subject}" for c in there if c.content not in known]
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return "; ".join(names[:5]) + more
