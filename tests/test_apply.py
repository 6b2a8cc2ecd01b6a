# SPDX-License-Identifier: Apache-2.0
"""The command line: words, exit codes, and what goes to which stream."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import typer

import apply

from .conftest import World, commit, git, subjects

ROOT = Path(__file__).parent.parent


def run(world: World, build: Path, *words: str, **env: str):
    """Run apply.py as a user does."""
    front = ["--series", str(world.toml), "--build", str(build)]
    return subprocess.run(
        [sys.executable, str(ROOT / "apply.py"), *front, *words],
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_pinned_tree_from_the_start(world: World, tmp_path: Path) -> None:
    archive = ["--archive", str(world.sdist)]
    done = run(world, tmp_path / "b", "apply", *archive)
    assert done.returncode == 0, done.stderr
    for words in ("0001", "Takes the fast path", "Applied: 3 patches", "make test"):
        assert words in done.stdout
    assert str(tmp_path / "b/vllm") in done.stdout
    again = run(world, tmp_path / "b", "apply")
    assert again.returncode == 0
    assert "Already applied, nothing to do" in again.stdout
    state = run(world, tmp_path / "b", "status")
    assert "in sync with patches/" in state.stdout


def test_data_and_nothing_else(world: World, clone: Path, tmp_path: Path) -> None:
    done = run(world, tmp_path, "apply", "--vllm", str(clone), "--json")
    data = json.loads(done.stdout)
    assert data["state"] == "applied"
    assert data["tree"] == world.tree
    assert data["base"] == world.pin
    assert [patch["file"] for patch in data["patches"]] == [
        "0001-fast-path.patch",
        "0002-rework-core.patch",
        "0003-move-old.patch",
    ]
    assert data["patches"][0]["added"] == 4
    assert data["next"] == f"git -C '{clone}' switch rocm-series"
    again = run(world, tmp_path, "apply", "--vllm", str(clone), "--json")
    assert json.loads(again.stdout)["state"] == "already applied"
    state = run(world, tmp_path, "status", "--vllm", str(clone), "--json")
    assert json.loads(state.stdout)["sync"] == "in sync with patches/"
    out = run(world, tmp_path, "export", "--vllm", str(clone), "--json")
    assert json.loads(out.stdout)["written"] == []


def test_the_printed_command_switches(
    world: World, clone: Path, tmp_path: Path
) -> None:
    done = run(world, tmp_path, "apply", "--vllm", str(clone))
    line = next(x for x in done.stdout.splitlines() if x.startswith("Next: "))
    subprocess.run(line.removeprefix("Next: "), shell=True, check=True)  # noqa: S602
    assert git(clone, "symbolic-ref", "HEAD") == "refs/heads/rocm-series"


def test_a_refused_switch_fails_after_the_branch_is_there(
    world: World, clone: Path, tmp_path: Path
) -> None:
    (clone / "README.md").write_text("edited\n")
    done = run(world, tmp_path, "apply", "--vllm", str(clone), "--switch")
    assert done.returncode == 1
    assert "uncommitted changes: README.md" in done.stderr
    assert "Applied: 3 patches" in done.stdout
    assert len(subjects(clone)) == 3


def test_develop_export_apply(world: World, tmp_path: Path) -> None:
    build = tmp_path / "b"
    run(world, build, "apply", "--archive", str(world.sdist))
    tree = build / "vllm"
    (tree / "vllm/more.py").write_text("more = 1\n")
    commit(tree, "[Core] Add more\n")
    refused = run(world, build, "apply")
    assert refused.returncode == 1
    assert "[Core] Add more" in refused.stderr
    done = run(world, build, "export")
    assert done.returncode == 0, done.stderr
    assert "wrote 0004-Core-Add-more.patch" in done.stdout
    assert "fill in purpose" in done.stdout
    assert "Already applied" in run(world, build, "apply").stdout
    assert "nothing to do" in run(world, build, "export").stdout


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ([], 2),
        (["aply"], 2),
        (["apply", "--nonsense"], 2),
        (["apply", "extra"], 2),
        (["--help"], 0),
        (["apply", "--help"], 0),
        (["apply", "--vllm", "/nonexistent"], 1),
        (["export"], 1),
    ],
)
def test_exit_codes(world: World, tmp_path: Path, words: list[str], code: int) -> None:
    done = run(world, tmp_path / "b", *words)
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stdout + done.stderr
    if code == 1:
        assert done.stderr.startswith("error: ")
        assert done.stdout == ""


def test_a_wrong_base_is_a_conflict(world: World, clone: Path, tmp_path: Path) -> None:
    git(clone, "switch", "-q", "--detach", "v0.32.0")
    (clone / "vllm/core.py").write_text("other\n")
    wrong = commit(clone, "Wrong\n")
    git(clone, "tag", "-d", "v0.32.0")
    world.toml.write_text(world.toml.read_text().replace(world.pin[:12], wrong[:12]))
    done = run(world, tmp_path, "apply", "--vllm", str(clone))
    assert done.returncode == 3
    assert "vllm/core.py" in done.stderr


def test_a_bug_is_one_line_and_a_traceback_on_demand(
    world: World, clone: Path, tmp_path: Path
) -> None:
    broken = tmp_path / "broken.py"
    broken.write_text(
        "import sys, runpy\n"
        "import series.commands\n"
        "def fail(*words, **named): raise ZeroDivisionError('oh')\n"
        "series.commands.apply_to = fail\n"
        f"runpy.run_path({str(ROOT / 'apply.py')!r}, run_name='__main__')\n"
    )
    words = ["apply", "--vllm", str(clone)]
    for debug in ([], ["--debug"]):
        done = subprocess.run(
            [sys.executable, str(broken), *debug, *words],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 1
        assert "bug: ZeroDivisionError: oh" in done.stderr
        assert ("Traceback" in done.stderr) == bool(debug)


@pytest.mark.usefixtures("default_signals")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_ends_clean(
    world: World, clone: Path, tmp_path: Path, number: int
) -> None:
    wrapper = tmp_path / "bin"
    wrapper.mkdir()
    real = subprocess.check_output(["sh", "-c", "command -v git"], text=True).strip()
    started = tmp_path / "started"
    (wrapper / "git").write_text(
        f'#!/bin/sh\ncase "$*" in *write-tree*) touch "{started}"; sleep 30;; esac\n'
        f'exec {real} "$@"\n'
    )
    (wrapper / "git").chmod(0o755)
    front = ["--series", str(world.toml), "--build", str(tmp_path / "b")]
    process = subprocess.Popen(
        [sys.executable, str(ROOT / "apply.py"), *front, "apply", "--vllm", str(clone)],
        env={**os.environ, "PATH": f"{wrapper}:{os.environ['PATH']}"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    while not started.exists():
        assert process.poll() is None
        time.sleep(0.02)
    os.killpg(process.pid, number)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert (out, err) == ("", "interrupted: nothing is lost, run it again.\n")
    assert git(clone, "for-each-ref", "refs/heads/rocm-series", "refs/series") == ""
    assert list(Path(os.environ["TMPDIR"]).glob("vllm-series-*")) == []


def test_a_failure_of_the_system_is_no_bug(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fail() -> None:
        with apply.error_handler():
            raise OSError(20, "Not a directory", "/tmp/x")

    with pytest.raises(typer.Exit) as caught:
        fail()
    assert caught.value.exit_code == 1
    assert capsys.readouterr().err == "error: /tmp/x: Not a directory\n"


def test_it_runs_from_anywhere(world: World, tmp_path: Path, clone: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "apply.py"), "--series",
         os.path.relpath(world.toml, clone), "apply", "--vllm", "."],
        cwd=clone,
        capture_output=True,
        text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert len(subjects(clone)) == 3
