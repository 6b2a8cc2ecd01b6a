# SPDX-License-Identifier: Apache-2.0
"""The work tree in which a person resolves a conflict: set up, and read back."""

import os
import shutil

from .blobs import tree_with
from .checkout import under_way
from .errors import SeriesError
from .git import GitError, Repository, make_repository
from .scratch import Scratch, missing_from, object_folder
from .state import Session, State
from .threeway import MARKS, FileMerge


class DeskError(SeriesError):
    """The conflict is not resolved, or the work tree is in use for something else."""


def set_up(session: Session, scratch: Scratch, target: Repository) -> Repository:
    """Make the work tree's repository, over the objects of another.

    It is a repository of its own, not a linked worktree: the user's `git worktree
    list`, settings and refs stay as they are.
    """
    if session.tree.exists():
        shutil.rmtree(session.tree)
    repo = make_repository(session.tree)
    info = repo.gitdir / "objects" / "info"
    info.mkdir(exist_ok=True)
    (info / "alternates").write_bytes(os.fsencode(object_folder(target)) + b"\n")
    (repo.gitdir / "shallow").write_bytes((scratch.gitdir / "shallow").read_bytes())
    repo.git("config", "core.autocrlf", "false")
    repo.git("config", "rerere.enabled", "false")
    return repo


def lay_out(
    session: Session, scratch: Scratch, tip: str, files: list[FileMerge]
) -> None:
    """Check the tip out and put the conflicting patch on it, marks and all."""
    repo = session.repo
    # A git that was killed here has left it; the session is held, and all ours.
    (repo.gitdir / "index.lock").unlink(missing_ok=True)
    scratch.give(repo)
    tree = tree_with(scratch, tip, {f.onto: f.result for f in files})
    scratch.give(repo)
    repo.git("update-ref", "--no-deref", "HEAD", tip)
    repo.git("read-tree", "--reset", tree)
    _write_files(repo, [f.onto for f in files if f.result.there])
    lines = []
    for file in files:
        if file.clashes:
            base, theirs, ours = file.sides
            lines.append(f"0 {'0' * 40}\t{file.onto}")
            for stage, entry in ((1, base), (2, ours), (3, theirs)):
                if entry.there:
                    lines.append(f"{entry.mode} {entry.oid} {stage}\t{file.onto}")
    data = os.fsencode("".join(f"{line}\0" for line in lines))
    repo.git("update-index", "-z", "--index-info", stdin=data)


def _write_files(repo: Repository, paths: list[str]) -> None:
    """The whole tree; of a partial clone that lacks some, the patch's files alone."""
    assert repo.worktree is not None
    for item in repo.worktree.iterdir():
        if item.name != ".git":
            shutil.rmtree(item) if item.is_dir() else item.unlink()
    try:
        repo.git("checkout-index", "-a", "-f", "-q")
    except GitError:
        if not _lacks_blobs(repo):
            raise
        listed = os.fsencode("".join(f"{path}\0" for path in paths))
        repo.git("checkout-index", "-f", "-q", "-z", "--stdin", stdin=listed)
        out = repo.git("ls-files", "-z")
        others = [p for p in os.fsdecode(out).split("\0") if p and p not in paths]
        listed = os.fsencode("".join(f"{path}\0" for path in others))
        repo.git("update-index", "--skip-worktree", "-z", "--stdin", stdin=listed)


def _lacks_blobs(repo: Repository) -> bool:
    """Whether the index names blobs that this repository does not have."""
    listed = repo.git("ls-files", "-s", "-z").split(b"\0")
    heads = [entry.split(b"\t")[0].split() for entry in listed if entry]
    oids = {oid.decode() for mode, oid, _ in heads if mode != b"160000"}
    return bool(missing_from(repo, sorted(oids)))


def require_untouched(session: Session, state: State) -> None:
    """Refuse while the user does something of their own in the work tree.

    Raises:
        DeskError: Saying what.
    """
    if not session.tree.exists():
        raise DeskError(
            f"{session.tree} is gone.", "Give the rebase up: apply.py abort"
        )
    require_idle(session)
    if session.repo.resolve("HEAD") != state.tip:
        raise DeskError(
            f"{session.tree} is not at {state.tip[:12]}, where this rebase stands: "
            "somebody committed or switched there.",
            f"Go back, files as they are: git -C '{session.tree}' reset {state.tip}",
        )


def require_idle(session: Session) -> None:
    """Refuse while the work tree is in a rebase, merge or am of the user's own.

    Raises:
        DeskError: Saying which.
    """
    if what := under_way(session.repo):
        raise DeskError(
            f"{session.tree} is in the middle of {what} that is not this tool's.",
            "Finish or abort it there first.",
        )


def resolved_tree(session: Session, state: State) -> str:
    """The tree that the person has made of the conflict.

    Raises:
        DeskError: Conflict marks are left, or nothing differs from the tip.
    """
    repo = session.repo
    left = [path for path in _clashing(state) if _has_marks(session, path)]
    if left:
        raise DeskError(
            f"Conflict marks are left in {', '.join(left)}.",
            f"Edit it in {session.tree}, then: apply.py continue",
        )
    untouched = [path for path in _unmerged(repo) if _undecided(session, state, path)]
    if untouched:
        raise DeskError(
            f"{untouched[0]} is not decided: {_reason(state, untouched[0])}.",
            f"Edit it, or keep it as it is with: git -C '{session.tree}' add "
            f"'{untouched[0]}' (or rm), then: apply.py continue",
        )
    repo.git("add", "-A")
    tree = repo.line("write-tree", "--missing-ok")
    if tree == repo.tree_of(state.tip):
        raise DeskError(
            "Nothing is left of the patch: the files are those of the base.",
            "Leave it out with: apply.py skip",
        )
    return tree


def _clashing(state: State) -> list[str]:
    return sorted({clash.path for clash in state.waiting.clashes})


def _has_marks(session: Session, path: str) -> bool:
    file = session.tree / path
    return file.is_file() and MARKS.search(file.read_bytes()) is not None


def _unmerged(repo: Repository) -> list[str]:
    out = os.fsdecode(repo.git("ls-files", "-u", "-z"))
    return sorted({item.split("\t", 1)[1] for item in out.split("\0") if item})


def _undecided(session: Session, state: State, path: str) -> bool:
    """Whether a clash without marks (a whole file) is as it was laid out."""
    if not any(c.path == path and not c.line for c in state.waiting.clashes):
        return False
    file = session.tree / path
    if not file.is_file():
        return False
    data = file.read_bytes()
    out = session.repo.git("hash-object", "--no-filters", "--stdin", stdin=data)
    staged = os.fsdecode(session.repo.git("ls-files", "-u", "-z", "--", path))
    sides = {item.split(" ")[1] for item in staged.split("\0") if item}
    return out.decode().strip() in sides


def _reason(state: State, path: str) -> str:
    return next(c.reason for c in state.waiting.clashes if c.path == path)
