# SPDX-License-Identifier: Apache-2.0
"""The commands of apply.py, without their words and their printing."""

from pathlib import Path

from .git import Repository, require_git
from .manifest import load_manifest
from .place import Outcome, place_series
from .release import archive_of, cache_folder
from .report import say
from .tree import build_folder, new_tree, tree_at


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
