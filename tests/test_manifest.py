# SPDX-License-Identifier: Apache-2.0
import datetime
from pathlib import Path

import pytest

from series.manifest import ManifestError, load_manifest

from .conftest import World

REAL = Path(__file__).parent.parent / "patches" / "series.toml"


def test_everything_is_read(world: World) -> None:
    manifest = world.manifest
    assert manifest.pin.commit == world.pin[:12]
    assert manifest.pin.generated == ["PKG-INFO", "vllm.egg-info", "vllm/_version.py"]
    assert manifest.pin.sdist.size == world.sdist.stat().st_size
    assert manifest.series.branch == "rocm-series"
    assert manifest.change_set[0].upstream.since == datetime.date(2026, 9, 1)
    assert manifest.change_set[0].related[0].how == "disjoint"
    first, second, third = manifest.patch
    assert first.drop_when is not None
    assert first.drop_when.symbol == "dot"
    assert [symbol.symbol for symbol in second.symbols] == ["fast", "value_50 = 'é'"]
    assert third.tests == []
    assert [file.name for file in manifest.files] == [
        "0001-fast-path.patch",
        "0002-rework-core.patch",
        "0003-move-old.patch",
    ]


def test_the_series_of_this_repository_is_right() -> None:
    manifest = load_manifest(REAL)
    assert manifest.pin.tag == "v0.32.0"
    assert manifest.pin.sdist.filename == "vllm-0.32.0.tar.gz"


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('purpose = "Takes', 'porpoise = "Takes', r"1 \(0001.*porpoise.*not permitted"),
        ("[series]", "[serious]", r"\[serious\]"),
        ('release = "0.32.0"', "release = 32", r"\[pin\] release.*string"),
        ('release = "0.32.0"', "", r"\[pin\] release: Field required"),
        ("size = ", 'size = "1" #', r"\[pin\] sdist\.size.*integer"),
        ("size = ", "size = -1 #", r"sdist\.size.*greater"),
        ('sha256 = "', 'sha256 = "x', r"sdist\.sha256.*match"),
        ('state = "not submitted"', 'state = "ajar"', r"0002.* upstream\.state"),
        ('file = "0003', 'file = "0002', "0002-move-old.*not 0003"),
        ('file = "0001-fast', 'file = "../0001-fast', "not 0001"),
        ('file = "0001-fast-path', 'file = "0001-no', "0001-no.* is not in"),
        ('"[Core] Move', '"[ROCm][Perf] Add the fast path [x]" #', "twice"),
        ('series = "tiny-dot"', 'series = "other"', r"no \[\[change_set\]\] is named"),
        ('{ file = "vllm/ops.py"', '{ file = "../ops.py"', "inside the tree"),
        ('{ file = "vllm/ops.py"', '{ file = "/ops.py"', "inside the tree"),
        ('symbol = "fast"', 'symbol = ""', "symbols.0.symbol"),
        ('branch = "rocm-series"', 'branch = "-x"', "branch.*match"),
        ('branch = "rocm-series"', 'branch = "a/../b"', "branch.*match"),
        ("[pin]", "[pin", "is no TOML"),
        ('tree = "', 'tree = "z', r"\[pin\] tree"),
        ("date = 2026-10-18T09:36:00Z", 'date = "now"', r"\[pin\] date"),
    ],
)  # fmt: skip
def test_one_message_names_the_place(
    world: World, old: str, new: str, words: str
) -> None:
    text = world.toml.read_text()
    assert old in text
    world.toml.write_text(text.replace(old, new, 1))
    with pytest.raises(ManifestError, match=words) as caught:
        load_manifest(world.toml)
    assert "series.toml" in caught.value.what
    assert "\n" not in caught.value.what


def test_a_change_set_twice(world: World) -> None:
    text = world.toml.read_text()
    start = text.index("[[change_set]]")
    end = text.index("[[patch]]")
    world.toml.write_text(text[:end] + text[start:end] + text[end:])
    with pytest.raises(ManifestError, match=r"\[\[change_set\]\] tiny-dot .* twice"):
        load_manifest(world.toml)


def test_files_and_tables_must_be_the_same(world: World) -> None:
    (world.patches / "0004-extra.patch").write_text("")
    with pytest.raises(ManifestError, match=r"0004-extra\.patch .* no \[\[patch\]\]"):
        load_manifest(world.toml)
    (world.patches / "0004-extra.patch").unlink()
    (world.patches / "0002-rework-core.patch").unlink()
    with pytest.raises(ManifestError, match=r"0002-rework-core\.patch is listed"):
        load_manifest(world.toml)
    assert len(load_manifest(world.toml, check_files=False).patch) == 3


def test_a_file_that_is_not_there_or_no_text(tmp_path: Path) -> None:
    with pytest.raises(ManifestError, match="cannot be read"):
        load_manifest(tmp_path / "series.toml")
    (tmp_path / "series.toml").write_bytes(b"\xff")
    with pytest.raises(ManifestError, match="cannot be read"):
        load_manifest(tmp_path / "series.toml")
