# SPDX-License-Identifier: Apache-2.0
"""GSM8K's two files, fetched once or given, and never used unless they are the ones."""

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from series.errors import SeriesError
from series.locks import locked
from series.writing import named

Say = Callable[[str], None]
HOME = (
    "https://raw.githubusercontent.com/openai/grade-school-math/master/"
    "grade_school_math/data"
)
_TIMEOUT_S = 60.0


class DataError(SeriesError):
    """The data set cannot be had, or is not the published one."""


@dataclass(frozen=True)
class File:
    """One file of the data set as published: its rows, its size and its digest."""

    name: str
    rows: int
    size: int
    sha256: str


FILES = (
    File(
        "train.jsonl",
        7473,
        4166206,
        "17f347dc51477c50d4efb83959dbb7c56297aba886e5544ee2aaed3024813465",
    ),
    File(
        "test.jsonl",
        1319,
        749738,
        "3730d312f6e3440559ace48831e51066acaca737f6eabec99bccb9e4b3c39d14",
    ),
)


@dataclass(frozen=True)
class Row:
    """A question and its worked answer, whose last line is `#### number`."""

    question: str
    answer: str


def prepare(
    folder: Path,
    say: Say,
    *,
    given: Path | None = None,
    home: str = HOME,
    files: tuple[File, ...] = FILES,
) -> Path:
    """The folder with both files, checked; it has its name only when both are whole.

    Args:
        folder: This project's own place for them.
        say: Called with a line before something that takes time.
        given: A folder that has the files; they are copied, nothing is fetched.
        home: Where they are fetched from.
        files: What they must be.

    Raises:
        DataError: A file is missing, cut off or another one, or cannot be fetched.
    """
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with locked(folder.parent, lambda: say("Another run is fetching: waiting.")):
            if given is None and folder.is_dir():
                try:
                    for file in files:
                        require(_read(folder / file.name), file, folder / file.name)
                    return folder
                except DataError as error:
                    say(f"{error.what} Fetching it again.")
            wanted = _given(given, files) if given else _fetched(home, files, say)
            _keep(wanted, folder)
    except OSError as error:
        raise DataError(
            f"GSM8K cannot be kept in {folder}: {error.strerror or error}.",
            "Make room there; nothing half-written was left.",
        ) from error
    return folder


def require(data: bytes, file: File, where: Path | str) -> None:
    """Refuses bytes that are not the published file, and says in which way.

    Raises:
        DataError: They are not.
    """
    if hashlib.sha256(data).hexdigest() == file.sha256 and data.count(b"\n") in (
        file.rows,
        file.rows - 1,
    ):
        return
    hint = "Take the original file, or leave --data out to fetch it."
    rows = len(data.splitlines())
    if len(data) < file.size:
        what = f"cut off: {len(data)} of {file.size} bytes, {rows} of {file.rows} rows"
    else:
        found = hashlib.sha256(data).hexdigest()
        what = (
            f"another file: {rows} rows, sha256 {found[:16]}…, {file.rows} rows with "
        )
        what += f"{file.sha256[:16]}… are published"
    raise DataError(f"{where} is {what}.", hint)


def rows(path: Path) -> list[Row]:
    """The rows of a checked file, in its order."""
    with path.open(encoding="utf-8") as lines:
        return [Row(**json.loads(line)) for line in lines]


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise DataError(
            f"{path} cannot be read: {error.strerror}.",
            f"The folder must hold {' and '.join(file.name for file in FILES)}.",
        ) from error


def _given(folder: Path, files: tuple[File, ...]) -> dict[str, bytes]:
    found = {}
    for file in files:
        found[file.name] = _read(folder / file.name)
        require(found[file.name], file, folder / file.name)
    return found


def _fetched(home: str, files: tuple[File, ...], say: Say) -> dict[str, bytes]:
    import requests

    found = {}
    for file in files:
        url = f"{home}/{file.name}"
        say(f"fetching {url}: {file.size / 1e6:.1f} MB")
        try:
            reply = requests.get(url, timeout=_TIMEOUT_S)
            reply.raise_for_status()
        except requests.RequestException as error:
            raise DataError(
                f"{url} could not be fetched: {error}.",
                "Run it again with a network, or name a folder that holds "
                f"{' and '.join(file.name for file in files)}: DATA=folder",
            ) from error
        require(reply.content, file, url)
        found[file.name] = reply.content
    return found


def _keep(found: Mapping[str, bytes], folder: Path) -> None:
    aside = Path(tempfile.mkdtemp(prefix=".gsm8k-", dir=folder.parent))
    try:
        for name, data in found.items():
            with named(folder):
                (aside / name).write_bytes(data)
        aside.chmod(0o755)
        if folder.exists():
            shutil.rmtree(folder)
        os.replace(aside, folder)
    finally:
        shutil.rmtree(aside, ignore_errors=True)
