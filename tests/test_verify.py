# SPDX-License-Identifier: Apache-2.0
from dataclasses import replace
from pathlib import Path

import pytest

from series.errors import Exit
from series.git import Repository
from series.mail import ABSENT, Change, Mail, read_mail
from series.manifest import Symbol
from series.scratch import scratch_over
from series.stack import build_stack, read_commits
from series.verify import (
    BaseError,
    ResultError,
    blob_ids,
    count_symbol,
    first_images,
    require_base,
    require_images,
    require_result,
)

from .conftest import World, git


@pytest.fixture
def scratch(world: World, clone: Path):
    with scratch_over(Repository.find(clone)) as made:
        made.begin_at(world.pin)
        yield made


def mail(name: str, *changes: tuple[str, str, str]) -> Mail:
    made = tuple(Change(path, pre * 40, post * 40) for path, pre, post in changes)
    paths = tuple(change.path for change in made)
    return Mail(name, ("A", "a@b"), "", "Subject\n", b"", made, paths)


def test_first_images_are_those_of_the_first_patch() -> None:
    mails = [mail("1", ("x", "a", "b"), ("y", "0", "c")), mail("2", ("x", "b", "d"))]
    assert first_images(mails) == {"x": ("a" * 40, "1"), "y": (ABSENT, "1")}


def test_patches_must_follow_on() -> None:
    with pytest.raises(BaseError, match="2 was not made on the patches before it: x"):
        first_images([mail("1", ("x", "a", "b")), mail("2", ("x", "a", "c"))])


@pytest.mark.parametrize(
    ("path", "pre", "words"),
    [
        ("vllm/ops.py", "a", r"vllm/ops\.py is [0-9a-f]{12} in the base; p needs aaa"),
        ("vllm/ops.py", "0", r"vllm/ops\.py exists in the base, and p adds it"),
        ("vllm/none.py", "a", r"vllm/none\.py is not in the base"),
    ],
)
def test_a_wrong_base_names_the_file(
    world: World, scratch, path: str, pre: str, words: str
) -> None:
    with pytest.raises(BaseError, match=words) as caught:
        require_base(scratch, world.pin, [mail("p", (path, pre, "b"))])
    assert caught.value.code == Exit.CONFLICT


def test_the_pin_is_the_right_base(world: World, scratch) -> None:
    mails = [read_mail(scratch, path) for path in world.manifest.files]
    require_base(scratch, world.pin, mails)
    with pytest.raises(BaseError):
        require_base(scratch, git(world.upstream, "rev-parse", "v0.32.0~1"), mails)


def test_blob_ids_of_odd_names(world: World, scratch) -> None:
    found = blob_ids(scratch, world.pin, ["docs/sp ace.md", "none", "vllm/core.py"])
    assert found["docs/sp ace.md"] == git(
        world.upstream, "rev-parse", "v0.32.0:docs/sp ace.md"
    )
    assert set(found) == {"docs/sp ace.md", "vllm/core.py"}
    assert blob_ids(scratch, world.pin, []) == {}


@pytest.fixture
def built(world: World, scratch):
    mails = [read_mail(scratch, path) for path in world.manifest.files]
    tips = build_stack(scratch, world.pin, mails)
    return mails, read_commits(scratch, world.pin, tips[-1])


def test_the_right_result_passes(world: World, scratch, built) -> None:
    mails, commits = built
    require_result(scratch, world.manifest, world.pin, commits)
    require_images(scratch, world.pin, commits[-1].oid, mails)


def test_wrong_results(world: World, scratch, built) -> None:
    mails, commits = built
    manifest = world.manifest
    with pytest.raises(ResultError, match="2 commits were built from 3 patches"):
        require_result(scratch, manifest, world.pin, commits[:2])
    swapped = [replace(c, message=f"Other {n}\n") for n, c in enumerate(commits)]
    with pytest.raises(ResultError, match="has the subject 'Other 0'"):
        require_result(scratch, manifest, world.pin, swapped)
    with pytest.raises(ResultError, match="empty"):
        require_images(scratch, world.pin, commits[1].oid, mails)
    with pytest.raises(ResultError, match=r"vllm/dot é\.py"):
        require_images(scratch, world.pin, commits[-1].oid, mails[1:])


def test_another_tree_than_recorded(world: World, scratch, built) -> None:
    _, commits = built
    series = world.manifest.series.model_copy(update={"tree": "c" * 40})
    manifest = world.manifest.model_copy(update={"series": series})
    with pytest.raises(ResultError, match="cccccccccccc"):
        require_result(scratch, manifest, world.pin, commits)
    pin = manifest.pin.model_copy(update={"tree": "d" * 40})
    elsewhere = manifest.model_copy(update={"pin": pin})
    require_result(scratch, elsewhere, world.pin, commits)


@pytest.mark.parametrize(
    ("text", "symbol", "times"),
    [
        ("def dot(x):\n    return dot(x)\n", "dot", 1),
        ("class dot:\n  def dot(self): ...\n", "dot", 2),
        ("    async def dot():\n", "dot", 1),
        ("dot = 1\ndot == 2\n", "dot", 1),
        ("dot: int = 1\n", "dot", 1),
        ("def dotted(): ...\ndots = 1\nx.dot = 1\n", "dot", 0),
        ("# def dot\n'dot'\n", "dot", 0),
        ("if m == 1 and n == 1:\n", "m == 1 and n == 1", 1),
    ],
)
def test_symbols_are_counted_by_definition(text: str, symbol: str, times: int) -> None:
    assert count_symbol(text, Symbol(file="a.py", symbol=symbol)) == times


def test_in_other_files_the_text_is_counted() -> None:
    text = "- tests/a.py\n- tests/a.py\n"
    assert count_symbol(text, Symbol(file="a.yaml", symbol="tests/a.py")) == 2
    assert count_symbol("key", Symbol(file="a.yaml", symbol="key")) == 1


def test_a_symbol_in_a_file_that_is_gone(world: World, scratch, built) -> None:
    _, commits = built
    gone = Symbol(file="vllm/old.py", symbol="f1")
    patch = world.manifest.patch[0].model_copy(update={"symbols": [gone]})
    manifest = world.manifest.model_copy(
        update={"patch": [patch, *world.manifest.patch[1:]]}
    )
    with pytest.raises(ResultError, match=r"vllm/old\.py, which .* does not have"):
        require_result(scratch, manifest, world.pin, commits)
