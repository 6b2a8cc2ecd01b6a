# SPDX-License-Identifier: Apache-2.0
"""The commands of apply.py, without their words and their printing."""

from pathlib import Path

from .errors import SeriesError
from .export import Exported, export_series
from .git import Repository, require_git
from .manifest import Manifest, load_manifest
from .place import Outcome, place_series
from .release import archive_of, cache_folder
from .report import say
from .tree import TreeError, build_folder, new_tree, tree_at


def apply_own(
    series: Path, build: Path, archive: Path | None, *, force: bool
) -> Outcome:
    """The pinned tree in build/vllm, with the series checked out.

    Args:
        series: series.toml.
        build: The folder that holds the tree.
        archive: A local source distribution, None for the cache or the index.
        force: Give up (and keep aside) commits and edits in the way.
    """
    require_git()
    manifest = load_manifest(series)
    options = {"own": True, "switch": True, "force": force}
    with build_folder(build, say):
        if repo := tree_at(build, manifest.pin):
            return place_series(repo, manifest, say=say, **options)

        def source() -> Path:
            sdist = manifest.pin.sdist
            return archive_of(sdist, cache_folder(), say, given=archive)

        with new_tree(build, manifest, source, say) as repo:
            outcome = place_series(repo, manifest, say=say, **options)
        return outcome.at(build / "vllm")


def apply_to(series: Path, path: Path, *, switch: bool, force: bool) -> Outcome:
    """The series as a branch of a user's clone.

    Args:
        series: series.toml.
        path: The clone, or a folder inside it.
        switch: Check the branch out as well.
        force: Give up (and keep aside) commits of the branch that are in the way.
    """
    require_git()
    manifest = load_manifest(series)
    repo = Repository.find(path)
    return place_series(repo, manifest, switch=switch, force=force, say=say)


def export(series: Path, build: Path, path: Path | None, *, prune: bool) -> Exported:
    """The series branch of build/vllm, or of a clone, back into patches/.

    Args:
        series: series.toml; the patches lie beside it.
        build: The folder that holds the pinned tree.
        path: The clone, None for build/vllm.
        prune: Remove patches whose commits are gone.
    """
    require_git()
    # An export may repair files that do not fit the tables.
    manifest = load_manifest(series, check_files=False)
    pinned = _pinned(build, manifest)
    repo = Repository.find(path) if path else pinned
    if repo is None:
        raise SeriesError(
            f"There is no pinned tree in {build} yet.", "Run `apply.py apply` first."
        )
    return export_series(
        repo, manifest, own=path is None, prune=prune, pinned=pinned, say=say
    )


def _pinned(build: Path, manifest: Manifest) -> Repository | None:
    """The pinned tree if it is there; what is wrong with it matters elsewhere."""
    try:
        return tree_at(build, manifest.pin)
    except TreeError:
        return None
