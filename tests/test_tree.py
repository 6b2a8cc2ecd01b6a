# SPDX-License-Identifier: Apache-2.0
import errno
import io
import os
import tarfile
import tempfile
from pathlib import Path

import pytest

from series import commands
from series.errors import DiskError, SeriesError
from series.release import ReleaseError
from series.tree import TreeError, build_folder, tree_at, unpack

from .conftest import World, commit, git, subjects
from .test_place import change_patches


def apply_own(world: World, build: Path, **options: bool):
    flags = {"force": False} | options
    return commands.apply_own(world.toml, build, world.sdist, **flags)


def test_the_release_becomes_a_tagged_tree(world: World, tmp_path: Path) -> None:
    build = tmp_path / "build"
    outcome = apply_own(world, build)
    tree = build / "vllm"
    assert outcome.where == tree
    assert outcome.switched
    pin_tree = git(world.upstream, "rev-parse", "v0.32.0^{tree}")
    assert git(tree, "rev-parse", "v0.32.0^{tree}") == pin_tree
    assert git(tree, "rev-parse", "HEAD^{tree}") == world.tree
    assert git(tree, "symbolic-ref", "HEAD") == "refs/heads/rocm-series"
    assert git(tree, "status", "--porcelain") == ""
    assert len(subjects(tree)) == 3
    assert not (tree / "PKG-INFO").exists()
    assert not (tree / "vllm/_version.py").exists()
    assert os.access(tree / "tools/run.sh", os.X_OK)
    assert git(tree, "log", "-1", "--format=%cd", "--date=iso-strict", "v0.32.0") in (
        "2026-10-18T09:36:00+00:00",
        "2026-10-18T09:36:00Z",
    )


def test_the_base_commit_is_reproducible(world: World, tmp_path: Path) -> None:
    tips = {apply_own(world, tmp_path / name).tip for name in ("one", "two")}
    assert len(tips) == 1


def test_a_second_run_needs_no_archive(world: World, tmp_path: Path) -> None:
    first = apply_own(world, tmp_path)
    second = commands.apply_own(world.toml, tmp_path, tmp_path / "none", force=False)
    assert not second.moved
    assert second.tip == first.tip


def test_changed_patches_change_the_files(world: World, tmp_path: Path) -> None:
    apply_own(world, tmp_path)
    (tmp_path / "vllm/__pycache__").mkdir()
    (tmp_path / "vllm/__pycache__/x.pyc").write_text("x")
    change_patches(world)
    outcome = apply_own(world, tmp_path)
    assert outcome.moved
    assert (tmp_path / "vllm/vllm/old.py").exists()
    assert not (tmp_path / "vllm/vllm/new.py").exists()
    assert (tmp_path / "vllm/__pycache__/x.pyc").exists()
    assert git(tmp_path / "vllm", "status", "--porcelain", "-uno") == ""


def test_edits_are_not_lost(world: World, tmp_path: Path) -> None:
    apply_own(world, tmp_path)
    tree = tmp_path / "vllm"
    (tree / "README.md").write_text("edited\n")
    (tree / "vllm/ops.py").write_text("staged\n")
    git(tree, "add", "vllm/ops.py")
    again = apply_own(world, tmp_path)
    assert (again.moved, again.edited) == (False, 2)
    change_patches(world)
    with pytest.raises(SeriesError, match=r"uncommitted changes: .*README\.md") as e:
        apply_own(world, tmp_path)
    assert "export" in e.value.hint
    assert "--force" in e.value.hint
    assert (tree / "README.md").read_text() == "edited\n"
    assert len(subjects(tree)) == 3
    outcome = apply_own(world, tmp_path, force=True)
    assert len(subjects(tree)) == 2
    assert git(tree, "status", "--porcelain") == ""
    (ref,) = outcome.saved
    assert git(tree, "show", f"{ref}:README.md") == "edited"
    assert git(tree, "show", f"{ref}:vllm/ops.py") == "staged"


def test_force_does_not_end_a_rebase(world: World, tmp_path: Path) -> None:
    apply_own(world, tmp_path)
    tree = tmp_path / "vllm"
    editor = "sed -i s/^pick/edit/"
    words = ["-c", f"sequence.editor={editor}", "rebase", "-q", "-i", "HEAD~1"]
    git(tree, *words, GIT_COMMITTER_NAME="D", GIT_COMMITTER_EMAIL="d@e")
    (tree / "README.md").write_text("edited\n")
    for force in (False, True):
        with pytest.raises(SeriesError, match="in the middle of a rebase"):
            apply_own(world, tmp_path, force=force)
    assert (tree / "README.md").read_text() == "edited\n"
    git(tree, "checkout", "-q", "README.md")
    git(tree, "rebase", "--abort")
    assert not apply_own(world, tmp_path).moved


def test_commits_are_not_lost(world: World, tmp_path: Path) -> None:
    apply_own(world, tmp_path)
    tree = tmp_path / "vllm"
    (tree / "mine.py").write_text("mine = 1\n")
    mine = commit(tree, "Mine\n")
    with pytest.raises(SeriesError, match="Mine") as caught:
        apply_own(world, tmp_path)
    assert "export" in caught.value.hint
    outcome = apply_own(world, tmp_path, force=True)
    assert not (tree / "mine.py").exists()
    assert [git(tree, "rev-parse", ref) for ref in outcome.saved] == [mine]


def test_another_branch_checked_out_is_left_for_the_series(
    world: World, tmp_path: Path
) -> None:
    apply_own(world, tmp_path)
    tree = tmp_path / "vllm"
    git(tree, "switch", "-q", "-c", "mine", "v0.32.0")
    outcome = apply_own(world, tmp_path)
    assert outcome.switched
    assert git(tree, "symbolic-ref", "HEAD") == "refs/heads/rocm-series"
    assert git(tree, "rev-parse", "mine") == git(tree, "rev-parse", "v0.32.0")


@pytest.mark.parametrize("key", ["core.autocrlf", "core.eol"])
def test_a_users_line_ends_do_not_show(
    world: World, tmp_path: Path, quiet_git: Path, key: str
) -> None:
    value = "true" if key == "core.autocrlf" else "crlf"
    git(tmp_path, "config", "--file", str(quiet_git / ".gitconfig"), key, value)
    apply_own(world, tmp_path)
    assert (tmp_path / "vllm/README.md").read_bytes() == b"A small project.\n"
    assert git(tmp_path / "vllm", "status", "--porcelain") == ""


def test_something_else_in_its_place(world: World, tmp_path: Path) -> None:
    (tmp_path / "vllm").mkdir()
    (tmp_path / "vllm/file").write_text("mine")
    with pytest.raises(TreeError, match="is not a tree that"):
        apply_own(world, tmp_path)
    assert (tmp_path / "vllm/file").read_text() == "mine"
    git(tmp_path / "vllm", "init", "-q")
    with pytest.raises(TreeError, match="does not hold the pinned"):
        apply_own(world, tmp_path)


def test_a_tree_of_another_pin_is_named(world: World, tmp_path: Path) -> None:
    apply_own(world, tmp_path)
    pin = world.manifest.pin.model_copy(update={"tree": "a" * 40})
    with pytest.raises(TreeError, match="does not hold the pinned"):
        tree_at(tmp_path, pin)


def test_another_content_than_recorded(world: World, tmp_path: Path) -> None:
    text = world.toml.read_text()
    world.toml.write_text(text.replace('"PKG-INFO", ', ""))
    with pytest.raises(TreeError, match=r"series\.toml has"):
        apply_own(world, tmp_path)
    assert list(tmp_path.glob("vllm")) == []
    assert list(tmp_path.glob(".tmp-*")) == []


def test_a_wrong_archive_is_refused(world: World, tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.tar.gz"
    wrong.write_bytes(b"x")
    with pytest.raises(ReleaseError, match=r"is not vllm-0\.32\.0"):
        commands.apply_own(world.toml, tmp_path / "b", wrong, force=False)


def test_a_cut_archive_is_named(world: World, tmp_path: Path) -> None:
    cut = tmp_path / "cut.tar.gz"
    cut.write_bytes(world.sdist.read_bytes()[:-200])
    with pytest.raises(TreeError, match="could not be unpacked"):
        unpack(cut, tmp_path / "to", [])


def test_an_archive_cannot_write_elsewhere(tmp_path: Path) -> None:
    path = tmp_path / "evil.tar.gz"
    with tarfile.open(path, "w:gz") as tar:
        info = tarfile.TarInfo("top/../../evil")
        info.size = 1
        tar.addfile(info, io.BytesIO(b"x"))
    with pytest.raises(TreeError, match="could not be unpacked"):
        unpack(path, tmp_path / "to", [])
    assert not (tmp_path / "evil").exists()


def test_owners_of_the_archive_are_not_taken(world: World, tmp_path: Path) -> None:
    path = tmp_path / "owned.tar.gz"
    with tarfile.open(path, "w:gz") as tar:
        info = tarfile.TarInfo("top/file")
        info.uid = info.gid = 12345
        info.size = 1
        tar.addfile(info, io.BytesIO(b"x"))
    unpack(path, tmp_path / "to", [])
    assert (tmp_path / "to/file").stat().st_uid == os.geteuid()


def test_left_folders_are_swept_and_others_stay(tmp_path: Path) -> None:
    for name in (".tmp-old", "releases.git", "other"):
        (tmp_path / name / "deep").mkdir(parents=True)
    with build_folder(tmp_path, print):
        pass
    assert {path.name for path in tmp_path.iterdir()} == {"releases.git", "other"}


def test_a_build_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with (
        pytest.raises(TreeError, match="cannot be made"),
        build_folder(tmp_path / "file/build", print),
    ):
        pass


def test_a_full_disk_names_the_build_folder(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    build = tmp_path / "build"
    make = tempfile.mkdtemp

    def refuse(*words: object, **named: object) -> str:
        if named.get("dir") == build:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return make(*words, **named)  # type: ignore[call-overload]

    monkeypatch.setattr(tempfile, "mkdtemp", refuse)
    with pytest.raises(DiskError, match=f"^{build}: No space left"):
        apply_own(world, build)
    assert list(build.iterdir()) == []
