# SPDX-License-Identifier: Apache-2.0
from pathlib import Path

import pytest

from series.checkout import (
    CheckoutError,
    edited,
    head_branch,
    holders,
    require_quiet,
    under_way,
)
from series.git import Repository

from .conftest import World, git, make_clone
from .test_place import applying, bisecting, merging, picking, rebasing


def test_the_branch_that_is_checked_out(clone: Path) -> None:
    assert head_branch(Repository.find(clone)) == "mine"
    git(clone, "switch", "-q", "--detach")
    assert head_branch(Repository.find(clone)) == ""


@pytest.mark.parametrize(
    ("state", "what"),
    [
        (merging, "a merge"),
        (rebasing, "a rebase"),
        (applying, "an am or a rebase"),
        (picking, "a cherry-pick"),
        (bisecting, "a bisect"),
    ],
)
def test_what_is_under_way(clone: Path, state, what: str) -> None:
    repo = Repository.find(clone)
    assert under_way(repo) == ""
    state(clone)
    assert under_way(repo) == what
    with pytest.raises(CheckoutError, match=f"in the middle of {what}"):
        require_quiet(repo, own=False)


def test_what_is_edited(clone: Path) -> None:
    repo = Repository.find(clone)
    require_quiet(repo, own=False)
    (clone / "untracked").write_text("x")
    assert edited(repo, own=False) == []
    (clone / "vllm/ops.py").unlink()
    (clone / "docs/sp ace.md").write_text("x")
    git(clone, "add", "docs")
    git(clone, "mv", "win.txt", "loss.txt")
    found = ["docs/sp ace.md", "loss.txt", "vllm/ops.py", "win.txt"]
    assert sorted(edited(repo, own=False)) == found
    with pytest.raises(CheckoutError, match="and 1 more") as caught:
        require_quiet(repo, own=False)
    assert "export" not in caught.value.hint
    with pytest.raises(CheckoutError) as caught:
        require_quiet(repo, own=True)
    assert "export" in caught.value.hint


def test_line_ends_of_the_user_count_in_their_tree(
    world: World, tmp_path: Path, quiet_git: Path
) -> None:
    (quiet_git / ".gitconfig").write_text("[core]\n\tautocrlf = true\n")
    path = make_clone(world.upstream, tmp_path / "crlf")
    assert b"\r\n" in (path / "README.md").read_bytes()
    assert edited(Repository.find(path), own=False) == []


def test_the_index_is_not_written(clone: Path) -> None:
    before = (clone / ".git/index").read_bytes()
    (clone / "README.md").touch()
    assert edited(Repository.find(clone), own=False) == []
    assert (clone / ".git/index").read_bytes() == before


def test_who_holds_a_branch(clone: Path) -> None:
    repo = Repository.find(clone)
    assert holders(repo, "mine") == [clone]
    assert holders(repo, "main") == []
    linked = clone.parent / "linked é"
    git(clone, "worktree", "add", "-q", str(linked), "main")
    assert holders(repo, "main") == [linked]
    assert holders(Repository.find(linked), "mine") == [clone]
    editor = "sed -i s/^pick/edit/"
    words = ["-c", f"sequence.editor={editor}", "rebase", "-q", "-i", "HEAD~1"]
    git(linked, *words, GIT_COMMITTER_NAME="D", GIT_COMMITTER_EMAIL="d@e")
    assert head_branch(Repository.find(linked)) == ""
    assert holders(repo, "main") == [linked]


def test_a_worktree_that_is_gone_holds_nothing(clone: Path) -> None:
    linked = clone.parent / "linked"
    git(clone, "worktree", "add", "-q", str(linked), "main")
    linked.rename(clone.parent / "away")
    assert holders(Repository.find(clone), "main") == []


def test_a_bare_repository_cannot_be_switched(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q", "--bare", "bare")
    with pytest.raises(CheckoutError, match="is bare"):
        require_quiet(Repository.find(tmp_path / "bare"), own=False)
