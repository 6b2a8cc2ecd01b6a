# SPDX-License-Identifier: Apache-2.0
"""Where the pin, the archive, the tree and the branch are; nothing is changed."""

from dataclasses import dataclass
from pathlib import Path

from .branch import commits_between, recorded_tip
from .checkout import edited, head_branch, under_way
from .errors import DiskError, SeriesError
from .git import Repository, require_git
from .manifest import Manifest, load_manifest
from .place import build_series
from .release import cache_folder
from .scratch import scratch_over
from .target import TargetError, local_base, require_sha1
from .tree import TreeError, tree_at


@dataclass(frozen=True)
class Status:
    """What `apply.py status` tells, each a short sentence."""

    pin: str
    patches: str
    archive: str
    tree: str
    branch: str
    sync: str


def look(series: Path, build: Path, path: Path | None) -> Status:
    """Look at everything that the other commands use.

    Args:
        series: series.toml.
        build: The folder that holds the pinned tree.
        path: A clone to look at instead of build/vllm.
    """
    require_git()
    manifest = load_manifest(series)
    pin = manifest.pin
    archive = cache_folder() / pin.sdist.filename
    tree, branch, sync = f"{build / 'vllm'} is not made yet", "none", "not applied"
    repo = None
    try:
        repo = Repository.find(path) if path else tree_at(build, pin)
    except TreeError as error:
        tree = error.what
    if repo is not None:
        require_sha1(repo)
        tree = _tree(repo, own=path is None)
        branch, sync = _branch(repo, manifest)
    return Status(
        pin=f"{pin.tag} ({pin.commit})",
        patches=f"{len(manifest.patch)} in {manifest.folder}",
        archive=str(archive) if archive.exists() else f"not in {archive.parent}",
        tree=tree,
        branch=branch,
        sync=sync,
    )


def _tree(repo: Repository, *, own: bool) -> str:
    if repo.worktree is None:
        return f"{repo.gitdir} (bare)"
    parts = [f"{repo.worktree}, on {head_branch(repo) or 'a detached HEAD'}"]
    if what := under_way(repo):
        parts.append(f"in the middle of {what}")
    if files := edited(repo, own=own):
        parts.append(f"{len(files)} files edited, not committed")
    return ", ".join(parts)


def _branch(repo: Repository, manifest: Manifest) -> tuple[str, str]:
    """Where the series branch is, and how it compares with patches/."""
    name = manifest.series.branch
    tip = repo.resolve(f"refs/heads/{name}^{{commit}}")
    base = local_base(repo, manifest.pin, [])
    if base is None:
        return name if tip else "none", "the pinned commit is not here"
    if tip is None:
        return "none", "not applied"
    where = f"{name} at {tip[:12]}"
    with scratch_over(repo) as scratch:
        there = commits_between(repo, scratch, base, tip)
        if there is None:
            return where, _elsewhere(repo, name, tip)
        try:
            built = build_series(repo, scratch, manifest, _no_fetch)
        except DiskError:
            raise
        except SeriesError as error:
            return where, f"unknown: {error.what}"
        if [c.content for c in there] == [c.content for c in built.commits]:
            return where, "in sync with patches/"
    if recorded_tip(repo, name) == tip:
        return where, "patches/ changed since: `apply.py apply` brings it here"
    return where, "the branch changed since: `apply.py export` keeps it"


def _no_fetch(line: str) -> None:
    """Stand in for the word before a fetch, which looking must not do."""
    raise TargetError("blobs are missing from this partial clone.")


def _elsewhere(repo: Repository, name: str, tip: str) -> str:
    """Where a branch stands that is not on the pin."""
    base = repo.resolve(f"refs/series/base/{name}")
    if base is None or recorded_tip(repo, name) != tip:
        return "the branch does not stand on the pinned commit"
    told = repo.ask("describe", "--tags", "--exact-match", base) or base[:12]
    return f"on {told}, not on the pin: `apply.py apply` puts it back there"
