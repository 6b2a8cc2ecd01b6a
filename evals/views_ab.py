# SPDX-License-Identifier: Apache-2.0
"""Records of comparisons and of the tiny dot as tables."""

from collections.abc import Iterable, Sequence
from statistics import median
from typing import Any

View = tuple[str, Sequence[str], Sequence[Sequence[str]]]
"""Title, columns, rows."""


def told(one: dict[str, Any] | None) -> str:
    """A comparison in a cell: the ratio and its interval, or why there is none."""
    if one is None:
        return ""
    if one["ratio"] is None:
        return f"{one['verdict']}: {one['reason']}"
    ends = f"{one['low']:.3f} to {one['high']:.3f}"
    return f"{one['verdict']} {one['ratio']:.3f} ({ends})"


def level(data: dict[str, Any]) -> str:
    """What the intervals of a benchmark's record are, in words."""
    points = data.get("options", {}).get("points", 1)
    return f"95% for all {points} points" if points > 1 else "95%"


def control_last(names: Iterable[str]) -> list[str]:
    """Arms in their order, but the control behind them all.

    The order of runs and samples, which records keep, has it anywhere.
    """
    return sorted(names, key="control".__eq__)


def both(cells: Sequence[str]) -> str:
    """What is told of warm and cold calls, once where that is the same."""
    return cells[0] if len({*cells}) == 1 else " / ".join(cells)


def dot_times(data: dict[str, Any]) -> View:
    """µs per call of the 1x1xK projection and its gate by arm, warm / cold."""
    rows = []
    timed = [
        (row, [row[kind] for kind in ("warm", "cold") if kind in row])
        for row in data["cases"]
    ]
    every = dict.fromkeys(n for _, kinds in timed for n in kinds[0]["samples"])
    arms = control_last(every)

    def short(kinds: Sequence[dict[str, Any]], arm: str) -> str:
        found = [kind["compared"].get(arm) for kind in kinds]
        known = [one for one in found if one and one["ratio"] is not None]
        ratios = " / ".join(f"{one['ratio']:.3f}" for one in known)
        return f"{both([one['verdict'] for one in known])} {ratios}" if known else ""

    for row, kinds in timed:
        cells = []
        for name in arms:
            times = [k["samples"][name] for k in kinds if name in k["samples"]]
            cells.append(" / ".join(f"{median(values):.2f}" for values in times))
        told_of = [short(kinds, "triton"), short(kinds, "control")]
        rows.append([row["form"], row["dtype"], str(row["k"]), *cells, *told_of])
    columns = ["form", "dtype", "K", *arms, "triton to BLAS", "control to triton"]
    title = (
        "1x1xK projection, µs per call, warm / cold, median of separate processes; "
        f"verdicts at {level(data)}"
    )
    return title, columns, rows


def ab_metrics(data: dict[str, Any]) -> View:
    """Medians by arm and metric, and every arm against the first."""
    rows = []
    for metric, by_arm in data["compared"].items():
        base = next(iter(by_arm.values()))["base"]
        for name in (base, *control_last(by_arm)):
            values = [r["values"][metric] for r in data["runs"] if r["arm"] == name]
            ends = f"{min(values):.4g} to {max(values):.4g}"
            cells = [metric, name, str(len(values)), f"{median(values):.4g}", ends]
            rows.append([*cells, told(by_arm.get(name))])
    columns = ["metric", "arm", "runs", "median", "range", "against the first"]
    one = data.get("plan", {}).get("one_process")
    return (
        f"{'one process' if one else 'separate processes'}, mirrored order",
        columns,
        rows,
    )


def ab_predicted(data: dict[str, Any], records: Sequence[dict[str, Any]]) -> View:
    """Step times of the engine beside what the kernels' own times foretell.

    Args:
        data: Of a comparison; one of decode steps has metrics step_ms_REQUESTS.
        records: Its peers; those of the GDN benchmark have the kernels' times.
    """
    arms = data.get("plan", {}).get("arms", {})
    rows, sources = [], []
    for metric, by_arm in data["compared"].items():
        _, is_step, number = metric.partition("step_ms_")
        for name, one in by_arm.items() if is_step else ():
            base, words = one["base"], arms.get(name, [])
            heads = "16x48" if "27b" in words else "16x32"
            calls = next(r["calls"] for r in data["runs"] if r["arm"] == name)
            timed = kernel_times(records, heads, int(number), (base, name))
            if "--state" in words or f"gdn_{name}" not in calls or not timed:
                continue
            source, first, second = timed
            sources.append(source)
            values = [r["values"][metric] for r in data["runs"] if r["arm"] == base]
            more = calls[f"gdn_{name}"] * (second - first) / 1e3
            foretold = f"{1 + more / median(values):.3f}"
            rows.append([number, name, f"{more:+.2f}", foretold, told(one)])
    by = f"foretold by {', '.join(dict.fromkeys(sources))}"
    columns = ["requests", "arm", "ms a step", by, "measured"]
    return "decode step to the first arm's, foretold by the kernels", columns, rows


def kernel_times(
    records: Sequence[dict[str, Any]], heads: str, requests: int, arms: Sequence[str]
) -> tuple[str, float, float] | None:
    """Cold µs of two arms, FP32 state and 4 tokens, from one record that has both.

    Returns:
        Its name and both medians, of the record with the most samples; None where no
        record has both.
    """
    point = {"shape": heads, "state": "fp32", "tokens": 4, "requests": requests}
    found = [
        (len(samples[arms[0]]), kept["name"], *(median(samples[arm]) for arm in arms))
        for kept in records
        if kept["kind"] == "gdn"
        for case in kept["data"]["cases"]
        if all(case[key] == value for key, value in point.items())
        for samples in [case["cold"]["samples"]]
        if all(arm in samples for arm in arms)
    ]
    if not found:
        return None
    _, name, first, second = max(found, key=lambda one: one[0])
    return name, first, second


def ab_again(kept: dict[str, Any], records: Sequence[dict[str, Any]]) -> View:
    """The ratios of a comparison beside those of later records of the same arms.

    Args:
        kept: The record of the comparison.
        records: Its peers.
    """
    arms = kept["data"].get("plan", {}).get("arms")
    later = [
        one["data"]["compared"]
        for one in records
        if arms
        and one["kind"] == "ab"
        and (one["date"], one["name"]) > (kept["date"], kept["name"])
        and one["data"].get("plan", {}).get("arms") == arms
    ]
    rows = []
    for metric, by_arm in kept["data"]["compared"].items():
        for name in control_last(by_arm):
            one = by_arm[name]
            for other in (found.get(metric, {}).get(name) for found in later):
                if other is None or None in (one["ratio"], other["ratio"]):
                    continue
                meet = one["low"] <= other["high"] and other["low"] <= one["high"]
                told_both = [told(one), told(other), "meet" if meet else "apart"]
                rows.append([metric, name, *told_both])
    columns = ["metric", "arm", "this record", "a later one", "intervals"]
    return "independent runs of the same comparison", columns, rows


def ab_calls(data: dict[str, Any]) -> View:
    """What each arm called, from its first run."""
    first: dict[str, dict[str, float]] = {}
    for run in data["runs"]:
        first.setdefault(run["arm"], run["calls"])
    names = list(dict.fromkeys(name for calls in first.values() for name in calls))
    rows = [
        [arm, *(f"{first[arm][n]:g}" if n in first[arm] else "" for n in names)]
        for arm in control_last(first)
    ]
    return "calls of a run by arm", ["arm", *names], rows


def ab_steps(data: dict[str, Any]) -> View:
    """Launches and device time of a decode step by kind, from each arm's first run."""
    first: dict[str, dict[str, Any]] = {}
    for run in data["runs"]:
        first.setdefault(run["arm"], run.get("notes", {}))
    rows, kinds = [], []
    for arm in control_last(first):
        for name, note in first[arm].items():
            if not (isinstance(note, dict) and "launches" in note):
                continue
            kinds = [*note["launches"]]
            cells = [
                f"{note['launches'][kind]:.0f} / {note['device_us'][kind] / 1e3:.3f}"
                for kind in kinds
            ]
            total = sum(note["launches"].values())
            ms = sum(note["device_us"].values()) / 1e3
            rows.append([name, arm, *cells, f"{total:.0f} / {ms:.3f}"])
    rows.sort(key=lambda row: (len(row[0]), row[0]))
    return "launches / device ms of a step by kind", ["", "arm", *kinds, "all"], rows
