# SPDX-License-Identifier: Apache-2.0
import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from series.manifest import Manifest, ManifestError, Patch
from series.tables import Entry, match_entries, new_text

from .conftest import World


def patch(number: int, title: str) -> Patch:
    return Patch.model_validate(
        {
            "file": f"{number:04}-{title}.patch",
            "title": title,
            "purpose": "p",
            "series": "s",
            "upstream": {"state": "open"},
        }
    )


def matched(titles: list[str], subjects: list[str]):
    patches = [patch(n, title) for n, title in enumerate(titles, 1)]
    names = [f"{n:04}-new-{s}.patch" for n, s in enumerate(subjects, 1)]
    entries, gone = match_entries(patches, subjects, names)
    rows = [(e.file, e.known.title if e.known else None) for e in entries]
    return rows, [table.title for table in gone]


def test_the_same_commits_keep_their_files() -> None:
    assert matched(["a", "b"], ["a", "b"]) == (
        [("0001-a.patch", "a"), ("0002-b.patch", "b")],
        [],
    )


def test_a_new_commit_in_between() -> None:
    assert matched(["a", "b"], ["a", "n", "b"]) == (
        [("0001-a.patch", "a"), ("0002-new-n.patch", None), ("0003-b.patch", "b")],
        [],
    )


def test_a_dropped_commit() -> None:
    assert matched(["a", "b", "c"], ["a", "c"]) == (
        [("0001-a.patch", "a"), ("0002-c.patch", "c")],
        ["b"],
    )


def test_swapped_commits() -> None:
    assert matched(["a", "b"], ["b", "a"]) == (
        [("0001-b.patch", "b"), ("0002-a.patch", "a")],
        [],
    )


def test_a_reworded_commit() -> None:
    assert matched(["a", "b"], ["a", "z"]) == (
        [("0001-a.patch", "a"), ("0002-new-z.patch", "b")],
        [],
    )


def test_a_name_that_git_has_cut_ends_well() -> None:
    entries, _ = match_entries([], ["x"], ["0001-a-long-subject-.patch"])
    assert entries[0].file == "0001-a-long-subject.patch"


@given(
    st.lists(st.sampled_from("abcdefg"), unique=True),
    st.lists(st.sampled_from("abcdefg"), unique=True),
)
def test_no_table_is_lost_or_used_twice(titles: list[str], subjects: list[str]) -> None:
    rows, gone = matched(titles, subjects)
    used = [known for _, known in rows if known]
    assert sorted(used + gone) == sorted(titles)
    assert [file[:4] for file, _ in rows] == [
        f"{n:04}" for n in range(1, len(subjects) + 1)
    ]
    assert len({file for file, _ in rows}) == len(rows)


def rewritten(world: World, order: list[int], tree: str) -> str:
    manifest = world.manifest
    entries = []
    for number, index in enumerate(order, 1):
        known = manifest.patch[index]
        entries.append(Entry(f"{number:04}{known.file[4:]}", known.title, known))
    return new_text(world.toml.read_text(), manifest, entries, tree)


def test_nothing_to_change_changes_nothing(world: World) -> None:
    assert rewritten(world, [0, 1, 2], world.tree) == world.toml.read_text()


def test_the_tree_alone(world: World) -> None:
    text = world.toml.read_text()
    new = rewritten(world, [0, 1, 2], "e" * 40)
    assert new == text.replace(world.tree, "e" * 40)


@pytest.mark.parametrize("order", [[2, 1, 0], [1], [], [0, 2]])
def test_tables_move_whole(world: World, order: list[int]) -> None:
    old = tomllib.loads(world.toml.read_text())
    new = rewritten(world, order, "")
    data = tomllib.loads(new)
    assert data["series"]["tree"] == ""
    for table, index in zip(data.get("patch", []), order, strict=True):
        before = dict(old["patch"][index])
        del before["file"], table["file"]
        assert table == before
    assert new.startswith("# A comment that stays.\n[pin]\n")
    assert ("[[patch]] # the first" in new) == (0 in order)
    assert ("# a comment inside" in new) == (1 in order)
    assert "\n\n\n" not in new


def test_tables_after_the_patches_and_sub_tables(world: World) -> None:
    text = world.toml.read_text()
    sub = '\n[[patch.symbols]]\nfile = "vllm/new.py"\nsymbol = "f1"\n'
    moved = text.index("[[change_set]]"), text.index("[[patch]]")
    last = text[moved[0] : moved[1]]
    world.toml.write_text(text[: moved[0]] + text[moved[1] :] + sub + "\n" + last)
    new = rewritten(world, [2, 0], "")
    data = tomllib.loads(new)
    assert data["patch"][0]["symbols"] == [{"file": "vllm/new.py", "symbol": "f1"}]
    assert data["change_set"][0]["name"] == "tiny-dot"
    assert new.endswith(last)


def test_a_new_table_reads_as_what_it_is(world: World) -> None:
    manifest = world.manifest
    title = 'A "quoted" é \\ title'
    entries = [Entry("0001-x.patch", title, None)]
    new = new_text(world.toml.read_text(), manifest, entries, "")
    data = tomllib.loads(new) | {"path": world.toml}
    assert Manifest.model_validate(data).patch[0].title == title


def test_a_layout_that_cannot_be_changed_is_refused(world: World) -> None:
    lines = ["[series]", 'branch = "rocm-series"']
    lines += [f'tree = "{world.tree}" # of all patches', ""]
    section = "\n".join(lines)
    text = world.toml.read_text()
    assert section in text
    inline = 'series = { branch = "rocm-series", tree = "" }\n'
    world.toml.write_text(inline + text.replace(section, ""))
    with pytest.raises(ManifestError, match="cannot be updated"):
        rewritten(world, [0, 1, 2], "e" * 40)
