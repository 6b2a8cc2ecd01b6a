# SPDX-License-Identifier: Apache-2.0
from pathlib import Path

import pytest

from series.errors import SeriesError
from series.git import Repository
from series.place import place_series
from series.target import (
    TargetError,
    complete,
    complete_trees,
    find_base,
    local_base,
    local_commit,
    require_sha1,
)

from .conftest import World, commit, git, make_clone, seen_state

TOUCHED = ["vllm/core.py"]


def pin_of(world: World, **changes: str):
    return world.manifest.pin.model_copy(update=changes)


@pytest.fixture
def stale(world: World, tmp_path: Path) -> Path:
    """A clone that was made before the release."""
    path = make_clone(world.upstream, tmp_path / "stale", "--no-tags", "--depth=1")
    git(path, "fetch", "-q", "--unshallow", "--no-tags")
    first = git(path, "rev-list", "--max-parents=0", "HEAD")
    git(path, "reset", "-q", "--hard", first)
    git(path, "update-ref", "-d", "refs/remotes/origin/main")
    git(path, "symbolic-ref", "-d", "refs/remotes/origin/HEAD")
    (path / ".git/FETCH_HEAD").unlink()
    git(path, "reflog", "expire", "--expire=now", "--all")
    git(path, "gc", "-q", "--prune=now")
    with pytest.raises(AssertionError):
        git(path, "cat-file", "-e", world.pin)
    return path


def test_the_pin_is_found_by_its_abbreviated_id(world: World, clone: Path) -> None:
    repo = Repository.find(clone)
    git(clone, "tag", "-d", "v0.32.0")
    assert local_commit(repo, world.pin[:9]) == world.pin
    assert local_base(repo, world.manifest.pin, TOUCHED) == world.pin


def test_a_branch_named_like_the_id_is_not_taken(world: World, clone: Path) -> None:
    git(clone, "branch", world.pin[:12], "main")
    assert local_commit(Repository.find(clone), world.pin[:12]) == world.pin


def test_a_prefix_of_several_commits_is_refused(
    world: World, clone: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    both = [world.pin, git(clone, "rev-parse", "main")]
    # No two commits with nine equal digits can be made here.
    monkeypatch.setattr(Repository, "line", lambda self, *words: "\n".join(both))
    with pytest.raises(TargetError, match="2 commits start with 5df63a720"):
        local_commit(Repository.find(clone), "5df63a720")


def test_id_and_tag_must_agree(world: World, clone: Path) -> None:
    git(clone, "tag", "-f", "v0.32.0", "main")
    with pytest.raises(TargetError, match=r"tag v0\.32\.0 .* not on the pinned"):
        local_base(Repository.find(clone), world.manifest.pin, TOUCHED)


def test_a_tag_on_the_release_tree_is_the_pin(world: World, tmp_path: Path) -> None:
    path = tmp_path / "stand-in"
    git(tmp_path, "clone", "-q", str(world.upstream), str(path))
    git(path, "switch", "-q", "--orphan", "sdist")
    git(path, "checkout", "-q", "v0.32.0", "--", ".")
    made = commit(path, "The release as a tree\n")
    git(path, "tag", "-f", "v0.32.0")
    repo = Repository.find(path)
    pin = pin_of(world, commit="f" * 12)
    assert local_base(repo, pin, TOUCHED) == made != world.pin


def test_the_pin_is_fetched_and_only_it(world: World, stale: Path, said) -> None:
    before = seen_state(stale)
    outcome = place_series(Repository.find(stale), world.manifest, say=said)
    assert outcome.fetched == "origin"
    assert outcome.base == world.pin
    assert any("fetching it from origin" in line for line in said.lines)
    assert seen_state(stale) == before
    assert git(stale, "rev-parse", "rocm-series^{tree}") == world.tree


def test_the_pin_is_fetched_from_the_remote_that_has_it(
    world: World, stale: Path, tmp_path: Path
) -> None:
    fork = tmp_path / "fork"
    git(tmp_path, "init", "-q", str(fork))
    git(stale, "remote", "rename", "origin", "upstream")
    git(stale, "remote", "add", "origin", fork.as_uri())
    outcome = place_series(Repository.find(stale), world.manifest)
    assert outcome.fetched == "upstream"


def test_an_annotated_tag_and_a_server_that_gives_tags_only(
    world: World, stale: Path, tmp_path: Path
) -> None:
    server = tmp_path / "server"
    git(tmp_path, "clone", "-q", "--bare", str(world.upstream), str(server))
    git(server, "-c", "user.name=D", "-c", "user.email=d@e", "tag", "-f", "-a",
        "-m", "release", "v0.32.0", world.pin)  # fmt: skip
    git(server, "config", "uploadpack.allowAnySHA1InWant", "false")
    git(server, "config", "protocol.version", "0")
    git(stale, "config", "protocol.version", "0")
    git(stale, "remote", "set-url", "origin", server.as_uri())
    outcome = place_series(Repository.find(stale), world.manifest)
    assert outcome.base == world.pin


def test_a_shallow_clone_fetches_one_commit(world: World, tmp_path: Path) -> None:
    path = make_clone(world.upstream, tmp_path / "s", "--depth=1", "--no-tags")
    before = git(path, "log", "--format=%H", "--all").splitlines()
    outcome = place_series(Repository.find(path), world.manifest)
    assert outcome.fetched == "origin"
    assert git(path, "log", "--format=%H", "HEAD").splitlines() == before
    assert len(git(path, "log", "--format=%H", "rocm-series").splitlines()) == 4


def test_no_network_is_one_message(world: World, stale: Path) -> None:
    git(stale, "remote", "set-url", "origin", "file:///nowhere/vllm")
    before = seen_state(stale)
    with pytest.raises(TargetError, match="could not be fetched") as caught:
        place_series(Repository.find(stale), world.manifest)
    assert "fetch origin tag v0.32.0" in caught.value.hint
    assert "\n" not in caught.value.what
    assert seen_state(stale) == before


def test_no_remote_is_one_message(world: World, stale: Path) -> None:
    git(stale, "remote", "remove", "origin")
    with pytest.raises(TargetError, match="no remote"):
        place_series(Repository.find(stale), world.manifest)


def test_a_remote_with_another_tag_is_not_taken(
    world: World, stale: Path, tmp_path: Path
) -> None:
    fork = tmp_path / "fork"
    git(tmp_path, "clone", "-q", "--bare", str(world.upstream), str(fork))
    git(fork, "tag", "-f", "v0.32.0", "main")
    git(stale, "remote", "set-url", "origin", fork.as_uri())
    with pytest.raises(TargetError, match=r"its v0\.32\.0 is"):
        place_series(Repository.find(stale), world.manifest)
    assert git(stale, "tag") == ""


def test_another_project_is_not_vllm(world: World, tmp_path: Path) -> None:
    path = tmp_path / "other"
    git(tmp_path, "init", "-q", "-b", "main", str(path))
    (path / "main.c").write_text("int main;\n")
    commit(path, "Other\n")
    for tag in ([], ["tag", "v0.32.0"]):
        if tag:
            git(path, *tag)
        before = seen_state(path)
        with pytest.raises(TargetError, match="is not vLLM"):
            place_series(Repository.find(path), world.manifest)
        assert seen_state(path) == before


def test_an_empty_repository_fetches(world: World, tmp_path: Path) -> None:
    path = tmp_path / "empty"
    git(tmp_path, "init", "-q", str(path))
    git(path, "remote", "add", "origin", world.upstream.as_uri())
    outcome = place_series(Repository.find(path), world.manifest)
    assert outcome.base == world.pin


def test_a_sha256_repository_is_refused(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q", "--object-format=sha256", "s")
    with pytest.raises(TargetError, match="sha1"):
        require_sha1(Repository.find(tmp_path / "s"))


def test_missing_objects_without_a_promisor(world: World, clone: Path) -> None:
    repo = Repository.find(clone)
    complete(repo, [], print)
    with pytest.raises(TargetError, match="missing from"):
        complete(repo, ["1" * 40], print)
    with pytest.raises(SeriesError):
        complete_trees(repo, "1" * 40, print)


def test_the_users_rewritten_urls_are_used(
    world: World, stale: Path, quiet_git: Path
) -> None:
    git(stale, "remote", "set-url", "origin", "file:///hidden/vllm")
    (quiet_git / ".gitconfig").write_text(
        f'[url "{world.upstream.as_uri()}"]\n\tinsteadOf = file:///hidden/vllm\n'
    )
    found = find_base(Repository.find(stale), world.manifest, TOUCHED, print)
    assert found.commit == world.pin
