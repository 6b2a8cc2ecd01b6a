# SPDX-License-Identifier: Apache-2.0
"""GSM8K: the published files or none, from a folder or from a server."""

import hashlib
import json
import os
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from evals import gsm8k_data
from evals.gsm8k_data import DataError, File, prepare, rows


def made(folder: Path) -> tuple[File, ...]:
    """Two small files, and what they are."""
    folder.mkdir()
    found = []
    for name, count in (("train.jsonl", 7), ("test.jsonl", 3)):
        lines = [
            json.dumps({"question": f"{n} + 1 + é?", "answer": f"so\n#### {n + 1}"})
            for n in range(count)
        ]
        data = ("\n".join(lines) + "\n").encode()
        (folder / name).write_bytes(data)
        digest = hashlib.sha256(data).hexdigest()
        found.append(File(name, count, len(data), digest))
    return tuple(found)


@pytest.fixture
def files(tmp_path: Path) -> tuple[File, ...]:
    return made(tmp_path / "home")


@pytest.fixture
def server(tmp_path: Path, files: tuple[File, ...]) -> Iterator[tuple[str, list[str]]]:
    """A home of the files, and the paths that were asked of it."""
    asked: list[str] = []

    class Handler(SimpleHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None:
            asked.append(str(args[0]))

    handler = partial(Handler, directory=str(tmp_path / "home"))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as found:
        threading.Thread(target=found.serve_forever, args=(0.02,), daemon=True).start()
        yield f"http://127.0.0.1:{found.server_port}", asked
        found.shutdown()


def test_they_are_fetched_once(
    tmp_path: Path, files: tuple[File, ...], server: tuple[str, list[str]]
) -> None:
    home, asked = server
    said: list[str] = []
    folder = prepare(tmp_path / "data/gsm8k", said.append, home=home, files=files)
    assert len(asked) == 2
    assert len(said) == 2
    assert prepare(tmp_path / "data/gsm8k", said.append, home=home, files=files)
    assert len(asked) == 2
    found = rows(folder / "test.jsonl")
    assert [row.question for row in found] == ["0 + 1 + é?", "1 + 1 + é?", "2 + 1 + é?"]
    assert found[2].answer == "so\n#### 3"
    assert os.listdir(tmp_path / "data") == ["gsm8k"]


def test_what_was_damaged_since_is_fetched_again(
    tmp_path: Path, files: tuple[File, ...], server: tuple[str, list[str]]
) -> None:
    home, _ = server
    said: list[str] = []
    folder = prepare(tmp_path / "data/gsm8k", said.append, home=home, files=files)
    whole = (folder / "test.jsonl").read_bytes()
    (folder / "test.jsonl").write_bytes(whole[:-9])
    prepare(folder, said.append, home=home, files=files)
    assert (folder / "test.jsonl").read_bytes() == whole
    assert "cut off" in "".join(said)


@pytest.mark.parametrize("name", ["train.jsonl", "test.jsonl"])
@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda data: data[:-20], "cut off"),
        (lambda data: b"", "cut off: 0 of"),
        (lambda data: data.replace(b"#### 2", b"#### 3"), "another file"),
        (lambda data: b"<html>" + b"x" * 4000, "another file"),
        (lambda data: data + data, "another file"),
    ],
)
def test_another_file_is_refused_and_leaves_nothing(
    tmp_path: Path,
    files: tuple[File, ...],
    server: tuple[str, list[str]],
    name: str,
    change: object,
    words: str,
) -> None:
    path = tmp_path / "home" / name
    path.write_bytes(change(path.read_bytes()))  # type: ignore[operator]
    for given in (tmp_path / "home", None):
        with pytest.raises(DataError, match=words) as error:
            prepare(
                tmp_path / "data/gsm8k",
                lambda line: None,
                given=given,
                home=server[0],
                files=files,
            )
        assert name in error.value.what
        assert os.listdir(tmp_path / "data") == []


def test_a_folder_of_the_users_is_copied_and_nothing_is_fetched(
    tmp_path: Path, files: tuple[File, ...], server: tuple[str, list[str]]
) -> None:
    folder = tmp_path / "data/gsm8k"
    prepare(folder, print, given=tmp_path / "home", home=server[0], files=files)
    assert sorted(os.listdir(folder)) == ["test.jsonl", "train.jsonl"]
    assert server[1] == []


def test_a_folder_given_wrongly_is_refused_though_there_is_a_good_copy(
    tmp_path: Path, files: tuple[File, ...]
) -> None:
    folder = tmp_path / "data/gsm8k"
    prepare(folder, print, given=tmp_path / "home", files=files)
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match=r"train\.jsonl cannot be read: No such file"):
        prepare(folder, print, given=tmp_path / "empty", files=files)
    assert len(os.listdir(folder)) == 2


def test_without_a_network_it_says_what_to_do(
    tmp_path: Path, files: tuple[File, ...]
) -> None:
    with pytest.raises(DataError, match="could not be fetched") as error:
        prepare(tmp_path / "d/gsm8k", print, home="http://127.0.0.1:9", files=files)
    assert "DATA=folder" in error.value.hint
    assert os.listdir(tmp_path / "d") == []


def test_a_home_that_lacks_the_file(
    tmp_path: Path, files: tuple[File, ...], server: tuple[str, list[str]]
) -> None:
    (tmp_path / "home/test.jsonl").unlink()
    with pytest.raises(DataError, match="404"):
        prepare(tmp_path / "d/gsm8k", print, home=server[0], files=files)
    assert os.listdir(tmp_path / "d") == []


def test_the_published_files_are_the_ones_known() -> None:
    known = {file.name: (file.rows, file.size) for file in gsm8k_data.FILES}
    assert known == {"train.jsonl": (7473, 4166206), "test.jsonl": (1319, 749738)}
    assert all(len(file.sha256) == 64 for file in gsm8k_data.FILES)


@pytest.mark.skipif(
    "GSM8K_DATA" not in os.environ,
    reason="GSM8K_DATA names no folder of the real files",
)
def test_the_real_files(tmp_path: Path) -> None:
    given = Path(os.environ["GSM8K_DATA"])
    folder = prepare(tmp_path / "d/gsm8k", print, given=given)
    assert len(rows(folder / "train.jsonl")) == 7473
    found = rows(folder / "test.jsonl")
    assert len(found) == 1319
    from evals.extract import answer

    assert all(answer(row.answer) is not None for row in found)
    assert answer(found[0].answer) == 18
