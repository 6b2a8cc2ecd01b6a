# SPDX-License-Identifier: Apache-2.0
"""The pieces of a bundle: archives of bounded size, the same bytes every time."""

import hashlib
import io
import tarfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from series.errors import SeriesError
from series.writing import aside

LIMIT = 60 * 1024 * 1024
"""Bytes of the largest piece: what travels well to a machine without a network."""


@dataclass(frozen=True)
class Piece:
    """One archive of the bundle.

    Attributes:
        file: Its name in the bundle's folder; parts of one archive that was too large
            for a piece end in .001, .002 and so on.
        size: Its bytes.
        sha256: Of the file.
        into: The folder it is unpacked into, relative to where all of it goes.
    """

    file: str
    size: int
    sha256: str
    into: str


def _entry(name: str, size: int) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)
    entry.size = size
    entry.mode = 0o644
    return entry


def _write(out: Path, files: Iterable[tuple[str, bytes]]) -> None:
    """Writes an archive whose bytes depend on names and contents alone."""
    mode = "w:xz" if out.suffix == ".xz" else "w"
    with (
        aside(out) as part,
        tarfile.open(part, mode, format=tarfile.PAX_FORMAT) as archive,  # type: ignore[call-overload]
    ):
        for name, data in sorted(files):
            archive.addfile(_entry(name, len(data)), io.BytesIO(data))


def _piece(out: Path, into: str) -> Piece:
    with out.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return Piece(out.name, out.stat().st_size, digest, into)


def pack(out: Path, into: str, files: Iterable[tuple[str, bytes]]) -> Piece:
    """Writes an archive that must fit one piece.

    Args:
        out: The archive; its ending says how it is compressed (.tar or .tar.xz).
        into: Where it is to be unpacked.
        files: Names and contents; sorted here.

    Raises:
        SeriesError: It is larger than a piece may be.
    """
    _write(out, files)
    if (size := out.stat().st_size) > LIMIT:
        out.unlink()
        raise SeriesError(
            f"{out.name} would have {size:,} bytes; a piece has at most {LIMIT:,}.",
            "Leave something out: --have LIST names what the machine has.",
        )
    return _piece(out, into)


def pack_parts(
    out: Path, into: str, files: Iterable[tuple[str, bytes]], limit: int = 0
) -> list[Piece]:
    """Writes an archive, cut into parts where it is too large for one piece.

    Args:
        out: The archive, as pack takes it.
        into: Where it is to be unpacked.
        files: Names and contents; sorted here.
        limit: Bytes of a part; those of a piece if left out.
    """
    limit = limit or LIMIT
    _write(out, files)
    if out.stat().st_size <= limit:
        return [_piece(out, into)]
    parts: list[Piece] = []
    try:
        with out.open("rb") as whole:
            while data := whole.read(limit):
                part = out.with_name(f"{out.name}.{len(parts) + 1:03}")
                with aside(part) as cut:
                    cut.write_bytes(data)
                parts.append(_piece(part, into))
    finally:
        out.unlink()
    return parts


def split(files: Iterable[tuple[str, bytes]], limit: int = LIMIT) -> list[list]:
    """Groups files, in order, so that each group's archive stays within the limit."""
    groups: list[list[tuple[str, bytes]]] = []
    room = 0
    for name, data in files:
        # A tar holds 512-byte blocks and, for a long name, up to three more headers.
        need = len(data) + 512 * 5
        if not groups or need > room:
            groups.append([])
            room = limit - 10240
        groups[-1].append((name, data))
        room -= need
    return groups
