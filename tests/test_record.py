# SPDX-License-Identifier: Apache-2.0
"""Records: what ties them to the patches, what is refused, what is stale."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from evals import machine, record
from evals.record import RecordError, Series
from tests.conftest import World, git


@pytest.fixture
def series(world: World) -> Series:
    return record.read_series(world.manifest)


def blob(world: World, file: str) -> str:
    """The id of a file after the whole series, as git gives it."""
    made = world.upstream.parent / "applied"
    if not made.exists():
        git(world.upstream, "worktree", "add", "-q", str(made), world.pin)
        for patch in world.manifest.files:
            git(made, "apply", str(patch))
    return git(made, "hash-object", "--no-filters", str(made / file))


def test_the_series_is_read_from_the_patches_alone(
    world: World, series: Series
) -> None:
    assert list(series.ids) == [path.name for path in world.manifest.files]
    assert all(len(id_) == 40 for id_ in series.ids.values())
    assert len(set(series.ids.values())) == 3
    for file in ("vllm/ops.py", "vllm/core.py", "vllm/dot é.py"):
        if file in series.files:
            assert series.files[file] == blob(world, file)
    # Of a file that two patches touch, the last one counts, and both are named.
    first, second, _ = series.ids
    assert list(series.about({"vllm/ops.py": ""})) == [first, second]
    assert list(series.about({"vllm/core.py": ""})) == [second]
    assert series.base["release"] == "0.32.0"


def test_a_patch_id_outlives_line_numbers_and_words(
    world: World, series: Series
) -> None:
    path = world.manifest.files[0]
    text = path.read_text()
    path.write_text(text.replace("Why, with an", "Because, with an"))
    assert record.read_series(world.manifest).ids == series.ids
    path.write_text(text.replace("dot(x, w)", "dot(w, x)"))
    now = record.read_series(world.manifest).ids
    assert now[path.name] != series.ids[path.name]


def written(world: World, series: Series, results: Path, **more: object) -> dict:
    files = {"vllm/core.py": blob(world, "vllm/core.py")}
    words = {"files": files, "data": {"samples": [1.0, 2.0]}, **more}
    path = record.write(
        "one-h200",
        "gdn",
        ["evals.gdn"],
        {"device": "test"},
        series=series,
        results=results,
        **words,  # type: ignore[arg-type]
    )
    assert path == results / "one-h200.json"
    return record.load("one-h200", results)


def test_a_record_says_what_was_measured_and_of_which_patches(
    world: World, series: Series, tmp_path: Path
) -> None:
    kept = written(world, series, tmp_path)
    second = list(series.ids)[1]
    assert kept["patches"] == {second: series.ids[second]}
    assert kept["data"]["samples"] == [1.0, 2.0]
    assert kept["date"].endswith("+00:00")
    assert record.stale(kept, series) == []
    assert record.load_all(tmp_path) == [kept]


def test_a_file_that_the_series_does_not_have_is_refused(
    world: World, series: Series, tmp_path: Path
) -> None:
    for file, id_ in (("vllm/core.py", "0" * 40), ("vllm/none.py", "1" * 40)):
        with pytest.raises(RecordError, match=file):
            written(world, series, tmp_path, files={file: id_})
    assert list(tmp_path.glob("*.json")) == []


def test_a_record_is_stale_once_its_patch_changed(
    world: World, series: Series, tmp_path: Path
) -> None:
    kept = written(world, series, tmp_path)
    first, second, _ = series.ids
    other = replace(series, ids={**series.ids, first: "f" * 40})
    assert record.stale(kept, other) == []
    changed = replace(series, ids={**series.ids, second: "f" * 40})
    assert record.stale(kept, changed) == [
        f"{second[:4]} has changed",
        "the measured files are the same",
    ]
    files = {**series.files, "vllm/core.py": "f" * 40}
    assert record.stale(kept, replace(changed, files=files)) == [
        f"{second[:4]} has changed"
    ]
    gone = {name: id_ for name, id_ in series.ids.items() if name != second}
    assert f"{second[:4]} is gone" in record.stale(kept, replace(series, ids=gone))
    renamed = {**gone, "0002-another-subject.patch": series.ids[second]}
    assert record.stale(kept, replace(series, ids=renamed)) == []
    moved = replace(series, base={**series.base, "commit": "0" * 40})
    assert record.stale(kept, moved) == ["it is on 0.32.0"]


@pytest.mark.parametrize(
    ("text", "says"),
    [("{", "damaged"), ("{}", "no record"), ('{"name": "other"}', "no record")],
)
def test_a_damaged_record_is_named(text: str, says: str, tmp_path: Path) -> None:
    (tmp_path / "bad.json").write_text(text)
    with pytest.raises(RecordError, match=says):
        record.load("bad", tmp_path)
    with pytest.raises(RecordError, match="no record none"):
        record.load("none", tmp_path)


def test_adding_what_a_bench_wrote(
    world: World, series: Series, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(record, "current", lambda: series)
    monkeypatch.setattr(
        record.write,
        "__kwdefaults__",
        {**(record.write.__kwdefaults__ or {}), "results": tmp_path / "results"},
    )
    raw = tmp_path / "raw.json"
    said = {
        "bench": "gdn",
        "command": ["evals.gdn", "--sweep"],
        "date": "2026-11-30T05:00:00+00:00",
        "machine": {"device": "NVIDIA H200"},
        "sources": {"vllm/core.py": blob(world, "vllm/core.py")},
        "cases": [1],
        "void": [],
    }
    raw.write_text(json.dumps(said))
    record.add("gdn-h200", raw)
    kept = record.load("gdn-h200", tmp_path / "results")
    assert kept["date"] == said["date"]
    assert kept["data"] == {"cases": [1], "void": []}
    raw.write_text(json.dumps({**said, "void": ["port: it launched no kernel"]}))
    with pytest.raises(RecordError, match="void: port"):
        record.add("gdn-h200", raw)
    for text in ("[]", "{}", "no json"):
        raw.write_text(text)
        with pytest.raises(RecordError, match="not what a bench writes"):
            record.add("gdn-h200", raw)
    for wrong in (
        {"sources": [1]},
        {"sources": {"f": 1}},
        {"void": True},
        {"machine": "x"},
        {"command": "evals.gdn"},
        {"date": 1},
        {"bench": None},
    ):
        raw.write_text(json.dumps({**said, **wrong}))
        with pytest.raises(RecordError, match=f"bench writes: {next(iter(wrong))}"):
            record.add("gdn-h200", raw)
    raw.write_bytes(bytes(range(256)))
    with pytest.raises(RecordError, match="bench writes: no text") as caught:
        record.add("gdn-h200", raw)
    assert len(str(caught.value.what)) < 300
    raw.write_text(json.dumps({**said, "bench": "dot"}))
    with pytest.raises(RecordError, match="is a record of gdn, "):
        record.add("gdn-h200", raw)
    assert record.load("gdn-h200", tmp_path / "results") == kept
    raw.write_text(json.dumps(said))
    for name in ("../gdn", "gdn\n", ""):
        with pytest.raises(RecordError, match="is no name"):
            record.add(name, raw)


@pytest.mark.parametrize(
    "wrong", ["5", '{"data": 3}', '{"machine": "x"}', '{"date": null}']
)
def test_a_record_that_holds_something_else_is_refused(
    wrong: str, world: World, series: Series, tmp_path: Path
) -> None:
    said = json.loads(wrong)
    whole = written(world, series, tmp_path)
    path = tmp_path / f"{whole['name']}.json"
    path.write_text(json.dumps({**whole, **said} if isinstance(said, dict) else said))
    with pytest.raises(RecordError, match="is no record"):
        record.load(whole["name"], tmp_path)


def test_a_record_names_no_folder_of_the_machine(
    world: World, series: Series, tmp_path: Path
) -> None:
    words = ["evals.gdn", "--json", "/data/out/gdn.json", "--op=/data/op.so", "--n=1"]
    data = {"plan": {"arms": {"on": ["/usr/bin/python3", "arm.py"]}}, "us": [1.5]}
    path = record.write(
        "one",
        "gdn",
        words,
        {"device": "test"},
        {},
        data,
        series=series,
        results=tmp_path,
    )
    kept = json.loads(path.read_text())
    assert kept["command"] == ["evals.gdn", "--json", "gdn.json", "--op=op.so", "--n=1"]
    assert kept["data"] == {
        "plan": {"arms": {"on": ["python3", "arm.py"]}},
        "us": [1.5],
    }


def test_blob_ids_are_gits(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"line\r\n\0end")
    git(tmp_path, "init", "-q")
    expected = git(tmp_path, "hash-object", "--no-filters", "a.txt")
    assert machine.blobs(tmp_path, ["a.txt", "none"]) == {"a.txt": expected}


def test_this_repositorys_records_are_whole() -> None:
    """Every record loads, and says whether it is stale, without an error."""
    series = record.current()
    for kept in record.load_all():
        assert isinstance(record.stale(kept, series), list)
        assert kept["command"]
        assert machine.portable(kept) == kept
