# SPDX-License-Identifier: Apache-2.0
"""The real series on the real release, where its archive is in the user's cache."""

from pathlib import Path

import pytest

from series import commands
from series.manifest import load_manifest
from series.release import cache_folder
from series.status import look

from .conftest import git, make_clone
from .killing import copy_of
from .test_export import contents

TOML = Path(__file__).parent.parent / "patches" / "series.toml"
# Looked up before a fixture gives the tests an empty HOME.
ARCHIVE = cache_folder() / load_manifest(TOML, check_files=False).pin.sdist.filename

pytestmark = pytest.mark.skipif(
    not ARCHIVE.exists(), reason=f"no {ARCHIVE.name} in the cache: run `make apply`"
)


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The pinned tree with the series, made once."""
    path = tmp_path_factory.mktemp("sdist") / "build"
    commands.apply_own(TOML, path, ARCHIVE, force=False)
    return path


def test_trees_are_the_recorded_ones(build: Path) -> None:
    manifest = load_manifest(TOML)
    tree = build / "vllm"
    assert git(tree, "rev-parse", "v0.32.0^{tree}") == manifest.pin.tree
    if manifest.patch:
        recorded = manifest.series.tree
        assert git(tree, "rev-parse", "HEAD^{tree}") == recorded
    assert git(tree, "status", "--porcelain") == ""
    count = git(tree, "rev-list", "--count", "v0.32.0..HEAD")
    assert int(count) == len(manifest.patch)


def test_a_second_run_has_nothing_to_do(build: Path) -> None:
    assert not commands.apply_own(TOML, build, None, force=False).moved
    assert look(TOML, build, None).sync == "in sync with patches/"


def test_patches_are_canonical(build: Path, tmp_path: Path) -> None:
    folder = copy_of(TOML.parent, tmp_path / "patches")
    done = commands.export(folder / "series.toml", build, None, prune=False)
    assert done.written == ()
    assert contents(folder) == contents(TOML.parent)


def test_plain_git_puts_them_on_as_well(build: Path, tmp_path: Path) -> None:
    manifest = load_manifest(TOML)
    path = make_clone(build / "vllm", tmp_path / "clone", "--depth=1", "-b", "v0.32.0")
    identity = {"GIT_COMMITTER_NAME": "D", "GIT_COMMITTER_EMAIL": "d@e"}
    files = [str(file) for file in manifest.files]
    if files:
        git(path, "am", "-q", "--keep-non-patch", *files, **identity)
    assert git(path, "rev-parse", "HEAD^{tree}") == git(
        build / "vllm", "rev-parse", "rocm-series^{tree}"
    )
