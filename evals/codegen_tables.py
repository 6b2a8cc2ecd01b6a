# SPDX-License-Identifier: Apache-2.0
"""The tables of the cross-compilation: per target, per tile, by elements a lane."""

from collections.abc import Sequence
from typing import Any

from evals import cli
from evals.published import DOT_REGISTERS

Entry = dict[str, Any]
# To memory; to lanes of a VGPR.
SPILLS = ("vgpr_spills", "sgpr_spills")


def summary(entries: Sequence[Entry]) -> list[list[str]]:
    """One line a target and kernel: how many there are, how many spill, extremes."""
    groups: dict[tuple[str, str], list[Entry]] = {}
    for entry in entries:
        if entry["in_use"]:
            key = entry["target"], entry["kernel"]
            groups.setdefault(key, []).append(entry)
    lines = []
    for (target, kernel), same in groups.items():
        spilling = [sum(e[kind] > 0 for e in same) for kind in SPILLS]
        registers = [entry["vgprs"] for entry in same]
        occupancy = [entry["occupancy"] for entry in same]
        narrow = [entry["narrow_loads"] for entry in same]
        lines.append(
            [
                kernel.strip("_"),
                target,
                str(len(same)),
                f"{min(registers)} to {max(registers)}",
                str(max(entry["sgprs"] for entry in same)),
                *map(str, spilling),
                str(max(entry["lds_bytes"] for entry in same)),
                f"{min(occupancy)} to {max(occupancy)}",
                f"{min(narrow)} to {max(narrow)}",
            ]
        )
    return sorted(lines, key=lambda line: line[0])


SUMMARY_COLUMNS = (
    "kernel",
    "target",
    "configurations",
    "VGPRs",
    "SGPRs",
    "spill VGPRs",
    "spill SGPRs",
    "LDS bytes",
    "occupancy",
    "2-byte loads",
)


def tiles(entries: Sequence[Entry]) -> list[list[str]]:
    """The usual GDN layer by target, state dtype and value tile."""
    cells: dict[tuple[str, str], dict[int, Entry]] = {}
    for entry in entries:
        usual = entry["label"] in ("state fp32", "state bf16")
        if usual and "BV" in entry["config"]:
            key = entry["target"], entry["label"].split()[1]
            cells.setdefault(key, {})[entry["config"]["BV"]] = entry
    return [
        [
            target,
            state,
            str(tile),
            str(entry["config"]["num_warps"]),
            str(entry["vgprs"]),
            *(str(entry[kind]) for kind in SPILLS),
            str(entry["lds_bytes"]),
            str(entry["occupancy"]),
            *(str(entry[kind]) for kind in ("loads", "wide_loads", "narrow_loads")),
        ]
        for (target, state), by_tile in cells.items()
        for tile, entry in sorted(by_tile.items())
    ]


TILE_COLUMNS = (
    "target",
    "state",
    "tile",
    "warps",
    "VGPRs",
    "VGPR spills",
    "SGPR spills",
    "LDS bytes",
    "occupancy",
    "loads",
    "of 16 bytes",
    "of 2",
)


def elements(entries: Sequence[Entry]) -> list[list[str]]:
    """The plain dot by elements a lane, beside the published figures."""
    by_count: dict[int, dict[str, Entry]] = {}
    for entry in entries:
        if entry["family"] == "plain_dot":
            count, _, _, dtype = entry["label"].split()
            by_count.setdefault(int(count), {})[dtype] = entry
    lines = []
    for count, found in sorted(by_count.items()):
        line = [str(count)]
        for dtype in ("bf16", "fp16"):
            names = ("vgprs", "vgpr_spills", "unpacks", "mixed_multiplies")
            line += [str(found.get(dtype, {}).get(name, "")) for name in names]
        vgprs, spills = DOT_REGISTERS[count]
        lines.append([*line, str(vgprs), str(spills)])
    return lines


ELEMENT_COLUMNS = (
    "elements a lane",
    "bf16 VGPRs",
    "spills",
    "unpacks",
    "mixed",
    "fp16 VGPRs",
    "spills",
    "unpacks",
    "mixed",
    "published VGPRs",
    "spills",
)


def show_all(entries: Sequence[Entry]) -> None:
    """Prints the tables."""
    cli.show("every configuration in use", SUMMARY_COLUMNS, summary(entries))
    cli.show("GDN update kernel by value tile", TILE_COLUMNS, tiles(entries))
    title = "plain dot of 4 warps on gfx1151, not in use; published: bf16"
    cli.show(title, ELEMENT_COLUMNS, elements(entries))
