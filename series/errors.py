# SPDX-License-Identifier: Apache-2.0
"""The exceptions that reach a user, each with the exit code it ends with."""

import errno
import os
from enum import IntEnum


class Exit(IntEnum):
    """Exit codes of every command of this repository."""

    DONE = 0
    FAILURE = 1
    USAGE = 2
    CONFLICT = 3
    INTERRUPT = 130


class SeriesError(Exception):
    """An expected failure: what happened, where, and what to do next.

    Args:
        what: What went wrong and where, one sentence.
        hint: What the user can do next, one sentence or a command.
    """

    code = Exit.FAILURE

    def __init__(self, what: str, hint: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.hint = hint


class UsageError(SeriesError):
    """The words of the call do not fit the command."""

    code = Exit.USAGE


class ConflictError(SeriesError):
    """A patch does not apply to the base it was asked to go onto."""

    code = Exit.CONFLICT


def of_system(error: OSError, where: str | os.PathLike[str] = "") -> SeriesError:
    """A failure that the operating system reported, as one for a user.

    Args:
        error: What was raised.
        where: The folder that was worked in; a failed write names no file itself.
    """
    # A call on an open file may give its number instead.
    named = where if isinstance(error.filename, int) else error.filename or where
    place = f"{os.fsdecode(named)}: " if named else ""
    hint = ""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        hint = "Free some space, for example with make clean, and run it again."
    return SeriesError(f"{place}{error.strerror or error}", hint)
