# SPDX-License-Identifier: Apache-2.0
"""build/vllm after the pin has moved: the old tree aside, the new one, its tests."""

import subprocess
import sys
from pathlib import Path

from .branch import recorded_tip
from .checkout import edited
from .commands import apply_own
from .errors import SeriesError
from .git import Repository
from .manifest import load_manifest
from .place import Outcome
from .tree import TreeError, tree_at


class RenewError(SeriesError):
    """The old tree holds what is nowhere else, or the new one fails its tests."""


def renew(series: Path, build: Path, old: str) -> Outcome:
    """Make build/vllm for the new pin; the tree of the old one keeps its files.

    Args:
        series: series.toml, with the new pin.
        build: The folder of build/vllm.
        old: The tag of the old pin.

    Raises:
        SeriesError: The old tree has edits or commits that are nowhere else.
    """
    manifest = load_manifest(series)
    path = build / "vllm"
    try:
        tree_at(build, manifest.pin)
    except TreeError:
        repo = Repository(path / ".git", path / ".git", path)
        branch = manifest.series.branch
        tip = repo.resolve(f"refs/heads/{branch}^{{commit}}")
        if edited(repo, own=True) or (tip and tip != recorded_tip(repo, branch)):
            raise RenewError(
                f"{path} has work of the old pin that is nowhere else.",
                f"patches/ is on the new pin. Move {path} away, then: make apply",
            ) from None
        aside = build / f"vllm-{old}"
        if aside.exists():
            raise RenewError(
                f"{aside} is there already.",
                f"patches/ is on the new pin. Remove one of the two, then: make apply "
                f"(the other is {path})",
            ) from None
        path.rename(aside)
    return apply_own(series, build, None, force=False)


def run_tests(root: Path) -> None:
    """Run the tests of the patched tree, as `make test` does.

    Raises:
        RenewError: They fail.
    """
    words = [sys.executable, str(root / "tests" / "run.py"), "--tree-only"]
    code = subprocess.run(words, cwd=root, check=False).returncode
    if code:
        raise RenewError(
            "The patched tree's tests did not pass on the new pin.",
            "The change is in patches/, not committed: correct it, or restore patches/ "
            "from git.",
        )
