# SPDX-License-Identifier: Apache-2.0
"""A run killed at any step leaves everything usable, and the next one succeeds."""

import itertools
import os
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from series import commands

from .conftest import World, commit, git, seen_state, subjects
from .killing import copy_of, killed_at
from .test_export import contents
from .test_place import change_patches

pytestmark = pytest.mark.slow


def steps(name: str, tmp_path: Path, source: Path) -> Iterator[tuple[int, Path]]:
    """Fresh copies of source, one for each step there is to be killed at."""
    for step in itertools.count(1):
        assert step < 200, name
        yield step, copy_of(source, tmp_path / "victim")


def test_apply_to_a_clone(world: World, clone: Path, tmp_path: Path) -> None:
    (clone / "README.md").write_text("edited\n")
    before = seen_state(clone)
    for step, victim in steps("apply", tmp_path, clone):
        if not killed_at(step, partial(_apply, world, victim)):
            break
        assert seen_state(victim) == before, step
        branch = git(victim, "for-each-ref", "refs/heads/rocm-series")
        assert not branch or subjects(victim), step
        outcome = _apply(world, victim)
        assert outcome.tree == world.tree, step
        assert seen_state(victim) == before, step
    assert step > 10


def _apply(world: World, path: Path, **options: bool):
    flags = {"switch": False, "force": False} | options
    return commands.apply_to(world.toml, path, **flags)


@pytest.mark.parametrize("again", [False, True])
def test_switch(world: World, clone: Path, tmp_path: Path, again: bool) -> None:
    if again:
        _apply(world, clone, switch=True)
        change_patches(world)
    for step, victim in steps("switch", tmp_path, clone):
        if not killed_at(step, partial(_apply, world, victim, switch=True)):
            break
        assert git(victim, "status", "--porcelain", "--untracked-files=no") == "", step
        outcome = _apply(world, victim, switch=True)
        assert outcome.switched, step
        assert git(victim, "symbolic-ref", "HEAD") == "refs/heads/rocm-series", step
        assert git(victim, "status", "--porcelain") == "", step
        assert len(subjects(victim)) == (2 if again else 3), step
        assert git(victim, "for-each-ref", "refs/worktree") == "", step
    assert step > 12


def test_the_pinned_tree(world: World, tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    for step, victim in steps("tree", tmp_path, empty):

        def run(build: Path = victim):
            return commands.apply_own(world.toml, build, world.sdist, force=False)

        if not killed_at(step, run):
            break
        assert not (victim / "vllm").exists() or len(subjects(victim / "vllm")) == 3
        assert run().tree == world.tree, step
        assert [path.name for path in victim.iterdir()] == ["vllm"], step
    assert step > 18


def test_export(world: World, clone: Path, tmp_path: Path) -> None:
    _apply(world, clone, switch=True)
    (clone / "vllm/more.py").write_text("more = 1\n")
    commit(clone, "More\n")
    build, source = tmp_path / "build", copy_of(world.patches, tmp_path / "source")

    def export(folder: Path):
        return commands.export(folder / "series.toml", build, clone, prune=False)

    complete = copy_of(source, tmp_path / "complete")
    export(complete)
    for step, victim in steps("export", tmp_path, source):
        if not killed_at(step, partial(export, victim)):
            break
        export(victim)
        assert contents(victim) == contents(complete), step
    assert step > 10


def test_folders_of_killed_runs_are_removed(world: World, clone: Path) -> None:
    assert killed_at(8, lambda: _apply(world, clone))
    left = list(Path(tempfile.gettempdir()).glob("vllm-series-*"))
    assert len(left) == 1
    _apply(world, clone)
    assert left[0].exists(), "it may belong to a run that has just started"
    old = time.time() - 3600
    os.utime(left[0], (old, old))
    _apply(world, clone)
    assert list(Path(tempfile.gettempdir()).glob("vllm-series-*")) == []


def test_two_runs_at_once(world: World, clone: Path) -> None:
    children = []
    for _ in range(3):
        child = os.fork()
        if child == 0:
            try:
                ok = _apply(world, clone).tree == world.tree
                os._exit(0 if ok else 1)
            except BaseException:
                os._exit(2)
        children.append(child)
    ends = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    assert ends == [0, 0, 0]
    assert len(subjects(clone)) == 3


def test_two_builds_at_once(world: World, tmp_path: Path) -> None:
    children = []
    for _ in range(2):
        child = os.fork()
        if child == 0:
            try:
                toml, build = world.toml, tmp_path / "build"
                done = commands.apply_own(toml, build, world.sdist, force=False)
                os._exit(0 if done.tree == world.tree else 1)
            except BaseException:
                os._exit(2)
        children.append(child)
    ends = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    assert ends == [0, 0]
    assert [path.name for path in (tmp_path / "build").iterdir()] == ["vllm"]
