# SPDX-License-Identifier: Apache-2.0
import os
import time
from pathlib import Path

import pytest

import series.branch
from series.branch import BranchError, Plan, drop_stale_lock, move_branch, recorded_tip
from series.git import Repository

from .conftest import World, commit, git
from .test_place import change_patches, place

BRANCH = "rocm-series"


@pytest.fixture(autouse=True)
def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(series.branch, "_STALE_S", 0.05)


def test_branch_and_records_move_together(world: World, clone: Path) -> None:
    repo = Repository.find(clone)
    new = git(clone, "rev-parse", "main")
    move_branch(repo, BRANCH, world.pin, Plan(None, new))
    assert git(clone, "rev-parse", BRANCH) == new == recorded_tip(repo, BRANCH)
    assert git(clone, "rev-parse", f"refs/series/base/{BRANCH}") == world.pin
    other = git(clone, "rev-parse", "mine")
    saved = f"refs/series/saved/{BRANCH}/x"
    move_branch(repo, BRANCH, world.pin, Plan(new, other, saved))
    assert git(clone, "rev-parse", saved) == new
    assert git(clone, "rev-parse", BRANCH) == other
    reflog = git(clone, "reflog", "show", "--format=%gs", BRANCH).splitlines()
    assert reflog == ["apply.py: put the series here"] * 2


def test_somebody_else_was_faster(world: World, clone: Path) -> None:
    repo = Repository.find(clone)
    git(clone, "branch", BRANCH, "mine")
    new = git(clone, "rev-parse", "main")
    for old in (None, world.pin):
        with pytest.raises(BranchError, match="could not be moved"):
            move_branch(repo, BRANCH, world.pin, Plan(old, new))
    assert git(clone, "rev-parse", BRANCH) == git(clone, "rev-parse", "mine")
    assert git(clone, "for-each-ref", "refs/series") == ""


def test_a_lock_that_a_killed_git_left_is_removed(world: World, clone: Path) -> None:
    (clone / f".git/refs/heads/{BRANCH}.lock").write_text("")
    assert place(world, clone).moved
    assert git(clone, "rev-parse", f"{BRANCH}^{{tree}}") == world.tree


def test_a_lock_that_lives_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = tmp_path / "x.lock"
    lock.write_text("")

    def meanwhile(seconds: float) -> None:
        os.utime(lock, (1, 1))

    monkeypatch.setattr(time, "sleep", meanwhile)
    drop_stale_lock(lock)
    assert lock.exists()
    lock.unlink()
    drop_stale_lock(lock)


def test_a_branch_from_another_clone_of_ours_is_ours(
    world: World, clone: Path, tmp_path: Path
) -> None:
    place(world, clone)
    other = tmp_path / "other"
    git(tmp_path, "clone", "-q", str(clone), str(other))
    git(other, "branch", "-q", BRANCH, f"origin/{BRANCH}")
    assert not place(world, other).moved
    git(other, "update-ref", "-d", f"refs/series/tip/{BRANCH}")
    change_patches(world)
    assert place(world, other).moved


def test_many_lost_commits_are_counted(world: World, clone: Path) -> None:
    git(clone, "switch", "-q", "-c", BRANCH, "v0.32.0")
    for number in range(7):
        words = ["-c", "user.name=D", "-c", "user.email=d@e", "commit", "-q"]
        git(clone, *words, "--allow-empty", "-m", f"Number {number}")
    with pytest.raises(BranchError, match=r"Number 0; .*Number 4 and 2 more"):
        place(world, clone)


def test_exported_commits_that_left_patches_again_are_kept(
    world: World, clone: Path
) -> None:
    place(world, clone)
    git(clone, "switch", "-q", BRANCH)
    (clone / "README.md").write_text("precious\n")
    precious = commit(clone, "[X] precious work")
    # As an export records it, before patches/ is put back as it was.
    git(clone, "update-ref", f"refs/series/tip/{BRANCH}", precious)
    outcome = place(world, clone, switch=True)
    assert git(clone, "rev-parse", BRANCH) != precious
    assert list(outcome.saved) == [f"refs/series/saved/{BRANCH}/{precious[:12]}"]
    assert git(clone, "rev-parse", outcome.saved[0]) == precious


def test_a_symbolic_branch_moves_no_other(world: World, clone: Path) -> None:
    git(clone, "branch", "other", "main")
    git(clone, "symbolic-ref", f"refs/heads/{BRANCH}", "refs/heads/other")
    before = git(clone, "rev-parse", "other")
    with pytest.raises(BranchError, match="symbolic ref to refs/heads/other") as error:
        place(world, clone)
    assert "git symbolic-ref -d" in error.value.hint
    assert git(clone, "rev-parse", "other") == before


def test_a_branch_below_the_name_is_named_as_the_cause(
    world: World, clone: Path
) -> None:
    git(clone, "branch", f"{BRANCH}/x", "main")
    with pytest.raises(BranchError, match="could not be moved") as error:
        place(world, clone)
    assert "Rename or delete" in error.value.hint


def test_the_way_out_names_the_clone(world: World, clone: Path) -> None:
    place(world, clone)
    git(clone, "switch", "-q", BRANCH)
    (clone / "README.md").write_text("mine\n")
    commit(clone, "[X] mine")
    with pytest.raises(BranchError) as error:
        place(world, clone, switch=True)
    assert f"apply.py export --vllm '{clone}'" in error.value.hint
