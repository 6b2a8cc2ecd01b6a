# SPDX-License-Identifier: Apache-2.0
"""Counts which Triton kernels really ran, compiled or interpreted."""

from collections import Counter
from typing import Any

counts: Counter[str] = Counter()
"""Launches by "module.kernel", over the whole session."""


def _count_runs_of(kind: Any) -> None:
    stock = kind.run

    def run(self: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> Any:
        result = stock(self, *args, grid=grid, warmup=warmup, **kwargs)
        # A warm-up compiles without running, and a launch that raised did not run.
        if not warmup:
            counts[f"{self.fn.__module__}.{self.fn.__name__}"] += 1
        return result

    kind.run = run


def install() -> None:
    """Counts every launch from here on; call before any kernel is defined."""
    from triton.runtime.interpreter import InterpretedFunction
    from triton.runtime.jit import JITFunction

    _count_runs_of(JITFunction)
    _count_runs_of(InterpretedFunction)
