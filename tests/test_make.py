# SPDX-License-Identifier: Apache-2.0
"""The targets call what they say, with every character of what was given."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
GIVEN = ("VLLM", "PYTHON", "SWITCH", "OUT", "OP", "DATA", "MODEL", "TASKS", "N", "ARGS")
RECORDER = """\
import json, sys
with open({log!r}, "a") as file:
    print(json.dumps(sys.argv[1:]), file=file)
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """The Makefile, with a .venv whose Python writes down its arguments."""
    folder = tmp_path / "a project"
    (folder / ".venv/bin").mkdir(parents=True)
    (folder / "requirements").mkdir()
    shutil.copy(ROOT / "Makefile", folder)
    log = str(folder / "log")
    recorder = RECORDER.format(log=log)
    (folder / "recorder.py").write_text(recorder)
    python = folder / ".venv/bin/python"
    words = shlex.join([sys.executable, str(folder / "recorder.py")])
    python.write_text(f'#!/bin/sh\nexec {words} "$@"\n')
    python.chmod(0o755)
    script = folder / "requirements/environment.py"
    script.write_text(
        recorder.replace("sys.argv[1:]", '["environment", *sys.argv[1:]]')
    )
    return folder


def run_make(folder: Path, *words: str, **env: str) -> str:
    """Runs make there from elsewhere; returns what it printed."""
    # These tests run under make themselves: its flags are not for them.
    clean = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("MAKE", "MFLAGS")) and name not in GIVEN
    }
    done = subprocess.run(
        ["make", "--no-print-directory", "-C", str(folder), *words],
        env={**clean, **env},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def make(folder: Path, *words: str, **env: str) -> list[list[str]]:
    """Runs make there; returns the calls it made."""
    run_make(folder, *words, **env)
    log = folder / "log"
    return [json.loads(line) for line in log.read_text().splitlines()]


def test_make_alone_prints_a_line_for_every_target(project: Path) -> None:
    out = run_make(project)
    text = (project / "Makefile").read_text()
    phony = re.search(r"^\.PHONY: (.*)$", text, re.M)
    assert phony is not None
    printed = [line.split()[0] for line in out.splitlines()[:-1]]
    assert sorted(printed) == sorted(phony[1].split())
    assert all(len(line.split()) > 1 for line in out.splitlines())


@pytest.mark.parametrize("path", ["plain", "with space", "it's", 'a "quote"', "é;ls"])
def test_a_path_arrives_as_it_was_given(project: Path, path: str) -> None:
    assert make(project, "apply", f"VLLM={path}") == [
        ["environment", "apply"],
        ["apply.py", "apply", "--vllm", path],
    ]


def test_switch_and_arguments(project: Path) -> None:
    words = ("apply", "VLLM=x", "SWITCH=1", "ARGS=--json --force")
    expected = ["apply.py", "apply", "--vllm", "x", "--switch", "--json", "--force"]
    assert make(project, *words)[1] == expected
    (project / "log").unlink()
    assert make(project, "apply", "SWITCH=0")[1] == ["apply.py", "apply"]


def test_an_interpreter_of_the_users_makes_no_large_environment(project: Path) -> None:
    assert make(project, "test", "PYTHON=/opt/my torch/python3") == [
        ["environment", "own"],
        ["tests/run.py", "--python", "/opt/my torch/python3"],
    ]


def test_the_cpu_servers_get_their_environment_before_they_start(
    project: Path,
) -> None:
    assert make(project, "eval-smoke", "DATA=a b", "ARGS=--ci") == [
        ["environment", "eval"],
        ["environment", "cpu"],
        ["evals/smoke.py", "--data", "a b", "--ci"],
    ]


def test_an_evaluation_is_told_what_it_asks_of_what(project: Path) -> None:
    words = ("MODEL=my model", "TASKS=gsm8k,niah", "N=400", "PYTHON=/opt/python3")
    assert make(project, "eval", *words, "ARGS=--resume") == [
        ["environment", "eval"],
        [
            "evals/eval.py",
            *("--model", "my model", "--tasks", "gsm8k,niah", "--questions", "400"),
            *("--python", "/opt/python3", "--resume"),
        ],
    ]


def test_what_the_environment_holds_by_chance_is_no_option(project: Path) -> None:
    stray = {"PYTHON": "python2", "VLLM": "/somewhere", "OUT": "x"}
    assert make(project, "test", **stray) == [
        ["environment", "test"],
        ["tests/run.py"],
    ]


def test_targets_run_one_after_the_other(project: Path) -> None:
    calls = make(project, "-j8", "apply", "test", "bundle", "OUT=a b")
    assert [call[0] for call in calls] == [
        "environment",
        "apply.py",
        "environment",
        "tests/run.py",
        "environment",
        "evals/bundle.py",
    ]
    assert calls[-1] == ["evals/bundle.py", "--out", "a b"]


def test_clean_keeps_trees_and_environment(project: Path) -> None:
    for name in ("build/vllm", "build/test", "build/bundle", "build/wheels"):
        (project / name).mkdir(parents=True)
    (project / "log").touch()
    (project / "tests/__pycache__").mkdir(parents=True)
    assert make(project, "clean") == []
    assert [path.name for path in (project / "build").iterdir()] == ["vllm"]
    assert (project / ".venv/bin/python").exists()
    assert not (project / "tests/__pycache__").exists()


def test_every_script_that_a_target_calls_is_here() -> None:
    text = (ROOT / "Makefile").read_text()
    called = re.findall(r"\$\(python\) (\S+\.py)", text)
    assert len(called) >= 4
    assert [name for name in called if not (ROOT / name).exists()] == []
