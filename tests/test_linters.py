# SPDX-License-Identifier: Apache-2.0
"""Which of upstream's hooks run on which files, and with what."""

import subprocess
import sys
from pathlib import Path

import pytest

from series import linters

from .full_disk import with_file_limit

LOCAL = {"repo": "local"}
RUFF = {"repo": "https://example.com/astral-sh/ruff-pre-commit", "rev": "v0.14.0"}
FILES = ["vllm/a.py", "csrc/b.cu", "docs/c.md", ".buildkite/d.yaml", "vllm/e.pyi"]


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A tree with one of upstream's scripts, which fails on a file named bad.py."""
    script = tmp_path / "tools/pre_commit/check.py"
    script.parent.mkdir(parents=True)
    script.write_text(
        "import sys\nprint(*sys.argv[1:])\n"
        "sys.exit(any('bad' in name for name in sys.argv))\n"
    )
    return tmp_path


def local(**fields) -> dict:
    """A hook that runs that script."""
    entry = "python tools/pre_commit/check.py"
    return {"id": "check", "language": "python", "entry": entry, **fields}


@pytest.mark.parametrize(
    ("hook", "expected"),
    [
        ({"id": "ruff-check"}, ["vllm/a.py", "vllm/e.pyi"]),
        ({"id": "typos"}, FILES),
        ({"id": "x", "types": ["python"]}, ["vllm/a.py"]),
        ({"id": "x", "types_or": ["c++", "cuda"]}, ["csrc/b.cu"]),
        ({"id": "x", "files": r"^\.buildkite/.*\.ya?ml$"}, [".buildkite/d.yaml"]),
        ({"id": "x", "exclude": "^(vllm|docs)/"}, ["csrc/b.cu", ".buildkite/d.yaml"]),
        ({"id": "x", "files": "^rust/"}, []),
    ],
)
def test_files_of_a_hook(hook: dict, expected: list[str]) -> None:
    assert linters._files_for(hook, FILES) == expected


def test_pinned_tools(tree: Path) -> None:
    python = Path("/venv/bin/python")
    command, needs = linters._command(tree, python, RUFF, {"id": "ruff-format"})
    assert command == ["/venv/bin/ruff", "format", "--check", "--no-cache"]
    assert needs == ["ruff==0.14.0"]
    # A revision that is no version cannot be asked of a package index.
    by_hash = {**RUFF, "rev": "3e8a8703264a2f4a69428a0aa4dcb512790b2c8c"}
    assert linters._command(tree, python, by_hash, {"id": "ruff-check"}) == ([], [])


@pytest.mark.parametrize(
    "hook",
    [
        local(language="script"),
        local(entry="bash -c true"),
        local(entry="python tools/pre_commit/none.py"),
        {"id": "clang-format"},
    ],
)
def test_what_needs_more_than_packages_is_not_run(tree: Path, hook: dict) -> None:
    found = linters._run_hook(tree, ["vllm/a.py"], Path(sys.executable), LOCAL, hook)
    assert (found.state, found.said) == (
        "not run",
        "it needs more than Python packages",
    )


def test_a_local_script_runs_on_its_files(tree: Path) -> None:
    python = Path(sys.executable)
    good = linters._run_hook(tree, FILES, python, LOCAL, local(types=["python"]))
    assert (good.state, good.said) == ("passed", "vllm/a.py")
    bad = linters._run_hook(tree, ["bad.py"], python, LOCAL, local())
    assert bad.state == "failed"
    alone = local(pass_filenames=False)
    assert linters._run_hook(tree, ["bad.py"], python, LOCAL, alone).said == ""
    none = linters._run_hook(tree, ["x.md"], python, LOCAL, local(types=["python"]))
    assert none.said == "no changed file is of its kind"


def test_what_cannot_be_installed_says_why(tree: Path, monkeypatch) -> None:
    monkeypatch.setattr(linters, "_install", lambda python, needs: "no network")
    python = Path(sys.executable)
    found = linters._run_hook(tree, ["a.py"], python, LOCAL, local())
    assert found.said == "cannot be installed here: no network"
    assert found.state == "not run"


def test_a_tree_without_the_configuration(tmp_path: Path) -> None:
    [found] = linters.run_linters(tmp_path, ["a.py"], tmp_path / "home")
    assert found.state == "not run"
    assert not (tmp_path / "home").exists()


def test_what_is_installed_is_written_whole(tmp_path: Path, monkeypatch) -> None:
    python = tmp_path / "bin/python"
    stamp = tmp_path / "installed.txt"
    stamp.write_text("PyYAML\n")
    done = subprocess.CompletedProcess([], 0, "", "")
    monkeypatch.setattr(linters.subprocess, "run", lambda *words, **named: done)
    said = with_file_limit(10, lambda: linters._install(python, ["ruff==0.14.0"]))
    assert f"{stamp}: File too large" in said
    assert stamp.read_text() == "PyYAML\n"
    assert linters._install(python, ["ruff==0.14.0"]) == ""
    assert stamp.read_text() == "PyYAML\nruff==0.14.0\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["installed.txt"]
