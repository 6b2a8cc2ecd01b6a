# SPDX-License-Identifier: Apache-2.0
"""Records of the GDN benchmark as tables."""

from statistics import median
from typing import Any

from evals.views_ab import View, control_last, level, told

GOALS = {
    1: ("merged", 0.50),
    8: ("cuda_op", 0.90),
    32: ("cuda_op", 0.89),
    128: ("cuda_op", 0.92),
}
"""What patch 0005 set out for, by requests: its time over another arm's, at most."""
FLOOR_GOALS = {32: 1.14, 128: 1.10}
"""The same over the memory floor, with FP32 states."""
GOAL_BANDWIDTH = 4.3e12
"""Bytes a second at which FLOOR_GOALS take the floor."""
MANY = 40
"""Cases from which on a record is shown in sum."""


def _case(row: dict[str, Any]) -> str:
    tokens = "" if row["tokens"] == 4 else f" of {row['tokens']} tokens"
    return f"{row['shape']} {row['state']}, {row['requests']}{tokens}"


def times(data: dict[str, Any]) -> View:
    """µs per call of every arm, warm / cold, beside the memory floor."""
    arms = control_last(
        dict.fromkeys(n for row in data["cases"] for n in row["cold"]["samples"])
    )
    various = len({row["tokens"] for row in data["cases"]}) > 1

    def tokens(row: dict[str, Any]) -> list[str]:
        return [str(row["tokens"])] if various else []

    rows = []
    for row in data["cases"]:
        cells = []
        for name in arms:
            both = [row[kind]["samples"].get(name) for kind in ("warm", "cold")]
            shown = [f"{median(values):.1f}" for values in both if values]
            cells.append(" / ".join(shown))
        point = [row["shape"], row["state"], *tokens(row), str(row["requests"])]
        rows.append([*point, *cells, f"{row['floor_us']:.1f}"])
    columns = ["H x HV", "state", "requests", *arms, "floor"]
    if various:
        columns.insert(2, "tokens")
    bandwidth = data["options"]["bandwidth"] / 1e12
    title = (
        f"GDN decode, µs per call, warm / cold; floor: bytes at {bandwidth:.2f} TB/s"
    )
    return title, columns, rows


def grid(data: dict[str, Any]) -> View:
    """Every fused arm's time over the first arm's, in sum over a grid of cases."""
    columns = ["arm", "state", "tokens", "points"]
    columns += ["least", "median", "most", "most at H x HV, requests"]
    cases, lines = data["cases"], list[list[str]]()
    if len(cases) <= MANY:
        return "", columns, lines
    names = [name for name in cases[0]["cold"]["samples"] if name != "control"]
    base, arms = names[0], names[1:]
    groups: dict[tuple[str, int, str], list[dict[str, Any]]] = {}
    for row in cases:
        for arm in arms:
            groups.setdefault((row["state"], row["tokens"], arm), []).append(row)
    for (state, tokens, arm), rows in sorted(groups.items()):
        found = sorted(
            (median(row[kind]["samples"][arm]) / median(row[kind]["samples"][base]), n)
            for n, row in enumerate(rows)
            for kind in ("warm", "cold")
        )
        ratios = [ratio for ratio, _ in found]
        shown = [f"{value:.2f}" for value in (ratios[0], median(ratios), ratios[-1])]
        worst = rows[found[-1][1]]
        where = f"{worst['shape']}, {worst['requests']}"
        lines.append([arm, state, str(tokens), str(len(found)), *shown, where])
    return f"GDN decode, time over that of {base}, warm and cold", columns, lines


def goals(data: dict[str, Any]) -> View:
    """0005's times over what it set out to stay within, warm / cold."""
    lines: dict[tuple[int, str], dict[str, str]] = {}

    def hold(row: dict[str, Any], what: str, most: float, against: float = 0.0) -> None:
        cells = []
        for kind in ("warm", "cold"):
            times = {n: median(v) for n, v in row[kind]["samples"].items()}
            ratio = times["rowwise"] / (against or times[what])
            cells.append(f"{ratio:.3f}{' missed' if ratio > most else ''}")
        line = lines.setdefault((row["requests"], f"{most:.2f} of {what}"), {})
        line[f"{row['shape']} {row['state']}"] = " / ".join(cells)

    for row in data["cases"]:
        number, there = row["requests"], row["cold"]["samples"]
        name, most = GOALS.get(number, ("", 0.0))
        if row["tokens"] != 4 or not {name, "rowwise"} <= there.keys():
            continue
        hold(row, name, most)
        if row["state"] == "fp32" and number in FLOOR_GOALS:
            floor_us = 1e6 * row["floor_bytes"] / GOAL_BANDWIDTH
            hold(row, "the floor", FLOOR_GOALS[number], floor_us)
    points = list(dict.fromkeys(point for line in lines.values() for point in line))
    rows = [
        [str(number), goal, *(cells.get(point, "") for point in points)]
        for (number, goal), cells in sorted(lines.items())
    ]
    title = "GDN decode against what 0005 set out for"
    return title, ["requests", "at most", *points], rows


def verdicts(data: dict[str, Any]) -> View:
    """Ratio of every arm to the unfused path, with interval and verdict."""
    rows = data["cases"] if len(data["cases"]) <= MANY else []
    found = [
        (f"{_case(row)}, {kind}", row[kind]["compared"])
        for row in rows
        for kind in ("warm", "cold")
    ]
    bases = {name: one["base"] for _, by_arm in found for name, one in by_arm.items()}
    cells = [
        [where, *(told(by_arm.get(name)) for name in bases)] for where, by_arm in found
    ]
    columns = ["case", *(f"{name} to {base}" for name, base in bases.items())]
    title = f"GDN decode: ratio, interval ({level(data)}), verdict"
    return title, columns, cells


def sweep(data: dict[str, Any]) -> View:
    """The rule's choice against the best of the sweep."""
    rows = []
    for row in (row for row in data["cases"] if "sweep" in row):
        found = row["sweep"]
        times = {name: median(values) for name, values in found["samples"].items()}
        rows.append(
            [
                _case(row),
                str(found["chosen"]),
                f"{times['rule']:.1f}",
                found["best"],
                f"{times[found['best']]:.1f}",
                f"{found['rule_over_best']:.3f}",
            ]
        )
    columns = ["case", "rule", "rule µs", "best", "best µs", "rule / best"]
    return "GDN update kernel: the rule's settings against the best", columns, rows


def launches(data: dict[str, Any]) -> View:
    """Launches per call, from the profiler, of the first case."""
    rows = [
        [
            arm,
            f"{sum(counts.values()):g}",
            ", ".join(f"{number:g} x {name[:40]}" for name, number in counts.items()),
        ]
        for arm, counts in data["cases"][0]["kernels"].items()
    ]
    return "GDN decode, launches per call", ["arm", "launches", "kernels"], rows


def agreement(data: dict[str, Any]) -> View:
    """The largest deviation of every arm from the fp64 reference, over all cases."""
    arms: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in data["cases"]:
        for name, one in row["agreement"].items():
            arms.setdefault((name, row["state"]), []).append(one)
    rows = [
        [
            name,
            state,
            f"{max(one['out'] for one in found):.1e}",
            f"{max(one['state'] for one in found):.1e}",
        ]
        for (name, state), found in arms.items()
    ]
    columns = ["arm", "state", "output, 2-norm", "state, largest"]
    return "GDN decode, largest relative error against fp64", columns, rows
