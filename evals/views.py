# SPDX-License-Identifier: Apache-2.0
"""Records as tables: the same ones for the page and for the README."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from evals import codegen_tables, record
from evals.record import Record, Series


@dataclass(frozen=True)
class Table:
    """One table.

    Attributes:
        name: The record's, with a colon and the view where it has several.
        caption: Where, when and of which patches it was measured.
        stale: Why it no longer shows the series, empty where it does.
    """

    name: str
    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    caption: str
    stale: str = ""

    def markdown(self) -> str:
        """The table for a README, its caption below."""
        lines = ["| " + " | ".join(self.columns) + " |"]
        lines.append("| --- |" + " ---: |" * (len(self.columns) - 1))
        lines += ["| " + " | ".join(row) + " |" for row in self.rows]
        note = f"**Stale: {self.stale}.** " if self.stale else ""
        return "\n".join([*lines, "", f"{note}{self.caption}"])


View = tuple[str, Sequence[str], Sequence[Sequence[str]]]
"""Title, columns, rows."""


def _case(row: dict[str, Any]) -> str:
    return f"{row['shape']} {row['state']}, {row['requests']}"


def _told(one: dict[str, Any] | None) -> str:
    """A comparison in a cell: the ratio and its interval, or why there is none."""
    if one is None:
        return ""
    if one["ratio"] is None:
        return f"{one['verdict']}: {one['reason']}"
    ends = f"{one['low']:.3f} to {one['high']:.3f}"
    return f"{one['verdict']} {one['ratio']:.3f} ({ends})"


def gdn_times(data: dict[str, Any]) -> View:
    """µs per call of every arm, warm / cold, beside the memory floor."""
    arms = list(
        dict.fromkeys(n for row in data["cases"] for n in row["cold"]["samples"])
    )
    rows = []
    for row in data["cases"]:
        cells = []
        for name in arms:
            both = [row[kind]["samples"].get(name) for kind in ("warm", "cold")]
            shown = [f"{median(values):.1f}" for values in both if values]
            cells.append(" / ".join(shown))
        point = [row["shape"], row["state"], str(row["requests"])]
        rows.append([*point, *cells, f"{row['floor_us']:.1f}"])
    columns = ["H x HV", "state", "requests", *arms, "floor"]
    bandwidth = data["options"]["bandwidth"] / 1e12
    title = (
        f"GDN decode, µs per call, warm / cold; floor: bytes at {bandwidth:.2f} TB/s"
    )
    return title, columns, rows


def gdn_verdicts(data: dict[str, Any]) -> View:
    """Cold ratio of every arm to the unfused path, with interval and verdict."""
    rows = data["cases"]
    arms = list(dict.fromkeys(n for row in rows for n in row["cold"]["compared"]))
    cells = [
        [_case(row), *(_told(row["cold"]["compared"].get(name)) for name in arms)]
        for row in rows
    ]
    bases = {
        name: one["base"]
        for row in rows
        for name, one in row["cold"]["compared"].items()
    }
    columns = ["case", *(f"{name} to {bases[name]}" for name in arms)]
    return "GDN decode, cold: ratio, 95% interval, verdict", columns, cells


def gdn_sweep(data: dict[str, Any]) -> View:
    """The tile rule's choice against the best of the sweep."""
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
    return "GDN update kernel: the tile rule against the best tile", columns, rows


def gdn_launches(data: dict[str, Any]) -> View:
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


def gdn_agreement(data: dict[str, Any]) -> View:
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


def dot_times(data: dict[str, Any], kind: str = "warm") -> View:
    """µs per call of the 1x1xK projection and its gate by arm."""
    cases = [row for row in data["cases"] if kind in row]
    arms = list(dict.fromkeys(n for row in cases for n in row[kind]["samples"]))
    rows = []
    for row in cases:
        samples, compared = row[kind]["samples"], row[kind]["compared"]
        cells = [f"{median(samples[n]):.2f}" if n in samples else "" for n in arms]
        verdict = _told(compared.get("triton"))
        rows.append([row["form"], row["dtype"], str(row["k"]), *cells, verdict])
    columns = ["form", "dtype", "K", *arms, "triton to BLAS"]
    title = "1x1xK projection, µs per call, median of separate processes"
    return f"{title}, {kind}", columns, rows


def ab_metrics(data: dict[str, Any]) -> View:
    """Medians by arm and metric, and every arm against the first."""
    rows = []
    for metric, by_arm in data["compared"].items():
        base = next(iter(by_arm.values()))["base"]
        for name in (base, *by_arm):
            values = [r["values"][metric] for r in data["runs"] if r["arm"] == name]
            ends = f"{min(values):.4g} to {max(values):.4g}"
            cells = [metric, name, str(len(values)), f"{median(values):.4g}", ends]
            rows.append([*cells, _told(by_arm.get(name))])
    columns = ["metric", "arm", "runs", "median", "range", "against the first"]
    return "separate processes, mirrored order", columns, rows


def ab_calls(data: dict[str, Any]) -> View:
    """What each arm called, from its first run."""
    first: dict[str, dict[str, float]] = {}
    for run in data["runs"]:
        first.setdefault(run["arm"], run["calls"])
    names = list(dict.fromkeys(name for calls in first.values() for name in calls))
    rows = [
        [arm, *(f"{calls[n]:g}" if n in calls else "" for n in names)]
        for arm, calls in first.items()
    ]
    return "calls of a run by arm", ["arm", *names], rows


def ab_steps(data: dict[str, Any]) -> View:
    """Launches and device time of a decode step by kind, from each arm's first run."""
    first: dict[str, dict[str, Any]] = {}
    for run in data["runs"]:
        first.setdefault(run["arm"], run.get("notes", {}))
    rows, kinds = [], []
    for arm, notes in first.items():
        for name, note in notes.items():
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
    rows.sort(key=lambda row: row[0])
    return "launches / device ms of a step by kind", ["", "arm", *kinds, "all"], rows


VIEWS: dict[str, dict[str, Callable[[dict[str, Any]], View]]] = {
    "gdn": {
        "": gdn_times,
        "verdicts": gdn_verdicts,
        "sweep": gdn_sweep,
        "launches": gdn_launches,
        "agreement": gdn_agreement,
    },
    "dot": {"": dot_times, "cold": lambda data: dot_times(data, "cold")},
    "ab": {"": ab_metrics, "calls": ab_calls, "steps": ab_steps},
    "codegen": {
        "": lambda data: (
            "every configuration in use, cross-compiled",
            codegen_tables.SUMMARY_COLUMNS,
            codegen_tables.summary(data["entries"]),
        ),
        "tiles": lambda data: (
            "GDN update kernel of the usual layer by value tile, cross-compiled",
            codegen_tables.TILE_COLUMNS,
            codegen_tables.tiles(data["entries"]),
        ),
        "elements": lambda data: (
            "a plain dot of 4 warps on gfx1151 (not in use), beside the published one",
            codegen_tables.ELEMENT_COLUMNS,
            codegen_tables.elements(data["entries"]),
        ),
    },
}
"""By kind of record and name of the view; a view without rows is left out."""


def caption(kept: Record) -> str:
    """Where, when and of which patches a record is."""
    machine = kept["machine"]
    device = machine.get("device") or "cross-compiled, no GPU"
    runtime = machine.get("cuda") and f"CUDA {machine['cuda']}"
    runtime = runtime or (machine.get("hip") and f"ROCm {machine['hip']}")
    stack = [device, runtime, f"torch {machine.get('torch', '?')}"]
    stack.append(f"triton {machine.get('triton', '?')}")
    patches = ", ".join(name[:4] for name in kept["patches"]) or "none"
    where = ", ".join(word for word in stack if word)
    about = f"patches {patches} on {kept['base']['release']}; {kept['name']}.json"
    return f"{kept['date'][:10]}, {where}; {about}"


def tables(kept: Record, series: Series) -> list[Table]:
    """Every table of a record, the main one first."""
    found = []
    stale = "; ".join(record.stale(kept, series))
    for view, make in VIEWS.get(kept["kind"], {}).items():
        title, columns, rows = make(kept["data"])
        if rows:
            name = kept["name"] + (f":{view}" if view else "")
            found.append(Table(name, title, columns, rows, caption(kept), stale))
    return found
