# SPDX-License-Identifier: Apache-2.0
"""The tree to be tested: the one in build/, or an export of a clone's series branch."""

import os
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from series.errors import SeriesError
from series.git import Repository
from series.manifest import Manifest
from tests.harness import kernels
from tests.harness.plan import Patch, Plan

_DONE = ".series-export-is-whole"


def export(repo: Repository, commit: str, folder: Path) -> Path:
    """Writes a commit's files into folder/<commit>, once; the repository stays as is.

    Returns:
        The folder, complete: it gets its name last.
    """
    target = folder / commit
    if (target / _DONE).exists():
        return target
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="export-", dir=folder) as scratch:
        files = Path(scratch) / "files"
        files.mkdir()
        index = {"GIT_INDEX_FILE": str(Path(scratch) / "index")}
        there = replace(repo, worktree=files)
        there.git("read-tree", commit, env=index)
        there.git("checkout-index", "--all", "--force", env=index)
        (files / _DONE).touch()
        if target.exists():
            shutil.rmtree(target)
        os.replace(files, target)
    return target


def _text(repo: Repository, commit: str, path: str) -> str:
    if repo.resolve(f"{commit}:{path}") is None:
        return ""
    return repo.git("cat-file", "blob", f"{commit}:{path}").decode()


def describe(repo: Repository, commit: str, name: str, tests: Sequence[str]) -> Patch:
    """One patch of the branch, read off its commit."""
    words = ["diff-tree", "-r", "--no-commit-id", "--name-only", "--diff-filter=AM"]
    listed = repo.git(*words, "-z", f"{commit}~1", commit).decode()
    paths = [path for path in listed.split("\0") if path]
    sources = [path for path in paths if path.startswith("vllm/")]
    found = [
        kernel
        for path in sources
        if path.endswith(".py")
        for kernel in kernels.changed(
            path, _text(repo, f"{commit}~1", path), _text(repo, commit, path)
        )
    ]
    return Patch(name, tuple(tests), tuple(found), tuple(paths))


def commits(repo: Repository, branch: str, count: int) -> list[str]:
    """The last `count` commits of a branch, oldest first.

    Raises:
        SeriesError: The branch is not there, or is shorter.
    """
    tip = repo.resolve(f"refs/heads/{branch}^{{commit}}")
    if tip is None:
        raise SeriesError(
            f"{repo.worktree or repo.gitdir} has no branch {branch}.",
            "Put the series there first: make apply (with VLLM=path for a clone).",
        )
    listed = repo.line("rev-list", "--first-parent", f"--max-count={count + 1}", tip)
    found = listed.split()
    if len(found) <= count:
        raise SeriesError(
            f"Branch {branch} holds fewer than the {count} patches of the series.",
            "Put the series there again: make apply.",
        )
    return found[:count][::-1]


def at_commit(repo: Repository, plan: Plan, cache: Path) -> Plan:
    """The same plan on an export of its commit, free of changes made since."""
    path = export(repo, plan.commit, cache)
    return replace(plan, path=path, dirty=False)


def is_dirty(repo: Repository) -> bool:
    """Whether tracked files of the work tree differ from what is checked out."""
    words = ["status", "--porcelain", "--untracked-files=no"]
    return bool(repo.git(*words, user=True).strip())


def plan(
    repo: Repository,
    branch: str,
    version: str,
    patches: Sequence[tuple[str, Sequence[str]]],
    path: Path,
) -> Plan:
    """What is to be tested of a branch whose files lie at `path`.

    Args:
        patches: Name and tests of each patch, in the order of the commits.
    """
    found = commits(repo, branch, len(patches))
    described = tuple(
        describe(repo, commit, name, tests)
        for commit, (name, tests) in zip(found, patches, strict=True)
    )
    return Plan(path, version, found[-1], branch, described)


def planned(root: Path, vllm: Path | None, manifest: Manifest, cache: Path) -> Plan:
    """What is to be tested: build/vllm as it is, or the series branch of a clone.

    Args:
        root: This repository.
        vllm: The clone, which stays as it is: its branch is exported.
        cache: Where exports lie.

    Raises:
        SeriesError: There is no tree, or no series branch in it.
    """
    if not manifest.patch:
        raise SeriesError(f"{manifest.path} lists no patch.", "List one to test it.")
    patches = [
        (patch.file.removesuffix(".patch"), patch.tests) for patch in manifest.patch
    ]
    branch, version = manifest.series.branch, manifest.pin.release
    if vllm is not None:
        repo = Repository.find(vllm)
        tip = commits(repo, branch, len(patches))[-1]
        path = export(repo, tip, cache)
        built = (repo.worktree / "vllm",) if repo.worktree else ()
        return replace(
            plan(repo, branch, version, patches, path), extensions=tuple(built)
        )
    path = root / "build/vllm"
    if not path.exists():
        raise SeriesError(f"{path} is not there.", "Run make apply first.")
    repo = Repository.find(path)
    found = plan(repo, branch, version, patches, path)
    if repo.resolve("HEAD") != found.commit:
        raise SeriesError(
            f"{path} is not at its branch {branch}.",
            f"Go back to it: git -C '{path}' switch {branch}",
        )
    return replace(found, dirty=is_dirty(repo))
