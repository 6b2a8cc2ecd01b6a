# SPDX-License-Identifier: Apache-2.0
"""What the eval commands share."""

import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evals import cli
from series.errors import Exit, SeriesError, UsageError

from .full_disk import full_disk

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=60,
)


@given(VALUES)
def test_laid_out_json_is_the_same_data(data: object) -> None:
    assert json.loads(cli.laid_out(data)) == data


def test_what_is_short_stays_on_one_line() -> None:
    runs = [{"arm": "port", "samples": [1.5] * 20}] * 40
    lines = cli.laid_out({"runs": runs, "date": "now"}).splitlines()
    assert len(lines) == 45
    assert all(len(line) <= cli.LINE + 10 for line in lines)


def test_a_failed_write_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "new" / "one.json"
    cli.write_json(path, {"a": 1})
    with pytest.raises(TypeError):
        cli.write_json(path, {"a": object()})
    assert json.loads(path.read_text()) == {"a": 1}


@pytest.mark.parametrize("old", ["", "old"])
def test_a_full_disk_leaves_the_old_file_and_no_other(tmp_path: Path, old: str) -> None:
    path = tmp_path / "page.md"
    if old:
        path.write_text(old)
    with full_disk(100), pytest.raises(OSError) as raised:
        cli.write_text(path, "x" * 101)
    assert (raised.value.errno, raised.value.filename) == (errno.EFBIG, str(path))
    assert [one.read_text() for one in tmp_path.iterdir()] == ([old] if old else [])
    with full_disk(100):
        cli.write_text(path, "x" * 100)
    assert path.read_text() == "x" * 100


def test_a_file_stays_a_link_and_keeps_its_mode(tmp_path: Path) -> None:
    real, link = tmp_path / "real", tmp_path / "link"
    real.write_text("old")
    real.chmod(0o640)
    link.symlink_to("real")
    cli.write_text(link, "new")
    assert link.is_symlink()
    assert (real.read_text(), real.stat().st_mode & 0o777) == ("new", 0o640)


def test_two_that_write_one_file_leave_one_whole(tmp_path: Path) -> None:
    path, own = tmp_path / "page.md", tmp_path / "page.md.part"
    own.write_text("a user's")
    with cli.aside(path) as first:
        first.write_text("x" * 9)
        with cli.aside(path) as second:
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
        cli.write_text(path, "x")
    finally:
        os.umask(before)
    assert path.stat().st_mode & 0o777 == 0o640
    path.chmod(0o600)
    with cli.aside(path) as part:
        part.write_text("secret")
        assert part.stat().st_mode & 0o777 == 0o600


OUTPUT = """
import sys
from pathlib import Path
from evals.cli import write_text
for name in sys.argv[1:]:
    write_text(Path(name), name)
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
    cli.write_text(pipe, "data")
    assert os.read(reader, 9) == b"data"
    os.close(reader)
    assert pipe.is_fifo()
    with pytest.raises(OSError) as raised:
        cli.write_text(Path("/dev/full"), "x")
    assert raised.value.filename == "/dev/full"
    with pytest.raises(IsADirectoryError):
        cli.write_text(tmp_path, "x")
    assert [*tmp_path.iterdir()] == [pipe]


def test_a_place_that_takes_nothing_is_named_with_the_option(tmp_path: Path) -> None:
    out = tmp_path / "a" / "b"
    for place in (out, out / "c", out.parent):
        with pytest.raises(SeriesError, match=str(place)) as raised, cli.writes_to(out):
            raise OSError(errno.EROFS, "Read-only file system", str(place))
        assert raised.value.hint.endswith("Or name another place with --out.")
    other = OSError(errno.EROFS, "Read-only file system", "/elsewhere")
    for error in (other, OSError("no file"), OSError(errno.EBADF, "bad", 3)):
        with pytest.raises(OSError) as kept, cli.writes_to(out):
            raise error
        assert kept.value is error


@pytest.mark.parametrize(
    ("raised", "code", "says"),
    [
        (SeriesError("it broke.", "Mend it."), 1, "error: it broke.\n       Mend it."),
        (UsageError("what?"), Exit.USAGE, "error: what?"),
        (KeyboardInterrupt(), Exit.INTERRUPT, "interrupted"),
        (PermissionError(13, "Not allowed", "a"), 1, "error: a: Not allowed"),
    ],
)
def test_failures_become_one_message_and_a_code(
    raised: BaseException, code: int, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def command(argv: object) -> int:
        raise raised

    assert cli.guarded(command, []) == code
    assert capsys.readouterr().err.strip() == says


def test_lists_of_words_and_numbers() -> None:
    assert cli.words("a, b", ["a", "b", "c"], "--x") == ["a", "b"]
    assert cli.numbers("1, 8", "--x") == [1, 8]
    for text in ("", "d", "a,d"):
        with pytest.raises(UsageError, match="--x: "):
            cli.words(text, ["a"], "--x")
    for text in ("", "0", "1,-2", "x"):
        with pytest.raises(UsageError):
            cli.numbers(text, "--x")
