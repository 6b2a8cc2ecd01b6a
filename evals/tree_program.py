# SPDX-License-Identifier: Apache-2.0
"""Runs a program of an arm's tree beside its server, and ends with either."""

import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from evals import proof
from evals.processes import Group, ended_by_signals
from evals.proof import Arm
from series.errors import SeriesError

_POLL_S = 0.2


class ProgramError(SeriesError):
    """A program of the tree failed, or took too long."""


def run(
    arm: Arm,
    words: Sequence[str],
    folder: Path,
    *,
    check: Callable[[], None],
    limit_s: float,
    env: Mapping[str, str] = {},
) -> str:
    """Runs a Python program with the arm's tree first on its path.

    Args:
        arm: Whose tree and interpreter.
        words: What follows the interpreter.
        folder: For its log, output.log, and everything else that it writes.
        check: Called while it runs; raises where the server is gone.
        limit_s: How long it may take.
        env: Variables on top of this process's own.

    Returns:
        What it wrote.

    Raises:
        ProgramError: It failed or took too long; with the end of its log.
    """
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / "output.log"
    paths = [arm.tree.absolute(), *proof.metadata(arm.tree)]
    variables = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(map(str, paths)),
        "VLLM_CACHE_ROOT": str(folder / "cache/vllm"),
        "VLLM_CONFIG_ROOT": str(folder / "cache/vllm"),
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_LOGGING_COLOR": "0",
        # It talks to a server of this machine.
        "NO_PROXY": "127.0.0.1",
        "no_proxy": "127.0.0.1",
        **env,
    }
    name = Path(words[0]).name if words[0] != "-m" else words[1]
    with ended_by_signals():
        group = Group.start([str(arm.python), *words], variables, folder, log)
        end_s = time.monotonic() + limit_s
        try:
            while (code := group.child.poll()) is None:
                check()
                if time.monotonic() > end_s:
                    what = f"{name} of the {arm.name} tree took longer than "
                    raise ProgramError(
                        proof.with_tail(f"{what}{limit_s:g} s.", log),
                        "Ask less of it, or give it more time.",
                    )
                time.sleep(_POLL_S)
        finally:
            group.stop()
    if code:
        check()
        what = f"{name} of the {arm.name} tree ended with {code}."
        raise ProgramError(proof.with_tail(what, log), "The log above says why.")
    return log.read_text(encoding="utf-8", errors="replace")
