# SPDX-License-Identifier: Apache-2.0
"""Failures of the disk, told from all others by what git says of them."""

import errno
import os
import re
import signal
import tempfile
from pathlib import Path

from .errors import DISK, DiskError, of_system
from .locks import PREFIX

_SHOWN = 3
_WIDTH = 300
# Where git names no reason after them, these words mean that a write failed.
_WRITE = re.compile(
    r"(fatal|error): .*?"
    r"(write (error|failure)|(unable to|couldn't|could not|cannot|failed to) write\b)"
    r"(?!.*: )"
)
# How a line of git's own starts; mailinfo has a path alone. All others are of a hook,
# a filter, ssh, a credential helper, or a list of files.
_OWN = ("fatal: ", "error: ", "warning: ", "/")
# What a remote says is of its disk.
_NOT_HERE = "fatal: remote"
_PROBE = 1 << 14
# What another folder helps against; a limit holds there as well.
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)


def brief(said: str) -> str:
    """The first lines of what a command said, and how many more there are."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    shown = [
        line if len(line) <= _WIDTH else f"{line[:_WIDTH]}…" for line in lines[:_SHOWN]
    ]
    if len(lines) > _SHOWN:
        more = len(lines) - _SHOWN
        shown.append(f"… and {more} more line{'s' * (more > 1)}")
    return " / ".join(shown)


def ended(rc: int) -> str:
    """How a command ended: its exit status, or the signal that ended it."""
    if rc >= 0:
        return str(rc)
    try:
        name = signal.Signals(-rc).name
    except ValueError:
        return f"signal {-rc}"
    return f"{name}: {signal.strsignal(-rc) or 'a signal'}"


def disk_error(cmd: list[str], rc: int, said: str, folder: Path) -> DiskError | None:
    """The failure of a git command as one of the disk; None where it is another.

    Args:
        cmd: Its words.
        rc: Its exit status; below 0, the signal that ended it.
        said: What it said.
        folder: Where it was run.
    """
    number = errno.EFBIG if rc == -signal.SIGXFSZ else _reason(said)
    if number is None:
        return None
    place, hint = _place(folder, number or errno.ENOSPC)
    reason = os.strerror(number) if number else "A file could not be written"
    words = " ".join(cmd)
    told = brief(said) or f"ended with {ended(rc)}"
    return DiskError(f"{place}: {reason}: `{words}`: {told}", hint, said)


def cut_off(what: str, folder: Path) -> DiskError:
    """The error for something that a folder holds only the beginning of."""
    place, hint = _place(folder, errno.ENOSPC)
    return DiskError(f"{place}: {os.strerror(errno.ENOSPC)}: {what} is cut off", hint)


def _place(folder: Path, number: int) -> tuple[str, str]:
    """A folder in a user's words, and what to do about it."""
    temporary = Path(tempfile.gettempdir())
    scratch = [path for path in (folder, *folder.parents) if path.parent == temporary]
    if not scratch or not scratch[0].name.startswith(PREFIX):
        return f"{folder}", DISK[number]
    another = " Or set TMPDIR to a folder with more room." * (number in _FULL)
    return f"{temporary} (TMPDIR)", DISK[number] + another


def _reason(said: str) -> int | None:
    """The errno that git names, 0 for a write that failed, None for neither."""
    failed = None
    for line in said.splitlines():
        if not line.startswith(_OWN) or line.startswith(_NOT_HERE):
            continue
        # Anywhere else a reason is the name of a file.
        text = line.rstrip(". ")
        for number in DISK:
            if text.endswith(f": {os.strerror(number)}"):
                return number
        if text.endswith("write error. Out of diskspace"):
            return errno.ENOSPC
        if _WRITE.match(line):
            failed = 0
    return None if "ermission" in said else failed


def disk_errno(text: str) -> int | None:
    """The errno of the disk that a text has in words, None where it has none."""
    return next((n for n in DISK if os.strerror(n) in text), None)


def require_room(folder: Path) -> None:
    """Refuse a folder on a full disk: git does not look whether its files got whole.

    Raises:
        DiskError: A few kilobytes more do not fit.
    """
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(bytes(_PROBE))
    except OSError as error:
        if error.errno in DISK:
            place, hint = _place(folder, error.errno)
            raise DiskError(f"{place}: {error.strerror}", hint) from error
        raise of_system(error, folder) from error
