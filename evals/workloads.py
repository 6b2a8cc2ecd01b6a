# SPDX-License-Identifier: Apache-2.0
"""What evals.decode lets an engine do, and what it measures of it."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

from evals import cli, engine, kinds, seams

Said = tuple[dict[str, float], dict[str, Any]]
"""Numbers by name, and notes that are kept beside them."""
SWITCH = ("off", "on")


def profile(generator: engine.Generator) -> Said:
    """Telling calls of a decode step, and launches and time of a step by kind."""
    short, few = generator.profiled(engine.PROFILED_SHORT)
    long, many = generator.profiled(engine.PROFILED_LONG)
    steps = many - few
    before, after = kinds.by_kind(short), kinds.by_kind(long)
    notes = {
        what: kinds.per_step(
            {kind: getattr(total, what) for kind, total in before.items()},
            {kind: getattr(total, what) for kind, total in after.items()},
            steps,
        )
        for what in ("launches", "device_us")
    }
    return kinds.per_step(kinds.calls(short), kinds.calls(long), steps), notes


class Gdn:
    """Steps of MTP decode at every number of requests."""

    files = (
        "vllm/model_executor/layers/mamba/ops/gdn_decode_mtp.py",
        "vllm/model_executor/layers/mamba/ops/gdn_decode_rowwise.py",
        "vllm/model_executor/layers/mamba/gdn/qwen_gdn_linear_attn.py",
    )
    arms: Sequence[str] = tuple(seams.GDN_ARMS)

    def __init__(self, args: argparse.Namespace, folder: Path) -> None:
        requests = cli.numbers(args.requests, "--requests")
        self.args = args
        self.engine = engine.start(folder, requests, engine.DRAFTS)
        self.generators = {
            number: engine.Generator(
                self.engine,
                engine.prompts(number, engine.PROMPT_TOKENS, args.seed),
                True,
            )
            for number in requests
        }

    @staticmethod
    def force(arm: str) -> None:
        """Lets the layers of an engine built afterwards be of an arm."""
        seams.force_gdn(arm)

    @staticmethod
    def switch(arm: str, layers: Sequence[Any], config: Any) -> None:
        """Lets the layers of an engine that is there be of an arm."""
        seams.force_gdn(arm)
        seams.choose_gdn_again(layers, config)

    def warm(self) -> None:
        """Compiles what the first run of a kind compiles."""
        for generator in self.generators.values():
            generator.run(2 * engine.SHORT_TOKENS)

    def measure(self) -> Said:
        """Milliseconds of a decode step, by number of requests."""
        values: dict[str, float] = {}
        notes: dict[str, Any] = {}
        for number, generator in self.generators.items():
            timed = [
                generator.step_ms(engine.SHORT_TOKENS, self.args.tokens)
                for _ in range(self.args.repeats)
            ]
            times = [ms for ms, _ in timed]
            values[f"step_ms_{number}"] = median(times)
            notes[f"step_ms_{number}"] = times
            # Of one arm, runs that differ here computed something else.
            notes[f"answers_{number}"] = [answer for _, answer in timed]
        return values, notes

    def witness(self) -> Said:
        """Most telling calls of a step; a profiler may slow down what follows.

        Most of all numbers of requests, so that a kernel which an arm must not call is
        seen though it ran at one of them alone.
        """
        calls: dict[str, float] = {}
        notes: dict[str, Any] = {}
        for number, generator in self.generators.items():
            found, notes[f"step of {number}"] = profile(generator)
            calls = {name: max(n, calls.get(name, 0.0)) for name, n in found.items()}
        return calls, notes


class Gate:
    """The gate's own workload: one request after the other, no speculation."""

    files = (
        "vllm/model_executor/layers/tiny_dot.py",
        "vllm/model_executor/layers/shared_expert_gate.py",
        "vllm/model_executor/layers/shared_expert_gate_triton.py",
        "vllm/model_executor/models/qwen2_moe.py",
    )
    arms: Sequence[str] = SWITCH

    def __init__(self, args: argparse.Namespace, folder: Path) -> None:
        self.args = args
        self.engine = engine.start(folder, [1], 0)
        self.asked = [
            engine.Generator(
                self.engine,
                engine.prompts(1, engine.GATE_PROMPT_TOKENS, args.seed + n),
                False,
            )
            for n in range(args.prompts)
        ]

    @staticmethod
    def force(arm: str) -> None:
        """Lets every gate take the tiny dot, or none."""
        seams.force_gate(arm == "on")

    @staticmethod
    def switch(arm: str, layers: Sequence[Any], config: Any) -> None:
        """The same: a gate asks anew at every call."""
        Gate.force(arm)

    def warm(self) -> None:
        """Compiles what the first run of a kind compiles."""
        self.asked[0].run(engine.GATE_TOKENS)

    def measure(self) -> Said:
        """Milliseconds to the first token, and of each later one."""
        first = [
            median(generator.run(1).seconds for _ in range(self.args.repeats))
            for generator in self.asked
        ]
        whole = [generator.run(engine.GATE_TOKENS) for generator in self.asked]
        later = [run.decode_s / run.steps for run in whole]
        notes = {"answers": [run.answer for run in whole]}
        return {"ttft_ms": 1e3 * median(first), "tpot_ms": 1e3 * median(later)}, notes

    def witness(self) -> Said:
        """Telling calls of a step."""
        calls, notes = profile(self.asked[0])
        return calls, {"step of 1": notes}


WORKLOADS: dict[str, type[Gdn] | type[Gate]] = {"gdn": Gdn, "gate": Gate}
