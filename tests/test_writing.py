# SPDX-License-Identifier: Apache-2.0
"""Files that are written whole or not at all."""

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from series.errors import DiskError
from series.writing import aside, write_whole

from .full_disk import full_disk


def write(path: Path, text: str) -> None:
    with aside(path) as part:
        part.write_text(text)


@pytest.mark.parametrize("old", ["", "old"])
def test_a_full_disk_leaves_the_old_file_and_no_other(tmp_path: Path, old: str) -> None:
    path = tmp_path / "page.md"
    if old:
        path.write_text(old)
    with full_disk(100), pytest.raises(OSError) as raised:
        write(path, "x" * 101)
    assert (raised.value.errno, raised.value.filename) == (errno.EFBIG, str(path))
    assert [one.read_text() for one in tmp_path.iterdir()] == ([old] if old else [])
    with full_disk(100):
        write(path, "x" * 100)
    assert path.read_text() == "x" * 100


def test_a_file_stays_a_link_and_keeps_its_mode(tmp_path: Path) -> None:
    real, link = tmp_path / "real", tmp_path / "link"
    real.write_text("old")
    real.chmod(0o640)
    link.symlink_to("real")
    write(link, "new")
    assert link.is_symlink()
    assert (real.read_text(), real.stat().st_mode & 0o777) == ("new", 0o640)


def test_two_that_write_one_file_leave_one_whole(tmp_path: Path) -> None:
    path, own = tmp_path / "page.md", tmp_path / "page.md.part"
    own.write_text("a user's")
    with aside(path) as first:
        first.write_text("x" * 9)
        with aside(path) as second:
            second.write_text("y" * 5)
            first.write_text("x" * 10)
        assert path.read_text() == "y" * 5
    assert path.read_text() == "x" * 10
    assert own.read_text() == "a user's"
    assert {*tmp_path.iterdir()} == {path, own}


def test_a_new_file_has_the_mode_that_others_have(tmp_path: Path) -> None:
    path = tmp_path / "new"
    before = os.umask(0o027)
    try:
        write(path, "x")
    finally:
        os.umask(before)
    assert path.stat().st_mode & 0o777 == 0o640
    path.chmod(0o600)
    with aside(path) as part:
        part.write_text("secret")
        assert part.stat().st_mode & 0o777 == 0o600


OUTPUT = """
import sys
from pathlib import Path
from series.writing import aside
for name in sys.argv[1:]:
    with aside(Path(name)) as part:
        part.write_text(name)
"""


def test_a_path_of_a_descriptor_is_written_to(tmp_path: Path) -> None:
    link, taken = tmp_path / "link", tmp_path / "taken"
    link.symlink_to("/dev/stdout")
    for name in ("/dev/stdout", "/dev/fd/1", "/proc/self/fd/1", str(link)):
        words = [sys.executable, "-c", OUTPUT, name]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        assert (done.stdout, done.stderr) == (name, "")
        with taken.open("w+") as file:
            subprocess.run(words, stdout=file, check=True)
            assert (file.read(), os.fstat(file.fileno()).st_nlink) == (name, 1)
    assert link.is_symlink()
    assert {*tmp_path.iterdir()} == {link, taken}


def test_what_is_no_file_is_written_to_and_never_replaced(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    write(pipe, "data")
    assert os.read(reader, 9) == b"data"
    os.close(reader)
    assert pipe.is_fifo()
    with pytest.raises(OSError) as raised:
        write(Path("/dev/full"), "x")
    assert raised.value.filename == "/dev/full"
    with pytest.raises(IsADirectoryError):
        write(tmp_path, "x")
    assert [*tmp_path.iterdir()] == [pipe]


def test_a_whole_file_has_its_folders_and_names_itself(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "page.md"
    write_whole(path, b"old")
    with full_disk(3), pytest.raises(DiskError, match=f"^{path}: File too large"):
        write_whole(path, b"longer")
    assert path.read_bytes() == b"old"
    assert [*path.parent.iterdir()] == [path]
