# SPDX-License-Identifier: Apache-2.0
"""The matrix of `check` as a table, as data, and as Markdown for a CI summary."""

from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from .carry import Step
from .check import Column, Matrix
from .expected import outcome


def matrix_data(matrix: Matrix) -> dict[str, Any]:
    """The matrix as plain data."""
    columns = []
    for column in matrix.columns:
        data = asdict(column)
        for row, step in zip(data["steps"], column.steps, strict=True):
            row["outcome"] = outcome(step)
        columns.append(data)
    return {"good": matrix.good, "columns": columns}


def print_matrix(matrix: Matrix) -> None:
    """Print the matrix, then what stands behind each cell that is not clean."""
    table = Table(box=None, pad_edge=False)
    table.add_column("patch", no_wrap=True)
    for column in matrix.columns:
        table.add_column(escape(column.onto))
    first = matrix.columns[0] if matrix.columns else None
    for number, step in enumerate(first.steps if first else ()):
        cells = [outcome(column.steps[number]) for column in matrix.columns]
        table.add_row(step.file[:4], *cells)
    console = Console(highlight=False)
    console.print(table)
    for line in _lines(matrix):
        console.print(escape(line), soft_wrap=True)


def markdown(matrix: Matrix) -> str:
    """The matrix for a CI summary or an issue."""
    heads = ["patch", *(column.onto for column in matrix.columns)]
    rows = [heads, ["---"] * len(heads)]
    first = matrix.columns[0] if matrix.columns else None
    for number, step in enumerate(first.steps if first else ()):
        cells = [outcome(column.steps[number]) for column in matrix.columns]
        rows.append([f"{step.file[:4]} {_plain(step.title)}", *cells])
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    said = [f"- {_plain(line)}" for line in _lines(matrix)]
    return "\n".join(["## The series on upstream", "", *lines, "", *said, ""])


def _plain(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")


def _lines(matrix: Matrix) -> list[str]:
    lines = []
    for column in matrix.columns:
        for step in column.steps:
            lines += [f"{column.onto}  {line}" for line in step_lines(step)]
        lines += [f"{column.onto}  broken: {fault}" for fault in column.faults]
        lines += [f"{column.onto}  unexpected: {text}" for text in column.changed]
        lines += [f"{column.onto}  {note}" for note in column.notes]
    verdict = "as expected" if matrix.good else "not as expected"
    return [*lines, _verdict(matrix.columns, verdict)]


def _verdict(columns: tuple[Column, ...], verdict: str) -> str:
    counts = len(columns), sum(len(column.steps) for column in columns)
    return f"{counts[0]} bases, {counts[1]} cells: {verdict}."


def step_lines(step: Step) -> list[str]:
    """What stands behind one step, a line each."""
    name = step.file[:4]
    lines = []
    if step.evidence:
        lines.append(f"{name} {step.state}: {step.evidence}")
    for clash in step.clashes:
        place = f"{clash.path}:{clash.line}" if clash.line else clash.path
        where = f" ({clash.where})" if clash.where else ""
        lines.append(f"{name} conflict: {place}{where}: {clash.reason}")
    lines += [f"{name} {note}" for note in step.notes]
    return lines
