# SPDX-License-Identifier: Apache-2.0
"""What a waiting rebase remembers: whole or not at all, and killed at any step."""

import errno
import itertools
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from series import resuming
from series.carry import Step
from series.errors import DiskError, SeriesError
from series.git import Repository
from series.state import Session, State, StateError, new_session, sessions
from series.threeway import Clash

from . import killing
from .conftest import git, seen_state, subjects
from .killing import copy_of, killed_at
from .test_onto import CLASH, TITLES, begin, resolve, resume
from .upkeep import Lab


def state_of(folder: Path) -> State:
    """A state with something in every field."""
    clash = Clash("a b.py", "why", 3, "def x()", "é\n", "\x00")
    step = Step(
        "0001-x.patch", "[X] é", "conflict", "e", ("n", "m"), (clash,), "1" * 40
    )
    words = {name: str(folder / name) for name in ("gitdir", "common", "worktree")}
    return State(
        **words,
        own=True,
        branch="b",
        old="",
        onto="v1",
        commit="2" * 40,
        series="d",
        manifest="m",
        switch=True,
        force=False,
        anew=True,
        tip="3" * 40,
        edit=("0002",),
        steps=(step,),
        ready=True,
    )


def test_what_is_saved_is_loaded(tmp_path: Path) -> None:
    session = Session(tmp_path / "onto/x")
    session.save(state_of(tmp_path))
    assert session.load() == state_of(tmp_path)
    assert [path.name for path in session.folder.iterdir()] == ["state.json"]


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", '{"version": 1}', '{"version": 9, "steps": []}', "\x00"],
)
def test_a_damaged_state_is_one_message(tmp_path: Path, text: str) -> None:
    folder = tmp_path / "build/onto/x"
    folder.mkdir(parents=True)
    (folder / "state.json").write_text(text)
    with pytest.raises(StateError, match=r"state\.json cannot be read") as caught:
        resuming.abort(tmp_path / "build", None)
    assert f"rm -r '{folder}'" in caught.value.hint


def test_an_unknown_key_is_damage(tmp_path: Path) -> None:
    session = Session(tmp_path)
    session.save(state_of(tmp_path))
    data = json.loads((tmp_path / "state.json").read_text())
    (tmp_path / "state.json").write_text(json.dumps({**data, "more": 1}))
    with pytest.raises(StateError):
        session.load()


def test_folders_without_a_state_are_left_overs(lab: Lab) -> None:
    left = lab.build / "onto/vllm-1"
    left.mkdir(parents=True)
    (left / "tree").mkdir()
    assert list(sessions(lab.build)) == []
    repo = Repository.find(lab.clone())
    assert new_session(lab.build, repo).folder.name == "clone-1"
    assert not left.exists()


def test_a_full_disk_keeps_the_old_state(tmp_path: Path, monkeypatch) -> None:
    session = Session(tmp_path)
    session.save(state_of(tmp_path))

    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    other = state_of(tmp_path / "other")
    with pytest.raises(DiskError, match=r"state\.json: No space left"):
        session.save(other)
    assert session.load() == state_of(tmp_path)
    assert len(list(tmp_path.iterdir())) == 1


@pytest.fixture(autouse=True)
def more_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Be killed before the writing commands of a rebase as well."""
    more = {"update-index", "hash-object", "checkout-index", "fast-import"}
    monkeypatch.setattr(killing, "WRITERS", killing.WRITERS | more)


def quiet(line: str) -> None:
    """Say nothing."""


def test_killed_while_it_begins(lab: Lab, tmp_path: Path) -> None:
    lab.release("0.33.0", CLASH)
    clone = lab.clone()
    before = seen_state(clone)

    def run() -> None:
        begin(lab, "v0.33.0", quiet, vllm=clone)

    for step in _killed(run, lab, tmp_path, stride=5):
        assert seen_state(clone) == before, step
        assert git(clone, "for-each-ref", "refs/heads/rocm-series") == "", step
        waiting = list(sessions(lab.build))
        if not waiting:
            run()
        else:
            # The state was written: the same commands go on from there.
            with pytest.raises(SeriesError):
                run()
            if not waiting[0].load().ready:
                resume(lab, quiet)
        [session] = sessions(lab.build)
        assert session.load().ready
        resolve(session.tree)
        resume(lab, quiet)
        assert subjects(clone, "v0.33.0..rocm-series") == TITLES, step
        assert seen_state(clone) == before, step


def test_killed_while_it_goes_on_in_the_pinned_tree(lab: Lab, tmp_path: Path) -> None:
    lab.release("0.33.0", CLASH)
    repo = lab.own()
    assert repo.worktree is not None
    resolve(begin(lab, "0.33.0", quiet).tree)
    old = repo.line("rev-parse", "rocm-series")

    def run() -> None:
        resume(lab, quiet)

    for step in _killed(run, lab, tmp_path, stride=5):
        tip = repo.line("rev-parse", "rocm-series")
        if tip != old:
            assert subjects(repo.worktree, "v0.33.0..rocm-series") == TITLES, step
        if list(sessions(lab.build)):
            run()
        assert subjects(repo.worktree, "v0.33.0..rocm-series") == TITLES, step
        assert git(repo.worktree, "status", "--porcelain") == "", step
        head = git(repo.worktree, "symbolic-ref", "HEAD")
        assert head == "refs/heads/rocm-series", step
        assert list(sessions(lab.build)) == []


def _killed(run: Callable[[], None], lab: Lab, aside: Path, *, stride: int):
    """Kill at every stride-th step, each time from the same start."""
    names = ("build", "clone", "project")
    there = [name for name in names if (lab.root / name).exists()]
    for name in there:
        copy_of(lab.root / name, aside / f"{name}-before")
    for step in itertools.count(1, stride):
        assert step < 400
        shutil.rmtree(lab.build, ignore_errors=True)
        for name in there:
            copy_of(aside / f"{name}-before", lab.root / name)
        if not killed_at(step, run):
            return
        yield step


def test_a_state_that_has_no_room_names_its_folder(
    lab: Lab, tmp_path: Path, monkeypatch
) -> None:
    def refuse(*words: object, **named: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    repo = lab.own()
    with monkeypatch.context() as patch:
        patch.setattr(Path, "touch", refuse)
        with pytest.raises(DiskError, match=f"^{tmp_path}.*: No space left"):
            Session(tmp_path).save(state_of(tmp_path))
        patch.setattr(Path, "mkdir", refuse)
        with pytest.raises(DiskError, match=f"^{lab.build}: No space left"):
            new_session(lab.build, repo)
