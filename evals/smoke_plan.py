# SPDX-License-Identifier: Apache-2.0
"""What `make eval-smoke` asks of the two small models, and what their servers need."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from evals.eval_plan import TASKS, Plan
from evals.proof import Arm
from evals.serving import Cell

ASKED = tuple(task for task in TASKS if task != "gpqa")
DRAFTS = '{"method": "mtp", "num_speculative_tokens": 3}'
# No compilation: it takes longer than these few questions.
_SERVER = ("--enforce-eager", "--max-model-len", "4096")
_MOE = ("--dtype", "bfloat16", "--no-enable-prefix-caching", "--max-num-seqs", "1")
_SMOLLM2 = ("--dtype", "float32", "--max-num-seqs", "16")


@dataclass(frozen=True)
class Size:
    """How much is asked.

    Attributes:
        moe: GSM8K questions to the tiny model.
        smollm2: And to the real one.
        tokens: Limit of an answer.
        lengths: Of niah's texts.
        depths: Of niah's needle.
        cells: Of serve: tokens in, out, requests at a time, requests.
    """

    moe: int
    smollm2: int
    tokens: int
    lengths: tuple[int, ...]
    depths: int
    cells: tuple[Cell, ...]


FULL = Size(16, 200, 256, (512, 1024), 3, (Cell(64, 32, 1, 4), Cell(64, 32, 4, 8)))
CI = Size(8, 64, 128, (512,), 3, (Cell(32, 16, 1, 3),))


def variables() -> dict[str, str]:
    """What a server on this CPU needs: all cores for the one engine that runs."""
    cores = sorted(os.sched_getaffinity(0))
    bound = ",".join(map(str, cores))
    return {
        "VLLM_CPU_OMP_THREADS_BIND": bound,
        "VLLM_CPU_NUM_OF_RESERVED_CPU": "0",
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "CUDA_VISIBLE_DEVICES": "",
    }


def plans(
    size: Size, arms: tuple[Arm, ...], folders: Sequence[Path], data: Path, out: Path
) -> list[Plan]:
    """What is asked of each model."""
    moe, smollm2 = folders
    shared = {
        "arms": arms,
        "tasks": ASKED,
        "data": data,
        # Its threshold is for a model that can count; `make eval` runs it.
        "documented": False,
        "gsm8k_tokens": size.tokens,
        "lengths": size.lengths,
        "depths": size.depths,
        "samples": 1,
        "cells": size.cells,
        "server_env": variables(),
        "limit_s": 1800.0,
    }
    return [
        Plan(
            model=str(moe),
            out=out / moe.name,
            questions=size.moe,
            server_args=(*_SERVER, *_MOE, "--speculative-config", DRAFTS),
            concurrency=1,
            **shared,  # type: ignore[arg-type]
        ),
        Plan(
            model=str(smollm2),
            out=out / smollm2.name,
            questions=size.smollm2,
            server_args=(*_SERVER, *_SMOLLM2),
            concurrency=16,
            **shared,  # type: ignore[arg-type]
        ),
    ]
