# SPDX-License-Identifier: Apache-2.0
"""The pieces of a bundle: archives of bounded size, the same bytes every time."""

import hashlib
import io
import os
import tarfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from series.errors import SeriesError

LIMIT = 60 * 1024 * 1024
"""Bytes of the largest piece: what travels well to a machine without a network."""


@dataclass(frozen=True)
class Piece:
    """One archive of the bundle.

    Attributes:
        file: Its name in the bundle's folder.
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


def pack(out: Path, into: str, files: Iterable[tuple[str, bytes]]) -> Piece:
    """Writes an archive whose bytes depend on names and contents alone.

    Args:
        out: The archive; its ending says how it is compressed (.tar or .tar.xz).
        into: Where it is to be unpacked.
        files: Names and contents; sorted here.

    Raises:
        SeriesError: It is larger than a piece may be.
    """
    mode = "w:xz" if out.suffix == ".xz" else "w"
    aside = out.with_name(out.name + ".part")
    with tarfile.open(aside, mode, format=tarfile.PAX_FORMAT) as archive:  # type: ignore[call-overload]
        for name, data in sorted(files):
            archive.addfile(_entry(name, len(data)), io.BytesIO(data))
    size = aside.stat().st_size
    if size > LIMIT:
        aside.unlink()
        raise SeriesError(
            f"{out.name} would have {size:,} bytes; a piece has at most {LIMIT:,}.",
            "Leave something out: --have LIST names what the machine has.",
        )
    with aside.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    os.replace(aside, out)
    return Piece(out.name, size, digest, into)


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
