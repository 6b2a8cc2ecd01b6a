# SPDX-License-Identifier: Apache-2.0
"""What a git that was cut off in the middle of a checkout leaves, made by hand."""

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

import series.branch
import series.switch
from series.errors import SeriesError
from series.git import Repository
from series.switch import finish_switch, save_edits

from .conftest import USER, World, commit, git, subjects
from .full_disk import with_file_limit
from .test_place import change_patches, place

JOURNAL = "refs/worktree/series"


@pytest.fixture(autouse=True)
def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(series.branch, "_STALE_S", 0.05)


def journal(clone: Path, going: str) -> None:
    """As if a switch from HEAD to a commit had not ended."""
    git(clone, "update-ref", f"{JOURNAL}/from/rocm-series", "HEAD")
    git(clone, "update-ref", f"{JOURNAL}/next/rocm-series", going)


@pytest.fixture
def half(world: World, clone: Path) -> Path:
    """A clone on main whose switch to the series was cut off half-way."""
    git(clone, "switch", "-q", "main")
    place(world, clone)
    tip = git(clone, "rev-parse", "rocm-series")
    journal(clone, tip)
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
    assert git(half, "for-each-ref", JOURNAL) == ""


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
    assert git(half, "for-each-ref", JOURNAL) != ""


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
    journal(clone, new)
    git(clone, "switch", "-q", "--detach", new)
    outcome = place(world, clone, switch=True)
    assert outcome.moved
    assert git(clone, "symbolic-ref", "HEAD") == "refs/heads/rocm-series"
    assert len(subjects(clone)) == 2
    # Killed after the branch had moved, before HEAD was on it again.
    journal(clone, "HEAD")
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
    assert git(clone, "for-each-ref", JOURNAL) == ""
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
    assert git(with_stg, "for-each-ref", JOURNAL) == ""


def test_what_cannot_be_undone_is_undone_by_the_next_run(
    world: World, with_stg: Path, full_disk: FullDisk
) -> None:
    refused = place(world, with_stg, switch=True).not_switched
    assert "half-way" in str(refused)
    assert refused is not None
    assert "Do not commit" in refused.hint
    assert "room" in refused.hint
    assert git(with_stg, "for-each-ref", JOURNAL) != ""
    with pytest.raises(SeriesError, match="half-way"):
        place(world, with_stg, switch=True)
    full_disk.armed.unlink()
    outcome = place(world, with_stg, switch=True)
    assert outcome.switched
    assert git(with_stg, "status", "--porcelain") == ""
    assert git(with_stg, "symbolic-ref", "HEAD") == "refs/heads/rocm-series"
    assert git(with_stg, "rev-parse", "HEAD^{tree}") == world.tree
    assert not (with_stg / "stg").exists()
    assert git(with_stg, "for-each-ref", JOURNAL) == ""


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
    assert git(clone, "for-each-ref", JOURNAL) == ""


def test_filters_of_the_user_do_not_hide_a_half_switch(
    world: World, clone: Path
) -> None:
    git(clone, "config", "core.autocrlf", "true")
    git(clone, "rm", "-q", "-r", "--cached", ".")
    git(clone, "reset", "-q", "--hard")
    place(world, clone)
    journal(clone, "rocm-series")
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
    assert git(clone, "for-each-ref", JOURNAL) == ""


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
    assert git(clone, "for-each-ref", JOURNAL) == ""


def test_another_work_tree_is_none_of_a_half_switch(
    world: World, half: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    git(half, "worktree", "add", "-q", "-b", "feature", str(other), "main")
    (other / "empty.txt").touch()
    (other / "vllm/new.py").write_text("def f0():\n")
    (other / "vllm/old.py").unlink()
    (other / "vllm/core.py").write_text("value_0 = 0\n")
    before = tree(other)
    place(world, other)
    assert tree(other) == before
    assert place(world, half, switch=True).switched


@pytest.mark.parametrize("moved", [False, True])
def test_what_is_done_after_head_went_elsewhere_is_the_users(
    world: World, clone: Path, moved: bool
) -> None:
    git(clone, "switch", "-q", "main")
    place(world, clone, switch=moved)
    journal(clone, "main" if moved else "rocm-series")
    git(clone, "checkout", "-q", "-f", "mine")
    (clone / "vllm/new.py").touch()
    git(clone, "checkout", "rocm-series", "--", "vllm/ops.py")
    before = git(clone, "status", "--porcelain")
    place(world, clone)
    assert git(clone, "status", "--porcelain") == before
    assert (clone / "vllm/new.py").exists()
    assert git(clone, "for-each-ref", JOURNAL) == ""


def test_edits_after_a_switch_that_is_complete_are_edits(
    world: World, clone: Path
) -> None:
    git(clone, "switch", "-q", "main")
    place(world, clone, switch=True)
    journal(clone, "main")
    (clone / "README.md").write_text("edited since\n")
    place(world, clone)
    assert (clone / "README.md").read_text() == "edited since\n"
    assert git(clone, "for-each-ref", JOURNAL) == ""


def staged_alone(clone: Path) -> None:
    (clone / "vllm/core.py").write_text("my staged work\n")
    git(clone, "add", "vllm/core.py")
    (clone / "vllm/core.py").unlink()


def some_of_the_series_staged(clone: Path) -> None:
    git(clone, "checkout", "rocm-series", "--", "vllm/ops.py")


def folder_instead(clone: Path) -> None:
    (clone / "vllm/old.py").mkdir()
    (clone / "vllm/old.py/notes").write_text("mine\n")


def file_instead_of_folder(clone: Path) -> None:
    shutil.rmtree(clone / "vllm")
    (clone / "vllm").write_text("mine\n")


def link_instead(clone: Path) -> None:
    (clone / "vllm/old.py").symlink_to("/nowhere")


def pipe_instead(clone: Path) -> None:
    os.mkfifo(clone / "vllm/old.py")


@pytest.mark.parametrize(
    "edit",
    [
        staged_alone,
        some_of_the_series_staged,
        folder_instead,
        file_instead_of_folder,
        link_instead,
        pipe_instead,
    ],
)
def test_whatever_a_user_did_half_way_stays_and_nothing_else_moves(
    world: World, half: Path, edit: Callable[[Path], None]
) -> None:
    (half / ".git/index.lock").unlink()
    edit(half)
    before = seen(half)
    assert place(world, half, switch=True).not_switched
    assert seen(half) == before


def seen(clone: Path) -> tuple[object, ...]:
    """All that is below a work tree, and in its index."""
    paths = [path for path in clone.rglob("*") if ".git" not in path.parts]
    kinds = {str(path): path.lstat().st_mode for path in paths}
    return kinds, tree(clone), git(clone, "ls-files", "-s")


def test_files_that_git_is_told_to_leave_alone_stay(
    world: World, clone: Path, full_disk: FullDisk
) -> None:
    (clone / "local.cfg").write_text("default\n")
    commit(clone, "Settings\n")
    git(clone, "branch", "-f", "main")
    git(clone, "update-index", "--assume-unchanged", "README.md")
    (clone / "README.md").write_text("my own\n")
    full_disk.room.touch()
    full_disk.staged.touch()
    assert "undone" in str(place(world, clone, switch=True).not_switched)
    assert (clone / "README.md").read_text() == "my own\n"


def test_a_folder_that_git_made_instead_of_a_file_goes(
    world: World, half: Path
) -> None:
    (half / "vllm/core.py").unlink()
    (half / "vllm/core.py/deeper").mkdir(parents=True)
    assert place(world, half, switch=True).switched
    assert git(half, "status", "--porcelain") == ""


@contextmanager
def at_work(clone: Path) -> Iterator[Path]:
    """A `git commit -a` with its editor open; it has the lock for as long."""
    lock, asked = clone / ".git/index.lock", clone / ".git/COMMIT_EDITMSG"
    asked.unlink(missing_ok=True)
    words = ["git", "-c", "user.name=A", "-c", "user.email=a@b.c", "commit", "-a"]
    env = os.environ | {"GIT_EDITOR": "sleep 60; :"}
    with subprocess.Popen(words, cwd=clone, env=env, start_new_session=True) as child:
        try:
            while not (asked.exists() and lock.exists()):
                assert child.poll() is None
                time.sleep(0.02)
            yield lock
        finally:
            with suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGTERM)


def test_the_lock_of_a_git_at_work_stays(world: World, half: Path) -> None:
    (half / ".git/index.lock").unlink()
    with at_work(half) as lock:
        there = lock.stat()
        with pytest.raises(SeriesError, match="A git is at work"):
            place(world, half, switch=True)
        assert lock.stat() == there
    assert place(world, half, switch=True).switched


# git says nothing of a file that it cannot create, and moves on.
SILENT = """\
#!/bin/bash
words=" $* "
{git} "$@" || exit
[[ ! -e {armed} ]] && exit
[[ $words == *" switch "* || $words == *" checkout-index "* ]] || exit 0
rm -f vllm/new.py
cp {old} vllm/ops.py
"""


@pytest.mark.parametrize("mended", [False, True])
def test_a_switch_that_left_files_out_is_none(
    world: World,
    clone: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    mended: bool,
) -> None:
    folder = tmp_path / "silent"
    folder.mkdir()
    armed, old = folder / "armed", folder / "old"
    shutil.copy(clone / "vllm/ops.py", old)
    words = {"git": shutil.which("git"), "armed": armed, "old": old}
    text = SILENT.format(**words)
    if mended:
        text = text.replace('|| $words == *" checkout-index "* ', "")
    (folder / "git").write_text(text)
    (folder / "git").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    armed.touch()
    outcome = place(world, clone, switch=True)
    assert bool(outcome.switched) == mended
    if not mended:
        assert "half-way" in str(outcome.not_switched)
        armed.unlink()
        assert not place(world, clone, switch=True).not_switched
    assert git(clone, "status", "--porcelain") == ""
    assert git(clone, "rev-parse", "HEAD^{tree}") == world.tree
    assert git(clone, "for-each-ref", JOURNAL) == ""


@pytest.mark.parametrize("name", ['"quoted"', "return\r", "line\nend", "-dash"])
def test_odd_names_half_way(world: World, clone: Path, name: str) -> None:
    (clone / name).write_text("in the branch\n")
    commit(clone, "Odd\n")
    place(world, clone)
    journal(clone, "rocm-series")
    (clone / name).write_text("in the")
    assert place(world, clone, switch=True).switched
    assert git(clone, "status", "--porcelain") == ""


@pytest.fixture
def ends(clone: Path) -> Repository:
    """On `mine`, where a is a file and b a folder; on `target` it is the reverse."""
    (clone / "a").write_text("a module\n")
    (clone / "b").mkdir()
    (clone / "b/c").write_text("of a package\n")
    commit(clone, "Here\n")
    git(clone, "switch", "-q", "-c", "target")
    git(clone, "rm", "-q", "-r", "a", "b")
    (clone / "a").mkdir()
    (clone / "a/c").write_text("of a package\n")
    (clone / "b").write_text("a module\n")
    commit(clone, "There\n")
    git(clone, "switch", "-q", "mine")
    return Repository.find(clone)


def begun(repo: Repository) -> Path:
    """As if a switch to `target` had written all files and not ended."""
    assert repo.worktree is not None
    git(repo.worktree, "update-ref", f"{JOURNAL}/from/target", "mine")
    git(repo.worktree, "update-ref", f"{JOURNAL}/next/target", "target")
    git(repo.worktree, "restore", "-s", "target", "--worktree", ".")
    return repo.worktree


def test_files_and_folders_that_changed_places_go_back(ends: Repository) -> None:
    clone = begun(ends)
    finish_switch(ends, "target", own=False)
    assert git(clone, "status", "--porcelain") == ""
    assert git(clone, "for-each-ref", JOURNAL) == ""
    series.switch.switch_to(ends, "target", own=False)
    assert git(clone, "status", "--porcelain") == ""


@pytest.mark.parametrize("name", ["a/c", "b"])
@pytest.mark.parametrize("link", [False, True])
def test_edits_in_place_of_a_folder_or_file_stay(
    ends: Repository, name: str, link: bool
) -> None:
    clone = begun(ends)
    (clone / name).unlink()
    if link:
        (clone / name).symlink_to("/nowhere")
    else:
        (clone / name).write_text("mine\n")
    before = seen(clone)
    finish_switch(ends, "target", own=False)
    assert seen(clone) == before


@pytest.mark.parametrize("intent", [False, True])
def test_a_file_staged_half_way_hides_nothing(ends: Repository, intent: bool) -> None:
    clone = begun(ends)
    git(clone, "read-tree", "target")
    (clone / "mine.py").write_text("mine\n")
    git(clone, "add", *(["-N"] if intent else []), "mine.py")
    before = seen(clone)
    finish_switch(ends, "target", own=False)
    assert seen(clone) == before
    assert git(clone, "for-each-ref", JOURNAL) != ""
    git(clone, "rm", "-q", "--cached", "mine.py")
    finish_switch(ends, "target", own=False)
    assert git(clone, "status", "--porcelain") == "?? mine.py"


def test_a_filter_that_does_not_lead_back_is_no_failure(
    clone: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {".gitattributes": b"*.bat text eol=crlf\n", "new.bat": b"one\r\n"}
    with monkeypatch.context() as aside:
        aside.setenv("GIT_INDEX_FILE", str(clone / ".git/aside"))
        git(clone, "read-tree", "mine")
        for name, data in files.items():
            (clone.parent / "raw").write_bytes(data)
            words = ("hash-object", "-w", "--no-filters", str(clone.parent / "raw"))
            entry = f"100644,{git(clone, *words)},{name}"
            git(clone, "update-index", "--add", "--cacheinfo", entry)
        tree_ = git(clone, "write-tree")
    words = ("commit-tree", "-p", "mine", "-m", "Line ends", tree_)
    git(clone, "branch", "target", git(clone, *words, **USER))
    repo = Repository.find(clone)
    series.switch.switch_to(repo, "target", own=False)
    assert git(clone, "symbolic-ref", "HEAD") == "refs/heads/target"
    assert git(clone, "for-each-ref", JOURNAL) == ""


def test_a_lock_that_a_refusal_did_not_look_at_stays(
    world: World, clone: Path, tmp_path: Path
) -> None:
    place(world, clone)
    git(clone, "worktree", "add", "-q", str(tmp_path / "second"), "rocm-series")
    (clone / "README.md").write_text("mine\n")
    with at_work(clone) as lock:
        git(clone, "checkout-index", "-f", "README.md")
        repo = Repository.find(clone)
        with pytest.raises(SeriesError):
            series.switch.switch_to(repo, "rocm-series", own=False)
        assert lock.exists()


def test_a_lock_of_a_switch_that_was_killed_at_once_goes(
    world: World, clone: Path
) -> None:
    place(world, clone)
    journal(clone, "rocm-series")
    (clone / ".git/index.lock").touch()
    assert place(world, clone, switch=True).switched


def test_an_ignored_file_stays_where_the_branch_moves_below_it(
    world: World, clone: Path
) -> None:
    git(clone, "switch", "-q", "-c", "target")
    repo = Repository.find(clone)
    (clone / "d").mkdir()
    (clone / "d/f").write_text("new\n")
    new = commit(clone, "A folder\n")
    git(clone, "reset", "-q", "--hard", "HEAD~1")
    (clone / ".git/info/exclude").write_text("/d\n")
    (clone / "d").write_text("mine\n")
    moved = series.branch.Plan(git(clone, "rev-parse", "HEAD"), new)
    with pytest.raises(SeriesError):
        series.switch.move_under_head(repo, "target", new, moved, own=False)
    assert (clone / "d").read_text() == "mine\n"


def test_a_journal_that_cannot_be_removed_means_nothing(
    world: World, clone: Path
) -> None:
    place(world, clone)
    git(clone, "pack-refs", "--all")
    (clone / ".git/packed-refs.lock").touch()
    series.switch.switch_to(Repository.find(clone), "rocm-series", own=False)
    (clone / ".git/packed-refs.lock").unlink()
    cut = (clone / "vllm/core.py").read_text()[:5]
    (clone / "vllm/core.py").write_text(cut)
    finish_switch(Repository.find(clone), "rocm-series", own=False)
    assert (clone / "vllm/core.py").read_text() == cut


@pytest.mark.parametrize("word", ["false", "off", "0"])
def test_modes_that_do_not_count(world: World, half: Path, word: str) -> None:
    git(half, "config", "core.filemode", word)
    (half / "vllm/core.py").chmod(0o755)
    assert place(world, half, switch=True).switched
