# SPDX-License-Identifier: Apache-2.0
from pathlib import Path

from series import commands
from series.release import cache_folder
from series.status import look

from .conftest import World, commit, git, make_clone, seen_state
from .test_place import change_patches, merging, place


def test_before_anything_is_done(world: World, tmp_path: Path) -> None:
    facts = look(world.toml, tmp_path / "build", None)
    assert facts.pin == f"v0.32.0 ({world.pin[:12]})"
    assert facts.patches.startswith("3 in ")
    assert facts.archive == f"not in {cache_folder()}"
    assert "not made yet" in facts.tree
    assert facts.sync == "not applied"
    assert not (tmp_path / "build").exists()


def test_the_pinned_tree(world: World, tmp_path: Path) -> None:
    outcome = commands.apply_own(world.toml, tmp_path, world.sdist, force=False)
    facts = look(world.toml, tmp_path, None)
    assert facts.tree == f"{tmp_path / 'vllm'}, on rocm-series"
    assert facts.branch == f"rocm-series at {outcome.tip[:12]}"
    assert facts.sync == "in sync with patches/"
    (tmp_path / "vllm/README.md").write_text("edited\n")
    assert "1 files edited" in look(world.toml, tmp_path, None).tree


def test_a_clone_through_its_life(world: World, clone: Path, tmp_path: Path) -> None:
    build = tmp_path / "build"

    def sync() -> str:
        before = seen_state(clone), git(clone, "for-each-ref")
        found = look(world.toml, build, clone).sync
        assert (seen_state(clone), git(clone, "for-each-ref")) == before
        return found

    assert sync() == "not applied"
    place(world, clone, switch=True)
    assert sync() == "in sync with patches/"
    (clone / "more").write_text("more\n")
    commit(clone, "More\n")
    assert "export" in sync()
    git(clone, "reset", "-q", "--hard", "HEAD~1")
    change_patches(world)
    assert "patches/ changed since" in sync()
    git(clone, "reset", "-q", "--hard", "v0.32.0~1")
    assert "does not stand on the pinned" in sync()
    git(clone, "tag", "-d", "v0.32.0")
    text = world.toml.read_text().replace(world.pin[:12], "f" * 12)
    world.toml.write_text(text)
    assert sync() == "the pinned commit is not here"


def test_a_clone_in_the_middle_of_something(world: World, clone: Path) -> None:
    merging(clone)
    assert "in the middle of a merge" in look(world.toml, clone, clone).tree
    git(clone, "merge", "--abort")
    git(clone, "switch", "-q", "--detach")
    assert "detached HEAD" in look(world.toml, clone, clone).tree


def test_something_else_in_place_of_the_tree(world: World, tmp_path: Path) -> None:
    (tmp_path / "vllm").mkdir()
    facts = look(world.toml, tmp_path, None)
    assert "is not a tree that" in facts.tree
    assert facts.sync == "not applied"


def test_bare_and_blobless(world: World, tmp_path: Path) -> None:
    bare = make_clone(world.upstream, tmp_path / "bare", "--bare")
    assert "(bare)" in look(world.toml, tmp_path, bare).tree
    lean = make_clone(
        world.upstream, tmp_path / "lean", "--filter=blob:none", "--no-checkout"
    )
    git(lean, "branch", "-q", "rocm-series", "v0.32.0")
    assert "unknown: blobs are missing" in look(world.toml, tmp_path, lean).sync
