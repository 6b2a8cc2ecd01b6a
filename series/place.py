# SPDX-License-Identifier: Apache-2.0
"""The series goes onto its branch: built aside, checked by content, moved last."""

from dataclasses import dataclass, replace
from pathlib import Path

from .branch import BranchError, Plan, move_branch, plan_move
from .checkout import edited, head_branch, holders, under_way
from .errors import SeriesError
from .git import Repository
from .locks import locked
from .mail import ABSENT, Mail, read_mail
from .manifest import Manifest
from .scratch import Scratch, scratch_over
from .stack import Commit, build_stack, diff_files, read_commits
from .switch import (
    finish_switch,
    move_under_head,
    require_ready,
    save_edits,
    switch_to,
)
from .target import Base, Say, complete, complete_trees, find_base, require_sha1
from .verify import (
    blob_ids,
    first_images,
    require_base,
    require_images,
    require_result,
)


@dataclass(frozen=True)
class Row:
    """One patch as it lies on the branch."""

    file: str
    title: str
    purpose: str
    commit: str
    files: int
    added: int
    removed: int


@dataclass(frozen=True)
class Outcome:
    """What `place_series` did and where it is.

    Args:
        branch: The series branch.
        base: The commit that it stands on.
        tip: Its last commit.
        tree: The tree of tip.
        rows: The patches, in order.
        where: The work tree, or the git directory of a bare repository.
        bare: Whether there is no work tree.
        moved: Whether anything changed; False: it was already applied.
        switched: Whether the work tree has the branch checked out.
        fetched: The remote that the pin was fetched from, or empty.
        saved: Refs that keep what --force gave up.
        edited: Files of the checked out branch that are edited and not committed.
        not_switched: Why --switch was refused, or empty.
    """

    branch: str
    base: str
    tip: str
    tree: str
    rows: tuple[Row, ...]
    where: Path
    bare: bool
    moved: bool
    switched: bool
    fetched: str = ""
    saved: tuple[str, ...] = ()
    edited: int = 0
    not_switched: SeriesError | None = None

    def at(self, where: Path) -> "Outcome":
        """The same, in another place."""
        return replace(self, where=where)


@dataclass(frozen=True)
class Built:
    """The series as commits in a scratch repository."""

    base: Base
    mails: list[Mail]
    commits: list[Commit]


def place_series(
    repo: Repository,
    manifest: Manifest,
    *,
    own: bool = False,
    switch: bool = False,
    force: bool = False,
    say: Say = lambda line: None,
) -> Outcome:
    """Put the series on its branch; nothing is seen before all of it is right.

    Args:
        own: The repository is build/vllm, whose work tree follows the branch.
        switch: Check the branch out as well, on a clean work tree.
        force: Give up commits and edits that are in the way; they are kept under
            refs/series/saved.
        say: Called with a line before something that takes time.

    Raises:
        SeriesError: It could not be done, and nothing was moved.
    """
    require_sha1(repo)
    with (
        locked(repo.common, lambda: say("Another run is at work here: waiting.")),
        scratch_over(repo) as scratch,
    ):
        branch = manifest.series.branch
        finish_switch(repo, branch, own=own)
        built = build_series(repo, scratch, manifest, say)
        base = built.base.commit
        plan = plan_move(repo, scratch, branch, base, built.commits, force=force)
        saved = [plan.saved] if plan.saved else []
        here = head_branch(repo) == branch and repo.worktree is not None
        refused: SeriesError | None = None
        if plan.moves:
            _require_free(repo, branch, here and switch)
        if own and force and (plan.moves or not here) and not under_way(repo):
            saved += save_edits(repo, branch)
        if switch and (plan.moves or not here):
            try:
                require_ready(repo, branch, own=own)
            except SeriesError as error:
                if own or here:
                    raise
                refused, switch = error, False
        scratch.give(repo)
        if plan.moves and here:
            move_under_head(repo, branch, base, plan, own=own)
        else:
            move_branch(repo, branch, base, plan)
        if switch and not here:
            try:
                switch_to(repo, branch, own=own)
            except SeriesError as error:
                refused, switch = error, False
        switched = here or switch
        outcome = _outcome(scratch, manifest, repo, built, plan)
        return replace(
            outcome,
            moved=plan.moves or (switch and not here),
            switched=switched,
            saved=tuple(saved),
            edited=len(edited(repo, own=own)) if switched else 0,
            not_switched=refused,
        )


def build_series(
    repo: Repository, scratch: Scratch, manifest: Manifest, say: Say
) -> Built:
    """Build the series in scratch and check it by content.

    Raises:
        SeriesError: A patch, the base or the result is not what it must be.
    """
    mails = [read_mail(scratch, path) for path in manifest.files]
    images = {path: pre for path, (pre, _) in first_images(mails).items()}
    touched = [path for path, pre in images.items() if pre != ABSENT]
    base = find_base(repo, manifest, touched, say)
    scratch.begin_at(base.commit)
    if scratch.ask("ls-tree", "-r", "--name-only", base.commit) is None:
        complete_trees(repo, base.commit, say)
    require_base(scratch, base.commit, mails)
    looked_at = {s.file for patch in manifest.patch for s in patch.symbols}
    looked_at.update(path for mail in mails for path in mail.paths)
    needed = set(blob_ids(scratch, base.commit, sorted(looked_at)).values())
    complete(repo, scratch.missing(sorted(needed)), say)
    tips = build_stack(scratch, base.commit, mails)
    tip = tips[-1] if tips else base.commit
    commits = read_commits(scratch, base.commit, tip)
    require_result(scratch, manifest, base.commit, commits)
    require_images(scratch, base.commit, tip, mails)
    return Built(base, mails, commits)


def _require_free(repo: Repository, branch: str, under_head: bool) -> None:
    """Refuse to move a branch under the feet of a work tree that has it out."""
    held = holders(repo, branch)
    if under_head and repo.worktree is not None:
        held = [path for path in held if not path.samefile(repo.worktree)]
    if not held:
        return
    raise BranchError(
        f"The branch {branch} is checked out in {held[0]} and would be moved.",
        f"Leave it first: git -C '{held[0]}' switch --detach (or use --switch there).",
    )


def _outcome(
    scratch: Scratch, manifest: Manifest, repo: Repository, built: Built, plan: Plan
) -> Outcome:
    base = built.base.commit
    commits = read_commits(scratch, base, plan.new)
    rows = []
    for patch, commit in zip(manifest.patch, commits, strict=True):
        files = diff_files(scratch, commit.parents[0], commit.oid)
        rows.append(
            Row(
                file=patch.file,
                title=patch.title,
                purpose=patch.purpose,
                commit=commit.oid,
                files=len(files),
                added=sum(file.added for file in files),
                removed=sum(file.removed for file in files),
            )
        )
    return Outcome(
        branch=manifest.series.branch,
        base=base,
        tip=plan.new,
        tree=scratch.tree_of(plan.new),
        rows=tuple(rows),
        where=repo.worktree or repo.gitdir,
        bare=repo.worktree is None,
        moved=plan.moves,
        switched=False,
        fetched=built.base.fetched,
    )
