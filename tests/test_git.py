# SPDX-License-Identifier: Apache-2.0
import errno
import os
import tempfile
from pathlib import Path

import pytest

import series.git
from series.errors import DiskError, SeriesError
from series.git import GitError, Repository, make_repository, require_git
from series.locks import scratch_folder

from .conftest import World, git
from .full_disk import failing_git, with_file_limit


def test_a_repository_is_found_from_a_subfolder(world: World, clone: Path) -> None:
    found = Repository.find(clone / "vllm")
    assert (found.gitdir, found.common, found.worktree) == (
        clone / ".git",
        clone / ".git",
        clone,
    )


def test_a_linked_worktree_has_its_own_git_directory(clone: Path) -> None:
    linked = clone.parent / "linked tree"
    git(clone, "worktree", "add", "-q", str(linked), "main")
    found = Repository.find(linked)
    assert found.common == clone / ".git"
    assert found.gitdir.parent == clone / ".git/worktrees"
    assert found.worktree == linked


def test_a_bare_repository_and_a_git_directory(tmp_path: Path, clone: Path) -> None:
    git(tmp_path, "init", "-q", "--bare", "bare")
    assert Repository.find(tmp_path / "bare").worktree is None
    assert Repository.find(clone / ".git").worktree == clone


def test_a_submodule_like_git_file(tmp_path: Path, clone: Path) -> None:
    (clone / ".git").rename(tmp_path / "moved.git")
    (clone / ".git").write_text(f"gitdir: {tmp_path / 'moved.git'}\n")
    found = Repository.find(clone)
    assert found.gitdir == tmp_path / "moved.git"
    assert found.worktree == clone


@pytest.mark.parametrize(
    ("name", "words"),
    [("missing", "does not exist"), ("file", "is a file"), ("plain", "no git repo")],
)
def test_paths_that_are_no_repository(tmp_path: Path, name: str, words: str) -> None:
    (tmp_path / "file").write_text("x")
    (tmp_path / "plain").mkdir()
    with pytest.raises(SeriesError, match=words) as caught:
        Repository.find(tmp_path / name)
    assert str(tmp_path / name) in caught.value.what
    assert caught.value.hint
    assert "\n" not in caught.value.what


def test_a_folder_that_cannot_be_read(
    clone: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if os.geteuid() != 0:
        clone.chmod(0)
    else:
        monkeypatch.setattr(os, "access", lambda *words: False)
    try:
        with pytest.raises(SeriesError, match="cannot be read"):
            Repository.find(clone)
    finally:
        clone.chmod(0o755)


def test_a_folder_below_one_that_cannot_be_read(
    clone: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def denied(self: Path) -> bool:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "exists", denied)
    with pytest.raises(SeriesError, match="cannot be read: Permission denied"):
        Repository.find(clone)


@pytest.mark.skipif(os.geteuid() != 0, reason="giving a folder away needs root")
def test_another_users_clone_is_named_and_can_be_declared_safe(
    clone: Path, quiet_git: Path
) -> None:
    for path in (clone, clone / ".git"):
        os.chown(path, 12345, 12345)
    with pytest.raises(SeriesError, match="another user") as caught:
        Repository.find(clone)
    assert "safe.directory" in caught.value.hint
    (quiet_git / ".gitconfig").write_text(f'[safe]\n\tdirectory = "{clone}"\n')
    repo = Repository.find(clone)
    assert repo.line("rev-parse", "HEAD") == repo.resolve("HEAD")


def test_inherited_locations_do_not_count(
    clone: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    head = git(clone, "rev-parse", "HEAD")
    for name in ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY"):
        monkeypatch.setenv(name, str(tmp_path / "nowhere"))
    repo = Repository.find(clone)
    assert repo.line("rev-parse", "HEAD") == head
    assert repo.git("status", "--porcelain") == b""


def test_an_error_carries_all_there_is(clone: Path) -> None:
    with pytest.raises(GitError) as caught:
        Repository.find(clone).git("cat-file", "blob", "0" * 40)
    error = caught.value
    assert error.cmd[0] == "git"
    assert error.cmd[-3:] == ["cat-file", "blob", "0" * 40]
    assert error.rc == 128
    assert error.stdout == b""
    assert "0" * 40 in error.stderr
    assert error.said.startswith("fatal:")
    assert "\n" not in error.what


@pytest.mark.parametrize(
    ("said", "hint"),
    [
        ("Permission denied", "writabl"),
        ("x", ""),
    ],
)
def test_the_way_out_of_common_failures(said: str, hint: str) -> None:
    assert hint in GitError(["git"], 1, b"", said).hint
    assert bool(GitError(["git"], 1, b"", said).hint) == bool(hint)


def test_input_goes_in_and_bytes_come_out(clone: Path) -> None:
    repo = Repository.find(clone)
    data = b"a\r\n\0\xff"
    oid = repo.git("hash-object", "-w", "--stdin", stdin=data).decode().strip()
    assert repo.git("cat-file", "blob", oid) == data
    with (clone / "win.txt").open("rb") as file:
        again = repo.git("hash-object", "--stdin", stdin=file).decode().strip()
    assert again == git(clone, "rev-parse", "HEAD:win.txt")


def test_resolve_ask_and_config(clone: Path) -> None:
    repo = Repository.find(clone)
    assert repo.resolve("refs/heads/none") is None
    assert repo.resolve("refs/heads/mine") == git(clone, "rev-parse", "mine")
    assert repo.tree_of("mine") == git(clone, "rev-parse", "mine^{tree}")
    assert repo.ask("cat-file", "-e", "0" * 40) is None
    assert repo.config("core.bare") == "false"
    assert repo.config("no.such") is None


def test_hooks_do_not_run(clone: Path) -> None:
    hook = clone / ".git/hooks/reference-transaction"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text("#!/bin/sh\nexit 1\n")
    hook.chmod(0o755)
    Repository.find(clone).git("update-ref", "refs/heads/x", "HEAD")
    assert git(clone, "rev-parse", "x") == git(clone, "rev-parse", "HEAD")


def test_made_repositories_are_plain(
    tmp_path: Path, quiet_git: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    template = tmp_path / "template"
    template.mkdir()
    (template / "surprise").write_text("x")
    (quiet_git / ".gitconfig").write_text(f"[init]\n\ttemplateDir = {template}\n")
    monkeypatch.setenv("GIT_TEMPLATE_DIR", str(template))
    for bare in (True, False):
        repo = make_repository(tmp_path / f"made-{bare}", bare=bare)
        assert not (repo.gitdir / "surprise").exists()
        assert repo.line("rev-parse", "--is-bare-repository") == str(bare).lower()


@pytest.mark.parametrize("said", [b"git version 2.33.9", b"git version 1.8 (odd)"])
def test_an_old_git_is_refused(monkeypatch: pytest.MonkeyPatch, said: bytes) -> None:
    monkeypatch.setattr(series.git, "_run", lambda *words, **named: said)
    with pytest.raises(SeriesError, match=r"too old: 2\.34 or newer"):
        require_git()


@pytest.mark.parametrize(
    "said", [b"git version 2.34.1", b"git version 2.39.5 (Apple Git-154)", b"git 3.0"]
)
def test_a_new_git_is_taken(monkeypatch: pytest.MonkeyPatch, said: bytes) -> None:
    monkeypatch.setattr(series.git, "_run", lambda *words, **named: said)
    require_git()


@pytest.mark.parametrize("inherited", [False, True])
def test_a_missing_git_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, inherited: bool
) -> None:
    tools = tmp_path / "bin"
    tools.mkdir()
    (tools / "env").symlink_to("/usr/bin/env")
    monkeypatch.setenv("PATH", str(tools))
    if inherited:
        monkeypatch.setenv("GIT_DIR", "x")
    with pytest.raises(SeriesError, match="git is not installed"):
        require_git()


def say_in_git(
    folder: Path, monkeypatch: pytest.MonkeyPatch, said: str, code: int = 128
) -> None:
    failing_git(folder, monkeypatch, "symbolic-ref", said, code=code)


@pytest.mark.parametrize(
    ("said", "hint"),
    [
        ("fatal: write error: No space left on device", "space"),
        ("fatal: sha1 file 'x/index.lock' write error. Out of diskspace", "space"),
        ("error: unable to write file vllm/core.py", "space"),
        ("fatal: cannot update ref 'r': couldn't write '/x/r.lock'", "space"),
        ("fatal: unable to write new index file", "space"),
        ("error: unable to create temporary file: Disk quota exceeded", "space"),
        ("fatal: Unable to create 'x.lock': Read-only file system", "writable"),
        ("error: unable to write file x\nfatal: x: File too large", "ulimit -f"),
        ("fatal: open /dev/null failed: Too many open files", "ulimit -n"),
        ("/tmp/x/message: No space left on device", "space"),
        ("warning: unable to access 'x': Too many open files", "ulimit -n"),
    ],
)
def test_a_failure_of_the_disk_is_none_of_git_s(
    clone: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str, hint: str
) -> None:
    repo = Repository.find(clone)
    say_in_git(tmp_path / "bin", monkeypatch, said)
    with pytest.raises(DiskError) as caught:
        repo.ask("symbolic-ref", "HEAD")
    assert not isinstance(caught.value, GitError)
    assert str(clone) in caught.value.what
    assert said.splitlines()[0] in caught.value.what
    assert hint in caught.value.hint
    assert caught.value.stderr == said


@pytest.mark.parametrize(
    "said",
    [
        "error: insufficient permission for adding an object to repository database\n"
        "error: unable to write file x",
        "fatal: unable to write x: Not a directory",
        "remote: fatal: write error: No space left on device",
        "fatal: write error: Broken pipe",
        "fatal: ref HEAD is not a symbolic ref",
        # Files and folders that have such names.
        "error: The following untracked working tree files would be overwritten by "
        "checkout:\n\tnotes: No space left on device\nAborting",
        "error: pathspec 'File too large.txt' did not match any file(s) known to git",
        "fatal: Unable to create '/x: No space left on device/.git/index.lock': "
        "File exists.",
        # A hook, a filter, ssh and a credential helper.
        "hook says: File too large",
        "could not write cache\nfatal: x: smudge filter lfs failed",
        "could not write to known_hosts\nfatal: Could not read from remote repository.",
        "failed to write token: keyring is locked",
        "fatal: failed to write token: keyring is locked",
    ],
)
def test_other_failures_are_git_s(
    clone: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str
) -> None:
    repo = Repository.find(clone)
    say_in_git(tmp_path / "bin", monkeypatch, said)
    assert repo.ask("symbolic-ref", "HEAD") is None


def test_a_limit_on_files_is_named(clone: Path, tmp_path: Path) -> None:
    repo = Repository.find(clone)
    (clone / "big").write_bytes(os.urandom(1 << 16))

    def store() -> None:
        with (clone / "big").open("rb") as file:
            repo.git("hash-object", "-w", "--stdin", stdin=file)

    said = with_file_limit(1 << 12, store)
    assert f"{clone}: File too large" in said
    assert "SIGXFSZ" in said
    assert "ulimit -f" in said
    data = bytes(1 << 14)
    said = with_file_limit(1 << 12, lambda: repo.git("hash-object", stdin=data))
    assert "(TMPDIR): File too large" in said


def test_a_temporary_folder_is_named_as_such(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = "fatal: write error: No space left on device"
    say_in_git(tmp_path / "bin", monkeypatch, said)
    temporary = tempfile.gettempdir()
    with scratch_folder() as folder:
        repo = make_repository(folder / "scratch.git", bare=True)
        with pytest.raises(DiskError) as caught:
            repo.ask("symbolic-ref", "HEAD")
    assert caught.value.what.startswith(f"{temporary} (TMPDIR): No space")
    assert "TMPDIR" in caught.value.hint
    # Not everything in /tmp is this tool's to move elsewhere.
    repo = make_repository(Path(tempfile.mkdtemp()))
    with pytest.raises(DiskError) as caught:
        repo.ask("symbolic-ref", "HEAD")
    assert caught.value.what.startswith(f"{repo.worktree}: No space")
    assert "TMPDIR" not in caught.value.hint


def test_thousands_of_lines_are_counted(
    clone: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repo = Repository.find(clone)
    lines = [f"error: unable to write file {number}{'x' * 400}" for number in range(99)]
    say_in_git(tmp_path / "bin", monkeypatch, "\n".join(lines))
    with pytest.raises(DiskError) as caught:
        repo.git("symbolic-ref", "HEAD")
    assert "… and 96 more lines" in caught.value.what
    assert len(caught.value.what) < 1500
    error = GitError(["git"], 1, b"", "\n".join(lines))
    assert "… and 96 more lines" in error.what
    assert len(error.what) < 1500


def test_a_signal_is_named() -> None:
    assert "(SIGKILL: Killed)" in GitError(["git"], -9, b"", "").what
    assert "(signal 99)" in GitError(["git"], -99, b"", "").what


@pytest.mark.parametrize("place", ["make", "write"])
def test_input_that_does_not_fit_names_the_folder(
    clone: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    repo = Repository.find(clone)

    def full(*words: object, **named: object) -> object:
        if place == "write":
            return open("/dev/full", "wb", buffering=0)
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(tempfile, "TemporaryFile", full)
    with pytest.raises(DiskError) as caught:
        repo.git("hash-object", "--stdin", stdin=b"x")
    assert f"{tempfile.gettempdir()} (TMPDIR): No space left" in caught.value.what


def test_too_many_open_files_are_named(
    clone: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repo = Repository.find(clone)

    def refuse(*words: object, **named: object) -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(series.git.Git, "execute", refuse)
    with pytest.raises(DiskError, match="Too many open files") as caught:
        repo.resolve("HEAD")
    assert "ulimit -n" in caught.value.hint
