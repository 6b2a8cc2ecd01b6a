# SPDX-License-Identifier: Apache-2.0
"""Tests this repository's code, then the patched tree: the command of `make test`."""

import argparse
import os
import shutil
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
if __name__ == "__main__":
    sys.path[0] = str(ROOT)

from evals.cli import guarded  # noqa: E402
from series.errors import Exit, SeriesError, UsageError  # noqa: E402
from series.git import Repository  # noqa: E402
from series.manifest import load_manifest  # noqa: E402
from tests.harness import (  # noqa: E402
    environment,
    suite,
    summary,
    tree,
    treerun,
)
from tests.harness.environment import Environment  # noqa: E402
from tests.harness.plan import Plan  # noqa: E402
from tests.harness.ready import ready  # noqa: E402

CACHE = ROOT / "build/test"
TREES = CACHE / "trees"
MANIFEST = ROOT / "patches/series.toml"
NEEDS = ROOT / "requirements/kernels.txt"
OWN = "tests of this repository"
# A process for each core, up to four; a file's tests share its fixtures.
APART = ["-p", "xdist", "-n", "logical", "--maxprocesses", "4", "--dist", "loadfile"]


def own_tests(args: Sequence[str]) -> suite.Part:
    """Runs the tests of this repository's code, with this interpreter.

    Without arguments the slow ones are left out, since .ci/run has them on their own,
    and several processes share the rest.
    """
    print(f"{ROOT / 'tests'}", flush=True)
    words = [*(args or ["-m", "not slow", *APART]), "tests"]
    return suite.run(OWN, sys.executable, words, ROOT, os.environ)


def tree_tests(plan: Plan, found: Environment, **options: Sequence[str]) -> list:
    """Runs the tests that a plan names; see `treerun.run` for the options.

    Raises:
        SeriesError: The plan names a test that is nowhere.
    """
    try:
        return treerun.run(plan, found, ROOT, CACHE, **options)
    except treerun.PlanError as error:
        raise SeriesError(f"{error}.", "Correct patches/series.toml.") from error


def each(plan: Plan, vllm: Path | None, found: Environment) -> int:
    """Runs every patch's own tests on the tree as it stands right after that patch.

    Returns:
        The exit code: each tree imports and each patch's tests pass, or 1.
    """
    repo = Repository.find(vllm or ROOT / "build/vllm")
    commits = tree.commits(repo, plan.branch, len(plan.patches))
    failed, closings = [], []
    for commit, patch in zip(commits, plan.patches, strict=True):
        path = tree.export(repo, commit, TREES)
        alone = replace(plan, path=path, commit=commit, patches=(patch,), dirty=False)
        print(f"\n== after {patch.name}", flush=True)
        parts = tree_tests(alone, found, always=treerun.IMPORTS)
        failed += summary.problems(alone, parts, narrowed=False)
        closings += [f"{patch.name}, {part.name}: {part.closing}" for part in parts]
        if commit != plan.commit:
            shutil.rmtree(path)
    print("\nAfter each patch", *closings, sep="\n")
    return _verdict(failed)


def _verdict(failed: Sequence[str]) -> int:
    for problem in failed:
        print(f"failed: {problem}", file=sys.stderr)
    return Exit.FAILURE if failed else Exit.DONE


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="tests/run.py", description=__doc__, allow_abbrev=False
    )
    parser.add_argument("--vllm", type=Path, help="a clone with the series branch")
    parser.add_argument("--python", default=sys.executable, help="an interpreter")
    only = parser.add_mutually_exclusive_group()
    only.add_argument("--own-only", action="store_true", help="this repository's tests")
    only.add_argument("--tree-only", action="store_true", help="the tree's tests")
    only.add_argument("--each", action="store_true", help="the tree after every patch")
    parser.add_argument("args", nargs="*", help="after --: arguments for pytest")
    return parser


def main(argv: Sequence[str]) -> int:
    """Runs the command; returns its exit code."""
    options = _parser().parse_args(argv)
    if options.own_only:
        part = own_tests(options.args)
        print(f"\n{part.name}  {part.closing}")
        return Exit.FAILURE if part.code else Exit.DONE
    # Everything that can be refused is refused before the first minute is spent.
    plan = tree.planned(ROOT, options.vllm, load_manifest(MANIFEST), TREES)
    found = ready(options.python, environment.needed(NEEDS))
    if options.each:
        if options.args:
            raise UsageError("--each takes no arguments for pytest.")
        return each(plan, options.vllm, found)
    parts = [] if options.tree_only else [own_tests(options.args)]
    parts += tree_tests(plan, found, args=options.args)
    failed = summary.problems(plan, parts, narrowed=bool(options.args))
    print("\n".join(summary.lines(plan, parts)), flush=True)
    return _verdict(failed)


if __name__ == "__main__":
    sys.exit(guarded(main, sys.argv[1:]))
