# SPDX-License-Identifier: Apache-2.0
"""Compiles what the GDN benchmark will launch, in parallel, into Triton's cache."""

import importlib
import multiprocessing
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any

import torch

from evals import gdn_arms, gdn_case, vllm_tree
from evals.gdn_case import Case
from series.errors import SeriesError

Job = tuple[Case, Sequence[str], Path | None, int]
"""A batch of one, the arms to call, where a merged port is, the largest batch."""


def _tried(job: tuple[Callable[[Any], object], Any]) -> str:
    run, what = job
    try:
        vllm_tree.prepare()
        run(what)
        torch.cuda.synchronize()
    # Triton's own errors have no common ancestor; whatever it is, it is reported.
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


def in_parallel(
    run: Callable[[Any], object], work: Sequence[Any], jobs: int
) -> list[str]:
    """Calls a function of a module once for each item, in processes of their own.

    Returns:
        Why an item failed, empty if it did not, in their order.
    """
    with multiprocessing.get_context("spawn").Pool(min(jobs, len(work))) as pool:
        return pool.map(_tried, [(run, what) for what in work], chunksize=1)


def _call(job: Job) -> None:
    case, names, merged, most = job
    arms, _ = gdn_arms.available(None, merged)
    buffers = gdn_case.make(case, "cuda", 0)
    for name in names:
        if name in arms:
            arms[name].call(buffers)
        if name in gdn_arms.WARM_UPS:
            where, function = gdn_arms.WARM_UPS[name].split(":")
            getattr(importlib.import_module(where), function)(
                max_requests=most,
                num_key_heads=case.heads[0],
                max_tokens=case.tokens,
                **{
                    word: buffers[word]
                    for word in ("state", "A_log", "dt_bias", "norm_weight")
                },
                output_gate_activation=buffers["output_gate_activation"],
            )


def everything(
    cases: Sequence[Case], arms: Collection[str], merged: Path | None, jobs: int
) -> None:
    """Compiles every arm for every kind of layer among the cases.

    Args:
        cases: What will be measured.
        arms: Names of the arms.
        merged: Where the arm of that name comes from.
        jobs: Processes.

    Raises:
        SeriesError: A kernel does not compile or run.
    """
    most: dict[Case, int] = {}
    for case in cases:
        one = Case(case.heads, case.state, 1, case.tokens, case.layout)
        most[one] = max(case.requests, most.get(one, 1))
    work = [(one, sorted(arms), merged, number) for one, number in most.items()]
    for (case, *_), why in zip(work, in_parallel(_call, work, jobs), strict=True):
        if why:
            raise SeriesError(
                f"{case.words()}: a kernel does not run: {why}.",
                "Leave its arm or that shape out: --arms, --shapes.",
            )
