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


class DiskError(SeriesError):
    """What holds the files did not take them; the command and its input are right.

    It is no fault of a patch, a clone or a git command, and must not be read as one.

    Args:
        what: What went wrong and where, one sentence.
        hint: What the user can do next, one sentence or a command.
        stderr: All that a git command said, of which `what` has the beginning.
    """

    def __init__(self, what: str, hint: str = "", stderr: str = "") -> None:
        super().__init__(what, hint)
        self.stderr = stderr


# What to do, by errno; a failure of any other kind is not the disk's.
DISK = {
    errno.ENOSPC: "Free some space, for example with make clean, and run it again.",
    errno.EDQUOT: "Free some space, for example with make clean, and run it again.",
    errno.EROFS: "Make it writable, and run it again.",
    errno.EFBIG: "Raise the limit on the size of a file (ulimit -f), and run it again.",
    errno.EMFILE: "Raise the limit on open files (ulimit -n), and run it again.",
    errno.ENFILE: "End programs that hold many files open, and run it again.",
}


def of_system(error: OSError, where: str | os.PathLike[str] = "") -> SeriesError:
    """A failure that the operating system reported, as one for a user.

    Args:
        error: What was raised.
        where: The folder that was worked in; a failed write names no file itself.
    """
    # A call on an open file may give its number instead.
    named = where if isinstance(error.filename, int) else error.filename or where
    place = f"{os.fsdecode(named)}: " if named else ""
    what = f"{place}{error.strerror or error}"
    if error.errno in DISK:
        return DiskError(what, DISK[error.errno])
    return SeriesError(what)
