# SPDX-License-Identifier: Apache-2.0
from dataclasses import replace
from pathlib import Path

import pytest

from series.branch import BranchError
from series.checkout import CheckoutError
from series.errors import SeriesError
from series.git import Repository
from series.place import place_series
from series.verify import BaseError, ResultError

from .conftest import (
    SERIES,
    USER,
    World,
    commit,
    git,
    make_clone,
    seen_state,
    subjects,
)

SUBJECTS = [subject for subject, _, _ in SERIES]


def place(world: World, path: Path, **options: bool):
    return place_series(Repository.find(path), world.manifest, **options)


def test_a_clone_gets_the_branch_and_nothing_else(world: World, clone: Path) -> None:
    before = seen_state(clone)
    outcome = place(world, clone)
    assert seen_state(clone) == before
    assert subjects(clone) == SUBJECTS
    assert git(clone, "rev-parse", "rocm-series^{tree}") == world.tree == outcome.tree
    assert outcome.moved
    assert not outcome.switched
    assert [(row.files, row.added, row.removed) for row in outcome.rows] == [
        (2, 4, 0),
        (4, 10, 5),
        (5, 27, 27),
    ]
    authors = git(clone, "log", "--format=%an <%ae> %ad", "-1", "rocm-series")
    assert authors.startswith("Dev Eloper <dev@example.com> Thu Sep 3 10:00:00 2026")


def test_a_second_run_says_so_and_writes_nothing(world: World, clone: Path) -> None:
    first = place(world, clone)
    before = seen_state(clone)
    objects = git(clone, "count-objects", "-v")
    second = place(world, clone)
    assert not second.moved
    assert second.tip == first.tip
    assert seen_state(clone) == before
    assert git(clone, "count-objects", "-v") == objects


def test_commit_ids_do_not_depend_on_the_clone(world: World, tmp_path: Path) -> None:
    tips = set()
    for name in ("one", "two"):
        path = make_clone(world.upstream, tmp_path / name)
        tips.add(place(world, path).tip)
    assert len(tips) == 1


def dirty(path: Path) -> None:
    (path / "README.md").write_text("edited\n")
    (path / "vllm/ops.py").write_text("edited\n")
    git(path, "add", "vllm/ops.py")
    (path / "untracked").write_text("new\n")


def stashed(path: Path) -> None:
    (path / "README.md").write_text("stashed\n")
    git(path, "-c", "user.name=D", "-c", "user.email=d@e", "stash")


def detached(path: Path) -> None:
    git(path, "switch", "-q", "--detach", "main")


def conflicting(path: Path) -> str:
    """A branch whose commit conflicts with what is checked out."""
    git(path, "switch", "-q", "-c", "other", "main")
    (path / "README.md").write_text("other\n")
    commit(path, "Other\n")
    git(path, "switch", "-q", "mine")
    (path / "README.md").write_text("mine\n")
    return commit(path, "Conflict\n")


def fails(path: Path, *args: str) -> None:
    with pytest.raises(AssertionError):
        git(path, "-c", "user.name=D", "-c", "user.email=d@e", *args)


def merging(path: Path) -> None:
    conflicting(path)
    fails(path, "merge", "other")


def rebasing(path: Path) -> None:
    conflicting(path)
    fails(path, "rebase", "other")


def picking(path: Path) -> None:
    conflicting(path)
    fails(path, "cherry-pick", "other")


def applying(path: Path) -> None:
    conflicting(path)
    git(path, "format-patch", "-q", "-1", "other", "-o", ".git")
    fails(path, "am", *map(str, (path / ".git").glob("0001*")))


def bisecting(path: Path) -> None:
    git(path, "bisect", "start", "mine", "v0.32.0~1")


def full_hooks(path: Path) -> None:
    for name in ("reference-transaction", "post-checkout", "pre-commit", "post-commit"):
        hook = path / ".git/hooks" / name
        hook.parent.mkdir(exist_ok=True)
        hook.write_text("#!/bin/sh\necho ran >> ../hooks-ran\nexit 1\n")
        hook.chmod(0o755)


def unborn(path: Path) -> None:
    git(path, "switch", "-q", "--orphan", "empty")


def split_index(path: Path) -> None:
    git(path, "update-index", "--split-index")


def sparse(path: Path) -> None:
    git(path, "sparse-checkout", "set", "docs")


STATES = [
    dirty,
    stashed,
    detached,
    merging,
    rebasing,
    picking,
    applying,
    bisecting,
    full_hooks,
    unborn,
    split_index,
    sparse,
]


@pytest.mark.parametrize("state", STATES)
def test_every_state_of_a_clone_is_left_as_it_was(
    world: World, clone: Path, state
) -> None:
    state(clone)
    before = seen_state(clone)
    outcome = place(world, clone)
    assert seen_state(clone) == before
    assert outcome.tree == world.tree == git(clone, "rev-parse", "rocm-series^{tree}")
    git(clone, "rev-list", "--objects", "rocm-series")


@pytest.mark.parametrize("state", [dirty, merging, rebasing, applying, picking])
def test_switch_is_refused_and_the_branch_is_there(
    world: World, clone: Path, state
) -> None:
    state(clone)
    before = seen_state(clone)
    outcome = place(world, clone, switch=True)
    assert isinstance(outcome.not_switched, CheckoutError)
    assert not outcome.switched
    assert seen_state(clone) == before
    assert subjects(clone) == SUBJECTS


def test_switch_checks_the_branch_out(world: World, clone: Path) -> None:
    outcome = place(world, clone, switch=True)
    assert outcome.switched
    assert git(clone, "symbolic-ref", "HEAD") == "refs/heads/rocm-series"
    assert git(clone, "status", "--porcelain") == ""
    assert "return dot(x, w)" in (clone / "vllm/ops.py").read_text()
    assert (clone / "win.txt").read_bytes() == b"first\r\nzweite\r\nthird\r\n"
    assert git(clone, "for-each-ref", "refs/worktree") == ""
    assert not place(world, clone, switch=True).moved


def test_the_fast_path_is_in_the_second_of_three_alike(
    world: World, clone: Path
) -> None:
    place(world, clone)
    text = git(clone, "show", "rocm-series:vllm/ops.py")
    first, second, third = text.split("def ")[1:4]
    assert "dot(x, w)" in second
    assert "dot(x, w)" not in first + third


def test_bare_shallow_and_blobless_clones(world: World, tmp_path: Path) -> None:
    kinds = {
        "bare": ["--bare"],
        "mirror": ["--mirror"],
        "shallow": ["--depth=1", "--branch=v0.32.0"],
        "shallow-main": ["--depth=2"],
        "blobless": ["--filter=blob:none", "--no-checkout"],
        "treeless": ["--filter=tree:0", "--no-checkout"],
        "bare-blobless": ["--bare", "--filter=blob:none"],
        "reference": ["--shared"],
    }
    tips = set()
    for name, options in kinds.items():
        path = make_clone(world.upstream, tmp_path / name, *options)
        outcome = place(world, path)
        assert git(path, "rev-parse", "rocm-series^{tree}") == world.tree, name
        tips.add(outcome.tip)
        assert outcome.bare == ("bare" in name or name == "mirror")
        assert not place(world, path).moved, name
    assert len(tips) == 1


def test_a_treeless_clone_of_a_mirror_with_a_tag_of_its_own(
    world: World, tmp_path: Path
) -> None:
    mirror = make_clone(world.upstream, tmp_path / "mirror", "--bare")
    git(mirror, "config", "uploadpack.allowFilter", "true")
    git(mirror, "config", "uploadpack.allowAnySHA1InWant", "true")
    tree = git(mirror, "rev-parse", "v0.32.0^{tree}")
    again = git(mirror, "commit-tree", "-m", "mirrored", tree, **USER)
    git(mirror, "update-ref", "refs/tags/v0.32.0", again)
    git(mirror, "update-ref", "refs/heads/main", again)
    options = ["--filter=tree:0", "--no-checkout", "--single-branch", "--branch=main"]
    path = make_clone(mirror, tmp_path / "treeless", *options)
    place(world, path)
    assert git(path, "rev-parse", "rocm-series^{tree}") == world.tree


def test_a_blobless_clone_gets_only_the_touched_blobs(
    world: World, tmp_path: Path
) -> None:
    path = make_clone(
        world.upstream, tmp_path / "b", "--filter=blob:none", "--no-checkout"
    )
    place(world, path)
    there = git(path, "cat-file", "--batch-all-objects", "--batch-check")
    blobs = {line.split()[0] for line in there.splitlines() if " blob " in line}
    untouched = git(world.upstream, "rev-parse", "v0.32.0:docs/sp ace.md")
    touched = git(world.upstream, "rev-parse", "v0.32.0:vllm/core.py")
    assert touched in blobs
    assert untouched not in blobs


def test_a_blobless_clone_without_its_remote(world: World, tmp_path: Path) -> None:
    path = make_clone(
        world.upstream, tmp_path / "b", "--filter=blob:none", "--no-checkout"
    )
    git(path, "remote", "set-url", "origin", "file:///nowhere")
    before = seen_state(path)
    with pytest.raises(SeriesError, match="partial clone") as caught:
        place(world, path)
    assert "network" in caught.value.hint
    assert seen_state(path) == before
    assert git(path, "for-each-ref", "refs/series", "refs/heads/rocm-series") == ""


def test_a_subfolder_and_a_linked_worktree(world: World, clone: Path) -> None:
    linked = clone.parent / "linked"
    git(clone, "worktree", "add", "-q", str(linked), "main")
    before = seen_state(clone)
    assert place(world, clone / "vllm").where == clone
    outcome = place(world, linked)
    assert not outcome.moved
    assert seen_state(clone) == before
    assert place(world, linked, switch=True).switched
    assert git(linked, "symbolic-ref", "HEAD") == "refs/heads/rocm-series"
    assert git(clone, "symbolic-ref", "HEAD") == "refs/heads/mine"


def change_patches(world: World) -> None:
    """Leave the last patch out, as after a pull of this repository."""
    (world.patches / "0003-move-old.patch").unlink()
    text = world.toml.read_text()
    head = text[: text.index('[[patch]]\nfile = "0003')]
    world.toml.write_text(head.replace(world.tree, ""))


def test_changed_patches_are_put_on_again(world: World, clone: Path) -> None:
    first = place(world, clone)
    change_patches(world)
    before = seen_state(clone)
    second = place(world, clone)
    assert second.moved
    assert subjects(clone) == SUBJECTS[:2]
    assert git(clone, "rev-parse", f"{first.tip}~1") == second.tip
    assert seen_state(clone) == before


def test_changed_patches_while_the_branch_is_checked_out(
    world: World, clone: Path
) -> None:
    place(world, clone, switch=True)
    change_patches(world)
    with pytest.raises(BranchError, match="checked out"):
        place(world, clone)
    assert subjects(clone) == SUBJECTS
    outcome = place(world, clone, switch=True)
    assert outcome.moved
    assert subjects(clone) == SUBJECTS[:2]
    assert git(clone, "status", "--porcelain") == ""
    assert git(clone, "symbolic-ref", "HEAD") == "refs/heads/rocm-series"
    assert (clone / "vllm/old.py").exists()


def test_a_branch_checked_out_in_another_worktree(world: World, clone: Path) -> None:
    place(world, clone)
    linked = clone.parent / "linked"
    git(clone, "worktree", "add", "-q", str(linked), "rocm-series")
    assert not place(world, clone).moved
    change_patches(world)
    for switch in (False, True):
        with pytest.raises(BranchError, match="linked"):
            place(world, clone, switch=switch)
    assert subjects(clone) == SUBJECTS


def test_a_branch_that_a_user_is_rebasing(world: World, clone: Path) -> None:
    place(world, clone, switch=True)
    identity = ["-c", "user.name=D", "-c", "user.email=d@e"]
    editor = "sed -i s/^pick/edit/"
    git(clone, *identity, "-c", f"sequence.editor={editor}", "rebase", "-i", "HEAD~1")
    change_patches(world)
    with pytest.raises(BranchError, match="checked out"):
        place(world, clone)


def test_commits_of_the_user_on_the_branch_stay(world: World, clone: Path) -> None:
    place(world, clone, switch=True)
    (clone / "mine.py").write_text("mine = 1\n")
    mine = commit(clone, "My own work\n")
    before = seen_state(clone)
    with pytest.raises(BranchError, match="My own work") as caught:
        place(world, clone, switch=True)
    assert "--force" in caught.value.hint
    assert "export" in caught.value.hint
    assert git(clone, "rev-parse", "rocm-series") == mine
    assert seen_state(clone) == before


def test_force_keeps_what_it_gives_up(world: World, clone: Path) -> None:
    place(world, clone, switch=True)
    (clone / "mine.py").write_text("mine = 1\n")
    mine = commit(clone, "My own work\n")
    git(clone, "switch", "-q", "mine")
    outcome = place(world, clone, force=True)
    assert subjects(clone) == SUBJECTS
    assert [git(clone, "rev-parse", ref) for ref in outcome.saved] == [mine]


def test_an_amended_commit_counts_as_the_users(world: World, clone: Path) -> None:
    place(world, clone, switch=True)
    git(clone, "commit", "-q", "--amend", "-m", "Reworded", **{
        "GIT_COMMITTER_NAME": "D", "GIT_COMMITTER_EMAIL": "d@e"
    })  # fmt: skip
    with pytest.raises(BranchError, match="Reworded"):
        place(world, clone)


def test_a_foreign_branch_of_the_same_name(world: World, clone: Path) -> None:
    git(clone, "branch", "rocm-series", "v0.32.0~1")
    with pytest.raises(BranchError, match="does not stand on the pinned"):
        place(world, clone)
    assert git(clone, "rev-parse", "rocm-series") == git(
        clone, "rev-parse", "v0.32.0~1"
    )


def test_the_same_content_under_other_ids_is_already_applied(
    world: World, clone: Path
) -> None:
    git(clone, "switch", "-q", "-c", "rocm-series", "v0.32.0")
    files = [str(path) for path in world.manifest.files]
    git(clone, "am", "-q", "--keep-non-patch", "--keep-cr", *files, **{
        "GIT_COMMITTER_NAME": "D", "GIT_COMMITTER_EMAIL": "d@e"
    })  # fmt: skip
    tip = git(clone, "rev-parse", "HEAD")
    outcome = place(world, clone)
    assert not outcome.moved
    assert outcome.tip == tip == git(clone, "rev-parse", "rocm-series")


def test_a_wrong_base_names_the_file(world: World, clone: Path) -> None:
    git(clone, "switch", "-q", "--detach", "v0.32.0")
    (clone / "vllm/core.py").write_text("value_1 = 2\n")
    wrong = commit(clone, "Not the release\n")
    git(clone, "switch", "-q", "mine")
    git(clone, "tag", "-d", "v0.32.0")
    pin = world.manifest.pin.model_copy(update={"commit": wrong})
    manifest = world.manifest.model_copy(update={"pin": pin})
    before = seen_state(clone)
    with pytest.raises(BaseError, match=r"vllm/core\.py"):
        place_series(Repository.find(clone), manifest)
    assert seen_state(clone) == before


def test_a_wrong_tree_id_moves_nothing(world: World, clone: Path) -> None:
    text = world.toml.read_text()
    world.toml.write_text(text.replace(world.tree, "a" * 40))
    with pytest.raises(ResultError, match="aaaaaaaaaaaa"):
        place(world, clone)
    assert git(clone, "for-each-ref", "refs/heads/rocm-series", "refs/series") == ""


@pytest.mark.parametrize("symbol", ["absent", "second value"])
def test_a_symbol_that_is_not_there_moves_nothing(
    world: World, clone: Path, symbol: str
) -> None:
    text = world.toml.read_text()
    world.toml.write_text(text.replace('symbol = "fast"', f'symbol = "{symbol}"'))
    with pytest.raises(ResultError, match=f"{symbol}.*0 times"):
        place(world, clone)
    assert git(clone, "for-each-ref", "refs/heads/rocm-series", "refs/series") == ""


def test_at_changes_the_place_alone(world: World, clone: Path) -> None:
    outcome = place(world, clone)
    assert replace(outcome, where=Path("x")) == outcome.at(Path("x"))
