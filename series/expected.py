# SPDX-License-Identifier: Apache-2.0
"""patches/expected.toml: the recorded outcome of every patch on every release."""

import tomllib
from pathlib import Path

from .carry import LANDED, Step
from .errors import SeriesError
from .manifest import Manifest
from .releases import known_releases
from .writing import write_whole

EXPECTED = "expected.toml"


class ExpectedError(SeriesError):
    """The file of expected outcomes is wrong."""


def load_expected(manifest: Manifest) -> dict[str, dict[str, str]]:
    """The recorded outcome of each cell: base, then patch file.

    Raises:
        ExpectedError: The file is no table of tables of texts, or lacks a release.
    """
    path = manifest.folder / EXPECTED
    cells = _read(path)
    missing = [p.tag for p in known_releases(manifest) if not cells.get(p.tag)]
    if missing and manifest.patch and path.exists():
        # One that was cut off would compare nothing, and so pass.
        raise ExpectedError(
            f"{path} has no outcomes for {', '.join(missing)}.",
            f"Restore it (git checkout -- {path.name}), or record them with "
            "`apply.py check --record`.",
        )
    words = {"merged (patch-id)", "merged (probe)", "merged (content)", "conflict"}
    words |= {*LANDED, "empty"}
    listed = {patch.file for patch in manifest.patch}
    for base, rows in cells.items():
        for file, word in rows.items():
            if file not in listed or word not in words:
                raise ExpectedError(
                    f"{path.name}: [{base}] {file}: {word!r} is no outcome, or that "
                    "patch is not listed.",
                    "Record it anew with `apply.py check --record`.",
                )
    return cells


def _read(path: Path) -> dict[str, dict[str, str]]:
    if not path.exists():
        return {}
    try:
        data = tomllib.loads(path.read_text("utf-8"))
        return {base: dict(rows) for base, rows in data.items()}
    except (OSError, ValueError, TypeError) as error:
        raise ExpectedError(
            f"{path} cannot be read: {error}.",
            f"Restore it: git checkout -- {path.name}",
        ) from error


def outcome(step: Step) -> str:
    """The word for a cell: the state, and for a merged one what shows it."""
    kind = step.evidence.partition(":")[0]
    return f"merged ({kind})" if step.state == "merged" else step.state


def unexpected(
    expected: dict[str, dict[str, str]], base: str, steps: list[Step]
) -> list[str]:
    """The cells of a base that are not the recorded ones, and unrecorded conflicts."""
    rows = expected.get(base, {})
    changed = []
    for step in steps:
        wanted, is_ = rows.get(step.file), outcome(step)
        if wanted is None and (rows or step.state == "conflict"):
            changed.append(f"{step.file[:4]} is {is_}; nothing is recorded for it")
        elif wanted is not None and wanted != is_:
            changed.append(f"{step.file[:4]} is {is_}; {wanted} was expected")
    return changed


def record_expected(manifest: Manifest, found: dict[str, list[Step]]) -> Path:
    """Write the outcome of every cell of releases down as the expected one.

    Args:
        found: What became of the patches, by base; bases that are no release are
            left out, releases that are not among them stay as they were.
    """
    path = manifest.folder / EXPECTED
    tags = {pin.tag for pin in known_releases(manifest)}
    cells = {base: rows for base, rows in _read(path).items() if base in tags}
    for base, steps in found.items():
        if base in tags:
            cells[base] = {step.file: outcome(step) for step in steps}
    lines = [
        "# The outcome of every patch on every release, as `apply.py check` wants it.",
        "# Written by `apply.py check --record`; a change of any cell fails the check.",
    ]
    for base in sorted(cells):
        lines += ["", f'["{base}"]']
        lines += [f'"{file}" = "{word}"' for file, word in cells[base].items()]
    write_whole(path, ("\n".join(lines) + "\n").encode())
    return path
