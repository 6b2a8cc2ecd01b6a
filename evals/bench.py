# SPDX-License-Identifier: Apache-2.0
"""Times one of the series' kernels on this machine's GPU: `make bench OP=dot|gdn`.

dot runs evals/dot.py, gdn evals/gdn.py, each in the interpreter whose torch sees the
GPU, on build/vllm or on the series branch of a clone. What follows -- goes to the
benchmark.
"""

import argparse
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
if __name__ == "__main__":
    sys.path[0] = str(ROOT)

from evals.cli import guarded  # noqa: E402
from series.errors import SeriesError  # noqa: E402
from series.manifest import load_manifest  # noqa: E402
from tests.harness import environment, tree, treerun  # noqa: E402
from tests.harness.environment import Environment  # noqa: E402
from tests.harness.plan import Plan  # noqa: E402
from tests.harness.ready import ready  # noqa: E402

CACHE = ROOT / "build/test"
HARNESS = ROOT / "tests/patched"
NEEDS = ("numpy", "rich", "scipy")
SCRIPTS = {"dot": "evals/dot.py", "gdn": "evals/gdn.py"}


def variables(plan: Plan, found: Environment) -> dict[str, str]:
    """The environment of the benchmark: the tree importable, nothing written there."""
    paths = [plan.path, treerun.metadata_folder(CACHE, plan.version), HARNESS]
    if not found.hip:
        paths.append(HARNESS / "series_harness/startup")
    folders = treerun.extensions(plan, found)
    return environment.variables(found, paths, CACHE, folders)


def main(argv: Sequence[str]) -> int:
    """Runs the command; returns the benchmark's exit code."""
    parser = argparse.ArgumentParser(prog="evals/bench.py", allow_abbrev=False)
    parser.add_argument("op", choices=[*SCRIPTS])
    parser.add_argument("--vllm", type=Path, help="a clone with the series branch")
    parser.add_argument("--python", default=sys.executable, help="an interpreter")
    at = argv.index("--") if "--" in argv else len(argv)
    options = parser.parse_args(argv[:at])
    manifest = load_manifest(ROOT / "patches/series.toml")
    plan = tree.planned(ROOT, options.vllm, manifest, CACHE / "trees")
    found = ready(options.python, NEEDS)
    if not found.gpu:
        raise SeriesError(
            f"{options.python} sees no GPU: there is nothing to measure.",
            "Name an interpreter whose torch sees it: PYTHON=path/to/python3",
        )
    call = [options.python, str(ROOT / SCRIPTS[options.op]), *argv[at + 1 :]]
    print(f"{plan.path} at {plan.commit[:12]} on {found.device}", flush=True)
    return subprocess.run(call, cwd=os.getcwd(), env=variables(plan, found)).returncode


if __name__ == "__main__":
    sys.exit(guarded(main, sys.argv[1:]))
