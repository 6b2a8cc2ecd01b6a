# SPDX-License-Identifier: Apache-2.0
"""One patch file: who wrote it, what it says, and which blobs it takes where."""

import codecs
import re
from dataclasses import dataclass
from pathlib import Path

from .disk import cut_off
from .errors import SeriesError
from .git import GitError
from .scratch import Scratch

ABSENT = "0" * 40
_HEAD = re.compile(rb"^diff --git (?P<names>.+)$")
_INDEX = re.compile(rb"^index (?P<pre>[0-9a-f]+)\.\.(?P<post>[0-9a-f]+)")
_HUNK = re.compile(rb"^@@ -\d+(?:,(\d+))? \+\d+(?:,(\d+))? @@")


class PatchError(SeriesError):
    """A patch file does not hold what it should."""


@dataclass(frozen=True)
class Change:
    """What a patch does to one file, by blob ids; `ABSENT` is no file."""

    path: str
    pre: str
    post: str


@dataclass(frozen=True)
class Mail:
    """A parsed patch file.

    Args:
        name: Its file name.
        author: Name and address.
        date: The author's date, as the patch has it.
        message: The commit message, ended by one newline.
        diff: The diff, as `git apply` takes it.
        changes: The files whose content it changes.
        paths: All files that it touches, those with a new mode alone included.
    """

    name: str
    author: tuple[str, str]
    date: str
    message: str
    diff: bytes
    changes: tuple[Change, ...]
    paths: tuple[str, ...]

    @property
    def subject(self) -> str:
        """The first line of the message."""
        return self.message.partition("\n")[0]


def _has_crlf(path: Path) -> bool:
    """Whether its first line ends as an editor or a checkout on Windows ends lines."""
    try:
        with path.open("rb") as file:
            return file.readline().endswith(b"\r\n")
    except OSError:
        return False


def read_mail(scratch: Scratch, path: Path) -> Mail:
    """Parse a patch file; brackets of the subject stay.

    Raises:
        PatchError: The file is no patch that `apply.py export` wrote.
    """
    hint = "Write it anew with `apply.py export`, or restore it from git."
    if _has_crlf(path):
        raise PatchError(
            f"{path.name} has CRLF line ends.",
            "Restore it: git checkout -- patches (with core.autocrlf off).",
        )
    body, diff = scratch.folder / "message", scratch.folder / "diff"
    flags = ["-k", "--no-scissors", "--encoding=UTF-8"]
    try:
        with path.open("rb") as file:
            said = scratch.git("mailinfo", *flags, str(body), str(diff), stdin=file)
        text = said.decode()
        message = body.read_bytes().decode()
    except OSError as error:
        raise PatchError(f"{path} cannot be read: {error.strerror}.", hint) from error
    except (GitError, UnicodeDecodeError) as error:
        raise PatchError(f"{path.name} is no patch in UTF-8.", hint) from error
    fields = dict(line.split(": ", 1) for line in text.splitlines() if ": " in line)
    for field in ("Author", "Email", "Date", "Subject"):
        if not fields.get(field):
            raise PatchError(f"{path.name} has no {field.lower()}.", hint)
    data = diff.read_bytes()
    _require_whole(path, message.encode(), data, scratch.folder)
    changes, paths = _changes(path.name, data, hint)
    if not data.strip():
        raise PatchError(f"{path.name} changes no file.", hint)
    return Mail(
        path.name,
        (fields["Author"], fields["Email"]),
        fields["Date"],
        tidy(f"{fields['Subject']}\n\n{message}"),
        data,
        changes,
        paths,
    )


def _require_whole(path: Path, message: bytes, diff: bytes, folder: Path) -> None:
    """Refuse what mailinfo has cut: it does not look whether its files got whole.

    Raises:
        DiskError: The end of the patch file is not there.
    """
    raw = path.read_bytes()
    head = raw.removesuffix(diff) if diff else raw
    cut = (
        # What is not there as it is was encoded; the blob ids are checked later on.
        (not raw.endswith(diff) and diff in raw)
        or (not diff and b"\ndiff --git " in raw)
        or (message.strip() in head and not head.rstrip().endswith(message.rstrip()))
    )
    if cut:
        raise cut_off(f"what was read of {path.name}", folder)


def tidy(message: str) -> str:
    """A message as git keeps it: no trailing blanks, no doubled empty lines."""
    lines = [line.rstrip() for line in message.split("\n")]
    kept: list[str] = []
    for line in lines:
        if line or (kept and kept[-1]):
            kept.append(line)
    return "\n".join(kept).strip("\n") + "\n"


def _changes(
    name: str, diff: bytes, hint: str
) -> tuple[tuple[Change, ...], tuple[str, ...]]:
    """The files of a diff; lines inside hunks are counted off, not searched."""
    found: list[Change] = []
    paths: list[str] = []
    path = ""
    minus = plus = 0
    for line in diff.split(b"\n"):
        if minus > 0 or plus > 0:
            minus -= line[:1] in (b"-", b" ", b"")
            plus -= line[:1] in (b"+", b" ", b"")
        elif head := _HEAD.match(line):
            path = _path(name, head["names"], hint)
            paths.append(path)
        elif index := _INDEX.match(line):
            pre, post = index["pre"].decode(), index["post"].decode()
            if len(pre) != 40 or len(post) != 40:
                raise PatchError(f"{name} has abbreviated blob ids ({path}).", hint)
            found.append(Change(path, pre, post))
        elif hunk := _HUNK.match(line):
            minus, plus = (int(count or 1) for count in hunk.groups())
        elif line.startswith((b"rename ", b"copy ", b"similarity ")):
            raise PatchError(f"{name} renames a file: {path}.", hint)
    return tuple(found), tuple(paths)


def _path(name: str, names: bytes, hint: str) -> str:
    """The one path of `a/PATH b/PATH`, unquoted."""
    if names.startswith(b'"'):
        old, new = names[1:-1].split(b'" "')
        old, new = (
            codecs.escape_decode(half)[0]  # type: ignore[attr-defined]
            for half in (old, new)
        )
    else:
        middle = len(names) // 2
        old, new = names[:middle], names[middle + 1 :]
    if old[:2] != b"a/" or new[:2] != b"b/" or old[2:] != new[2:]:
        raise PatchError(f"{name} has no a/ and b/ prefixes, or renames a file.", hint)
    return new[2:].decode("utf-8", "surrogateescape")
