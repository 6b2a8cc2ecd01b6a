# SPDX-License-Identifier: Apache-2.0
"""The words of the GDN benchmark, and the cases that they ask for."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from evals import cli
from series.errors import UsageError

if TYPE_CHECKING:
    from evals.gdn_case import Case


def parse(argv: Sequence[str], description: str | None = None) -> argparse.Namespace:
    """Reads the command line."""
    parser = argparse.ArgumentParser(
        prog="evals.gdn",
        description=description,
        allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--op", type=Path, help="a library that registers the CUDA op")
    add("--merged", type=Path, help="tree or archive of a release with a port")
    add("--arms", help="only these, the first being the base; default: all there are")
    add("--shapes", default="16x32,16x48", help="H x HV, any")
    add("--states", default="fp32,bf16")
    add("--requests", default="1,8,32,128")
    add("--tokens", default="4", help="tokens of a request, each 1 to 8")
    add("--layout", choices=["packed", "dense"], default="packed")
    add("--blocks", type=int, default=6, help="mirrored blocks, two samples each")
    add("--sample-ms", type=float, default=10.0)
    add("--cache-mib", type=float, help="last-level cache, where torch is wrong")
    add("--bandwidth", type=float, help="TB/s for the floor; measured if left out")
    add("--quick", action="store_true", help="for grids: one block, 2 ms samples")
    add(
        "--sweep",
        nargs="?",
        const="port",
        choices=["port", "rowwise"],
        help="sweep the launch settings of a kernel too; the port's if none is named",
    )
    add("--tiles", default="", help="of the port's sweep; its own if left out")
    add("--warps", default="1,2,4,8,16", help="of the port's sweep")
    add("--jobs", type=int, default=8, help="processes that compile")
    add("--seed", type=int, help="of the inputs; fresh if left out")
    add("--json", type=Path, help="write everything, raw samples too, to this file")
    return parser.parse_args(argv)


def cases_of(args: argparse.Namespace) -> list["Case"]:
    """The cases that the words ask for."""
    from evals import gdn_case

    cli.numbers(str(args.jobs), "--jobs")
    tokens = cli.numbers(args.tokens, "--tokens")
    if max(tokens) > 8:
        raise UsageError(f"--tokens {args.tokens}: a request has 1 to 8.")
    shapes = []
    for text in args.shapes.split(","):
        H, _, HV = text.strip().partition("x")
        if not (H.isdigit() and HV.isdigit() and int(H) and int(HV) % int(H) == 0):
            raise UsageError(f"--shapes {text!r}: H x HV is needed, as in 16x32.")
        shapes.append((int(H), int(HV)))
    states = cli.words(args.states, list(gdn_case.STATES), "--states")
    return [
        gdn_case.Case(heads, state, number, each, args.layout)
        for heads in shapes
        for state in states
        for each in tokens
        for number in cli.numbers(args.requests, "--requests")
    ]
