# SPDX-License-Identifier: Apache-2.0
import hashlib
import zipfile
from pathlib import Path

import pytest

from evals import extensions
from evals.extensions import ExtensionError
from series.manifest import load_manifest
from series.release import ReleaseError

ROOT = Path(__file__).parent.parent
BUILD = """\
target_compile_definitions(_C PRIVATE TORCH_TARGET_VERSION=0x020A000000000000ULL)
target_compile_definitions(_moe PRIVATE TORCH_TARGET_VERSION=0x020B000000000000ULL)
"""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    folder = tmp_path / "tree"
    folder.mkdir()
    (folder / "CMakeLists.txt").write_text(BUILD)
    return folder


def wheel(folder: Path, *left_out: str) -> Path:
    """A wheel with what the engine needs, and with what it does not."""
    path = folder / "vllm-9.9.9-cp38-abi3-manylinux_2_28_x86_64.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name in (*extensions.WANTED, "vllm/vllm_flash_attn/_vllm_fa2_C.abi3.so"):
            if name not in left_out:
                archive.writestr(name, b"\x7fELF libcudart.so.13\0 " + name.encode())
    return path


def pin(folder: Path, path: Path, release: str = "9.9.9") -> Path:
    data = path.read_bytes()
    text = f"""\
release = "{release}"
filename = "{path.name}"
size = {len(data)}
sha256 = "{hashlib.sha256(data).hexdigest()}"
"""
    found = folder / "engine.toml"
    found.write_text(text)
    return found


def test_what_is_taken_out_of_the_wheel(tree: Path, tmp_path: Path) -> None:
    path = wheel(tmp_path)
    said: list[str] = []
    found = extensions.of_release(pin(tmp_path, path), "9.9.9", tree, said.append, path)
    assert tuple(found.files) == extensions.WANTED
    assert all(data.endswith(name.encode()) for name, data in found.files.items())
    asked = found.asked()
    assert (asked["torch"], asked["cuda"]) == ("2.11", "13")
    assert asked["wheel"] == hashlib.sha256(path.read_bytes()).hexdigest()
    assert "vllm.vllm_flash_attn._vllm_fa3_C" in asked["modules"]  # type: ignore[operator]


def test_another_wheel_is_refused(tree: Path, tmp_path: Path) -> None:
    path = wheel(tmp_path)
    pinned = pin(tmp_path, path)
    path.write_bytes(path.read_bytes() + b"x")
    with pytest.raises(ReleaseError, match="its sha256 is") as caught:
        extensions.of_release(pinned, "9.9.9", tree, print, path)
    assert "leave --archive out" in caught.value.hint


def test_a_wheel_that_lacks_one(tree: Path, tmp_path: Path) -> None:
    path = wheel(tmp_path, "vllm/spinloop.abi3.so")
    with pytest.raises(ExtensionError, match="no item named 'vllm/spinloop"):
        extensions.of_release(pin(tmp_path, path), "9.9.9", tree, print, path)
    path.write_bytes(b"no archive")
    with pytest.raises(ExtensionError, match="not a zip file"):
        extensions.of_release(pin(tmp_path, path), "9.9.9", tree, print, path)


def test_a_pin_of_another_release(tmp_path: Path) -> None:
    pinned = pin(tmp_path, wheel(tmp_path), "9.9.8")
    with pytest.raises(ExtensionError, match=r"pins the wheel of 9\.9\.8") as caught:
        extensions.pinned(pinned, "9.9.9")
    assert "vllm 9.9.9" in caught.value.hint
    pinned.write_text('release = "9.9.9"\nfilename = "x"\n')
    with pytest.raises(ExtensionError, match="cannot be read"):
        extensions.pinned(pinned, "9.9.9")
    with pytest.raises(ExtensionError, match="cannot be read"):
        extensions.pinned(tmp_path / "nothing", "9.9.9")


def test_a_tree_without_a_stable_abi(tmp_path: Path) -> None:
    (tmp_path / "CMakeLists.txt").write_text("project(vllm)\n")
    with pytest.raises(ExtensionError, match="no TORCH_TARGET_VERSION"):
        extensions.least_torch(tmp_path)


def test_the_pinned_wheel_is_of_the_pinned_release() -> None:
    release = load_manifest(ROOT / "patches/series.toml").pin.release
    found = extensions.pinned(ROOT / "requirements/engine.toml", release)
    assert found.filename.startswith(f"vllm-{release}-")
    assert found.filename.endswith("_x86_64.whl")
