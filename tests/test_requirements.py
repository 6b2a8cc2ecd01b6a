# SPDX-License-Identifier: Apache-2.0
"""The environments: pins that agree, and a .venv that survives an interruption."""

import importlib.util
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from types import ModuleType

import pytest

from .full_disk import full_disk

ROOT = Path(__file__).parent.parent
REQUIREMENTS = ROOT / "requirements"


def pinned(name: str) -> dict[str, str]:
    text = (REQUIREMENTS / f"{name}.txt").read_text()
    return dict(re.findall(r"^([A-Za-z0-9._-]+)(?:\[\w+\])?==([^\s;\\]+)", text, re.M))


@pytest.mark.parametrize(
    "name", ["apply", "own", "evals", "client", "cpu", "lint", "torch", "kernels"]
)
def test_files_that_share_an_environment_pin_the_same_versions(name: str) -> None:
    whole = pinned("test")
    shared = {key: value for key, value in pinned(name).items() if key in whole}
    assert shared == {key: whole[key] for key in shared}
    assert pinned(name)


@pytest.mark.parametrize(
    "path", sorted(REQUIREMENTS.glob("*.txt")), ids=lambda p: p.stem
)
def test_no_file_names_a_registry_and_every_line_is_pinned(path: Path) -> None:
    text = path.read_text()
    assert not re.search(r"https?://|--(extra-)?index-url|--find-links", text)
    if path.stem == "bare-cuda13":
        return
    lines = [line for line in text.splitlines() if line and line[0] not in "# "]
    assert all("==" in line for line in lines)


@pytest.mark.parametrize("name", ["apply", "own", "evals", "client", "cpu", "lint"])
def test_what_runs_with_a_users_rights_is_pinned_by_hash(name: str) -> None:
    text = (REQUIREMENTS / f"{name}.txt").read_text()
    entries = re.split(r"^(?=[A-Za-z])", text, flags=re.M)
    named = [entry for entry in entries if re.match(r"\S+==", entry)]
    assert len(named) == len(pinned(name))
    assert all("--hash=sha256:" in entry for entry in named)


def test_what_the_project_depends_on_is_pinned() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    names = {re.split(r"[<>=~! ]", text)[0] for text in project["dependencies"]}
    assert names <= set(pinned("apply"))


def test_the_kernels_needs_are_a_part_of_the_test_environment() -> None:
    names = set(pinned("kernels")) - {"torch", "triton"}
    assert names <= set(pinned("test"))


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script as a module, with pip replaced by a record of its calls."""
    spec = importlib.util.spec_from_file_location(
        "environment_script", REQUIREMENTS / "environment.py"
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    real, calls = module.call, []

    def call(words: list[str], problem: str) -> None:
        calls.append(words)
        if "pip" not in words:
            real([*words, "--without-pip"], problem)

    monkeypatch.setattr(module, "call", call)
    monkeypatch.setattr(module, "calls", calls, raising=False)
    return module


def installed(calls: list[list[str]]) -> list[str]:
    return [Path(words[-1]).stem for words in calls if "pip" in words]


def test_a_second_run_does_nothing(environment: ModuleType, tmp_path: Path) -> None:
    environment.main("test", str(tmp_path))
    steps = ["apply", "own", "evals", "client", "torch", "triton", "test"]
    assert installed(environment.calls) == steps
    environment.calls.clear()
    for level in ("test", "apply", "own", "evals", "eval"):
        environment.main(level, str(tmp_path))
    assert environment.calls == []


def test_servers_on_a_cpu_have_an_environment_of_their_own(
    environment: ModuleType, tmp_path: Path
) -> None:
    environment.main("cpu", str(tmp_path))
    assert installed(environment.calls) == ["torch", "triton", "test", "cpu"]
    assert not (tmp_path / ".venv").exists()
    environment.calls.clear()
    environment.main("cpu", str(tmp_path))
    assert environment.calls == []
    environment.main("apply", str(tmp_path))
    assert installed(environment.calls) == ["apply"]


def test_a_torch_that_brings_its_triton_keeps_it(
    environment: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(environment.Environment, "imports", lambda self, name: True)
    environment.main("test", str(tmp_path))
    steps = ["apply", "own", "evals", "client", "torch", "test"]
    assert installed(environment.calls) == steps


def test_the_sizes_are_said_before_anything_is_fetched(
    environment: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    environment.main("test", str(tmp_path))
    out = capsys.readouterr().out
    assert "2.8 GB on disk" in out
    assert "make test PYTHON=" in out


def test_pip_is_given_no_index(environment: ModuleType, tmp_path: Path) -> None:
    environment.main("test", str(tmp_path))
    words = {word for call in environment.calls for word in call}
    assert not {"--index-url", "--extra-index-url", "--find-links", "-i"} & words


def test_changed_requirements_are_installed_again(
    environment: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment.main("own", str(tmp_path))
    environment.calls.clear()
    stock = environment.digest_of
    monkeypatch.setattr(
        environment,
        "digest_of",
        lambda path: "new" if path.endswith("own.txt") else stock(path),
    )
    environment.main("own", str(tmp_path))
    assert installed(environment.calls) == ["own"]


@pytest.mark.parametrize("when", ["venv", "apply"])
def test_an_interrupted_run_is_finished_by_the_next(
    environment: ModuleType,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    when: str,
) -> None:
    stock = environment.call

    def interrupted(words: list[str], problem: str) -> None:
        if ("pip" in words) == (when == "apply"):
            raise KeyboardInterrupt
        stock(words, problem)

    monkeypatch.setattr(environment, "call", interrupted)
    with pytest.raises(KeyboardInterrupt):
        environment.main("apply", str(tmp_path))
    monkeypatch.setattr(environment, "call", stock)
    environment.calls.clear()
    environment.main("apply", str(tmp_path))
    assert installed(environment.calls) == ["apply"]
    made_anew = any("venv" in words for words in environment.calls)
    assert made_anew == (when == "venv")
    python = tmp_path / ".venv/bin/python"
    assert subprocess.run([python, "-c", "print('works')"]).returncode == 0


def test_a_python_that_is_gone_makes_a_new_environment(
    environment: ModuleType, tmp_path: Path
) -> None:
    environment.main("apply", str(tmp_path))
    python = tmp_path / ".venv/bin/python"
    python.unlink()
    python.symlink_to("/no/such/python")
    environment.calls.clear()
    environment.main("apply", str(tmp_path))
    assert installed(environment.calls) == ["apply"]
    assert os.path.realpath(python) != "/no/such/python"


def test_an_environment_of_the_users_is_left_alone(
    environment: ModuleType, tmp_path: Path
) -> None:
    (tmp_path / ".venv").mkdir()
    (tmp_path / ".venv/theirs").write_text("mine")
    with pytest.raises(environment.SetupError, match="not made by this repository"):
        environment.main("apply", str(tmp_path))
    assert (tmp_path / ".venv/theirs").read_text() == "mine"


def test_no_python_that_is_new_enough(
    environment: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(environment, "OLDEST", (9, 0))
    monkeypatch.setattr(environment, "OLDEST_TEXT", "9.0")
    with pytest.raises(environment.SetupError, match=r"Python 9\.0 or newer") as error:
        environment.main("apply", str(tmp_path))
    assert sys.executable in str(error.value)
    assert not (tmp_path / ".venv").exists()


def copied(folder: Path, preamble: str = "") -> Path:
    """The script in another repository, whose pip it never gets to."""
    text = (REQUIREMENTS / "environment.py").read_text()
    for path in REQUIREMENTS.glob("*.txt"):
        (folder / "requirements").mkdir(exist_ok=True)
        (folder / "requirements" / path.name).write_bytes(path.read_bytes())
    script = folder / "requirements/environment.py"
    head, last = text.rsplit('if __name__ == "__main__":', 1)
    script.write_text(f'{head}{preamble}\nif __name__ == "__main__":{last}')
    return script


def failed(script: Path, stdout: object = subprocess.PIPE) -> list[str]:
    done = subprocess.run(
        [sys.executable, script, "apply"],
        stdout=stdout,  # type: ignore[call-overload]
        stderr=subprocess.PIPE,
        text=True,
    )
    assert done.returncode == 1
    return done.stderr.splitlines()


def test_a_build_that_is_no_folder_is_told(tmp_path: Path) -> None:
    script = copied(tmp_path)
    build = tmp_path / "build"
    build.symlink_to("/no/such/mount")
    what, hint = failed(script)
    assert what == f"{build} is a link to /no/such/mount, which is no folder."
    assert hint.startswith("Make or mount that folder")
    build.unlink()
    build.write_text("")
    assert failed(script) == [
        f"{build}: File exists",
        "Run it again once that is mended.",
    ]


@pytest.mark.parametrize(
    ("number", "says"),
    [
        ("EROFS", "Make it writable, then run it again."),
        ("ENOSPC", "Free some space, then run it again."),
        ("EIO", "Run it again once that is mended."),
    ],
)
def test_what_the_system_refuses_is_one_message(
    tmp_path: Path, number: str, says: str
) -> None:
    raised = f"raise OSError(errno.{number}, 'Refused', self.folder)"
    refused = f"def make(self):\n    {raised}\nEnvironment.make = make\n"
    script = copied(tmp_path, refused)
    assert failed(script) == [f"{tmp_path}/.venv: Refused", says]


def test_a_stamp_that_does_not_fit_on_the_disk_is_named(
    environment: ModuleType, tmp_path: Path
) -> None:
    made = environment.Environment(str(tmp_path), "")
    with full_disk(10), pytest.raises(OSError) as raised:
        made.record("apply", "x" * 64)
    assert raised.value.filename == made.stamp("apply")
    assert not made.has("apply", "x" * 64)


def test_standard_output_that_is_full_or_unread(tmp_path: Path) -> None:
    made = "Environment.make = lambda self: os.mkdir(self.folder)\n"
    script = copied(tmp_path, made)
    with open("/dev/full", "w") as full:
        what, _ = failed(script, full)
    assert what == "standard output: No space left on device"
    (tmp_path / ".venv").rmdir()
    reader, writer = os.pipe()
    os.close(reader)
    assert failed(script, writer) == []
    os.close(writer)


def test_wrong_words_are_a_usage_error() -> None:
    script = str(REQUIREMENTS / "environment.py")
    done = subprocess.run([sys.executable, script, "all"], capture_output=True)
    assert done.returncode == 2
    assert b"usage" in done.stderr
