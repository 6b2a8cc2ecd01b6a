# SPDX-License-Identifier: Apache-2.0
from pathlib import Path

import pytest

from series.git import GitError, Repository
from series.scratch import object_folder, scratch_over

from .conftest import World, git


def test_what_is_built_stays_there_until_it_is_given(clone: Path) -> None:
    repo = Repository.find(clone)
    with scratch_over(repo) as scratch:
        data = b"a new blob\n"
        oid = scratch.git("hash-object", "-w", "--stdin", stdin=data).decode().strip()
        assert scratch.has(oid)
        assert scratch.has(git(clone, "rev-parse", "HEAD"))
        assert repo.ask("cat-file", "-e", oid) is None
        scratch.give(repo)
        assert repo.git("cat-file", "blob", oid) == data
        assert scratch.missing([oid, "1" * 40]) == ["1" * 40]
    assert not scratch.gitdir.exists()


def test_nothing_to_give_writes_nothing(clone: Path) -> None:
    repo = Repository.find(clone)
    before = git(clone, "count-objects", "-v")
    with scratch_over(repo) as scratch:
        scratch.give(repo)
    assert git(clone, "count-objects", "-v") == before


def test_history_begins_at_the_base(world: World, clone: Path) -> None:
    repo = Repository.find(clone)
    with scratch_over(repo) as scratch:
        scratch.begin_at(world.pin)
        said = scratch.line("rev-list", git(clone, "rev-parse", "mine"))
    assert said.split()[-1] == world.pin


def test_settings_of_the_repository_are_not_seen(clone: Path) -> None:
    git(clone, "config", "diff.noprefix", "true")
    with scratch_over(Repository.find(clone)) as scratch:
        assert scratch.config("diff.noprefix") is None


def test_objects_of_a_linked_worktree_and_of_alternates(clone: Path) -> None:
    linked = clone.parent / "linked"
    git(clone, "worktree", "add", "-q", str(linked), "main")
    shared = clone.parent / "shared"
    git(clone.parent, "clone", "-q", "-s", str(clone), str(shared))
    for path in (linked, shared):
        repo = Repository.find(path)
        with scratch_over(repo) as scratch:
            assert scratch.has(git(path, "rev-parse", "HEAD"))
    assert object_folder(Repository.find(linked)) == clone / ".git/objects"


def test_a_receiver_that_cannot_be_written(clone: Path) -> None:
    repo = Repository.find(clone)
    with scratch_over(repo) as scratch:
        scratch.git("hash-object", "-w", "--stdin", stdin=b"new\n")
        (clone / ".git/objects").rename(clone / ".git/away")
        (clone / ".git/objects").write_text("no folder\n")
        with pytest.raises(GitError):
            scratch.give(repo)
