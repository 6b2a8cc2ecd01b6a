# SPDX-License-Identifier: Apache-2.0
"""Standard output on a full disk, or without a reader: one message, and no 0."""

import errno
import io
import os
import sys
from collections.abc import Callable
from contextlib import redirect_stdout, suppress
from typing import Any, TextIO

from .errors import Exit, SeriesError, of_system

NAME = "standard output"


class _Named(io.FileIO):
    """A descriptor whose failures say what it is, and are remembered.

    Some are swallowed on the way up: argparse drops what its help meets, and a text
    layer that failed to write forgets what it held.
    """

    failure: OSError | None = None
    unbuffered = False

    def write(self, data: Any) -> int:
        try:
            return self._write(memoryview(data).cast("B"))
        except OSError as error:
            self.failed(error)
            raise

    def failed(self, error: OSError) -> None:
        error.filename = NAME
        self.failure = self.failure or error

    def _write(self, data: memoryview) -> int:
        done = 0
        while True:
            count = super().write(data[done:])
            if count is None:  # a pipe that does not wait for its reader
                raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
            done += count
            # A buffer writes the rest itself; a text layer would drop it.
            if done == len(data) or not self.unbuffered:
                return done


def is_lost(error: OSError) -> bool:
    """Whether it is a failure of standard output, which `whole` tells about."""
    return error.filename is NAME


def tell(error: SeriesError) -> None:
    """Prints a failure and what to do about it."""
    text = f"error: {error.what}" + (f"\n       {error.hint}" if error.hint else "")
    # `> log 2>&1` on a full disk: the exit code has to say it alone.
    with suppress(OSError):
        print(text, file=sys.stderr, flush=True)


def whole(command: Callable[[], int]) -> int:
    """Runs a command and returns its exit code, no 0 where its output is not whole.

    Of a reader that is gone nothing is said, as of `| head`.

    Raises:
        SystemExit: The command raised it, and its output is whole.
    """
    before = sys.stdout
    if before is None:  # closed: it was not asked for
        with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere):
            return command()
    if not isinstance(before, io.TextIOWrapper) or before is not sys.__stdout__:
        return command()  # a test reads it
    raw = _Named(before.fileno(), "w", closefd=False)
    raw.unbuffered = before.write_through
    try:
        before.flush()  # what was printed first comes first
    except OSError as error:
        raw.failed(error)
        _settle(before)
    stream = io.TextIOWrapper(
        raw if before.write_through else io.BufferedWriter(raw),  # type: ignore[arg-type]
        encoding=before.encoding,
        errors=before.errors,
        line_buffering=before.line_buffering,
        write_through=before.write_through,
    )
    sys.stdout = stream
    ended: SystemExit | None = None
    code: Any = Exit.FAILURE
    try:
        code = command()
    except SystemExit as error:
        ended, code = error, error.code
    except OSError as error:
        if not is_lost(error):
            raise
    finally:
        sys.stdout = before
        _settle(stream)
        if raw.failure is not None and raw.failure.errno != errno.EPIPE:
            tell(of_system(raw.failure))
        _settle(sys.stderr)
    if raw.failure is not None:
        return code if code and isinstance(code, int) else Exit.FAILURE
    if ended is not None:
        raise ended
    return code


def _settle(stream: TextIO | None) -> None:
    """Writes what a stream still holds, or drops it: at exit it would fail again."""
    if stream is None:
        return
    try:
        stream.flush()
    except OSError:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, stream.fileno())
        os.close(null)
        stream.flush()
