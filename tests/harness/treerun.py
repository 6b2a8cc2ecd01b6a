# SPDX-License-Identifier: Apache-2.0
"""Runs the tests of one plan: the series' own in the tree, and those kept here."""

import json
from collections.abc import Sequence
from pathlib import Path

from tests.harness import environment, suite
from tests.harness.environment import Environment
from tests.harness.plan import Plan

IMPORTS = ("tests/patched/test_imports.py",)
ALWAYS = (*IMPORTS, "tests/patched/test_harness.py")


class PlanError(Exception):
    """The plan names a test that is neither in the tree nor here."""


def metadata_folder(cache: Path, version: str) -> Path:
    """A folder that, on the module path, makes vllm an installed distribution.

    Without it vLLM's platform detection fails, and writing it into the tree would
    change the tree.
    """
    info = cache / "metadata" / f"vllm-{version}.dist-info"
    info.mkdir(parents=True, exist_ok=True)
    text = f"Metadata-Version: 2.1\nName: vllm\nVersion: {version}\n"
    (info / "METADATA").write_text(text, encoding="utf-8")
    return info.parent


def located(
    plan: Plan, here: Path, always: Sequence[str] = ALWAYS
) -> tuple[list[str], list[str]]:
    """The plan's tests that lie in its tree, and those that lie in this repository.

    Raises:
        PlanError: A test lies in neither.
    """
    in_tree, own = [], list(always)
    for patch in plan.patches:
        for test in patch.tests:
            file = test.split("::", 1)[0]
            if (plan.path / file).exists():
                in_tree.append(test)
            elif (here / file).exists():
                own.append(test)
            else:
                raise PlanError(
                    f"{patch.name} names {file}, which is neither in {plan.path} "
                    f"nor in {here}"
                )
    return in_tree, own


def extensions(plan: Plan, found: Environment) -> list[Path]:
    """Folders that may hold compiled extensions built from the plan's release."""
    folders = list(plan.extensions)
    if found.vllm_folder and found.vllm.split("+")[0] == plan.version:
        folders.append(Path(found.vllm_folder))
    return folders


def run(
    plan: Plan,
    found: Environment,
    here: Path,
    cache: Path,
    args: Sequence[str] = (),
    always: Sequence[str] = ALWAYS,
) -> list[suite.Part]:
    """Runs everything the plan names, one pytest a folder.

    Args:
        found: The interpreter to run in.
        here: This repository's root, or the bundle's.
        cache: A folder for what would else be written into the tree.
        args: More arguments for pytest.
        always: Tests kept here that run for every plan.
    """
    in_tree, own = located(plan, here, always)
    paths = [plan.path, here / "tests/patched", metadata_folder(cache, plan.version)]
    env = environment.variables(found, paths, cache, extensions(plan, found))
    changed = sorted({path for patch in plan.patches for path in patch.changed})
    env["SERIES_HARNESS_CHANGED"] = json.dumps(changed)
    parts = []
    for root, tests in ((plan.path, in_tree), (here, own)):
        for folder, named in suite.groups(tests).items():
            # Upstream's root conftest pulls in half the engine, and more packages.
            beside = folder == "tests" and root == plan.path
            cut = "--noconftest" if beside else f"--confcutdir={root / folder}"
            words = [cut, "-ra", *args, *named]
            print(f"\n{root / folder}", flush=True)
            parts.append(
                suite.run_with_report(folder, found.interpreter, words, root, env)
            )
    return parts
