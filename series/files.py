# SPDX-License-Identifier: Apache-2.0
"""Writing patches/: whole files only, and series.toml after all others."""

import os
import shutil
import tempfile
from pathlib import Path

from .errors import SeriesError
from .manifest import Manifest

_TEMPORARY = ".export-"


class ExportError(SeriesError):
    """The branch cannot be exported as it is; patches/ is untouched."""


def replace_files(
    manifest: Manifest, new: dict[str, bytes], text: str
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Replace what differs in patches/, each file at once, series.toml last.

    Args:
        manifest: What is there; its files that are not in new are removed.
        new: The bytes of every patch file.
        text: The new series.toml.

    Returns:
        The names of the written and of the removed files.

    Raises:
        ExportError: A file cannot be written.
    """
    folder = manifest.folder
    for left in folder.glob(f"{_TEMPORARY}*"):
        shutil.rmtree(left, ignore_errors=True)
    toml = manifest.path.name
    changed = {
        name: data
        for name, data in [*new.items(), (toml, text.encode())]
        if not (folder / name).exists() or (folder / name).read_bytes() != data
    }
    removed = [patch.file for patch in manifest.patch if patch.file not in new]
    removed = [name for name in removed if (folder / name).exists()]
    aside: Path | None = None
    try:
        aside = Path(tempfile.mkdtemp(prefix=_TEMPORARY, dir=folder))
        for name, data in changed.items():
            (aside / name).write_bytes(data)
        for name in changed:
            if name != toml:
                os.replace(aside / name, folder / name)
        for name in removed:
            (folder / name).unlink()
        if toml in changed:
            os.replace(aside / toml, folder / toml)
    except OSError as error:
        raise ExportError(
            f"{folder} cannot be written: {error.strerror or error}.",
            "Make room or make it writable, and export again.",
        ) from error
    finally:
        if aside:
            shutil.rmtree(aside, ignore_errors=True)
    return tuple(changed), tuple(removed)
