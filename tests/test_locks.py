# SPDX-License-Identifier: Apache-2.0
import errno
import fcntl
import os
import tempfile
import threading
import time
from pathlib import Path

import pytest

from series.errors import DiskError, SeriesError
from series.locks import locked, scratch_folder


def test_a_second_holder_waits_and_is_told(tmp_path: Path) -> None:
    order: list[str] = []
    waiting = threading.Event()

    def second() -> None:
        with locked(tmp_path, waiting.set):
            order.append("second")

    with locked(tmp_path):
        thread = threading.Thread(target=second)
        thread.start()
        assert waiting.wait(10)
        order.append("first")
    thread.join(10)
    assert order == ["first", "second"]
    assert list(tmp_path.iterdir()) == []


def test_a_file_system_without_locks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(handle: int, how: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)
    with locked(tmp_path, lambda: pytest.fail("nobody holds it")):
        pass


def test_a_scratch_folder_ends_with_its_block() -> None:
    seen: list[Path] = []

    def fail() -> None:
        with scratch_folder() as folder:
            (folder / "file").write_text("x")
            seen.append(folder)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert not seen[0].exists()


def test_only_dead_folders_of_ours_are_swept() -> None:
    root = Path(tempfile.gettempdir())
    dead = root / f"vllm-series-{os.getuid()}-dead"
    other = root / "somebody-elses"
    link = root / f"vllm-series-{os.getuid()}-link"
    for path in (dead, other):
        path.mkdir()
    link.symlink_to(other)
    old = time.time() - 3600
    with scratch_folder() as living:
        for path in (dead, other, living):
            os.utime(path, (old, old))
        with scratch_folder():
            assert living.exists()
            assert not dead.exists()
            assert other.exists()
            assert link.is_symlink()


def test_a_full_temporary_folder_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with (
        pytest.raises(DiskError, match=r"\(TMPDIR\): No space left"),
        scratch_folder() as folder,
    ):
        Path("/dev/full").write_bytes(b"x")
    assert not folder.exists()

    def refuse(**named: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(tempfile, "mkdtemp", refuse)
    with pytest.raises(SeriesError, match="No space left") as caught, scratch_folder():
        pass
    assert "TMPDIR" in caught.value.hint
