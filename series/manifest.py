# SPDX-License-Identifier: Apache-2.0
"""What patches/series.toml says: the pin, the change sets, the patches in order."""

import datetime
import re
import tomllib
from collections import Counter
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from .errors import SeriesError

Oid = Annotated[str, Field(pattern=r"^[0-9a-f]{40}$")]
Text = Annotated[str, Field(min_length=1)]
_FILE = re.compile(r"^(\d{4})-[A-Za-z0-9][A-Za-z0-9._-]*\.patch$")


class ManifestError(SeriesError):
    """series.toml is wrong: which table, which key, and how."""


def _inside(path: str) -> str:
    pure = PurePosixPath(path)
    if not path or pure.is_absolute() or ".." in pure.parts or "\\" in path:
        raise ValueError("must be a path inside the tree")
    return path


TreePath = Annotated[str, AfterValidator(_inside)]


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class Sdist(_Table):
    """The source distribution of the pinned release: name, bytes, sha256."""

    filename: Text
    size: Annotated[int, Field(gt=0)]
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class Pin(_Table):
    """The release that the patches are made for.

    `tree` is the tree id of the source distribution without `generated`; `commit`
    may be abbreviated (9 digits at least), `date` stamps the base commit of that tree.
    """

    release: Text
    tag: Text
    commit: Annotated[str, Field(pattern=r"^[0-9a-f]{9,40}$")]
    tree: Oid
    date: datetime.datetime
    generated: list[TreePath]
    sdist: Sdist


class SeriesTable(_Table):
    """The branch that carries the series, and its tree id on `pin.tree`."""

    branch: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]*$")]
    tree: Annotated[str, Field(pattern=r"^([0-9a-f]{40})?$")]


class Upstream(_Table):
    """Where a change stands upstream."""

    state: Literal["not submitted", "open", "merged", "closed", "superseded"]
    url: str = ""
    since: datetime.date | None = None


class Related(_Table):
    """A public change close to this one, and how the two differ.

    `covers`: while it is open or merged, this change would be a duplicate of it.
    """

    url: Text
    how: Text
    state: Literal["open", "merged", "closed", "unknown"] = "unknown"
    covers: bool = False


class ChangeSet(_Table):
    """Patches that go upstream together."""

    name: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]*$")]
    title: Text
    upstream: Upstream
    related: list[Related] = []


class Symbol(_Table):
    """A name that a file defines, or a text that it holds."""

    file: TreePath
    symbol: Text


class Patch(_Table):
    """One patch file; the order of the tables is the order of the commits."""

    file: Text
    title: Text
    purpose: Text
    series: Text
    upstream: Upstream
    drop_when: Symbol | None = None
    symbols: list[Symbol] = []
    tests: list[Text] = []


class Manifest(_Table):
    """The whole of series.toml, checked."""

    path: Path = Field(exclude=True)
    pin: Pin
    series: SeriesTable
    release: list[Pin] = []
    change_set: list[ChangeSet] = []
    patch: list[Patch] = []

    @property
    def folder(self) -> Path:
        """Where the patch files lie."""
        return self.path.parent

    @property
    def files(self) -> list[Path]:
        """The patch files, in order."""
        return [self.folder / patch.file for patch in self.patch]


def load_manifest(path: Path, *, check_files: bool = True) -> Manifest:
    """Read and check series.toml.

    Args:
        path: The file; patches lie beside it.
        check_files: Also refuse patch files that are missing or not listed.

    Raises:
        ManifestError: Naming the table and key that is wrong.
    """
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise ManifestError(f"{path} cannot be read: {error}.") from error
    except tomllib.TOMLDecodeError as error:
        raise ManifestError(f"{path} is no TOML: {error}.") from error
    try:
        manifest = Manifest.model_validate({**data, "path": path})
    except ValidationError as error:
        # A misspelt key is a missing one as well: the word that is there helps more.
        first = min(error.errors(), key=lambda e: e["type"] != "extra_forbidden")
        where = _where(data, first["loc"])
        raise ManifestError(
            f"{path.name}: {where}: {first['msg']}.", "Correct that line."
        ) from error
    problem = _contradiction(manifest)
    if not problem and check_files:
        problem = _files_differ(manifest)
    if problem:
        raise ManifestError(
            f"{path.name}: {problem}.", "Correct the table or the file."
        )
    return manifest


def _where(data: dict[str, Any], loc: tuple[int | str, ...]) -> str:
    """The place of an error: [[patch]] 2 (0002-x.patch) upstream.state."""
    if len(loc) > 1 and isinstance(loc[1], int):
        table = data[str(loc[0])][loc[1]]
        name = _name(table) if isinstance(table, dict) else ""
        head = f"[[{loc[0]}]] {loc[1] + 1}" + (f" ({name})" if name else "")
        loc = loc[2:]
    else:
        head, loc = f"[{loc[0]}]", loc[1:]
    return " ".join([head, ".".join(map(str, loc))]).rstrip()


def _name(table: dict[str, Any]) -> str:
    keys = ("file", "name", "tag")
    return next((str(table[key]) for key in keys if table.get(key)), "")


def _contradiction(manifest: Manifest) -> str:
    tags = [manifest.pin.tag, *(release.tag for release in manifest.release)]
    if twice := _repeated(tags):
        return f"[[release]] {twice} is there twice, or is the pin"
    names = [change.name for change in manifest.change_set]
    if twice := _repeated(names):
        return f"[[change_set]] {twice} is there twice"
    for key in ("file", "title"):
        if twice := _repeated([getattr(patch, key) for patch in manifest.patch]):
            return f"[[patch]] {key} {twice!r} is there twice"
    for number, patch in enumerate(manifest.patch, 1):
        match = _FILE.match(patch.file)
        if not match or int(match[1]) != number:
            return f"[[patch]] {number}: file {patch.file!r} is not {number:04}-….patch"
        if patch.series not in names:
            return (
                f"[[patch]] {patch.file}: no [[change_set]] is named {patch.series!r}"
            )
    return ""


def _files_differ(manifest: Manifest) -> str:
    listed = {patch.file for patch in manifest.patch}
    there = {file.name for file in manifest.folder.glob("*.patch")}
    if missing := sorted(listed - there):
        return f"{missing[0]} is listed, and is not in {manifest.folder}"
    if extra := sorted(there - listed):
        return f"{extra[0]} is in {manifest.folder}, and no [[patch]] lists it"
    return ""


def _repeated(values: list[str]) -> str:
    return next((value for value, n in Counter(values).items() if n > 1), "")
