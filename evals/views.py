# SPDX-License-Identifier: Apache-2.0
"""Records as tables: the same ones for the page and for the README."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from evals import codegen_tables, record, views_ab, views_eval, views_gdn
from evals.record import Record, Series
from evals.views_ab import View


@dataclass(frozen=True)
class Table:
    """One table.

    Attributes:
        name: The record's, with a colon and the view where it has several.
        caption: Where, when and of which patches it was measured.
        stale: Why it no longer shows the series, empty where it does.
        note: What the figures mean, where that needs words.
    """

    name: str
    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    caption: str
    stale: str = ""
    note: str = ""

    def markdown(self) -> str:
        """The table for a README, its caption below."""
        lines = ["| " + " | ".join(self.columns) + " |"]
        lines.append("| --- |" + " ---: |" * (len(self.columns) - 1))
        lines += ["| " + " | ".join(row) + " |" for row in self.rows]
        told = [f"**Stale: {self.stale}.**"] if self.stale else []
        told += [self.note] if self.note else []
        return "\n".join([*lines, "", " ".join([*told, self.caption])])


VIEWS: dict[str, dict[str, Callable[[dict[str, Any]], View]]] = {
    "gdn": {
        "": views_gdn.times,
        "grid": views_gdn.grid,
        "goals": views_gdn.goals,
        "verdicts": views_gdn.verdicts,
        "sweep": views_gdn.sweep,
        "launches": views_gdn.launches,
        "agreement": views_gdn.agreement,
    },
    "dot": {"": views_ab.dot_times},
    "ab": {
        "": views_ab.ab_metrics,
        "calls": views_ab.ab_calls,
        "steps": views_ab.ab_steps,
    },
    "eval": dict(views_eval.VIEWS),
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
BESIDE: dict[str, dict[str, Callable[[Record, Sequence[Record]], View]]] = {
    "ab": {
        "foretold": lambda kept, peers: views_ab.ab_predicted(kept["data"], peers),
        "again": views_ab.ab_again,
    },
}
"""The same, of views that need other records beside it: its peers."""


NOTES = {
    ("codegen", "elements"): (
        "An fp16 operand is multiplied as it lies, two to a register (mixed: "
        "v_fma_mix_f32); for bf16 gfx11 has no such instruction, so nearly every one "
        "of the 2 x 128 operands is unpacked into a register of its own (unpacks), "
        "and 256 registers do not hold them; every form of the plain dot tried here "
        "needs them all. The series' kernel therefore walks K in chunks of 16 elements "
        "a lane."
    ),
    ("codegen", ""): (
        "Spilled VGPRs go to memory, spilled SGPRs to lanes of a VGPR. The tiny dot's "
        "2-byte loads are those of a K or a stride that allows no wide ones."
    ),
    ("eval", ""): (
        "p is McNemar's, exact; what N can see is the smallest true difference that so "
        "many questions find four times of five. evals/EVALUATING.md says how to read "
        "a verdict."
    ),
    ("ab", "foretold"): (
        "Foretold: calls of a step times the difference of the kernels' cold times."
    ),
    ("ab", "again"): "Intervals that meet share a ratio.",
    ("ab", "steps"): (
        "A dependent launch's time includes its wait for the kernel ahead."
    ),
    ("dot", ""): (
        "Cold is what a call adds to an eviction of the last-level cache. Where there "
        "is no verdict the runs were too few for one."
    ),
}
"""Words below a table, by kind of record and view."""


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


def peers(kept: Record, records: Sequence[Record]) -> list[Record]:
    """The records of the same device that measured the same form of shared files."""

    def agrees(one: Record) -> bool:
        shared = set(one["files"]) & set(kept["files"])
        return all(one["files"][file] == kept["files"][file] for file in shared)

    device = kept["machine"].get("device")
    return [
        one for one in records if one["machine"].get("device") == device and agrees(one)
    ]


def tables(kept: Record, series: Series, records: Sequence[Record] = ()) -> list[Table]:
    """Every table of a record, the main one first.

    Args:
        kept: The record.
        series: What the patches are now.
        records: All records, for the views that join some.
    """
    found = []
    stale = "; ".join(record.stale(kept, series))
    others = peers(kept, records)
    made = [
        *(
            (view, make(kept["data"]))
            for view, make in VIEWS.get(kept["kind"], {}).items()
        ),
        *(
            (view, join(kept, others))
            for view, join in BESIDE.get(kept["kind"], {}).items()
        ),
    ]
    for view, (title, columns, rows) in made:
        if rows:
            name = kept["name"] + (f":{view}" if view else "")
            note = NOTES.get((kept["kind"], view), "")
            found.append(Table(name, title, columns, rows, caption(kept), stale, note))
    return found
