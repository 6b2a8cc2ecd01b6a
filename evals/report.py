# SPDX-License-Identifier: Apache-2.0
"""Writes the page and the README's tables from the records alone: `make report`.

    python -m evals.report            build/report/index.html
    python -m evals.report --readme   the tables of README.md, between their markers

A table stands in README.md between <!-- table:NAME --> and <!-- /table -->, NAME being
a record, or a record and a view: gdn-h200, codegen:tiles. --list prints the names.
"""

import argparse
import re
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
if __name__ == "__main__":
    sys.path[0] = str(ROOT)

from evals import cli, record, views  # noqa: E402
from evals.record import Record, Series  # noqa: E402
from series.errors import Exit, SeriesError  # noqa: E402
from series.writing import aside  # noqa: E402

README = ROOT / "README.md"
PAGE = ROOT / "build/report/index.html"
TEMPLATE = "report.html"
_BLOCK = re.compile(
    r"(?P<head><!-- table:(?P<name>\S+) -->\n)(?P<body>.*?)(?P<tail><!-- /table -->)",
    re.DOTALL,
)
_OPEN = re.compile(r"<!-- table:")


class ReportError(SeriesError):
    """The README asks for a table that no record has."""


def readme_text(text: str, found: Mapping[str, views.Table]) -> str:
    """A README with every table as the records have it.

    Raises:
        ReportError: A table is unknown, or its end is missing.
    """
    blocks = list(_BLOCK.finditer(text))
    nested = any(_OPEN.search(block["body"]) for block in blocks)
    if nested or len(blocks) != len(_OPEN.findall(text)):
        raise ReportError("README.md: a table has no end.", "Add <!-- /table -->.")

    def filled(block: re.Match[str]) -> str:
        table = found.get(block["name"])
        if table is None:
            raise ReportError(
                f"README.md: no record has the table {block['name']}.",
                f"There are: {', '.join(found) or 'none'}.",
            )
        return f"{block['head']}{table.markdown()}\n{block['tail']}"

    return _BLOCK.sub(filled, text)


def renewed(readme: Path, found: Mapping[str, views.Table]) -> bytes:
    """A README's bytes with every table as the records have it, its ends of lines kept.

    Raises:
        ReportError: It is no text, a table is unknown, or its end is missing.
    """
    try:
        text = readme.read_bytes().decode("utf-8")
    except UnicodeDecodeError as error:
        raise ReportError(f"{readme} is not UTF-8: {error}.") from error
    ends = "\r\n" if "\r\n" in text else "\n"
    new = readme_text(text.replace("\r\n", "\n"), found)
    return new.replace("\n", ends).encode()


@contextmanager
def _holding(kept: Record) -> Iterator[None]:
    """Lets a failure to show a record be one of that record."""
    try:
        yield
    except (
        ArithmeticError,
        AttributeError,
        LookupError,
        TypeError,
        ValueError,
    ) as error:
        raise record.RecordError(
            f"{kept['name']}.json does not hold what a record of {kept['kind']} has: "
            f"{error!r}.",
            "Record it anew.",
        ) from error


def amd_note(records: Sequence[Record]) -> str:
    """What the records say of AMD hardware."""
    devices = sorted(
        {
            kept["machine"]["device"]
            for kept in records
            if str(kept["machine"].get("arch", "")).startswith("gfx")
        }
    )
    if devices:
        return f"Measured on AMD hardware: {', '.join(devices)}."
    return (
        "Nothing here ran on AMD hardware: what is said of AMD GPUs is what the "
        "compiler says."
    )


def page(records: Sequence[Record], series: Series) -> str:
    """The page of all records, the newest series' base in its head."""
    import jinja2

    from evals import plots

    sections: list[dict[str, Any]] = []
    for kept in records:
        with _holding(kept):
            sections.append(
                {
                    "name": kept["name"],
                    "caption": views.caption(kept),
                    "stale": "; ".join(record.stale(kept, series)),
                    "command": shlex.join(map(str, kept["command"])),
                    "plots": plots.plots(kept["kind"], kept["data"]),
                    "tables": views.tables(kept, series, records),
                }
            )
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(ROOT / "evals"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
    )
    return environment.get_template(TEMPLATE).render(
        base=series.base, amd=amd_note(records), sections=sections
    )


def main(argv: Sequence[str]) -> int:
    """Runs the command; returns its exit code."""
    parser = argparse.ArgumentParser(
        prog="evals.report",
        description=__doc__,
        allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--readme", action="store_true", help="rewrite its tables")
    parser.add_argument("--list", action="store_true", help="names of all tables")
    parser.add_argument("--out", type=Path, default=PAGE)
    args = parser.parse_args(argv)
    series = record.current()
    records = record.load_all()
    found: dict[str, views.Table] = {}
    for kept in records:
        with _holding(kept):
            found |= {t.name: t for t in views.tables(kept, series, records)}
    if args.list:
        for table in found.values():
            print(f"{table.name:<24} {table.title}")
        return Exit.DONE
    if args.readme:
        text, new = README.read_bytes(), renewed(README, found)
        if new != text:
            with aside(README) as part:
                part.write_bytes(new)
        print(
            "README.md " + ("has new tables" if new != text else "is as it should be")
        )
        return Exit.DONE
    html = page(records, series)
    with cli.writes_to(args.out):
        args.out.parent.mkdir(parents=True, exist_ok=True)
        cli.write_text(args.out, html)
    print(f"{args.out}: {len(records)} records")
    for kept in records:
        if why := record.stale(kept, series):
            print(f"stale: {kept['name']}: {'; '.join(why)}")
    return Exit.DONE


if __name__ == "__main__":
    sys.exit(cli.guarded(main, sys.argv[1:]))
