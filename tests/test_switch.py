# SPDX-License-Identifier: Apache-2.0
"""What a git that was cut off in the middle of a checkout leaves, made by hand."""

import os
import shutil
from pathlib import Path

import pytest

import series.branch
import series.switch
from series.errors import SeriesError
from series.git import Repository
from series.switch import finish_switch, save_edits

from .conftest import World, commit, git, subjects
from .full_disk import with_file_limit
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


# What git leaves where the disk is full while it writes files: HEAD and index are the
# old ones, files are new, cut off, or gone; or the index is the new one already.
FULL_DISK = """\
#!/bin/bash
words=" $* "
fails=0
[[ $words == *" switch "* || $words == *" checkout "* ]] && fails=1
[[ $words == *" checkout-index "* && -e {room} ]] && exec {git} "$@"
[[ $words == *" checkout-index "* ]] && fails=1
if [[ $fails = 0 || ! -e {armed} ]]; then exec {git} "$@"; fi
[[ $words == *" checkout-index "* ]] || {{
    here=$(mktemp -d)
    cp .git/index .git/HEAD "$here"
    {git} "$@"
    cp "$here/HEAD" .git/
    [[ -e {staged} ]] || cp "$here/index" .git/
    head -c 30 bare-end.txt > "$here/cut" && cat "$here/cut" > bare-end.txt
    : > win.txt
    rm -f vllm/core.py
}}
echo "error: unable to write file vllm/core.py" >&2
echo "fatal: cannot write: No space left on device" >&2
exit 128
"""


class FullDisk:
    """A git whose checkouts end half-way while the disk is full."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        real = shutil.which("git")
        names = {name: folder / name for name in ("armed", "room", "staged")}
        self.armed, self.room, self.staged = names.values()
        folder.mkdir()
        (folder / "git").write_text(FULL_DISK.format(git=real, **names))
        (folder / "git").chmod(0o755)
        monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
        self.armed.touch()


@pytest.fixture
def full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FullDisk:
    return FullDisk(tmp_path / "full", monkeypatch)


@pytest.fixture
def with_stg(clone: Path) -> Path:
    """A clone on a branch with a file that the series does not have."""
    (clone / "stg").write_text("mine\n")
    commit(clone, "Mine too\n")
    return clone


def tree(clone: Path) -> dict[str, bytes]:
    files = [p for p in clone.rglob("*") if p.is_file() and ".git" not in p.parts]
    return {str(p.relative_to(clone)): p.read_bytes() for p in files}


@pytest.mark.parametrize("staged", [False, True])
def test_a_switch_that_a_full_disk_stops_is_undone(
    world: World, with_stg: Path, full_disk: FullDisk, staged: bool
) -> None:
    full_disk.room.touch()
    if staged:
        full_disk.staged.touch()
    before = tree(with_stg)
    refused = place(world, with_stg, switch=True).not_switched
    assert refused is not None
    assert "No space left" in str(refused)
    assert str(with_stg) in str(refused)
    assert "undone" in str(refused)
    assert "space" in refused.hint
    assert tree(with_stg) == before
    assert git(with_stg, "status", "--porcelain") == ""
    assert git(with_stg, "symbolic-ref", "HEAD") == "refs/heads/mine"
    assert git(with_stg, "for-each-ref", NEXT) == ""


def test_what_cannot_be_undone_is_undone_by_the_next_run(
    world: World, with_stg: Path, full_disk: FullDisk
) -> None:
    refused = place(world, with_stg, switch=True).not_switched
    assert "half-way" in str(refused)
    assert refused is not None
    assert "Do not commit" in refused.hint
    assert "room" in refused.hint
    assert git(with_stg, "for-each-ref", NEXT) != ""
    with pytest.raises(SeriesError, match="half-way"):
        place(world, with_stg, switch=True)
    full_disk.armed.unlink()
    outcome = place(world, with_stg, switch=True)
    assert outcome.switched
    assert git(with_stg, "status", "--porcelain") == ""
    assert git(with_stg, "symbolic-ref", "HEAD") == "refs/heads/rocm-series"
    assert git(with_stg, "rev-parse", "HEAD^{tree}") == world.tree
    assert not (with_stg / "stg").exists()
    assert git(with_stg, "for-each-ref", NEXT) == ""


def test_edits_made_after_a_failed_switch_stay_and_are_named(
    world: World, with_stg: Path, full_disk: FullDisk
) -> None:
    place(world, with_stg, switch=True)
    full_disk.armed.unlink()
    (with_stg / "README.md").write_text("mine\n")
    before = tree(with_stg)
    refused = place(world, with_stg, switch=True).not_switched
    assert refused is not None
    assert "edited since: README.md." in str(refused)
    assert "Do not commit" in refused.hint
    assert tree(with_stg) == before
    git(with_stg, "checkout", "HEAD", "--", "README.md")
    assert place(world, with_stg, switch=True).switched
    assert git(with_stg, "status", "--porcelain") == ""


@pytest.mark.parametrize("room", [False, True])
def test_a_series_that_cannot_move_under_its_head(
    world: World, clone: Path, full_disk: FullDisk, room: bool
) -> None:
    full_disk.armed.unlink()
    place(world, clone, switch=True)
    old = git(clone, "rev-parse", "HEAD")
    change_patches(world)
    git(clone, "reset", "-q", "--hard", f"{old}~2")
    full_disk.armed.touch()
    if room:
        full_disk.room.touch()
    with pytest.raises(SeriesError, match="undone" if room else "half-way"):
        place(world, clone, switch=True, force=True)
    assert (
        git(clone, "rev-parse", "rocm-series") == f"{git(clone, 'rev-parse', 'HEAD')}"
    )
    full_disk.armed.unlink()
    place(world, clone, switch=True, force=True)
    assert git(clone, "status", "--porcelain") == ""
    assert git(clone, "symbolic-ref", "HEAD") == "refs/heads/rocm-series"
    assert len(subjects(clone)) == 2


def test_a_branch_that_cannot_move_leaves_the_old_one_checked_out(
    world: World, clone: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place(world, clone, switch=True)
    old = git(clone, "rev-parse", "HEAD")
    change_patches(world)

    def refuse(*words: object) -> None:
        raise SeriesError("The branch could not be moved.")

    monkeypatch.setattr(series.switch, "move_branch", refuse)
    with pytest.raises(SeriesError, match="could not be moved"):
        place(world, clone, switch=True)
    assert git(clone, "symbolic-ref", "HEAD") == "refs/heads/rocm-series"
    assert git(clone, "rev-parse", "HEAD") == old
    assert git(clone, "status", "--porcelain") == ""
    assert git(clone, "for-each-ref", NEXT) == ""


def test_filters_of_the_user_do_not_hide_a_half_switch(
    world: World, clone: Path
) -> None:
    git(clone, "config", "core.autocrlf", "true")
    git(clone, "rm", "-q", "-r", "--cached", ".")
    git(clone, "reset", "-q", "--hard")
    place(world, clone)
    git(clone, "update-ref", NEXT, "rocm-series")
    new = git(clone, "show", "rocm-series:vllm/ops.py").replace("\n", "\r\n")
    (clone / "vllm/ops.py").write_bytes(new[:300].encode())
    new = git(clone, "show", "rocm-series:vllm/core.py").replace("\n", "\r\n")
    (clone / "vllm/core.py").write_bytes(f"{new}\r\n".encode())
    assert place(world, clone, switch=True).switched
    assert git(clone, "status", "--porcelain") == ""


@pytest.mark.parametrize("ours", [b"", b"def f0():\n"])
def test_a_file_of_the_user_that_looks_like_git_s_stays(
    world: World, clone: Path, ours: bytes
) -> None:
    (clone / "vllm/new.py").write_bytes(ours)
    refused = place(world, clone, switch=True).not_switched
    assert "vllm/new.py" in str(refused)
    assert (clone / "vllm/new.py").read_bytes() == ours


def test_modes_and_folders_of_the_user_stay(world: World, half: Path) -> None:
    (half / "vllm/ops.py").chmod(0o755)
    assert "vllm/ops.py" in str(place(world, half, switch=True).not_switched)
    assert os.access(half / "vllm/ops.py", os.X_OK)
    (half / "vllm/ops.py").chmod(0o644)
    (half / "vllm/old.py").mkdir()
    (half / "vllm/old.py/notes").write_text("mine\n")
    assert place(world, half, switch=True).not_switched
    assert (half / "vllm/old.py/notes").read_text() == "mine\n"


def test_a_lock_of_the_user_stays(world: World, clone: Path) -> None:
    (clone / ".git/index.lock").write_bytes(b"")
    refused = place(world, clone, switch=True).not_switched
    assert "File exists" in str(refused)
    assert (clone / ".git/index.lock").exists()
    assert git(clone, "for-each-ref", NEXT) == ""


def test_a_limit_on_files_leaves_no_lock(world: World, clone: Path) -> None:
    many = "".join(f"{number}\n" for number in range(400))
    for number in range(400):
        (clone / f"file {number} of many that make the index long").write_text(many)
    commit(clone, "Many\n")
    repo, size = Repository.find(clone), (clone / ".git/index").stat().st_size
    git(clone, "switch", "-q", "main")
    before = tree(clone)
    said = with_file_limit(
        size // 2, lambda: series.switch.switch_to(repo, "mine", own=False)
    )
    assert "SIGXFSZ" in said or "File too large" in said
    assert not (clone / ".git/index.lock").exists()
    assert tree(clone) == before
    assert git(clone, "status", "--porcelain") == ""
    assert git(clone, "for-each-ref", "refs/series/next") == ""
