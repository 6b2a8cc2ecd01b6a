# SPDX-License-Identifier: Apache-2.0
"""Plots of the records as SVG, the same bytes for the same record."""

import io
from collections.abc import Callable, Sequence
from statistics import median
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

from evals.published import DOT_REGISTERS
from evals.views_ab import control_last

# The Okabe-Ito palette: told apart by most eyes, on white and in grey.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")
WIDTH_IN, ROW_IN = 8.4, 2.9
STYLE = {
    "svg.hashsalt": "series",
    "svg.fonttype": "none",
    "font.size": 9,
    "font.family": "sans-serif",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#e5e5e5",
    "legend.frameon": False,
}
Plot = tuple[str, str]
"""Title and SVG."""


def _svg(figure: Figure) -> str:
    out = io.StringIO()
    figure.savefig(out, format="svg", metadata={"Date": None}, bbox_inches="tight")
    text = out.getvalue()
    return text[text.index("<svg") :]


def _figure(count: int, columns: int = 2) -> tuple[Figure, list[Any]]:
    """A grid of axes, the left-over ones taken away."""
    columns = min(columns, count)
    lines = -(-count // columns)
    figure = Figure(figsize=(WIDTH_IN, ROW_IN * lines), layout="constrained")
    axes = list(figure.subplots(lines, columns, squeeze=False).flat)
    for unused in axes[count:]:
        unused.remove()
    return figure, axes[:count]


def _groups(cases: Sequence[dict], *keys: str) -> dict[tuple, list[dict]]:
    groups: dict[tuple, list[dict]] = {}
    for case in cases:
        groups.setdefault(tuple(case[key] for key in keys), []).append(case)
    return groups


def requests(data: dict[str, Any]) -> Plot:
    """µs against requests, cold, with the memory floor."""
    groups = _groups(data["cases"], "shape", "state")
    figure, axes = _figure(len(groups))
    for axis, ((shape, state), cases) in zip(axes, groups.items(), strict=True):
        numbers = [case["requests"] for case in cases]
        names = [n for n in cases[0]["cold"]["samples"] if n != "control"]
        for name, colour in zip(names, COLOURS, strict=False):
            times = [median(case["cold"]["samples"][name]) for case in cases]
            axis.plot(numbers, times, "o-", ms=3, lw=1.2, color=colour, label=name)
        floor = [case["floor_us"] for case in cases]
        axis.plot(numbers, floor, "--", lw=1, color="#777777", label="memory floor")
        axis.set(xscale="log", yscale="log", title=f"{shape}, state {state}")
        axis.set_xticks(numbers, [str(number) for number in numbers])
        axis.minorticks_off()
        axis.set(xlabel="requests", ylabel="µs per call")
    axes[0].legend(fontsize=8)
    return "GDN decode, cold: µs against requests", _svg(figure)


def sweep(data: dict[str, Any]) -> Plot:
    """Every setting of the sweep over the best of its case; the rule marked."""
    cases = [case for case in data["cases"] if "sweep" in case]
    groups = _groups(cases, "shape", "state")
    figure, axes = _figure(len(groups))
    for axis, ((shape, state), same) in zip(axes, groups.items(), strict=True):
        for case, colour in zip(same, COLOURS, strict=False):
            found = case["sweep"]
            times = {n: median(values) for n, values in found["samples"].items()}
            best, rule = times[found["best"]], times.pop("rule")
            label = f"{case['requests']} requests"
            names = list(times)
            axis.plot(
                names,
                [times[n] / best for n in names],
                "o",
                ms=3,
                color=colour,
                label=label,
            )
            axis.axhline(rule / best, ls=":", lw=1, color=colour)
        axis.set(title=f"{shape}, state {state}", ylabel="over the best")
        axis.set_ylim(0.95, 2.0)
        axis.tick_params("x", rotation=90, labelsize=7)
    axes[0].legend(fontsize=8)
    title = "GDN launch settings, cold, over the best; dotted: the rule"
    return title, _svg(figure)


def registers(data: dict[str, Any]) -> Plot:
    """VGPRs of a dot against elements a lane: plain, the series', published."""
    figure, (axis,) = _figure(1)
    plain = [e for e in data["entries"] if e["family"] == "plain_dot"]
    for dtype, colour in zip(("bf16", "fp16"), COLOURS, strict=False):
        points = sorted(
            (int(e["label"].split()[0]), e["vgprs"])
            for e in plain
            if e["label"].endswith(dtype)
        )
        axis.plot(
            *zip(*points, strict=True), "o-", color=colour, label=f"plain {dtype}"
        )
    published = [(count, vgprs) for count, (vgprs, _) in DOT_REGISTERS.items()]
    x, y = zip(*published, strict=True)
    axis.plot(x, y, "s--", color="#777777", label="published")
    series: dict[int, int] = {}
    for entry in data["entries"]:
        config = entry["config"]
        used = entry["family"] == "tiny_dot" and entry["target"] == "gfx1151"
        if used and config["K"] % (32 * config["num_warps"]) == 0:
            lane = config["K"] // (32 * config["num_warps"])
            series[lane] = max(series.get(lane, 0), entry["vgprs"])
    if series:
        points = sorted(series.items())
        label = "the tiny dot of the series, most of any"
        axis.plot(*zip(*points, strict=True), "^-", color=COLOURS[2], label=label)
    axis.axhline(256, lw=0.8, color="#bb0000")
    axis.annotate("256: all there are", (1, 258), fontsize=8, color="#bb0000")
    axis.set(xscale="log", xlabel="elements a lane", ylabel="VGPRs", ylim=(0, 285))
    ticks = [2**n for n in range(10)]
    axis.set_xticks(ticks, [str(tick) for tick in ticks])
    axis.minorticks_off()
    axis.legend(fontsize=8)
    return "Registers of a dot on gfx1151 against elements a lane", _svg(figure)


def ratios(data: dict[str, Any]) -> Plot:
    """Ratios of the arms to the first, with their intervals."""
    lines = [
        (f"{metric}: {name}", one)
        for metric, by_arm in data["compared"].items()
        for name in control_last(by_arm)
        for one in [by_arm[name]]
        if one["ratio"] is not None
    ]
    figure = Figure(figsize=(WIDTH_IN, 0.6 + 0.3 * len(lines)), layout="constrained")
    axis = figure.subplots()
    for at, (_, one) in enumerate(lines):
        axis.plot([one["low"], one["high"]], [at, at], lw=2, color=COLOURS[0])
        axis.plot(one["ratio"], at, "o", color=COLOURS[1])
    axis.axvline(1, lw=1, color="#777777")
    axis.set_yticks(range(len(lines)), [label for label, _ in lines])
    axis.invert_yaxis()
    axis.set(xlabel="ratio to the first arm, 95% interval")
    return "Ratios with their intervals", _svg(figure)


def _has_lines(data: dict[str, Any]) -> bool:
    return len({case["tokens"] for case in data["cases"]}) == 1


def _has_sweep(data: dict[str, Any]) -> bool:
    return any("sweep" in case for case in data["cases"])


def _has_plain(data: dict[str, Any]) -> bool:
    return any(entry["family"] == "plain_dot" for entry in data["entries"])


def _has_ratio(data: dict[str, Any]) -> bool:
    found = (one for by_arm in data["compared"].values() for one in by_arm.values())
    return any(one["ratio"] is not None for one in found)


_PLOTS: dict[str, list[tuple[Callable[[dict], bool], Callable[[dict], Plot]]]] = {
    "gdn": [(_has_lines, requests), (_has_sweep, sweep)],
    "codegen": [(_has_plain, registers)],
    "ab": [(_has_ratio, ratios)],
}


def plots(kind: str, data: dict[str, Any]) -> list[Plot]:
    """Every plot of a record."""
    with mpl.rc_context(STYLE):
        return [make(data) for has, make in _PLOTS.get(kind, []) if has(data)]
