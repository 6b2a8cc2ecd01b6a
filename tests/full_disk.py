# SPDX-License-Identifier: Apache-2.0
"""What a full disk does, without one: a git that fails in git's words, and limits."""

import os
import resource
import shlex
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from series.errors import SeriesError

# {git} is the real one, {armed} a file that must be there; {before} runs first.
_SCRIPT = """\
#!/bin/bash
if [[ -e {armed} && " $* " == *" {word} "* ]]; then
    {before}
    printf '%s\\n' {said} >&2
    exit {code}
fi
exec {git} "$@"
"""


def failing_git(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    word: str,
    said: str = "fatal: unable to write: No space left on device",
    *,
    code: int = 128,
    before: str = "",
) -> Path:
    """Put a git first on PATH that fails at the commands with a word.

    Returns:
        A file; without it, git works again.
    """
    folder.mkdir(parents=True)
    armed = folder / "armed"
    armed.touch()
    real = shutil.which("git")
    words = {"armed": shlex.quote(str(armed)), "said": shlex.quote(said)}
    text = _SCRIPT.format(word=word, before=before, code=code, git=real, **words)
    (folder / "git").write_text(text)
    (folder / "git").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return armed


@contextmanager
def full_disk(size: int) -> Iterator[None]:
    """Lets no file of this process grow beyond that many bytes; the error is EFBIG."""
    before, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, most))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (before, most))


def with_file_limit(size: int, run: Callable[[], Any]) -> str:
    """Run in a process that can write no file beyond a size.

    Returns:
        The message of what it raised, with its hint; else empty.
    """
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(read)
            resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
            run()
            said = ""
        except SeriesError as error:
            said = f"{error.what}\n{error.hint}"
        except BaseException as error:
            said = f"bug: {error!r}"
        # A pipe is no file: its size does not count.
        os.write(write, said.encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        said = pipe.read().decode()
    os.waitpid(child, 0)
    return said
