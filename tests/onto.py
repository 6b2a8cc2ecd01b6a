# SPDX-License-Identifier: Apache-2.0
"""Runs the patches' own tests on the series as it lands on other releases.

python tests/onto.py 0.33.0
python tests/onto.py --python /path/to/python3 0.30.0 0.31.0 -- -k tiny
"""

import argparse
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
if __name__ == "__main__":
    sys.path[0] = str(ROOT)

from evals.cli import guarded  # noqa: E402
from series.carry import LANDED  # noqa: E402
from series.errors import ConflictError, Exit  # noqa: E402
from series.manifest import Manifest, load_manifest  # noqa: E402
from series.releases import release_store, require_release  # noqa: E402
from series.report import say  # noqa: E402
from series.sources import rebase_over, release_in  # noqa: E402
from tests.harness import environment, summary, tree, treerun  # noqa: E402
from tests.harness.environment import Environment  # noqa: E402
from tests.harness.plan import Plan  # noqa: E402
from tests.harness.ready import ready  # noqa: E402
from tests.run import CACHE, MANIFEST, NEEDS, TREES  # noqa: E402


def landed(manifest: Manifest, name: str, build: Path) -> Plan:
    """The series on a release, exported, with the tests that this release has.

    Raises:
        ConflictError: A patch does not land there.
    """
    pin = require_release(manifest, name)
    store = release_store(build, [manifest.pin, pin], say)
    with rebase_over(store, manifest, release_in(store, pin), say) as rebase:
        found = []
        for source in rebase.sources:
            step = rebase.carrier.carry(source)
            if step.state == "conflict":
                raise ConflictError(
                    f"{step.file} does not land on {pin.tag}.",
                    f"Adapt it first: apply.py apply --onto {pin.release}",
                )
            if step.state in LANDED:
                found.append((source.patch, step.commit))
        tip = rebase.carrier.tip
        path = tree.export(rebase.scratch, tip, TREES)
        # Tests of this repository are about the pin; upstream's tree has its own.
        patches = [
            tree.describe(
                rebase.scratch,
                commit,
                patch.file.removesuffix(".patch"),
                [test for test in patch.tests if (path / test.split("::")[0]).exists()],
            )
            for patch, commit in found
        ]
    return Plan(path, pin.release, tip, pin.tag, tuple(patches))


def run(plan: Plan, found: Environment, args: Sequence[str]) -> list[str]:
    """Runs the tests of one release; returns what is wrong."""
    print(f"\n== {len(plan.patches)} patches on {plan.branch}", flush=True)
    parts = treerun.run(plan, found, ROOT, CACHE, args)
    print("\n".join(summary.lines(plan, parts)), flush=True)
    return summary.problems(plan, parts, narrowed=bool(args))


def main(argv: Sequence[str]) -> int:
    """Runs the command; returns its exit code."""
    parser = argparse.ArgumentParser(
        prog="tests/onto.py", description=__doc__.split("\n")[0], allow_abbrev=False
    )
    parser.add_argument("releases", nargs="+", help="releases of series.toml")
    parser.add_argument("--python", default=sys.executable, help="an interpreter")
    words = list(argv)
    args = words[words.index("--") + 1 :] if "--" in words else []
    options = parser.parse_args(words[: len(words) - len(args) - bool(args)])
    manifest = load_manifest(MANIFEST)
    found = ready(options.python, environment.needed(NEEDS))
    failed = []
    for name in options.releases:
        plan = landed(manifest, name, ROOT / "build")
        failed += [f"{plan.branch}: {what}" for what in run(plan, found, args)]
        shutil.rmtree(plan.path)
    for problem in failed:
        print(f"failed: {problem}", file=sys.stderr)
    return Exit.FAILURE if failed else Exit.DONE


if __name__ == "__main__":
    sys.exit(guarded(main, sys.argv[1:]))
