# SPDX-License-Identifier: Apache-2.0
"""What the eval commands share."""

import errno
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evals import cli
from series.errors import Exit, SeriesError, UsageError

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=60,
)


def test_brackets_in_a_table_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    cli.show("runs [/x]", ["arm", "m[/x]"], [["a[red]", ":smile:"]])
    said = capsys.readouterr().out
    assert all(text in said for text in ("runs [/x]", "m[/x]", "a[red]", ":smile:"))


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
