# SPDX-License-Identifier: Apache-2.0
"""The tables that the benchmarks print."""

from collections import Counter
from collections.abc import Sequence
from statistics import median

from evals import cli, stats


def show_times(rows: Sequence[dict], bandwidth: float) -> None:
    """Prints µs per call, warm / cold, one line a case."""
    arms = list(dict.fromkeys(n for row in rows for n in row["warm"]["samples"]))
    lines = []
    for row in rows:
        cells = []
        for name in arms:
            both = (median(row[kind]["samples"][name]) for kind in ("warm", "cold"))
            cells.append(" / ".join(f"{value:.1f}" for value in both))
        point = [row["shape"], row["state"], str(row["tokens"]), str(row["requests"])]
        lines.append([*point, *cells, f"{row['floor_us']:.1f}"])
    title = f"µs per call, warm / cold; floor at {bandwidth / 1e12:.2f} TB/s"
    columns = ["H x HV", "state", "tokens", "requests", *arms, "floor"]
    cli.show(title, columns, lines)
    lines = []
    for row, kind in ((row, kind) for row in rows for kind in ("warm", "cold")):
        for name, one in row[kind]["compared"].items():
            where = f"{row['shape']} {row['state']} {row['requests']} {kind}"
            told = ["", ""]
            if one["ratio"] is not None:
                ends = f"{one['low']:.3f} to {one['high']:.3f}"
                told = [f"{one['ratio']:.3f}", ends]
            lines.append(
                [where, name, one["base"], one["verdict"], *told, one["reason"]]
            )
    columns = ["case", "arm", "against", "verdict", "ratio", "interval", ""]
    cli.show(f"verdicts; 95% for all {2 * len(rows)} points", columns, lines)
    show_controls(
        [
            (f"{row['shape']} {row['state']} {row['requests']} {kind}", one["compared"])
            for row in rows
            for kind, one in (("warm", row["warm"]), ("cold", row["cold"]))
        ]
    )


def show_controls(found: Sequence[tuple[str, dict]]) -> None:
    """Prints what the A/A controls say, and where one says that it differs.

    Args:
        found: Each point's name, and what its arms were compared to be.
    """
    told = [(where, arms["control"]) for where, arms in found if "control" in arms]
    count = Counter(one["verdict"] for _, one in told)
    print("A/A:", ", ".join(f"{n} {verdict}" for verdict, n in count.most_common()))
    for where, one in told:
        if one["verdict"] in ("FASTER", "SLOWER"):
            print(f"the control differs at {where}: {one['ratio']:.3f}")


def show_sweep(rows: Sequence[dict]) -> None:
    """Prints the rule's choice against the best of the sweep, one line a case."""
    lines = []
    for row in (row for row in rows if "sweep" in row):
        found = row["sweep"]
        times = stats.medians(found["samples"])
        lines.append(
            [
                f"{row['shape']} {row['state']} {row['requests']}",
                str(found["chosen"]),
                f"{times['rule']:.1f}",
                found["best"],
                f"{times[found['best']]:.1f}",
                f"{found['rule_over_best']:.3f}",
            ]
        )
    columns = ["case (cold)", "rule's choice", "rule µs", "best", "best µs", "ratio"]
    cli.show("settings: the rule against the best of the sweep", columns, lines)


def show_counts(rows: Sequence[dict]) -> None:
    """Prints how many kernels a call of each arm launches."""
    lines = []
    for row in rows:
        for name, counts in row.get("kernels", {}).items():
            where = f"{row['shape']} {row['state']} {row['requests']}"
            shown = ", ".join(f"{n:g} x {kernel[:48]}" for kernel, n in counts.items())
            lines.append([where, name, f"{sum(counts.values()):g}", shown])
    cli.show("launches per call", ["case", "arm", "launches", "kernels"], lines[:8])


def show_dot(rows: Sequence[dict]) -> None:
    """Prints µs per call and what the verdict is, one line a case and kind."""
    lines = []
    for row in rows:
        for kind in (kind for kind in ("warm", "cold") if kind in row):
            samples, compared = row[kind]["samples"], row[kind]["compared"]
            for name, values in samples.items():
                one = compared.get(name)
                where = f"K={row['k']} {row['dtype']} {row['form']} {kind}"
                shown = one["verdict"] if one else ""
                ratio = f"{one['ratio']:.3f}" if one and one["ratio"] else ""
                ends = f"{min(values):.2f} to {max(values):.2f}"
                counts = row["kernels"].get(name)
                launches = f"{sum(counts.values()):g}" if counts else ""
                cells = [f"{median(values):.2f}", ends, launches, ratio, shown]
                lines.append([where, name, *cells])
    columns = ["case", "arm", "µs", "range", "launches", "ratio to BLAS", "verdict"]
    cli.show(
        "median of the processes; the control's ratio is to triton", columns, lines
    )
    show_controls(
        [
            (f"K={row['k']} {row['dtype']} {row['form']} {kind}", row[kind]["compared"])
            for row in rows
            for kind in ("warm", "cold")
            if kind in row
        ]
    )


def show_differing(rows: Sequence[dict], tokens: int) -> None:
    """Prints on how many tokens the Triton kernel differs in any bit from an arm."""
    lines = [
        [f"K={row['k']} {row['dtype']} {row['form']}", name, str(count)]
        for row in rows
        for name, count in row["differing"].items()
    ]
    if lines:
        columns = ["case", "arm", "tokens"]
        cli.show(f"tokens of {tokens} that differ from triton's", columns, lines)
