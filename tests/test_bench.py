# SPDX-License-Identifier: Apache-2.0
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from evals import bench
from evals.cli import guarded

from .conftest import commit, git
from .test_run import SERIES_TOML, Interpreter

RECORD = """\
import json, os, sys
print(json.dumps({"words": sys.argv[1:], "path": os.environ["PYTHONPATH"]}))
sys.exit(3)
"""


@pytest.fixture
def interpreter(tmp_path: Path) -> Interpreter:
    """An interpreter that sees a GPU, and runs scripts with this Python."""
    found = Interpreter(tmp_path)
    probe = {"python": "3.12", "torch": "2.11", "missing": [], "device": "A card"}
    found.says(probe=probe | {"gpu": True})
    text = found.script.read_text()
    head = "words = sys.argv[sys.argv"
    run = (
        f"if sys.argv[1] != '-m': os.execv({sys.executable!r}, ['x', *sys.argv[1:]])\n"
    )
    found.script.write_text(text.replace(head, run + head))
    return found


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    root = tmp_path / "repository"
    vllm = root / "build/vllm"
    for folder in (root / "patches", root / "evals", vllm):
        folder.mkdir(parents=True)
    git(vllm, "init", "-q", "-b", "rocm-series")
    (vllm / "README").write_text("")
    pin = commit(vllm, "The release")
    (vllm / "README").write_text("some")
    commit(vllm, "Eager")
    (vllm / "README").write_text("more")
    commit(vllm, "Kernel")
    for name in bench.SCRIPTS.values():
        (root / name).write_text(RECORD)
    for name in ("0001-eager", "0002-kernel"):
        (root / f"patches/{name}.patch").write_text("")
    text = SERIES_TOML.format(pin=pin, sha256="0" * 64)
    (root / "patches/series.toml").write_text(text)
    monkeypatch.setattr(bench, "ROOT", root)
    monkeypatch.setattr(bench, "CACHE", root / "build/test")
    return root


@pytest.mark.parametrize("op", ["dot", "gdn"])
def test_the_benchmark_gets_its_arguments_and_the_tree(
    root: Path, interpreter: Interpreter, op: str, capfd: pytest.CaptureFixture
) -> None:
    words = [op, "--python", str(interpreter.path), "--", "--k", "2048"]
    assert guarded(bench.main, words) == 3
    first, last = capfd.readouterr().out.splitlines()
    assert first.endswith("on A card")
    said = json.loads(last)
    assert said["words"] == ["--k", "2048"]
    paths = said["path"].split(os.pathsep)
    assert paths[0] == str(root / "build/vllm")
    assert (Path(paths[1]) / "vllm-0.32.0.dist-info/METADATA").exists()


def test_no_gpu_is_said_and_measures_nothing(
    root: Path, interpreter: Interpreter, capfd: pytest.CaptureFixture
) -> None:
    interpreter.says(probe={"python": "3", "torch": "2", "missing": [], "gpu": False})
    assert guarded(bench.main, ["dot", "--python", str(interpreter.path)]) == 1
    out, err = capfd.readouterr()
    assert "sees no GPU: there is nothing to measure" in err
    assert out == ""


def test_the_stand_in_reaches_every_process(tmp_path: Path) -> None:
    (tmp_path / "vllm").mkdir()
    (tmp_path / "vllm/__init__.py").write_text("")
    harness = Path(bench.__file__).parent.parent / "tests/patched"
    paths = [tmp_path, harness, harness / "series_harness/startup"]
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            "import vllm._C_stable_libtorch as m; print(m.__name__)",
        ],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, paths))},
        capture_output=True,
        text=True,
    )
    assert done.stdout.strip() == "vllm._C_stable_libtorch", done.stderr
