# SPDX-License-Identifier: Apache-2.0
"""All arms of a comparison in one engine: each has decode graphs of its own.

A process of its own for every run spends most of its time on starting. Here the engine
starts once; its layers are switched from arm to arm, and each run captures the decode
steps of its arm anew, so that weights, caches and everything else are the same memory
and what sets one graph apart from another counts as the noise it is. The control is the
first arm once more.
"""

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from evals import engine, machine, sensors
from evals.arms import Arm, ArmError, Outcome
from evals.workloads import WORKLOADS, Gate, Gdn
from series.errors import SeriesError


class EngineError(SeriesError):
    """The engine's graphs cannot be exchanged."""


def runner_of(llm: Any) -> Any:
    """The model runner of an engine that lives in this process.

    Raises:
        EngineError: It is of a kind that keeps its graphs elsewhere.
    """
    found: list[Any] = []
    llm.collective_rpc(lambda worker: found.append(worker.model_runner))
    manager: Any = getattr(found[0], "cudagraph_manager", None)
    if not hasattr(manager, "graphs") or not hasattr(manager, "release_graphs"):
        raise EngineError(
            f"{type(found[0]).__name__} keeps its decode graphs elsewhere.",
            "Leave --one-process out: every run gets a process of its own.",
        )
    if not manager.graphs:
        raise EngineError("the engine captured no graph of a decode step.")
    return found[0]


def capture(runner: Any) -> None:
    """Captures the decode steps of the target model anew, in place of those it had."""
    from vllm.config import set_current_vllm_config

    runner.cudagraph_manager.release_graphs()
    # No arm changes the drafts: their graphs are kept.
    drafts, runner.speculator = runner.speculator, None
    try:
        with set_current_vllm_config(runner.vllm_config):
            runner.capture_model()
    finally:
        runner.speculator = drafts


class OneEngine:
    """An engine that can be every arm."""

    def __init__(
        self, workload: Gdn | Gate, kinds: Mapping[str, str], tree: Path
    ) -> None:
        """Takes an engine that has started.

        Args:
            workload: Its engine was started as the first arm.
            kinds: What each arm runs, by its name; the control has another's.
            tree: What is measured.
        """
        self.workload, self.kinds, self.tree = workload, dict(kinds), tree
        self.runner = runner_of(workload.engine)
        self.layers = [
            *self.runner.vllm_config.compilation_config.static_forward_context.values()
        ]

    def warm(self) -> None:
        """Compiles what each arm runs."""
        for name in self.kinds:
            print(f"warming up {name}", flush=True)
            self.switch(name)

    def switch(self, name: str) -> None:
        """Lets the engine be an arm from now on, in new graphs."""
        config = self.runner.vllm_config
        self.workload.switch(self.kinds[name], self.layers, config)
        capture(self.runner)
        self.workload.warm()

    def run(self, arm: Arm) -> Outcome:
        """Measures an arm once; its calls are told by witness."""
        self.switch(arm.name)
        values, notes = self.workload.measure()
        if min(values.values()) <= 0:
            raise ArmError(f"{arm.name} measured {values!r}: more tokens are needed.")
        return Outcome(values, {}, self.facts(), notes)

    def witness(self, arm: Arm) -> Outcome:
        """What an arm calls in a step; after all timing."""
        self.switch(arm.name)
        calls, notes = self.workload.witness()
        return Outcome({}, calls, self.facts(), notes)

    def facts(self) -> dict[str, Any]:
        """Where this is, and what is measured."""
        return {
            "machine": machine.gpu_facts(sensors.find_sensor()),
            "sources": machine.blobs(self.tree, self.workload.files),
        }


def start(
    args: argparse.Namespace, arms: Sequence[Arm], kinds: Sequence[str]
) -> OneEngine:
    """Starts the engine as its first arm.

    Args:
        args: The words of evals.decode_arm.
        arms: Every arm, the control last.
        kinds: What each of them runs.
    """
    machine.require_gpu()
    tree = engine.prepare()
    workload = WORKLOADS[args.workload]
    workload.force(kinds[0])
    made = workload(args, engine.folder_of(args))
    names = [arm.name for arm in arms]
    return OneEngine(made, dict(zip(names, kinds, strict=True)), tree)
