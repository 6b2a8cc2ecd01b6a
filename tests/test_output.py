# SPDX-License-Identifier: Apache-2.0
"""Every command whose output nobody takes: one message, no 0, nothing at exit."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from .full_disk import full_disk

ROOT = Path(__file__).parent.parent
SAID = "error: standard output: No space left on device\n"
COMMANDS = [
    ["apply.py", "--help"],
    ["apply.py", "pr", "--help"],
    ["apply.py", "status", "--json"],
    ["apply.py", "status"],
    ["-m", "evals.record", "list"],
    ["-m", "evals.codegen", "--help"],
    ["evals/bench.py", "--help"],
    ["tests/run.py", "--help"],
]
# Sizes below, at and above what the layers hold back; then ways to end.
GUARDED = """
import os, sys
from evals.cli import guarded
from series.errors import ConflictError, SeriesError

def command(argv):
    how, size = argv[0], int(argv[1])
    sys.stdout.write("x" * (size - 1) + "\\n")
    if how == "file":
        with open("/dev/full", "w") as file:
            file.write("x")
    if how == "conflict":
        raise ConflictError("It does not land.")
    if how == "bytes":
        sys.stdout.flush()
        sys.stdout.buffer.write(b"y" * size)
        sys.stdout.buffer.flush()
    return 0

sys.exit(guarded(command, sys.argv[1:]))
"""
SIZES = (1, 100, 4096, 5000, 8191, 8192, 8193, 70000)


def run(words: list[str], stdout: object, unbuffered: str = "", stderr: object = None):
    return subprocess.run(
        [sys.executable, *words],
        cwd=ROOT,
        env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
        stdout=stdout,  # type: ignore[call-overload]
        stderr=stderr or subprocess.PIPE,
        text=True,
        check=False,
    )


def on_full(words: list[str], unbuffered: str = ""):
    with open("/dev/full", "w") as full:
        return run(words, full, unbuffered)


def unread(words: list[str], unbuffered: str = ""):
    reader, writer = os.pipe()
    os.close(reader)
    try:
        return run(words, writer, unbuffered)
    finally:
        os.close(writer)


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_a_command_on_a_full_disk_or_without_a_reader(
    words: list[str], unbuffered: str
) -> None:
    done = on_full(words, unbuffered)
    assert done.returncode == 1
    assert done.stderr.startswith(SAID)
    assert len(done.stderr.splitlines()) == 2
    done = unread(words, unbuffered)
    assert (done.returncode, done.stderr) == (1, "")


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_no_size_of_output_is_lost_silently(unbuffered: str) -> None:
    for size in SIZES:
        words = ["-c", GUARDED, "print", str(size)]
        done = on_full(words, unbuffered)
        assert (done.returncode, done.stderr.count(SAID)) == (1, 1), size
        done = unread(words, unbuffered)
        assert (done.returncode, done.stderr) == (1, ""), size
        done = run(words, subprocess.PIPE, unbuffered)
        assert (done.returncode, len(done.stdout)) == (0, size)


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_output_that_fits_in_part_is_not_whole(tmp_path: Path, unbuffered: str) -> None:
    words = ["-c", GUARDED, "print"]
    with (tmp_path / "out").open("wb") as file, full_disk(4096):
        done = run([*words, "5000"], file, unbuffered)
    assert done.returncode == 1
    assert done.stderr.startswith("error: standard output: File too large\n")
    assert (tmp_path / "out").stat().st_size == 4096
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    done = run([*words, "2000000"], writer, unbuffered)
    os.close(reader)
    os.close(writer)
    assert done.returncode == 1
    assert done.stderr.startswith("error: standard output: Resource temporarily")


def test_what_was_printed_before_comes_first() -> None:
    words = ["-c", f"print('before')\n{GUARDED}", "print", "9"]
    assert run(words, subprocess.PIPE).stdout == "before\n" + "x" * 8 + "\n"
    done = on_full(words)
    assert (done.returncode, done.stderr.count(SAID)) == (1, 1)
    done = unread(words)
    assert (done.returncode, done.stderr) == (1, "")


def test_another_failure_keeps_its_code_and_message() -> None:
    done = on_full(["-c", GUARDED, "conflict", "9"])
    assert done.returncode == 3
    assert done.stderr.startswith("error: It does not land.\n" + SAID)
    done = run(["-c", GUARDED, "file", "9"], subprocess.PIPE)
    assert (done.returncode, done.stdout) == (1, "x" * 8 + "\n")
    assert done.stderr.startswith("error: No space left on device\n")
    assert on_full(["apply.py", "apply", "--nonsense"]).returncode == 2


def test_bytes_passed_on_are_output_too() -> None:
    for unbuffered in ("", "1"):
        done = on_full(["-c", GUARDED, "bytes", "5000"], unbuffered)
        assert (done.returncode, done.stderr.count(SAID)) == (1, 1)


def test_where_no_message_can_be_printed_the_code_is_the_same() -> None:
    with open("/dev/full", "w") as full:
        for words, code in (
            (["apply.py", "status"], 1),
            (["-c", GUARDED, "conflict", "9"], 3),
            (["-m", "evals.codegen", "--nonsense"], 2),
        ):
            assert run(words, full, stderr=full).returncode == code


def test_output_that_was_closed_was_not_asked_for() -> None:
    words = ["sh", "-c", 'exec "$0" "$@" >&-', sys.executable]
    for command in (["apply.py", "status"], ["-c", GUARDED, "bytes", "9"]):
        done = subprocess.run(
            [*words, *command], cwd=ROOT, capture_output=True, text=True
        )
        assert (done.returncode, done.stderr) == (0, "")
