# SPDX-License-Identifier: Apache-2.0
"""Which number of questions supports which claim, and what each evaluation asks.

python -m evals.claims            the tables of evals/EVALUATING.md
python -m evals.claims --write    puts them there, between their markers
"""

import argparse
import re
import sys
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
if __name__ == "__main__":
    sys.path[0] = str(ROOT)

from evals import cli, gpqa, gsm8k, niah, paired, serving  # noqa: E402
from series.errors import Exit, SeriesError  # noqa: E402

PAGE = ROOT / "evals/EVALUATING.md"
COUNTS = (50, 165, 200, 396, 400, 1319)
SHARES = (0.01, 0.02, 0.05, 0.10, 0.20)
CLAIMS = (0.05, 0.03, 0.02, 0.01, 0.005)
SCORE = 0.861
"""What the stock tree gets in the published runs of Qwen3.5-35B-A3B on GSM8K."""
UPSTREAM = SCORE - (0.84 - 0.03)
"""How far below that upstream's gate lies, its tolerance granted."""
MARGINS = (0.01, 0.02, 0.03, UPSTREAM)
_BLOCK = re.compile(
    r"(<!-- claims:(?P<name>\w+) -->\n)(?P<body>.*?)(<!-- /claims -->)", re.DOTALL
)
Table = tuple[Sequence[str], Sequence[Sequence[str]]]


@cache
def seen() -> Table:
    """The smallest true difference that N questions find four times of five."""
    rows = []
    for n in COUNTS:
        found = [paired.smallest(n, share) for share in SHARES]
        rows.append([str(n), *(f"{100 * one:.1f}" for one in found if one)])
    return ["N", *(f"{100 * share:g}% differ" for share in SHARES)], rows


@cache
def wanted() -> Table:
    """How many questions find a true difference four times of five."""
    rows = []
    for claim in CLAIMS:
        found = [paired.needed(claim, share) for share in SHARES]
        cells = [f"{one:,}" if one else "over 200,000" for one in found]
        rows.append([f"{100 * claim:g} points", *cells])
    return ["claim", *(f"{100 * share:g}% differ" for share in SHARES)], rows


@cache
def gates() -> Table:
    """How often a threshold fails an honest run, and passes a worse one."""
    rows = []
    for n in (50, 200, 400, 1319):
        cells = [f"{100 * paired.gate_fails(n, SCORE, m):.0f}%" for m in MARGINS]
        worse = [
            # The same gate, met by a model that lost three points.
            f"{100 * (1 - paired.gate_fails(n, SCORE - 0.03, m - 0.03)):.0f}%"
            for m in MARGINS
        ]
        rows.append(
            [str(n), *(f"{a} / {b}" for a, b in zip(cells, worse, strict=True))]
        )
    return ["N", *(f"gate {100 * m:g} below" for m in MARGINS)], rows


def asked() -> Table:
    """What one arm of each evaluation asks, in requests and tokens."""
    answers = gpqa.COUNT * gpqa.REPEATS
    needles = niah.DEPTHS * niah.SAMPLES
    rows = [
        ["gsm8k", f"{gsm8k.ALL:,}, twice", "", _most(gsm8k.ALL * gsm8k.MAX_TOKENS)],
        ["gpqa", f"{answers:,}", "", _most(answers * gpqa.MAX_TOKENS)],
        [
            "niah",
            f"{needles * len(niah.LENGTHS):,}",
            f"{needles * sum(niah.LENGTHS) / 1e6:.1f}M",
            _most(needles * len(niah.LENGTHS) * niah.MAX_TOKENS),
        ],
    ]
    for cell in serving.PUBLISHED:
        cells = [f"serve {cell.name}", f"{cell.prompts}"]
        cells += [_short(cell.prompts * cell.input), _short(cell.prompts * cell.output)]
        rows.append(cells)
    return ["evaluation", "requests", "tokens in", "tokens out"], rows


def _short(tokens: int) -> str:
    return f"{tokens / 1e6:.1f}M" if tokens >= 10**6 else f"{tokens / 1e3:.0f}K"


def _most(tokens: int) -> str:
    return f"at most {_short(tokens)}"


TABLES: dict[str, Callable[[], Table]] = {
    "seen": seen,
    "wanted": wanted,
    "gates": gates,
    "asked": asked,
}


def markdown(table: Table) -> str:
    """A table for the page."""
    columns, rows = table
    lines = ["| " + " | ".join(columns) + " |"]
    lines.append("| --- |" + " ---: |" * (len(columns) - 1))
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)])


def filled(text: str) -> str:
    """A page with every table as it is computed now.

    Raises:
        SeriesError: It asks for a table that there is not.
    """

    def block(found: re.Match[str]) -> str:
        if found["name"] not in TABLES:
            raise SeriesError(
                f"{PAGE.name}: there is no table {found['name']}.",
                f"There are: {', '.join(TABLES)}.",
            )
        return f"{found[1]}{markdown(TABLES[found['name']]())}\n{found[4]}"

    return _BLOCK.sub(block, text)


def main(argv: Sequence[str]) -> int:
    """Runs the command; returns its exit code."""
    parser = argparse.ArgumentParser(prog="evals.claims", allow_abbrev=False)
    parser.add_argument("--write", action="store_true", help="into the page")
    if parser.parse_args(argv).write:
        cli.write_text(PAGE, filled(PAGE.read_text(encoding="utf-8")))
        print(f"{PAGE} has the tables as they are computed")
        return Exit.DONE
    for name, make in TABLES.items():
        columns, rows = make()
        cli.show((make.__doc__ or name).strip(), columns, rows)
    return Exit.DONE


if __name__ == "__main__":
    sys.exit(cli.guarded(main, sys.argv[1:]))
