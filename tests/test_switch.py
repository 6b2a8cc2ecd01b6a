# SPDX-License-Identifier: Apache-2.0
"""What a git that was killed in the middle of a checkout leaves, made by hand."""

from pathlib import Path

import pytest

import series.branch
from series.errors import SeriesError
from series.git import Repository
from series.switch import finish_switch, save_edits

from .conftest import World, git, subjects
from .test_place import change_patches, place

NEXT = "refs/series/next/rocm-series"


@pytest.fixture(autouse=True)
def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(series.branch, "_STALE_S", 0.05)


@pytest.fixture
def half(world: World, clone: Path) -> Path:
    """A clone on main whose switch to the series was cut off half-way."""
    git(clone, "switch", "-q", "main")
    place(world, clone)
    tip = git(clone, "rev-parse", "rocm-series")
    git(clone, "update-ref", NEXT, tip)
    (clone / ".git/index.lock").write_bytes(b"half")
    new = git(clone, "show", "rocm-series:vllm/core.py")
    (clone / "vllm/core.py").write_text(new + "\n")
    (clone / "vllm/ops.py").write_text(git(clone, "show", f"{tip}:vllm/ops.py")[:40])
    (clone / "vllm/old.py").unlink()
    (clone / "vllm/new.py").write_text("def f0():\n    return 0")
    return clone


def test_a_half_switch_is_finished(world: World, half: Path) -> None:
    outcome = place(world, half, switch=True)
    assert outcome.switched
    assert git(half, "status", "--porcelain") == ""
    assert git(half, "symbolic-ref", "HEAD") == "refs/heads/rocm-series"
    assert git(half, "for-each-ref", NEXT) == ""


def test_a_half_switch_is_undone_without_switch(world: World, half: Path) -> None:
    place(world, half)
    assert git(half, "status", "--porcelain") == ""
    assert git(half, "symbolic-ref", "HEAD") == "refs/heads/main"
    assert (half / "vllm/old.py").exists()
    assert not (half / "vllm/new.py").exists()


def test_edits_made_since_then_stay(world: World, half: Path) -> None:
    (half / "README.md").write_text("edited since\n")
    outcome = place(world, half, switch=True)
    assert isinstance(outcome.not_switched, SeriesError)
    assert (half / "README.md").read_text() == "edited since\n"
    assert git(half, "for-each-ref", NEXT) != ""


def test_an_edit_of_a_file_of_the_series_stays(world: World, half: Path) -> None:
    (half / "vllm/ops.py").write_text("my own\n")
    assert place(world, half, switch=True).not_switched
    assert (half / "vllm/ops.py").read_text() == "my own\n"


def test_the_series_moved_under_its_own_head(world: World, clone: Path) -> None:
    place(world, clone, switch=True)
    old = git(clone, "rev-parse", "HEAD")
    change_patches(world)
    new = f"{old}~1"
    # Killed after the files had changed, before the branch moved.
    git(clone, "update-ref", NEXT, git(clone, "rev-parse", new))
    git(clone, "switch", "-q", "--detach", new)
    outcome = place(world, clone, switch=True)
    assert outcome.moved
    assert git(clone, "symbolic-ref", "HEAD") == "refs/heads/rocm-series"
    assert len(subjects(clone)) == 2
    # Killed after the branch had moved, before HEAD was on it again.
    git(clone, "update-ref", NEXT, "HEAD")
    git(clone, "switch", "-q", "--detach")
    finish_switch(Repository.find(clone), "rocm-series", own=False)
    assert git(clone, "symbolic-ref", "HEAD") == "refs/heads/rocm-series"


def test_without_a_journal_nothing_is_touched(clone: Path) -> None:
    (clone / ".git/index.lock").write_bytes(b"")
    (clone / "README.md").write_text("edited\n")
    finish_switch(Repository.find(clone), "rocm-series", own=False)
    assert (clone / ".git/index.lock").exists()
    assert (clone / "README.md").read_text() == "edited\n"


def test_untracked_files_in_the_way_are_named(world: World, clone: Path) -> None:
    (clone / "vllm/new.py").write_text("mine\n")
    outcome = place(world, clone, switch=True)
    assert "vllm/new.py" in str(outcome.not_switched)
    assert not outcome.switched
    assert len(subjects(clone)) == 3
    assert (clone / "vllm/new.py").read_text() == "mine\n"
    assert git(clone, "symbolic-ref", "HEAD") == "refs/heads/mine"
    assert git(clone, "for-each-ref", NEXT) == ""
    (clone / "vllm/new.py").unlink()
    assert place(world, clone, switch=True).switched


def test_an_ignored_file_in_the_way_is_kept(world: World, clone: Path) -> None:
    (clone / ".git/info/exclude").write_text("/vllm/new.py\n")
    (clone / "vllm/new.py").write_text("mine\n")
    outcome = place(world, clone, switch=True)
    assert "vllm/new.py" in str(outcome.not_switched)
    assert (clone / "vllm/new.py").read_text() == "mine\n"


def test_a_branch_that_another_work_tree_has_is_named(
    world: World, clone: Path, tmp_path: Path
) -> None:
    place(world, clone)
    git(clone, "worktree", "add", "-q", str(tmp_path / "second"), "rocm-series")
    outcome = place(world, clone, switch=True)
    assert outcome.not_switched is not None
    assert outcome.not_switched.hint
    assert "second" in str(outcome.not_switched)


def test_filters_of_the_user_apply_to_their_files(
    world: World, clone: Path, quiet_git: Path
) -> None:
    git(clone, "config", "filter.shout.smudge", "tr a-z A-Z")
    git(clone, "config", "filter.shout.clean", "tr A-Z a-z")
    (clone / ".git/info").mkdir(exist_ok=True)
    (clone / ".git/info/attributes").write_text("vllm/new.py filter=shout\n")
    place(world, clone, switch=True)
    assert (clone / "vllm/new.py").read_text().startswith("DEF F0")
    assert git(clone, "rev-parse", "HEAD^{tree}") == world.tree
    assert git(clone, "status", "--porcelain") == ""


def test_edits_are_saved_and_undone(clone: Path) -> None:
    repo = Repository.find(clone)
    assert save_edits(repo, "rocm-series") == []
    (clone / "README.md").write_text("edited\n")
    (ref,) = save_edits(repo, "rocm-series")
    assert git(clone, "show", f"{ref}:README.md") == "edited"
    assert git(clone, "status", "--porcelain") == ""
    assert git(clone, "stash", "list") == ""
