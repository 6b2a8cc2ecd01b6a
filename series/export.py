# SPDX-License-Identifier: Apache-2.0
"""The branch goes back into patches/, in bytes that depend on its commits alone."""

from dataclasses import dataclass
from pathlib import Path

from .branch import commits_between, recorded_tip
from .canonical import lost_on_the_way, write_patches
from .checkout import edited, head_branch, holders, under_way
from .errors import DiskError, SeriesError
from .files import ExportError, replace_files
from .git import Repository
from .locks import locked
from .mail import ABSENT, PatchError, read_mail
from .manifest import Manifest, Patch, load_manifest
from .scratch import Scratch, scratch_over
from .stack import Commit, build_stack, diff_files
from .tables import Entry, match_entries, new_text
from .target import Say, complete, local_base
from .verify import BaseError, require_base, require_result


@dataclass(frozen=True)
class Exported:
    """What an export changed.

    Args:
        branch: The branch that was exported.
        tip: Its tip.
        written: Files of patches/ with other bytes than before.
        removed: Files that are gone.
        new: Files that got a skeleton table in series.toml.
        tree: The recorded tree id, empty where it could not be computed here.
        note: What `apply` would now refuse, or empty.
    """

    branch: str
    tip: str
    written: tuple[str, ...]
    removed: tuple[str, ...]
    new: tuple[str, ...]
    tree: str
    note: str


def export_series(
    repo: Repository,
    manifest: Manifest,
    *,
    own: bool,
    prune: bool,
    pinned: Repository | None,
    say: Say,
) -> Exported:
    """Write the commits of the series branch to patches/ and series.toml.

    Args:
        own: The repository is build/vllm.
        prune: Remove the patches whose commits are gone.
        pinned: The tree of the source distribution, to record the tree id on it.

    Raises:
        SeriesError: The branch or a work tree is in no state to be exported.
    """
    branch, folder = manifest.series.branch, manifest.folder
    with (
        locked(folder, lambda: say("Another export is at work: waiting.")),
        locked(repo.common, lambda: say("Another run is at work here: waiting.")),
        scratch_over(repo) as scratch,
    ):
        base = local_base(repo, manifest.pin, [])
        tip = repo.resolve(f"refs/heads/{branch}^{{commit}}")
        if base is None or tip is None:
            raise ExportError(
                f"{repo.worktree or repo.gitdir} has no branch {branch} on the pinned "
                f"commit.",
                "Run `apply.py apply` there first.",
            )
        _require_settled(repo, branch, tip, own=own)
        scratch.begin_at(base)
        commits = _series_commits(repo, scratch, base, tip)
        _complete_blobs(repo, scratch, commits, say)
        files = write_patches(scratch, base, tip)
        _require_round_trip(scratch, base, commits, files)
        entries, gone = match_entries(
            manifest.patch,
            [commit.subject for commit in commits],
            [path.name for path in files],
        )
        _require_tables(manifest, entries, gone, prune=prune)
        tree = _pinned_tree(scratch, manifest, base, tip, files, pinned)
        new = {
            e.file: path.read_bytes() for e, path in zip(entries, files, strict=True)
        }
        text = new_text(manifest.path.read_text("utf-8"), manifest, entries, tree)
        written, removed = replace_files(manifest, new, text)
        if recorded_tip(repo, branch) != tip:
            repo.git("update-ref", f"refs/series/tip/{branch}", tip)
        note = _refused_later(scratch, manifest.path, base, commits)
        fresh = tuple(entry.file for entry in entries if entry.known is None)
        return Exported(branch, tip, written, removed, fresh, tree, note)


def _require_settled(repo: Repository, branch: str, tip: str, *, own: bool) -> None:
    """Refuse while a work tree holds changes that the branch does not have."""
    for path in holders(repo, branch):
        tree = Repository.find(path)
        if what := under_way(tree):
            raise ExportError(
                f"{path} is in the middle of {what}.", "Finish or abort it first."
            )
        if files := edited(tree, own=own):
            more = f" and {len(files) - 3} more" if len(files) > 3 else ""
            raise ExportError(
                f"{path} has uncommitted changes: {', '.join(files[:3])}{more}.",
                "Commit them, or undo them; only commits are exported.",
            )
    if own and head_branch(repo) != branch and repo.resolve("HEAD") != tip:
        raise ExportError(
            f"{repo.worktree} is not on {branch}, which is what would be exported.",
            f"Switch to it, or move it: git switch -C {branch}",
        )


def _series_commits(
    repo: Repository, scratch: Scratch, base: str, tip: str
) -> list[Commit]:
    """The commits to export; merges, empty and equally named ones are refused."""
    commits = commits_between(repo, scratch, base, tip)
    if commits is None:
        raise ExportError(
            f"The branch does not stand on the pinned commit {base[:12]}.",
            "Rebase it there first.",
        )
    seen: dict[str, str] = {}
    before = scratch.tree_of(base)
    for commit in commits:
        what = ""
        if len(commit.parents) != 1:
            what = "is a merge"
        elif commit.tree == before:
            what = "changes nothing"
        elif commit.subject in seen:
            what = f"has the same subject as {seen[commit.subject]}"
        if what:
            raise ExportError(
                f"{commit.oid[:9]} ({commit.subject}) {what}.",
                f"Rewrite the branch: git rebase -i {base[:12]}",
            )
        seen[commit.subject] = commit.oid[:9]
        before = commit.tree
    return commits


def _complete_blobs(
    repo: Repository, scratch: Scratch, commits: list[Commit], say: Say
) -> None:
    needed: set[str] = set()
    for commit in commits:
        for file in diff_files(scratch, commit.parents[0], commit.oid):
            needed |= {file.pre, file.post} - {ABSENT}
    complete(repo, scratch.missing(sorted(needed)), say)


def _require_round_trip(
    scratch: Scratch, base: str, commits: list[Commit], files: list[Path]
) -> None:
    """Refuse commits that a patch file cannot carry, before anything is written."""
    hint = "A mail ends the message at a line like `---` or `diff -…`: reword it."
    if len(files) != len(commits):
        raise ExportError("git left a commit out of the patches.", hint)
    try:
        lost = lost_on_the_way(scratch, base, commits, files)
    except PatchError as error:
        raise ExportError(
            f"A commit does not survive as a mail: {error}", hint
        ) from error
    if lost is not None:
        raise ExportError(
            f"{lost.oid[:9]} ({lost.subject}) would lose a part of its message, author "
            "or content as a patch file.",
            hint,
        )


def _require_tables(
    manifest: Manifest, entries: list[Entry], gone: list[Patch], *, prune: bool
) -> None:
    if gone and not prune:
        names = ", ".join(patch.file for patch in gone)
        raise ExportError(
            f"The branch has no commit for {names}.",
            "Drop them from patches/ with --prune, or bring the commits back.",
        )
    if not manifest.change_set and any(entry.known is None for entry in entries):
        raise ExportError(
            "series.toml has no [[change_set]] for the new commits.", "Add one."
        )


def _pinned_tree(
    scratch: Scratch,
    manifest: Manifest,
    base: str,
    tip: str,
    files: list[Path],
    pinned: Repository | None,
) -> str:
    """The tree of the series on the source distribution, empty where unknown here."""
    if scratch.tree_of(base) == manifest.pin.tree:
        return scratch.tree_of(tip)
    old = manifest.files
    same = len(old) == len(files) and all(
        a.exists() and a.read_bytes() == b.read_bytes()
        for a, b in zip(old, files, strict=True)
    )
    if same:
        return manifest.series.tree
    commit = pinned and local_base(pinned, manifest.pin, [])
    if not pinned or not commit:
        return ""
    with scratch_over(pinned) as other:
        other.begin_at(commit)
        mails = [read_mail(other, path) for path in files]
        try:
            require_base(other, commit, mails)
        except BaseError:
            return ""
        tips = build_stack(other, commit, mails)
        return other.tree_of(tips[-1] if tips else commit)


def _refused_later(
    scratch: Scratch, path: Path, base: str, commits: list[Commit]
) -> str:
    """What the next apply would say about the symbols of series.toml."""
    try:
        manifest = load_manifest(path)
        require_result(scratch, manifest, base, commits)
    except DiskError:
        raise
    except SeriesError as error:
        return error.what
    return ""
