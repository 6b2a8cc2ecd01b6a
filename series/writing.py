# SPDX-License-Identifier: Apache-2.0
"""Writing files whole or not at all."""

import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from .errors import of_system

_LINKS = 40


@contextmanager
def named(path: Path) -> Iterator[None]:
    """Lets a failed write, which names no file itself, name this one."""
    try:
        yield
    except OSError as error:
        if error.filename is None:
            error.filename = str(path)
        raise


@contextmanager
def aside(path: Path) -> Iterator[Path]:
    """The file to write instead of another, whose place it takes once it is whole.

    Where that fails the other is as it was, and nothing is left beside it.
    """
    if (path.exists() and not path.is_file()) or _is_device(path):
        with named(path):
            yield path  # /dev/stdout, say: there is nothing to replace
        return
    # Through a link, so that it stays one.
    target = Path(os.path.realpath(path))
    # A name of its own: others may write the same file, or have one beside it.
    part = target.with_name(f".{target.name}.{secrets.token_hex(8)}.part")
    try:
        # What only its owner may read stays so meanwhile.
        part.touch(0o600 if target.exists() else 0o666, exist_ok=False)
        yield part
        # Some disks tell only here that there is no room.
        with part.open("rb") as file:
            os.fsync(file.fileno())
        if target.exists():
            shutil.copymode(target, part)
        os.replace(part, target)
    except BaseException as error:
        with suppress(OSError):
            part.unlink()
        if isinstance(error, OSError) and error.filename in (None, part, str(part)):
            error.filename = str(path)
        raise


def _is_device(path: Path) -> bool:
    """Whether a path leads to a descriptor or a device, whatever is behind that."""
    for _ in range(_LINKS):
        path = Path(os.path.realpath(path.parent), path.name)
        # Followed further, /proc/self/fd/1 would be the file of `> file`.
        if path.is_relative_to("/proc"):
            return True
        if path.is_relative_to("/dev") and not path.is_relative_to("/dev/shm"):
            return True
        if not path.is_symlink():
            return False
        path = path.parent / os.readlink(path)
    return False


def write_whole(path: Path, data: bytes) -> None:
    """Write a file, and the folders above it, as `aside` does.

    Raises:
        SeriesError: It cannot be written; the disk is full, say.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with aside(path) as part:
            part.write_bytes(data)
    except OSError as error:
        raise of_system(error, path) from error
