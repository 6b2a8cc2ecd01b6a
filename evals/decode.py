# SPDX-License-Identifier: Apache-2.0
"""Times decode steps of the whole engine, arm against arm, through evals.ab.

    python -m evals.decode gdn --arms unfused,port,cuda_op --requests 1,8,32
    python -m evals.decode gate

gdn: MTP decode with the GDN kernels that patch 0004's seam chooses. gate: the tiny
dot's own workload with the patches 0001 to 0003 acting or not; the time to the first
token is the negative control, for no gate sees one token in a prefill. Weights are
dummies at a real model's shape. Each run is a process of its own; kernel counts from
the profiler prove which arm it was. What follows -- goes to evals.ab, such as
--blocks 2, --cool 45 or --resume. Needs a GPU and the release's compiled extensions.
"""

import argparse
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
if __name__ == "__main__":
    sys.path[0] = str(ROOT)

from evals import ab, cli, decode_arm, engine, seams  # noqa: E402
from evals.kinds import CALLS  # noqa: E402

ARM_SCRIPT = ROOT / "evals/decode_arm.py"
GATE_CALL = "tiny_dot"


def claims(workload: str, arm: str) -> list[str]:
    """The words that hold an arm to its kernels.

    Args:
        workload: "gdn" or "gate".
        arm: The arm's name.
    """
    if workload == "gate":
        return ["--ran" if arm == "on" else "--idle", f"{arm}:{GATE_CALL}"]
    found = []
    for call in (name for name in CALLS if name.startswith("gdn_")):
        option = "--ran" if call == f"gdn_{arm}" else "--idle"
        found += [option, f"{arm}:{call}"]
    return found


def unchanged(workload: str, requests: Sequence[int]) -> list[str]:
    """The negative controls: what no arm can change."""
    if workload == "gate":
        return ["ttft_ms"]
    return [f"prefill_ms_{number}" for number in requests]


def ab_words(args: argparse.Namespace) -> list[str]:
    """What evals.ab is called with."""
    known = [*seams.GDN_ARMS] if args.workload == "gdn" else [*decode_arm.SWITCH]
    names = cli.words(args.arms, known, "--arms") if args.arms else known
    requests = cli.numbers(args.requests, "--requests")
    words = []
    for name in names:
        call = [sys.executable, str(ARM_SCRIPT), args.workload, name]
        call += ["--shape", args.shape]
        call += ["--requests", args.requests] if args.workload == "gdn" else []
        call += ["--layers", str(args.layers)] if args.layers else []
        words += ["--arm", f"{name}={shlex.join(call)}", *claims(args.workload, name)]
    for metric in unchanged(args.workload, requests):
        words += ["--unchanged", metric]
    return [*words, "--out", str(args.out or ROOT / "build/decode" / args.workload)]


def main(argv: Sequence[str]) -> int:
    """Runs the comparison; returns its exit code."""
    at = argv.index("--") if "--" in argv else len(argv)
    own, rest = argv[:at], argv[at + 1 :]
    parser = argparse.ArgumentParser(
        prog="evals.decode",
        description=__doc__,
        allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("workload", choices=["gdn", "gate"])
    add("--arms", help="comma list, the first being the base; all if left out")
    add("--shape", choices=[*engine.SHAPES], default="35b")
    add("--layers", type=int, help="fewer than the model has")
    add("--requests", default="1,8,32")
    add("--out", type=Path, help="folder of the runs")
    args = parser.parse_args(own)
    return ab.main([*ab_words(args), *rest], ["evals.decode", *argv])


if __name__ == "__main__":
    sys.exit(cli.guarded(main, sys.argv[1:]))
