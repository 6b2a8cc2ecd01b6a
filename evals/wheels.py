# SPDX-License-Identifier: Apache-2.0
"""The wheels that a bare machine lacks: which, and fetching them for its Python."""

import json
import re
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from evals import cli
from series.errors import SeriesError

NEWEST_GLIBC = 39
"""pip takes a platform tag by its exact number: every one up to Ubuntu 24.04's."""

_PLATFORMS = (
    *(f"manylinux_2_{minor}_x86_64" for minor in range(NEWEST_GLIBC, 4, -1)),
    "manylinux2014_x86_64",
    "manylinux2010_x86_64",
    "manylinux1_x86_64",
    "linux_x86_64",
)


def normal(name: str) -> str:
    """A distribution's name as the packaging rules compare it."""
    return re.sub(r"[-_.]+", "-", name.strip()).lower()


def listed(text: str) -> set[str]:
    """The names in a list of packages: pip's table, its JSON, pins or bare names."""
    if text.lstrip().startswith("["):
        return {normal(entry["name"]) for entry in json.loads(text)}
    names = set()
    for line in text.splitlines():
        words = re.split(r"[\s=<>!~;@\[]", line.split("#", 1)[0].strip(), maxsplit=1)
        if words[0] and words[0] != "Package" and not words[0].startswith("-"):
            names.add(normal(words[0]))
    return names


def pins(text: str, python: str) -> dict[str, str]:
    """Name to pinned requirement, of a requirements file, for one Python version.

    A line may carry a marker that compares python_version; others are kept.
    """
    found = {}
    for line in text.splitlines():
        requirement, _, marker = line.split("#", 1)[0].partition(";")
        if "==" in requirement and _applies(marker.strip(), python):
            name, version = requirement.strip().split("==")
            found[normal(name)] = f"{normal(name)}=={version}"
    return found


def _applies(marker: str, python: str) -> bool:
    match = re.fullmatch(r"python_version (<|>=) ['\"]3\.(\d+)['\"]", marker)
    if match is None:
        return True
    minor = int(python.split(".")[1])
    return minor < int(match[2]) if match[1] == "<" else minor >= int(match[2])


def lacking(needed: Iterable[str], have: set[str]) -> list[str]:
    """The needed names that the machine does not have, sorted."""
    return sorted(set(needed) - have)


def fetch(requirements: Sequence[str], python: str, folder: Path) -> list[Path]:
    """Downloads a wheel for each pinned requirement, and nothing they depend on.

    Args:
        python: The machine's Python version, such as "3.12".
        folder: Where wheels lie; those of other requirements are removed.

    Returns:
        The wheels, by name.

    Raises:
        SeriesError: pip found no wheel, or no network; what it said is in it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    done = folder / "fetched.txt"
    wanted = "\n".join([python, *sorted(requirements)])
    if done.exists() and done.read_text() == wanted:
        return sorted(folder.glob("*.whl"))
    for stale in folder.iterdir():
        stale.unlink()
    platforms = [word for name in _PLATFORMS for word in ("--platform", name)]
    call = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
    call += ["--only-binary=:all:", "--python-version", python]
    call += ["--implementation", "cp", *platforms, "--dest", str(folder)]
    result = subprocess.run([*call, *requirements], capture_output=True, text=True)
    if result.returncode:
        said = [line for line in result.stderr.splitlines() if "ERROR" in line]
        raise SeriesError(
            f"pip could not fetch the wheels: {' '.join(said) or result.stderr}",
            "Check the network, or name with --have a list that holds that package.",
        )
    wheels = sorted(folder.glob("*.whl"))
    if len(wheels) != len(requirements):
        raise SeriesError(
            f"{len(requirements)} wheels were asked for, {len(wheels)} came.",
            "Run it again.",
        )
    cli.write_text(done, wanted)
    return wheels
