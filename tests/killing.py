# SPDX-License-Identifier: Apache-2.0
"""Really kill a run: before each git command and each change of a file."""

import os
import shutil
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import series.git
import series.tree

WRITERS = {
    "add",
    "apply",
    "checkout",
    "checkout-index",
    "commit-tree",
    "config",
    "fetch",
    "format-patch",
    "init",
    "mailinfo",
    "pack-objects",
    "read-tree",
    "reset",
    "switch",
    "symbolic-ref",
    "unpack-objects",
    "update-index",
    "update-ref",
    "write-tree",
}


def killed_at(step: int, run: Callable[[], Any]) -> bool:
    """Run in a process that gets SIGKILL before its step-th git or file change.

    Returns:
        Whether it was killed; False once there are fewer steps than that.
    """
    child = os.fork()
    if child == 0:
        try:
            _arm(step)
            run()
            os._exit(0)
        except BaseException:
            import traceback

            traceback.print_exc()
            os._exit(1)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) == signal.SIGKILL
        return True
    assert os.WEXITSTATUS(status) == 0
    return False


def _arm(step: int) -> None:
    done = 0

    def count(function: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*args: Any, **kwargs: Any) -> Any:
            nonlocal done
            # Before a command that only reads, nothing differs from the next step.
            reads = isinstance(args[0], list) and not WRITERS & set(args[0])
            done += not reads
            if done == step and not reads:
                os.kill(os.getpid(), signal.SIGKILL)
            return function(*args, **kwargs)

        return counted

    series.git._run = count(series.git._run)
    series.tree.unpack = count(series.tree.unpack)
    os.replace = count(os.replace)
    os.unlink = count(os.unlink)
    Path.rename = count(Path.rename)  # type: ignore[method-assign]
    Path.unlink = count(Path.unlink)  # type: ignore[method-assign]
    Path.write_bytes = count(Path.write_bytes)  # type: ignore[method-assign]


def copy_of(path: Path, to: Path) -> Path:
    """A copy of a folder, times and modes included."""
    shutil.rmtree(to, ignore_errors=True)
    subprocess.run(["cp", "-a", str(path), str(to)], check=True)
    return to
