# SPDX-License-Identifier: Apache-2.0
"""Makes the vLLM tree on the module path importable where vLLM was never built."""

import atexit
import importlib
import importlib.metadata
import importlib.util
import sys
import tarfile
import tempfile
import warnings
from pathlib import Path
from types import ModuleType

from series.errors import SeriesError

# vLLM's CUDA platform does not start without its extension; an empty one registers
# nothing, so that whatever needs an op of it still sees that it is absent.
_STAND_IN = "vllm._C_stable_libtorch"
_METADATA = "Metadata-Version: 2.1\nName: vllm\nVersion: 0.0.0+series\n"
MERGED_MODULE = (
    "vllm/third_party/flash_linear_attention/ops/fused_gdn_decode_post_conv_mtp.py"
)


class TreeError(SeriesError):
    """The tree is not where it should be, or lacks what was asked of it."""


def prepare() -> Path:
    """Finds the tree and fills in what its import needs.

    Returns:
        The folder that holds the package.

    Raises:
        TreeError: No vLLM is on the module path.
    """
    # A tree is no build: it has no commit of its own to warn about.
    warnings.filterwarnings("ignore", "Failed to read commit hash", RuntimeWarning)
    found = importlib.util.find_spec("vllm")
    if found is None or not found.submodule_search_locations:
        raise TreeError(
            "no vLLM is on the module path.",
            "Run `make apply`, then set PYTHONPATH=build/vllm (make bench does).",
        )
    try:
        importlib.metadata.version("vllm")
    except importlib.metadata.PackageNotFoundError:
        # Platform detection asks for the version, which a tree alone has not.
        folder = temporary_folder("vllm-metadata-")
        info = folder / "vllm-0.0.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(_METADATA, encoding="utf-8")
        sys.path.append(str(folder))
    try:
        importlib.import_module(_STAND_IN)
    except ImportError:
        sys.modules[_STAND_IN] = ModuleType(_STAND_IN)
    return Path(found.submodule_search_locations[0]).parent


def temporary_folder(prefix: str) -> Path:
    """A folder that lasts as long as this process."""
    made = tempfile.TemporaryDirectory(prefix=prefix, ignore_cleanup_errors=True)
    atexit.register(made.cleanup)
    return Path(made.name)


def has(module: str) -> bool:
    """Whether the tree has a module, without running it."""
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def merged_module(source: Path) -> ModuleType:
    """The merged port of another release, imported under a name of its own.

    Args:
        source: A release's tree, its source distribution, or the module's file.

    Raises:
        TreeError: The module is not in there.
    """
    file = source
    if source.is_dir():
        file = source / MERGED_MODULE
    elif source.name.endswith((".tar.gz", ".tgz", ".tar")):
        file = _unpacked(source)
    if not file.is_file():
        raise TreeError(
            f"{file} is missing.", "--merged takes the tree or the archive of v0.33.0."
        )
    # Beside the tree's own modules, so that relative imports of it find them.
    name = "vllm.third_party.flash_linear_attention.ops._merged_gdn_decode"
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def _unpacked(archive: Path) -> Path:
    folder = temporary_folder("merged-port-")
    try:
        with tarfile.open(archive) as tar:
            for member in tar:
                if member.isfile() and member.name.endswith("/" + MERGED_MODULE):
                    member.name = Path(MERGED_MODULE).name
                    tar.extract(member, folder, filter="data")
                    return folder / member.name
    except (OSError, tarfile.TarError) as error:
        raise TreeError(f"{archive} cannot be read: {error}.") from error
    raise TreeError(f"{archive} has no {MERGED_MODULE}.", "Name v0.33.0's archive.")
