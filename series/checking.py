# SPDX-License-Identifier: Apache-2.0
"""The command `check`: the matrix, printed and written where it is wanted."""

import os
from contextlib import suppress
from pathlib import Path

from . import matrix, report
from .check import check
from .errors import SeriesError
from .expected import record_expected
from .git import require_git
from .manifest import load_manifest
from .target import Say


def run(
    series: Path,
    build: Path,
    say: Say,
    clone: Path | None,
    onto: list[str] | None,
    python: str,
    summary: Path | None,
    record: bool,
    as_json: bool,
) -> bool:
    """Run the check; returns whether all is as it should be.

    Args:
        series: series.toml.
        build: The folder of the releases.
        say: Called with a line before something that takes time.
        clone: A clone whose main, or revisions, are bases too.
        onto: The bases instead of all.
        python: An interpreter with torch.
        summary: A file that gets the table as Markdown at its end.
        record: Write the outcomes down as the expected ones.
        as_json: Print data instead of a table.
    """
    require_git()
    manifest = load_manifest(series)
    words = (manifest, build, say)
    compare = not record
    found = check(*words, clone=clone, onto=onto, python=python, compare=compare)
    if as_json:
        report.print_data(matrix.matrix_data(found))
    else:
        matrix.print_matrix(found)
    if summary is not None:
        _append(summary, matrix.markdown(found))
    if record:
        steps = {column.onto: list(column.steps) for column in found.columns}
        say(f"Recorded in {record_expected(manifest, steps)}.")
    return found.good


def _append(path: Path, text: str) -> None:
    before = path.stat().st_size if path.is_file() else None
    try:
        with path.open("a", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        _cut_back(path, before)
        raise SeriesError(
            f"{path} cannot be written: {error.strerror}.", "Name another file."
        ) from error


def _cut_back(path: Path, size: int | None) -> None:
    """Undo what was written of a table; a file that was not there goes."""
    with suppress(OSError):
        if size is not None:
            os.truncate(path, size)
        elif path.is_file():
            path.unlink()
