# SPDX-License-Identifier: Apache-2.0
"""Sweeps the port's update kernel: the rule's choice against the best there is."""

import argparse
import importlib
import multiprocessing
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

from evals import cli, gdn_case, replay
from evals.blocks import plan
from evals.gdn_arms import PORT
from evals.gdn_case import HEAD_DIM, Buffers, Case

# A lane must hold one 16-byte access, and no more than its registers can take.
_LEAST_BYTES, _MOST_ELEMENTS = 16, 128
_WARP = 32


@dataclass(frozen=True)
class Setting:
    """What is forced on the launcher; None leaves the choice to it."""

    value_tile: int | None = None
    num_warps: int | None = None

    @property
    def name(self) -> str:
        """A short name; "rule" where nothing is forced."""
        if self.value_tile is None:
            return "rule"
        warps = "" if self.num_warps is None else f"/w{self.num_warps}"
        return f"t{self.value_tile}{warps}"


def settings(
    tiles: Sequence[int], warps: Sequence[int], state_bytes: int, rows: int
) -> list[Setting]:
    """The rule, each tile with the launcher's own warps, and with all that can hold it.

    Args:
        tiles: Value rows of a program.
        warps: Warps of a program.
        state_bytes: Of one element of the state.
        rows: Rows that a program holds at a time at most.
    """
    found = [Setting(), *(Setting(tile) for tile in tiles)]
    for tile in tiles:
        for number in warps:
            held = min(tile, rows) * HEAD_DIM / (number * _WARP)
            if held * state_bytes >= _LEAST_BYTES and held <= _MOST_ELEMENTS:
                found.append(Setting(tile, number))
    return found


def launch(setting: Setting, buffers: Buffers) -> Any:
    """One call of the port's launcher under a setting."""
    port = importlib.import_module(PORT)
    forced = {name: value for name, value in asdict(setting).items() if value}
    port._launch(**buffers, **forced)
    return buffers["out"]


def chosen(case: Case) -> Any:
    """What the port's own rule picks for a case, as it answers the launcher."""
    port: Any = importlib.import_module(PORT)
    answers, rule = [], port.pick_value_tile

    def listening(*args: Any, **words: Any) -> Any:
        answers.append(rule(*args, **words))
        return answers[-1]

    port.pick_value_tile = listening
    try:
        launch(Setting(), gdn_case.make(case, "cuda", 0))
    finally:
        port.pick_value_tile = rule
    return answers[0]


def _compile(job: tuple[Case, Setting]) -> str:
    from evals import vllm_tree

    vllm_tree.prepare()
    case, setting = job
    try:
        launch(setting, gdn_case.make(case, "cuda", 0))
    # Triton's own errors have no common ancestor; whatever it is, it is reported.
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


def precompile(
    cases: Sequence[Case], found: Sequence[Setting], jobs: int
) -> dict[str, str]:
    """Compiles what a sweep will launch in parallel, into Triton's cache.

    Returns:
        Why a setting cannot run, by its name.
    """
    kinds = {(case.heads, case.state, case.tokens, case.layout) for case in cases}
    work = [
        (Case(heads, state, 1, tokens, layout), setting)
        for heads, state, tokens, layout in sorted(kinds)
        for setting in found
        if setting.value_tile is not None
    ]
    with multiprocessing.get_context("spawn").Pool(min(jobs, len(work))) as pool:
        said = pool.map(_compile, work, chunksize=1)
    return {
        setting.name: why for (_, setting), why in zip(work, said, strict=True) if why
    }


def sweep(
    case: Case,
    sets: Sequence[Buffers],
    found: Sequence[Setting],
    blocks: int,
    sample_ms: float,
) -> dict:
    """Times every setting cold, interleaved.

    Returns:
        Samples in µs per call by setting, the rule's answer, the best setting, and
        the rule's time over the best one's.
    """
    calls = -(-20 // len(sets)) * len(sets)

    def bound(setting: Setting) -> replay.Call:
        return lambda buffers: launch(setting, buffers)

    graphs = {
        setting.name: replay.capture(bound(setting), sets, calls, sample_ms)
        for setting in found
    }
    runs = replay.interleave(graphs, plan(list(graphs), blocks))
    samples: dict[str, list[float]] = {name: [] for name in graphs}
    for slot, value in runs:
        samples[slot.arm].append(value)
    times = {name: median(values) for name, values in samples.items()}
    best = min((name for name in times if name != "rule"), key=times.__getitem__)
    return {
        "samples": samples,
        "chosen": chosen(case),
        "best": best,
        "rule_over_best": times["rule"] / times[best],
    }


def run(args: argparse.Namespace, cases: Sequence[Case], options: Any) -> list[dict]:
    """Sweeps the cases, one result each.

    Args:
        args: The words of the benchmark: tiles, warps, jobs.
        cases: What to sweep.
        options: How the benchmark measures.
    """
    port: Any = importlib.import_module(PORT)
    tiles = cli.numbers(args.tiles, "--tiles") if args.tiles else port.VALUE_TILES
    warps = cli.numbers(args.warps, "--warps")
    rows = getattr(port, "ROWS_AT_ONCE", gdn_case.HEAD_DIM)
    by_state = {
        state: settings(tiles, warps, dtype.itemsize, rows)
        for state, dtype in gdn_case.STATES.items()
    }
    for state, found in by_state.items():
        same = [case for case in cases if case.state == state]
        if same:
            failed = precompile(same, found, args.jobs)
            by_state[state] = [one for one in found if one.name not in failed]
            for name, why in failed.items():
                print(f"sweep: {name} {state} left out: {why}", file=sys.stderr)
    results = []
    for case in cases:
        print(f"sweep: {case.words()}", file=sys.stderr, flush=True)
        number = gdn_case.rotated(case, options.cache)
        sets = [gdn_case.make(case, "cuda", options.seed + n) for n in range(number)]
        found = by_state[case.state]
        results.append(sweep(case, sets, found, max(1, options.blocks // 2), 5.0))
    return results
