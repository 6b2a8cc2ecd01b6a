# SPDX-License-Identifier: Apache-2.0
"""The compiled extensions of the release's CUDA wheel that the engine needs."""

import re
import tomllib
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from series import release
from series.errors import SeriesError
from series.manifest import Sdist

WANTED = (
    "vllm/_C_stable_libtorch.abi3.so",
    "vllm/_moe_C_stable_libtorch.abi3.so",
    # Hopper's attention alone: the one for older GPUs has twice its size.
    "vllm/vllm_flash_attn/_vllm_fa3_C.abi3.so",
    "vllm/_deepselect_C.abi3.so",
    "vllm/cumem_allocator.abi3.so",
    "vllm/fs_io_C.abi3.so",
    "vllm/spinloop.abi3.so",
)
OP = "fused_gdn_decode_post_conv_mtp"
_TARGET = re.compile(r"TORCH_TARGET_VERSION=0x([0-9A-Fa-f]{2})([0-9A-Fa-f]{2})")
_RUNTIME = re.compile(rb"libcudart\.so\.(\d+)")


class ExtensionError(SeriesError):
    """The release's wheel is not pinned, or lacks what the engine needs."""


@dataclass(frozen=True)
class Extensions:
    """What was taken out of the wheel, and what it asks of the machine.

    Attributes:
        wheel: The wheel's sha256.
        torch: The oldest torch that can load them.
        cuda: Major version of the CUDA runtime that they were linked with.
        files: Their contents, by path in the tree.
    """

    wheel: str
    torch: str
    cuda: str
    files: dict[str, bytes]

    def asked(self) -> dict[str, object]:
        """What the bundle's index says of them."""
        modules = [
            name.removesuffix(".abi3.so").replace("/", ".") for name in self.files
        ]
        return {
            "wheel": self.wheel,
            "torch": self.torch,
            "cuda": self.cuda,
            "modules": modules,
            "op": OP,
        }


def pinned(pin: Path, version: str) -> Sdist:
    """The pinned wheel of a release.

    Args:
        pin: The file that names it.
        version: The release that it must be of.

    Raises:
        ExtensionError: It is of another release, or the file is wrong.
    """
    try:
        entries = tomllib.loads(pin.read_text(encoding="utf-8"))
        of = entries.pop("release")
        wheel = Sdist(**entries)
    except (OSError, ValueError, KeyError, ValidationError) as error:
        raise ExtensionError(f"{pin} cannot be read: {error}.") from error
    if of != version:
        raise ExtensionError(
            f"{pin} pins the wheel of {of}; the series is on {version}.",
            f"Put name, size and sha256 of vllm {version}'s CUDA wheel there.",
        )
    return wheel


def least_torch(tree: Path) -> str:
    """The oldest torch that extensions built from a tree can be loaded by.

    Raises:
        ExtensionError: The tree's build file does not say it.
    """
    text = (tree / "CMakeLists.txt").read_text(encoding="utf-8")
    found = [(int(major, 16), int(minor, 16)) for major, minor in _TARGET.findall(text)]
    if not found:
        raise ExtensionError(
            f"{tree}/CMakeLists.txt names no TORCH_TARGET_VERSION.",
            "That release's extensions need the very torch that they were built with: "
            "install the release itself.",
        )
    major, minor = max(found)
    return f"{major}.{minor}"


def read(wheel: Path, tree: Path, sha256: str) -> Extensions:
    """Takes out of a wheel what the engine needs.

    Args:
        wheel: The release's, already checked.
        tree: The patched tree.
        sha256: Of the wheel.

    Raises:
        ExtensionError: Something is not in it.
    """
    try:
        with zipfile.ZipFile(wheel) as archive:
            files = {name: archive.read(name) for name in WANTED}
    except (KeyError, zipfile.BadZipFile) as error:
        raise ExtensionError(
            f"{wheel.name}: {error.args[0]}.",
            "Pin the wheel that the release publishes for CUDA and x86_64.",
        ) from error
    runtime = _RUNTIME.search(files[WANTED[0]])
    cuda = runtime[1].decode() if runtime else ""
    return Extensions(sha256, least_torch(tree), cuda, files)


def of_release(
    pin: Path,
    version: str,
    tree: Path,
    say: Callable[[str], None],
    given: Path | None = None,
) -> Extensions:
    """The extensions of the pinned release, its wheel fetched once and kept.

    Args:
        pin: The file that names the wheel.
        version: The release of the series.
        tree: The patched tree.
        say: Called with a line before something that takes time.
        given: The wheel as a local file, instead of fetching it.
    """
    wheel = pinned(pin, version)
    path = release.archive_of(wheel, release.cache_folder(), say, given=given)
    return read(path, tree, wheel.sha256)
