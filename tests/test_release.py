# SPDX-License-Identifier: Apache-2.0
import http.server
import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from series.manifest import Sdist
from series.release import ReleaseError, archive_of, cache_folder, sha256_of

from .conftest import World


class Index(http.server.ThreadingHTTPServer):
    """A package index on this machine, with faults to order."""

    def __init__(self, data: bytes, sdist: Sdist) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.data = data
        self.sdist = sdist
        self.listed_sha256 = sdist.sha256
        self.filename = sdist.filename
        self.ranges = True
        self.cut_at: int | None = None
        self.asked: list[str | None] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/simple/"


class Handler(http.server.BaseHTTPRequestHandler):
    server: Index

    def log_message(self, *words: object) -> None:
        pass

    def do_GET(self) -> None:
        if self.path.startswith("/simple/vllm/"):
            self.page()
        elif self.path.startswith("/files/"):
            self.file()
        else:
            self.send_error(404)

    def page(self) -> None:
        name, digest = self.server.filename, self.server.listed_sha256
        link = f'<a href="/files/{name}#sha256={digest}">{name}</a>'
        body = f"<!DOCTYPE html><html><body>{link}</body></html>".encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def file(self) -> None:
        data, asked = self.server.data, self.headers.get("Range")
        self.server.asked.append(asked)
        start = 0
        if asked and self.server.ranges:
            start = int(asked.removeprefix("bytes=").rstrip("-"))
            self.send_response(206)
        else:
            self.send_response(200)
        self.send_header("Content-Length", str(len(data) - start))
        self.end_headers()
        end = len(data) if self.server.cut_at is None else self.server.cut_at
        self.wfile.write(data[start:end])
        if end != len(data):
            self.connection.shutdown(socket.SHUT_RDWR)


@pytest.fixture
def index(world: World) -> Iterator[Index]:
    server = Index(world.sdist.read_bytes(), world.manifest.pin.sdist)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    """A cache folder of this test."""
    path = tmp_path / "cache"
    path.mkdir()
    return path


def fetch(index: Index, cache: Path, say=print) -> Path:
    return archive_of(index.sdist, cache, say, index=index.url)


def test_it_is_fetched_once_and_then_kept(index: Index, cache: Path, said) -> None:
    path = fetch(index, cache, said)
    assert path.read_bytes() == index.data
    size = f"{index.sdist.size / 1e6:.1f} MB"
    assert any(size in line and index.sdist.filename in line for line in said.lines)
    assert fetch(index, cache) == path
    assert index.asked == [None]
    assert [p.name for p in path.parent.iterdir()] == [index.sdist.filename]


def test_a_damaged_copy_is_fetched_again(index: Index, cache: Path, said) -> None:
    path = fetch(index, cache)
    path.write_bytes(b"x" * index.sdist.size)
    assert fetch(index, cache, said).read_bytes() == index.data
    assert any("damaged" in line for line in said.lines)


@pytest.mark.parametrize("ranges", [True, False])
def test_a_cut_transfer_goes_on(index: Index, cache: Path, ranges: bool) -> None:
    index.ranges, index.cut_at = ranges, 1000
    with pytest.raises(ReleaseError, match="could not be fetched") as caught:
        fetch(index, cache)
    assert "goes on where it stopped" in caught.value.hint
    part = cache / f"{index.sdist.filename}.part"
    assert part.read_bytes() == index.data[: part.stat().st_size]
    index.cut_at = None
    part.write_bytes(index.data[:1000])
    assert fetch(index, cache).read_bytes() == index.data
    assert index.asked[-1] == "bytes=1000-"
    assert not part.exists()


def test_a_part_that_is_too_long_starts_again(index: Index, cache: Path) -> None:
    part = cache / f"{index.sdist.filename}.part"
    part.write_bytes(b"x" * (index.sdist.size + 5))
    assert fetch(index, cache).read_bytes() == index.data
    assert index.asked == [None]


def test_a_wrong_hash_is_refused_and_removed(index: Index, cache: Path) -> None:
    index.data = bytes(reversed(index.data))
    with pytest.raises(ReleaseError, match="the file was removed"):
        fetch(index, cache)
    assert list(cache.iterdir()) == []


def test_a_part_of_another_file_is_refused_and_removed(
    index: Index, cache: Path
) -> None:
    (cache / f"{index.sdist.filename}.part").write_bytes(b"x" * 1000)
    with pytest.raises(ReleaseError, match="the file was removed"):
        fetch(index, cache)
    assert list(cache.iterdir()) == []
    assert fetch(index, cache).read_bytes() == index.data


def test_an_index_with_another_hash(index: Index, cache: Path) -> None:
    index.listed_sha256 = "f" * 64
    with pytest.raises(ReleaseError, match=r"another vllm-0\.32\.0"):
        fetch(index, cache)
    assert index.asked == []


def test_an_index_without_the_file(index: Index, cache: Path) -> None:
    index.filename = "vllm-0.31.0.tar.gz"
    with pytest.raises(ReleaseError, match=r"no vllm-0\.32\.0") as caught:
        fetch(index, cache)
    assert "--archive" in caught.value.hint


def test_no_network_is_one_message(index: Index, cache: Path) -> None:
    index.shutdown()
    index.server_close()
    with pytest.raises(ReleaseError, match="could not be fetched") as caught:
        fetch(index, cache)
    assert "\n" not in caught.value.what
    assert "--archive" in caught.value.hint


def test_no_such_project(index: Index, cache: Path) -> None:
    with pytest.raises(ReleaseError, match="could not be fetched"):
        archive_of(index.sdist, cache, print, index=index.url + "none/")


def test_two_at_once_fetch_once(index: Index, cache: Path) -> None:
    ends: list[bytes] = []

    def work() -> None:
        ends.append(fetch(index, cache).read_bytes())

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert ends == [index.data] * 3
    assert index.asked == [None]


def test_the_index_of_pip_is_used(
    index: Index, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", index.url)
    assert archive_of(index.sdist, cache, print).read_bytes() == index.data


def test_a_given_archive(world: World, cache: Path) -> None:
    sdist = world.manifest.pin.sdist
    assert archive_of(sdist, cache, print, given=world.sdist) == world.sdist
    assert list(cache.iterdir()) == []
    (cache.parent / "other").write_bytes(b"other")
    with pytest.raises(ReleaseError, match="sha256"):
        archive_of(sdist, cache, print, given=cache.parent / "other")
    with pytest.raises(ReleaseError, match="cannot be read"):
        archive_of(sdist, cache, print, given=cache.parent / "none")


def test_a_cache_that_cannot_be_written(world: World, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(ReleaseError, match="cannot be kept") as caught:
        archive_of(world.manifest.pin.sdist, tmp_path / "file/cache", print)
    assert "XDG_CACHE_HOME" in caught.value.hint


def test_a_full_disk(
    index: Index, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(old: object, new: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(ReleaseError, match="No space left"):
        fetch(index, cache)


def test_where_the_cache_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_folder() == tmp_path / ".cache/vllm-series"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "x"))
    assert cache_folder() == tmp_path / "x/vllm-series"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", "")
    assert cache_folder().is_absolute()


def test_sha256_of_a_file(world: World) -> None:
    assert sha256_of(world.sdist) == world.manifest.pin.sdist.sha256
