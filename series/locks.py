# SPDX-License-Identifier: Apache-2.0
"""One run at a time in a folder, and folders that vanish with their run."""

import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from .errors import DISK, SeriesError, of_system

PREFIX = f"vllm-series-{os.getuid()}-"
_YOUNG_S = 60.0


@contextmanager
def locked(folder: Path, waiting: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Hold a folder for this run; waits for another run that holds it.

    The lock is on the folder itself: it leaves no file, and dies with the process.

    Args:
        folder: An existing folder.
        waiting: Called once when another run holds the folder.
    """
    handle = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            waiting()
            fcntl.flock(handle, fcntl.LOCK_EX)
        except OSError:
            # Some network file systems cannot lock a folder: then without.
            pass
        yield
    finally:
        os.close(handle)


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """A temporary folder of this run; those that killed runs left are removed."""
    try:
        root = Path(tempfile.gettempdir())
        _sweep(root)
        path = Path(tempfile.mkdtemp(prefix=PREFIX))
    except OSError as error:
        raise SeriesError(
            f"No temporary folder can be made: {error.strerror or error}.",
            "Set TMPDIR to a folder with 100 MB free.",
        ) from error
    try:
        with locked(path):
            yield path
    except OSError as error:
        if error.errno in DISK and error.filename is None:
            # A failed write names no file; all others here say where they write.
            raise of_system(error, f"{root} (TMPDIR)") from error
        raise
    finally:
        shutil.rmtree(path, ignore_errors=True)


def _sweep(root: Path) -> None:
    """Remove scratch folders of ours that no living run holds."""
    for path in root.glob(f"{PREFIX}*"):
        with suppress(OSError):
            # A run that has just made its folder may not hold it yet.
            if time.time() - path.lstat().st_mtime < _YOUNG_S:
                continue
            if path.is_symlink() or path.lstat().st_uid != os.getuid():
                continue
            handle = os.open(path, os.O_RDONLY)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(path, ignore_errors=True)
            finally:
                os.close(handle)
