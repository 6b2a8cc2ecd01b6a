# SPDX-License-Identifier: Apache-2.0
"""One run of the engine for evals.decode: prints what evals.ab asks of an arm.

    python -m evals.decode_arm gdn port --requests 1,8,32
    python -m evals.decode_arm gate on

gdn: MTP with three drafts, milliseconds of a decode step by number of requests. gate:
no speculation, one request, 100 tokens in and 128 out, time to the first token and of
each later one. Both: launches and device time of a step by kind, from the profiler,
which also proves which arm ran. With dummy weights drafts are accepted or rejected
alike, so there are no tokens a second here.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
if __name__ == "__main__":
    sys.path[0] = str(ROOT)

from evals import cli, engine, machine, sensors  # noqa: E402
from evals.workloads import WORKLOADS  # noqa: E402
from series.errors import Exit  # noqa: E402


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """Reads the command line."""
    parser = argparse.ArgumentParser(
        prog="evals.decode_arm",
        description=__doc__,
        allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    kinds_of = parser.add_subparsers(dest="workload", required=True)
    gdn = kinds_of.add_parser("gdn")
    gdn.add_argument("arm", choices=WORKLOADS["gdn"].arms)
    gdn.add_argument("--requests", default="1,8,32")
    gdn.add_argument("--tokens", type=int, default=engine.LONG_TOKENS, help="a run's")
    gate = kinds_of.add_parser("gate")
    gate.add_argument("arm", choices=WORKLOADS["gate"].arms)
    gate.add_argument("--prompts", type=int, default=10)
    for one in (gdn, gate):
        one.add_argument("--shape", choices=[*engine.SHAPES], default="35b")
        one.add_argument("--layers", type=int, help="fewer than the model has")
        one.add_argument("--state", default="float32", help="dtype of the GDN state")
        one.add_argument("--repeats", type=int, default=3)
        one.add_argument("--seed", type=int, default=0)
    return parser.parse_args(argv)


def main(argv: Sequence[str]) -> int:
    """Runs the engine once; returns the exit code."""
    args = parse(argv)
    machine.require_gpu()
    tree = engine.prepare()
    workload = WORKLOADS[args.workload]
    workload.force(args.arm)
    work = workload(args, engine.folder_of(args))
    work.warm()
    values, notes = work.measure()
    calls, more = work.witness()
    said = {
        "values": values,
        "calls": calls,
        "notes": notes | more,
        "machine": machine.gpu_facts(sensors.find_sensor()),
        "sources": machine.blobs(tree, workload.files),
    }
    print("\n" + json.dumps(said), flush=True)
    return Exit.DONE


if __name__ == "__main__":
    sys.exit(cli.guarded(main, sys.argv[1:]))
