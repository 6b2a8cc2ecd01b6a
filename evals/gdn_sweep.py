# SPDX-License-Identifier: Apache-2.0
"""Sweeps an update kernel's launch: its rule's choice against the best there is."""

import argparse
import importlib
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from evals import cli, gdn_case, gdn_compile, replay
from evals.blocks import by_arm, plan
from evals.gdn_arms import PORT, ROWWISE
from evals.gdn_case import HEAD_DIM, Buffers, Case
from evals.stats import medians

RULE = "rule"
# A lane must hold one 16-byte access, and no more than its registers can take.
_LEAST_BYTES, _MOST_ELEMENTS = 16, 128
_WARP = 32
# What replaces the rule's choice, one field at a time, and rows and warps together.
_ALONE: dict[str, Sequence[Any]] = {
    "rows": (4, 8, 16),
    "lanes": (8, 16),
    "prefetch": (1, 2, 4),
    "max_registers": (None, 96, 128, 152),
    "state_load": ("", "evict_first"),
    "dependent": (False, True),
}
_TOGETHER = ((8, 2), (16, 2), (32, 4), (32, 8), (64, 8), (64, 16), (128, 16))


@dataclass(frozen=True)
class Setting:
    """What is forced on a launcher.

    Attributes:
        name: A short one; "rule" where nothing is forced.
        forced: Keyword arguments of the launcher.
    """

    name: str = RULE
    forced: dict[str, Any] = field(default_factory=dict, hash=False)


def tiles(
    values: Sequence[int], warps: Sequence[int], state_bytes: int, rows: int
) -> list[Setting]:
    """The rule, each tile with the launcher's own warps, and with all that can hold it.

    Args:
        values: Value rows of a program.
        warps: Warps of a program.
        state_bytes: Of one element of the state.
        rows: Rows that a program holds at a time at most.
    """
    found = [Setting(), *(Setting(f"t{n}", {"value_tile": n}) for n in values)]
    for tile in values:
        for number in warps:
            held = min(tile, rows) * HEAD_DIM / (number * _WARP)
            if held * state_bytes >= _LEAST_BYTES and held <= _MOST_ELEMENTS:
                forced = {"value_tile": tile, "num_warps": number}
                found.append(Setting(f"t{tile}/w{number}", forced))
    return found


def around(rule: Any, capped: bool = True) -> list[Setting]:
    """The rule, and all settings that differ from its choice in one thing.

    Args:
        rule: What the rule picks: a named tuple, rows and num_warps among its fields.
        capped: Whether the launcher heeds a limit on registers for this case.
    """
    found = {tuple(rule): Setting()}
    for name, values in _ALONE.items():
        for value in values if capped or name != "max_registers" else ():
            other = tuple(rule._replace(**{name: value}))
            said = f"{name} {value if value != '' else 'plain'}"
            found.setdefault(other, Setting(said, {"settings": other}))
    for rows, warps in _TOGETHER:
        # A limit on registers is that of the rows it was measured with.
        changed = rule._replace(rows=rows, num_warps=warps, max_registers=None)
        said = f"rows {rows}, num_warps {warps}"
        other = tuple(changed)
        found.setdefault(other, Setting(said, {"settings": other}))
    return list(found.values())


@dataclass(frozen=True)
class Kernel:
    """A launcher that can be swept.

    Attributes:
        module: Where it is.
        rule: The name of the function that picks its settings.
        settings: What a case is swept over, given the words and the rule's answer.
    """

    module: str
    rule: str
    settings: Callable[[argparse.Namespace, Case, Any], list[Setting]]

    def launch(self, setting: Setting, buffers: Buffers) -> Any:
        """One call under a setting."""
        importlib.import_module(self.module)._launch(**buffers, **setting.forced)
        return buffers["out"]

    def chosen(self, case: Case) -> Any:
        """What the rule picks for a case, as it answers the launcher."""
        module: Any = importlib.import_module(self.module)
        answers, rule = [], getattr(module, self.rule)

        def listening(*args: Any, **words: Any) -> Any:
            answers.append(rule(*args, **words))
            return answers[-1]

        setattr(module, self.rule, listening)
        try:
            self.launch(Setting(), gdn_case.make(case, "cuda", 0))
        finally:
            setattr(module, self.rule, rule)
        return answers[0]


def _port_settings(args: argparse.Namespace, case: Case, rule: Any) -> list[Setting]:
    port: Any = importlib.import_module(PORT)
    values = cli.numbers(args.tiles, "--tiles") if args.tiles else port.VALUE_TILES
    warps = cli.numbers(args.warps, "--warps")
    rows = getattr(port, "ROWS_AT_ONCE", HEAD_DIM)
    return tiles(values, warps, gdn_case.STATES[case.state].itemsize, rows)


def _rowwise_settings(_: argparse.Namespace, case: Case, rule: Any) -> list[Setting]:
    most = importlib.import_module(ROWWISE).CAPPED_TOKENS
    return around(rule, case.tokens <= most)


KERNELS = {
    "port": Kernel(PORT, "pick_value_tile", _port_settings),
    "rowwise": Kernel(ROWWISE, "launch_settings", _rowwise_settings),
}


def _launch(job: tuple[str, Case, Setting]) -> None:
    name, case, setting = job
    KERNELS[name].launch(setting, gdn_case.make(case, "cuda", 0))


def precompile(
    name: str, work: Sequence[tuple[Case, Setting]], jobs: int
) -> dict[tuple[str, int, str], str]:
    """Compiles what a sweep will launch in parallel, into Triton's cache.

    Returns:
        Why a setting cannot run, by the state's dtype, tokens, and its name.
    """
    small: dict[tuple[Any, ...], tuple[str, Case, Setting]] = {}
    for case, setting in work:
        if setting.forced:
            one = Case(case.heads, case.state, 1, case.tokens, case.layout)
            small[one, setting.name, str(setting.forced)] = (name, one, setting)
    todo = list(small.values())
    said = gdn_compile.in_parallel(_launch, todo, jobs)
    return {
        (case.state, case.tokens, setting.name): why
        for (_, case, setting), why in zip(todo, said, strict=True)
        if why
    }


def sweep(
    kernel: Kernel,
    case: Case,
    sets: Sequence[Buffers],
    found: Sequence[Setting],
    options: Any,
) -> dict:
    """Times every setting cold, interleaved, in two mirrored blocks at most.

    Returns:
        Samples in µs per call by setting, the best setting, and the rule's time over
        the best one's.
    """
    calls = case.calls(len(sets), options.bandwidth, options.replay_ms)

    def bound(setting: Setting) -> replay.Call:
        return lambda buffers: kernel.launch(setting, buffers)

    captures = {
        setting.name: partial(replay.capture, bound(setting), sets, calls, 5.0)
        for setting in found
    }
    blocks = min(2, options.blocks)
    runs = replay.interleave(captures, plan(list(captures), blocks))
    samples = by_arm(runs)
    times = medians(samples)
    best = min((name for name in times if name != RULE), key=times.__getitem__)
    return {
        "samples": samples,
        "best": best,
        "rule_over_best": times[RULE] / times[best],
    }


def run(args: argparse.Namespace, cases: Sequence[Case], options: Any) -> list[dict]:
    """Sweeps the cases, one result each.

    Args:
        args: The words of the benchmark: sweep, tiles, warps, jobs.
        cases: What to sweep.
        options: How the benchmark measures.
    """
    kernel = KERNELS[args.sweep]
    chosen = [kernel.chosen(case) for case in cases]
    swept = [
        kernel.settings(args, case, rule)
        for case, rule in zip(cases, chosen, strict=True)
    ]
    work = [
        (case, one) for case, found in zip(cases, swept, strict=True) for one in found
    ]
    failed = precompile(args.sweep, work, args.jobs)
    for (state, tokens, name), why in failed.items():
        where = f"{name} {state}, {tokens} tokens,"
        print(f"sweep: {where} left out: {why}", file=sys.stderr)
    results = []
    for case, rule, found in zip(cases, chosen, swept, strict=True):
        print(f"sweep: {case.words()}", file=sys.stderr, flush=True)
        number = gdn_case.rotated(case, options.cache)
        sets = [gdn_case.make(case, "cuda", options.seed + n) for n in range(number)]
        kind = (case.state, case.tokens)
        can = [one for one in found if (*kind, one.name) not in failed]
        result = sweep(kernel, case, sets, can, options)
        shown = tuple(rule) if isinstance(rule, tuple) else rule
        results.append({"kernel": args.sweep, "chosen": shown, **result})
    return results
