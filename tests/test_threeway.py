# SPDX-License-Identifier: Apache-2.0
"""Single files merged three-way: where hunks land, and what a person must decide."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from series.git import Repository
from series.scratch import Scratch, scratch_over
from series.threeway import merge_patch

from .conftest import commit, git
from .upkeep import OPS

LINES = [f"line {n}\n" for n in range(30)]


class Sides:
    """Three commits: the pin, the pin with a patch, and upstream."""

    def __init__(self, path: Path, scratch: Scratch) -> None:
        self.path = path
        self.scratch = scratch

    def put(self, files: dict[str, str | bytes | None], start: str = "") -> str:
        """A commit with files changed, None for removed."""
        if start:
            git(self.path, "checkout", "-q", "-f", "--detach", start)
        for name, data in files.items():
            file = self.path / name
            file.parent.mkdir(parents=True, exist_ok=True)
            if data is None:
                file.unlink()
            else:
                file.write_bytes(data.encode() if isinstance(data, str) else data)
        return commit(self.path, "x\n")

    def merge(self, base, patched, upstream):
        """The merged files by name, and what each is afterwards."""
        pin = self.put(base)
        after = self.put(patched, pin)
        onto = self.put(upstream, pin)
        files = merge_patch(self.scratch, pin, after, onto)
        return {file.path: file for file in files}

    def text(self, file) -> str:
        """The content that a merge gave."""
        return self.scratch.git("cat-file", "blob", file.result.oid).decode()


@pytest.fixture
def sides(tmp_path: Path) -> Iterator[Sides]:
    """A repository to make sides in."""
    path = tmp_path / "repo"
    path.mkdir()
    git(path, "init", "-q", "-b", "main")
    with scratch_over(Repository.find(path)) as scratch:
        yield Sides(path, scratch)


def changed(*edits: tuple[int, str]) -> str:
    """The lines with some replaced; an empty text removes one."""
    lines = list(LINES)
    for number, text in edits:
        lines[number] = text
    return "".join(lines)


def test_an_untouched_file_takes_the_patch_as_it_is(sides: Sides) -> None:
    new = changed((10, "patch\n"))
    file = sides.merge({"a": changed()}, {"a": new}, {"b": "other\n"})["a"]
    assert sides.text(file) == new
    assert file.offsets == (0,)
    assert not file.nothing_left


def test_lines_above_move_a_hunk(sides: Sides) -> None:
    new = changed((10, "patch\n"), (25, "patch too\n"))
    upstream = "above\nmore\n" + changed((20, ""))
    file = sides.merge({"a": changed()}, {"a": new}, {"a": upstream})["a"]
    assert file.offsets == (2, 1)
    assert sides.text(file).splitlines()[12] == "patch"
    assert not file.clashes


def test_a_look_alike_at_the_old_lines_is_not_taken(sides: Sides) -> None:
    """Upstream removes the first of three equal functions: the third moves there."""
    head, first, second, third = OPS.split("\n\n\n")
    patched = second.replace("y + 1", "y + 2")
    base, new = OPS, "\n\n\n".join([head, first, patched, third])
    upstream = "\n\n\n".join([head, second, third])
    file = sides.merge({"a.py": base}, {"a.py": new}, {"a.py": upstream})["a.py"]
    assert sides.text(file) == "\n\n\n".join([head, patched, third])


def test_what_is_there_already_is_not_done_twice(sides: Sides) -> None:
    new = changed((10, "patch\n"), (25, "patch too\n"))
    upstream = changed((10, "patch\n"))
    file = sides.merge({"a": changed()}, {"a": new}, {"a": upstream})["a"]
    assert sides.text(file) == new
    assert (file.there, file.hunks) == (1, 2)
    whole = sides.merge({"a": changed()}, {"a": new}, {"a": new})["a"]
    assert whole.nothing_left
    assert whole.there == 2


def test_the_same_lines_clash_with_both_sides_and_the_place(sides: Sides) -> None:
    file = sides.merge(
        {"a": changed()}, {"a": changed((10, "patch\n"))}, {"a": changed((10, "up\n"))}
    )["a"]
    [clash] = file.clashes
    assert (clash.path, clash.line) == ("a", 11)
    assert (clash.upstream, clash.patch) == ("up\n", "patch\n")
    marked = sides.text(file)
    assert "<<<<<<< upstream\nup\n||||||| pin\nline 10\n=======\npatch\n" in marked


def test_the_line_of_a_second_clash_counts_without_marks(sides: Sides) -> None:
    mine = changed((5, "patch\nand more\n"), (20, "patch\n"))
    file = sides.merge(
        {"a": changed()}, {"a": mine}, {"a": changed((5, "up\n"), (20, "up\n"))}
    )["a"]
    assert [clash.line for clash in file.clashes] == [6, 21]


@pytest.mark.parametrize(
    ("patched", "upstream", "words"),
    [
        ({"a": changed((1, "x\n"))}, {"a": None}, "upstream has it no more"),
        ({"a": None}, {"a": changed((1, "x\n"))}, "upstream has changed it"),
        ({"b": "mine\n"}, {"b": "theirs\n"}, "upstream has another one"),
    ],
)
def test_whole_files(sides: Sides, patched, upstream, words: str) -> None:
    files = sides.merge({"a": changed(), "z": "z\n"}, patched, upstream)
    [clash] = next(iter(files.values())).clashes
    assert words in clash.reason
    assert clash.line == 0


def test_removed_on_both_sides_leaves_nothing(sides: Sides) -> None:
    file = sides.merge({"a": changed(), "z": "z\n"}, {"a": None}, {"a": None})["a"]
    assert file.nothing_left


@pytest.mark.parametrize("edit", ["", "and a line\n"])
def test_a_file_that_upstream_moved_is_followed(sides: Sides, edit: str) -> None:
    new = changed((10, "patch\n"))
    upstream = {"a/one.py": None, "b/c/one.py": edit + changed(), "b/two.py": "x\n"}
    file = sides.merge({"a/one.py": changed()}, {"a/one.py": new}, upstream)["a/one.py"]
    assert file.onto == "b/c/one.py"
    assert sides.text(file) == edit + new


def test_another_file_of_the_same_name_is_not_followed(sides: Sides) -> None:
    upstream = {"a/one.py": None, "b/one.py": "def other():\n    pass\n"}
    new = changed((10, "patch\n"))
    file = sides.merge({"a/one.py": changed()}, {"a/one.py": new}, upstream)["a/one.py"]
    assert file.onto == "a/one.py"
    assert file.clashes[0].reason.endswith("upstream has it no more")


def test_modes_merge_apart_from_lines(sides: Sides) -> None:
    pin = sides.put({"run.sh": changed()})
    (sides.path / "run.sh").chmod(0o755)
    after = sides.put({}, "")
    onto = sides.put({"run.sh": "more\n" + changed()}, pin)
    [file] = merge_patch(sides.scratch, pin, after, onto)
    assert file.result.mode == "100755"
    assert sides.text(file) == "more\n" + changed()


def test_binaries_do_not_merge(sides: Sides) -> None:
    data = bytes(range(256))
    file = sides.merge({"a": data}, {"a": data + b"p"}, {"a": data + b"u"})["a"]
    assert "binary" in file.clashes[0].reason
    taken = sides.merge({"b": data}, {"b": data + b"p"}, {"c": "c\n"})["b"]
    assert not taken.clashes


def test_line_ends_and_missing_last_ones_are_kept(sides: Sides) -> None:
    base = changed().replace("\n", "\r\n")
    new = changed((10, "patch\n")).replace("\n", "\r\n").removesuffix("\r\n")
    file = sides.merge({"a": base}, {"a": new}, {"a": "up\r\n" + base})["a"]
    assert sides.text(file) == "up\r\n" + new


@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_edits_of_different_lines_always_merge(tmp_path_factory, data) -> None:
    """Patch and upstream each change lines that the other leaves, far apart."""
    taken = data.draw(st.lists(st.integers(0, 9), unique=True, max_size=9))
    mine = {
        n * 3: data.draw(st.sampled_from(["p\n", "", "p\np\n"])) for n in taken[::2]
    }
    yours = {
        n * 3: data.draw(st.sampled_from(["u\n", "", "u\nu\n"])) for n in taken[1::2]
    }
    path = tmp_path_factory.mktemp("sides")
    git(path, "init", "-q", "-b", "main")
    with scratch_over(Repository.find(path)) as scratch:
        sides = Sides(path, scratch)
        files = sides.merge(
            {"a": changed(), "x": "x\n"},
            {"a": changed(*mine.items()), "x": "p\n"},
            {"a": changed(*yours.items()), "y": "u\n"},
        )
        assert sides.text(files["x"]) == "p\n"
        if mine:
            assert not files["a"].clashes
            wanted = changed(*(mine | yours).items())
            assert sides.text(files["a"]) == wanted
