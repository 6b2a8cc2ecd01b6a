# SPDX-License-Identifier: Apache-2.0
"""What the eval commands share: failures as one message, tables for people."""

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from series import output
from series.errors import Exit, SeriesError, UsageError, of_system
from series.writing import aside

LINE = 480
"""Characters of JSON that stay on one line."""


def guarded(command: Callable[[Sequence[str]], int], argv: Sequence[str]) -> int:
    """Runs a command and returns its exit code, expected failures included."""
    return output.whole(lambda: _guarded(command, argv))


def _guarded(command: Callable[[Sequence[str]], int], argv: Sequence[str]) -> int:
    try:
        return command(argv)
    except SeriesError as error:
        return _told(error)
    except OSError as error:
        if output.is_lost(error):
            raise
        return _told(of_system(error))
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return Exit.INTERRUPT


def _told(error: SeriesError) -> int:
    output.tell(error)
    return error.code


def show(title: str, columns: Iterable[str], rows: Iterable[Sequence[str]]) -> None:
    """Prints a table; the first column is text, the others line up on the right."""
    table = Table(title=title, box=box.SIMPLE, title_justify="left")
    for number, name in enumerate(columns):
        table.add_column(name, justify="right" if number else "left", no_wrap=True)
    for row in rows:
        table.add_row(*row)
    # What is shown may hold brackets of its own, such as a metric's name.
    console = Console(highlight=False, markup=False, emoji=False)
    if not console.is_terminal:
        console.width = 200
    console.print(table)


def laid_out(data: Any, indent: str = "") -> str:
    """JSON with what is short on one line, so that a diff shows what changed."""
    short = json.dumps(data, ensure_ascii=False)
    if len(short) <= LINE or not isinstance(data, dict | list):
        return short
    inner = indent + " "
    if isinstance(data, list):
        items = [laid_out(item, inner) for item in data]
        ends = "[]"
    else:
        items = [
            f"{json.dumps(str(key), ensure_ascii=False)}: {laid_out(value, inner)}"
            for key, value in data.items()
        ]
        ends = "{}"
    lines = f",\n{inner}".join(items)
    return f"{ends[0]}\n{inner}{lines}\n{indent}{ends[1]}"


def write_text(path: Path, text: str) -> None:
    """Writes a file that appears, or changes, only when it is whole."""
    with aside(path) as part:
        part.write_text(text, encoding="utf-8")


def write_json(path: Path, data: Any) -> None:
    """Writes data to a file that appears, or changes, only when it is whole."""
    text = laid_out(data) + "\n"
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, text)


@contextmanager
def writes_to(out: Path) -> Iterator[None]:
    """Lets a failure below the folder or file of --out say that there are others.

    Raises:
        SeriesError: Instead of an OSError that names something there.
    """
    try:
        yield
    except OSError as error:
        place = error.filename
        if not isinstance(place, str | Path) or output.is_lost(error):
            raise
        # What cannot be made is a folder above it as often.
        if not (Path(place).is_relative_to(out) or out.is_relative_to(place)):
            raise
        said = of_system(error)
        hint = " ".join([said.hint, "Or name another place with --out."]).strip()
        raise SeriesError(said.what, hint) from error


def words(text: str, known: Sequence[str], what: str) -> list[str]:
    """Splits a comma list and refuses what is not known.

    Raises:
        UsageError: An entry is unknown, or there is none.
    """
    names = [name.strip() for name in text.split(",") if name.strip()]
    unknown = [name for name in names if name not in known]
    if unknown or not names:
        raise UsageError(
            f"{what}: {', '.join(unknown) or 'nothing given'}.",
            f"Known: {', '.join(known)}.",
        )
    return names


def numbers(text: str, what: str) -> list[int]:
    """Splits a comma list of positive whole numbers.

    Raises:
        UsageError: An entry is none, or there is none.
    """
    try:
        values = [int(part) for part in text.split(",")]
    except ValueError:
        values = []
    if not values or min(values) < 1:
        raise UsageError(f"{what}: {text!r} is no list of positive numbers.", "1,8,32")
    return values
