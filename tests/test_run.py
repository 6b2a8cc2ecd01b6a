# SPDX-License-Identifier: Apache-2.0
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from evals.cli import guarded
from series.git import Repository
from series.manifest import load_manifest
from tests import run
from tests.harness import environment, tree

from .conftest import commit, git

KERNEL = """\
import triton
import triton.language as tl


@triton.jit
def dot(x, out):
    tl.store(out, tl.load(x))
"""
SERIES_TOML = """\
[pin]
release = "0.32.0"
tag = "v0.32.0"
commit = "{pin}"
tree = "{pin}"
date = 2026-10-18T09:36:00Z
generated = []

[pin.sdist]
filename = "vllm-0.32.0.tar.gz"
size = 1
sha256 = "{sha256}"

[series]
branch = "rocm-series"
tree = ""

[[change_set]]
name = "dot"
title = "The dot"
upstream = {{ state = "open" }}

[[patch]]
file = "0001-eager.patch"
title = "Eager"
purpose = "An eager dot"
series = "dot"
upstream = {{ state = "open" }}
tests = ["tests/layers/test_eager.py"]

[[patch]]
file = "0002-kernel.patch"
title = "Kernel"
purpose = "A kernel"
series = "dot"
upstream = {{ state = "open" }}
tests = ["tests/kernels/test_dot.py", "tests/patched/test_dispatch.py"]
"""
# Stands for an interpreter with torch: answers the probe, and for pytest writes the
# report that the plugin would, as said in a file beside it.
INTERPRETER = """\
import json, os, sys
from pathlib import Path

here = Path(__file__).parent
said = json.loads((here / "says.json").read_text())
if sys.argv[1] == "-c":
    print(json.dumps(said["probe"]))
    sys.exit(0)
words = sys.argv[sys.argv.index("pytest") + 1 :]
cases = [word for word in words if word.endswith(".py")]
call = {"words": words, "cwd": os.getcwd(), "env": dict(os.environ)}
with (here / "calls.jsonl").open("a") as file:
    print(json.dumps(call), file=file)
code = 0
outcomes, reasons = {}, {}
for case in cases:
    outcome = said["outcomes"].get(case, "passed")
    outcomes[case + "::test"] = outcome
    if outcome == "skipped":
        reasons[case + "::test"] = "no such card"
    code = code or int(outcome == "failed")
report = {
    "python": "3.11.7",
    "torch": "2.13.0",
    "triton": "3.8.0",
    "device": said["probe"].get("device") or "CPU, Triton's interpreter",
    "platform": "UnspecifiedPlatform",
    "compute_units": 16,
    "stubs": [],
    "extensions": [],
    "outcomes": outcomes,
    "reasons": reasons,
    "left_out": {},
    "launches": said["launches"],
}
text = json.dumps(report)[: said.get("room")]
if text:
    Path(os.environ["SERIES_HARNESS_REPORT"]).write_text(text)
print("=" * 10, f"{len(cases)} of {Path.cwd().name} in 0.01s", "=" * 10)
sys.exit(code)
"""


class Interpreter:
    """The stand-in, what it is to say, and how it was called."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / "python"
        self.script = folder / "stand-in.py"
        self.script.write_text(INTERPRETER)
        # A script's first line cannot name a path with a space; the shell's words can.
        words = shlex.join([sys.executable, str(self.script)])
        self.path.write_text(f'#!/bin/sh\nexec {words} "$@"\n')
        self.path.chmod(0o755)
        self.says(launches={"vllm.ops.dot": 3})

    def says(self, **changes: object) -> None:
        probe = {"python": "3.11.7", "torch": "2.13.0", "missing": []}
        said = {"probe": probe, "outcomes": {}, "launches": {}} | changes
        (self.folder / "says.json").write_text(json.dumps(said))

    @property
    def calls(self) -> list[dict]:
        path = self.folder / "calls.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.fixture
def interpreter(tmp_path: Path) -> Interpreter:
    folder = tmp_path / "some python"
    folder.mkdir()
    return Interpreter(folder)


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository like this one, with a series of two patches in build/vllm."""
    root = tmp_path / "this repository"
    vllm = root / "build/vllm"
    for path in (root / "patches", root / "tests/patched", vllm / "vllm"):
        path.mkdir(parents=True)
    (root / "tests/patched/test_dispatch.py").write_text("")
    (vllm / "vllm/__init__.py").write_text("")
    git(vllm, "init", "-q", "-b", "rocm-series")
    pin = commit(vllm, "The release")
    (vllm / "vllm/eager.py").write_text("def eager(): pass\n")
    (vllm / "tests/layers").mkdir(parents=True)
    (vllm / "tests/layers/test_eager.py").write_text("")
    commit(vllm, "Eager")
    (vllm / "vllm/ops.py").write_text(KERNEL)
    (vllm / "tests/kernels").mkdir()
    (vllm / "tests/kernels/test_dot.py").write_text("")
    commit(vllm, "Kernel")
    for name in ("0001-eager", "0002-kernel"):
        (root / f"patches/{name}.patch").write_text("")
    text = SERIES_TOML.format(pin=pin, sha256="0" * 64)
    (root / "patches/series.toml").write_text(text)
    (root / "needs.txt").write_text("torch==2.13.0\n")
    monkeypatch.setattr(run, "ROOT", root)
    monkeypatch.setattr(run, "CACHE", root / "build/test")
    monkeypatch.setattr(run, "TREES", root / "build/test/trees")
    monkeypatch.setattr(run, "MANIFEST", root / "patches/series.toml")
    monkeypatch.setattr(run, "NEEDS", root / "needs.txt")
    return root


def run_tree(interpreter: Interpreter, *args: str) -> int:
    """Runs the tree's part of the command."""
    words = ["--python", str(interpreter.path), *args]
    only = [] if "--each" in args else ["--tree-only"]
    at = words.index("--") if "--" in words else len(words)
    return guarded(run.main, [*words[:at], *only, *words[at:]])


def test_every_folder_is_run_and_the_closing_lines_say_what_ran(
    root: Path, interpreter: Interpreter, capfd: pytest.CaptureFixture
) -> None:
    assert run_tree(interpreter) == 0
    out, err = capfd.readouterr()
    assert err == ""
    ran = [
        [w for w in call["words"] if w.endswith(".py")] for call in interpreter.calls
    ]
    assert ran == [
        ["tests/layers/test_eager.py"],
        ["tests/kernels/test_dot.py"],
        [
            "tests/patched/test_imports.py",
            "tests/patched/test_harness.py",
            "tests/patched/test_dispatch.py",
        ],
    ]
    tip = git(root / "build/vllm", "rev-parse", "HEAD")[:12]
    assert f"{root / 'build/vllm'} (rocm-series at {tip})" in out
    assert "dot (0002): 9 launches" in out
    assert "torch 2.13.0, triton 3.8.0" in out
    assert "CPU, Triton's interpreter" in out
    closing = out.strip().splitlines()[-3:]
    assert [line.split()[0] for line in closing] == [
        "tests/layers",
        "tests/kernels",
        "tests/patched",
    ]
    assert all(line.endswith("in 0.01s") for line in closing)


def test_upstreams_root_conftest_is_never_loaded(
    root: Path, interpreter: Interpreter
) -> None:
    """It needs packages that the tests of the patches do not."""
    vllm = root / "build/vllm"
    (vllm / "tests/test_envs.py").write_text("")
    commit(vllm, "Envs")
    toml = root / "patches/series.toml"
    named = '"tests/kernels/test_dot.py", "tests/test_envs.py"'
    toml.write_text(toml.read_text().replace('"tests/kernels/test_dot.py"', named))
    assert run_tree(interpreter) == 0
    words = {
        next(word for word in call["words"] if word.endswith(".py")): call["words"]
        for call in interpreter.calls
    }
    assert "--noconftest" in words["tests/test_envs.py"]
    assert (
        f"--confcutdir={vllm / 'tests/kernels'}" in words["tests/kernels/test_dot.py"]
    )
    # What lies in the tests' own folders is loaded, and this repository's own too.
    assert sum("--noconftest" in said for said in words.values()) == 1


def test_the_run_is_told_to_leave_the_tree_alone(
    root: Path, interpreter: Interpreter
) -> None:
    assert run_tree(interpreter) == 0
    first = interpreter.calls[0]
    vllm = root / "build/vllm"
    assert "no:cacheprovider" in first["words"]
    assert f"--confcutdir={vllm / 'tests/layers'}" in first["words"]
    assert first["cwd"] == str(vllm)
    env = first["env"]
    paths = env["PYTHONPATH"].split(os.pathsep)
    assert paths[:2] == [str(vllm), str(root / "tests/patched")]
    metadata = Path(paths[2]) / "vllm-0.32.0.dist-info/METADATA"
    assert "Version: 0.32.0" in metadata.read_text()
    assert not metadata.is_relative_to(vllm)
    assert not Path(env["PYTHONPYCACHEPREFIX"]).is_relative_to(vllm)
    assert (env["CUDA_VISIBLE_DEVICES"], env["TRITON_INTERPRET"]) == ("", "1")
    changed = json.loads(env["SERIES_HARNESS_CHANGED"])
    assert {"vllm/eager.py", "vllm/ops.py", "tests/kernels/test_dot.py"} == set(
        changed
    ) - {"tests/layers/test_eager.py"}
    assert git(vllm, "status", "--porcelain", "--ignored") == ""


def test_a_gpu_is_used_as_it_is(
    root: Path, interpreter: Interpreter, monkeypatch: pytest.MonkeyPatch
) -> None:
    probe = {"python": "3.12", "torch": "2.11", "missing": [], "gpu": True}
    interpreter.says(probe=probe, launches={"vllm.ops.dot": 1})
    monkeypatch.setenv("VLLM_ROCM_USE_AITER", "1")
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    monkeypatch.setenv("HIP_VISIBLE_DEVICES", "3")
    assert run_tree(interpreter) == 0
    env = interpreter.calls[0]["env"]
    assert "TRITON_INTERPRET" not in env
    assert env["HIP_VISIBLE_DEVICES"] == "3"
    assert "VLLM_ROCM_USE_AITER" not in env


def test_a_run_in_which_everything_skips_fails(
    root: Path, interpreter: Interpreter, capfd: pytest.CaptureFixture
) -> None:
    skipped = {"tests/kernels/test_dot.py": "skipped"}
    skipped["tests/patched/test_dispatch.py"] = "skipped"
    interpreter.says(outcomes=skipped, launches={"vllm.ops.dot": 1})
    assert run_tree(interpreter) == 1
    out, err = capfd.readouterr()
    assert "0002-kernel: none of its tests passed" in err
    assert "0001" not in err
    assert "2 x no such card" in out


def test_a_run_in_which_no_kernel_of_a_patch_ran_fails(
    root: Path, interpreter: Interpreter, capfd: pytest.CaptureFixture
) -> None:
    interpreter.says(launches={"vllm.other.kernel": 7})
    assert run_tree(interpreter) == 1
    out, err = capfd.readouterr()
    assert "0002-kernel: none of its kernels ran: vllm.ops.dot" in err
    assert "dot (0002): did not run" in out
    assert "upstream's own kernels: 21 launches" in out


def test_a_failing_test_fails_the_run(
    root: Path, interpreter: Interpreter, capfd: pytest.CaptureFixture
) -> None:
    failed = {"tests/kernels/test_dot.py": "failed"}
    interpreter.says(outcomes=failed, launches={"vllm.ops.dot": 1})
    assert run_tree(interpreter) == 1
    out, err = capfd.readouterr()
    assert "failed: tests/kernels: 1 of vllm in 0.01s" in err
    assert "1 failed, 1 passed" in out


@pytest.mark.parametrize("room", [0, 1, 300])
@pytest.mark.parametrize("outcome", ["passed", "failed"])
def test_a_report_that_a_full_disk_cut_fails_the_run(
    root: Path,
    interpreter: Interpreter,
    capfd: pytest.CaptureFixture,
    room: int,
    outcome: str,
) -> None:
    failed = {"tests/kernels/test_dot.py": outcome}
    interpreter.says(outcomes=failed, launches={"vllm.ops.dot": 1}, room=room)
    assert run_tree(interpreter) == 1
    out, err = capfd.readouterr()
    line = (
        r"failed: tests/kernels: 1 of vllm in 0\.01s(; its report in \S+ is not whole)?"
    )
    said = re.search(line, err)
    assert said is not None
    # Where pytest itself failed and wrote nothing, its own output says why.
    assert bool(said[1]) == (room > 0 or outcome == "passed")
    assert "no test of the patched tree ran" in err
    assert "Traceback" not in out + err


def test_arguments_reach_pytest_and_narrow_what_has_to_run(
    root: Path, interpreter: Interpreter
) -> None:
    interpreter.says(launches={})
    assert run_tree(interpreter, "--", "-k", "one thing") == 0
    assert all("one thing" in call["words"] for call in interpreter.calls)
    interpreter.says(outcomes=dict.fromkeys(_all_files(), "skipped"))
    assert run_tree(interpreter, "--", "-k", "one thing") == 1


def _all_files() -> list[str]:
    own = ("test_imports.py", "test_harness.py", "test_dispatch.py")
    return [
        "tests/layers/test_eager.py",
        "tests/kernels/test_dot.py",
        *(f"tests/patched/{name}" for name in own),
    ]


@pytest.mark.parametrize(
    ("probe", "said"),
    [
        ({"python": "3", "missing": ["pytest", "torch (no)"]}, "lacks pytest, torch"),
        ("broken", "failed when asked what it has"),
    ],
)
def test_an_interpreter_that_lacks_something_is_named_and_left_alone(
    root: Path,
    interpreter: Interpreter,
    capfd: pytest.CaptureFixture,
    probe: object,
    said: str,
) -> None:
    if probe == "broken":
        interpreter.script.write_text("raise SystemExit('no')\n")
    else:
        interpreter.says(probe=probe)
    assert run_tree(interpreter) == 1
    assert said in capfd.readouterr().err
    assert not (interpreter.folder / "calls.jsonl").exists()


def test_an_interpreter_that_is_not_there(
    root: Path, capfd: pytest.CaptureFixture
) -> None:
    assert guarded(run.main, ["--tree-only", "--python", "/no/such"]) == 1
    assert "/no/such does not start: No such file" in capfd.readouterr().err


def test_no_tree_says_to_make_one(
    root: Path, interpreter: Interpreter, capfd: pytest.CaptureFixture
) -> None:
    (root / "build/vllm").rename(root / "build/elsewhere")
    assert run_tree(interpreter) == 1
    err = capfd.readouterr().err
    assert "build/vllm is not there." in err
    assert "Run make apply first." in err


def test_a_tree_on_another_branch_is_not_tested_as_the_series(
    root: Path, interpreter: Interpreter, capfd: pytest.CaptureFixture
) -> None:
    vllm = root / "build/vllm"
    git(vllm, "switch", "-q", "--detach", "HEAD~1")
    assert run_tree(interpreter) == 1
    err = capfd.readouterr().err
    assert "is not at its branch rocm-series" in err
    command = err.split("Go back to it: ", 1)[1].strip()
    subprocess.run(shlex.split(command), check=True, capture_output=True)
    assert run_tree(interpreter) == 0


def test_edits_in_the_tree_are_tested_and_named(
    root: Path, interpreter: Interpreter, capfd: pytest.CaptureFixture
) -> None:
    (root / "build/vllm/vllm/eager.py").write_text("def eager(): return 1\n")
    assert run_tree(interpreter) == 0
    assert "with changes not committed)" in capfd.readouterr().out


def test_a_test_that_is_nowhere_is_an_error(
    root: Path, interpreter: Interpreter, capfd: pytest.CaptureFixture
) -> None:
    (root / "tests/patched/test_dispatch.py").unlink()
    assert run_tree(interpreter) == 1
    assert "0002-kernel names tests/patched/test_dispatch.py" in capfd.readouterr().err


def test_a_clone_is_left_as_it_was(
    root: Path, tmp_path: Path, interpreter: Interpreter
) -> None:
    clone = tmp_path / "a clone"
    git(tmp_path, "clone", "-q", str(root / "build/vllm"), str(clone))
    git(clone, "switch", "-q", "-c", "mine", "HEAD~2")
    (clone / "vllm/__init__.py").write_text("edited = 1\n")
    (clone / "notes.txt").write_text("mine\n")
    before = _state(clone)
    assert run_tree(interpreter, "--vllm", str(clone)) == 0
    assert _state(clone) == before
    env = interpreter.calls[0]["env"]
    exported = Path(env["PYTHONPATH"].split(os.pathsep)[0])
    assert not exported.is_relative_to(clone)
    assert (exported / "vllm/ops.py").read_text() == KERNEL
    assert (exported / "vllm/__init__.py").read_text() == ""
    assert env["SERIES_HARNESS_EXTENSIONS"] == str(clone / "vllm")


def _state(clone: Path) -> tuple:
    names = ("status --porcelain --ignored", "for-each-ref", "symbolic-ref HEAD")
    index = (clone / ".git/index").read_bytes()
    said = [git(clone, *words.split()) for words in names]
    return (*said, git(clone, "worktree", "list"), index)


def test_a_bare_clone_works_too(
    root: Path, tmp_path: Path, interpreter: Interpreter
) -> None:
    bare = tmp_path / "bare.git"
    git(tmp_path, "clone", "-q", "--bare", str(root / "build/vllm"), str(bare))
    assert run_tree(interpreter, "--vllm", str(bare)) == 0


def test_a_clone_without_the_branch(
    root: Path, tmp_path: Path, interpreter: Interpreter, capfd: pytest.CaptureFixture
) -> None:
    clone = tmp_path / "clone"
    git(tmp_path, "clone", "-q", str(root / "build/vllm"), str(clone))
    git(clone, "branch", "-q", "-m", "other")
    assert run_tree(interpreter, "--vllm", str(clone)) == 1
    assert "has no branch rocm-series" in capfd.readouterr().err


def test_an_export_that_was_cut_short_is_made_again(root: Path) -> None:
    vllm = root / "build/vllm"
    repo, tip = Repository.find(vllm), git(vllm, "rev-parse", "HEAD")
    half = root / "trees" / tip
    (half / "vllm").mkdir(parents=True)
    (half / "vllm/ops.py").write_text("half")
    exported = tree.export(repo, tip, root / "trees")
    assert (exported / "vllm/ops.py").read_text() == KERNEL
    marker = exported / "vllm/marker"
    marker.touch()
    assert tree.export(repo, tip, root / "trees") == exported
    assert marker.exists(), "a whole export was written a second time"
    assert [path.name for path in (root / "trees").iterdir()] == [tip]


def test_each_patch_is_tested_on_the_tree_right_after_it(
    root: Path, interpreter: Interpreter, capfd: pytest.CaptureFixture
) -> None:
    assert run_tree(interpreter, "--each") == 0
    out = capfd.readouterr().out
    vllm = root / "build/vllm"
    first, second = git(vllm, "rev-list", "--reverse", "-n", "2", "HEAD").splitlines()
    seen = []
    for call in interpreter.calls:
        path = Path(call["env"]["PYTHONPATH"].split(os.pathsep)[0])
        files = [word for word in call["words"] if word.endswith(".py")]
        seen.append((path.name, files))
    assert seen == [
        (first, ["tests/layers/test_eager.py"]),
        (first, ["tests/patched/test_imports.py"]),
        (second, ["tests/kernels/test_dot.py"]),
        (second, ["tests/patched/test_imports.py", "tests/patched/test_dispatch.py"]),
    ]
    assert "0002-kernel, tests/kernels: 1 of" in out


def test_each_fails_when_a_patch_alone_shows_nothing(
    root: Path, interpreter: Interpreter, capfd: pytest.CaptureFixture
) -> None:
    eager = {"tests/layers/test_eager.py": "skipped"}
    interpreter.says(outcomes=eager, launches={"vllm.ops.dot": 1})
    assert run_tree(interpreter, "--each") == 1
    assert "0001-eager: none of its tests passed" in capfd.readouterr().err
    assert run_tree(interpreter, "--each", "--", "-k", "x") == 2


def test_a_series_without_patches_has_nothing_to_test(
    root: Path, interpreter: Interpreter, capfd: pytest.CaptureFixture
) -> None:
    toml = root / "patches/series.toml"
    toml.write_text(toml.read_text().split("[[patch]]")[0])
    for patch in (root / "patches").glob("*.patch"):
        patch.unlink()
    assert load_manifest(toml).patch == []
    assert run_tree(interpreter) == 1
    assert "lists no patch" in capfd.readouterr().err


def test_wrong_words_are_a_usage_error() -> None:
    with pytest.raises(SystemExit) as ended:
        run.main(["--own-only", "--each"])
    assert ended.value.code == 2


@pytest.mark.parametrize("found", ["", "1"])
def test_own_tests_alone_need_no_tree(
    root: Path,
    capfd: pytest.CaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    found: str,
) -> None:
    # Their plugin comes along where the user's settings look for none.
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", found)
    (root / "build/vllm").rename(root / "build/elsewhere")
    (root / "tests/test_one.py").write_text("def test_one(): assert 1 + 1 == 2\n")
    assert guarded(run.main, ["--own-only"]) == 0
    assert "tests of this repository  1 passed in" in capfd.readouterr().out
    (root / "tests/test_one.py").write_text("def test_one(): assert 1 + 1 == 3\n")
    assert guarded(run.main, ["--own-only"]) == 1


@pytest.mark.usefixtures("default_signals")
def test_an_interrupt_ends_the_run_with_130(root: Path, tmp_path: Path) -> None:
    started = tmp_path / "started"
    test = f"import pathlib, time\npathlib.Path({str(started)!r}).touch()\n"
    (root / "tests/test_slow.py").write_text(f"{test}time.sleep(60)\n")
    script = (
        "import sys; from pathlib import Path; from tests import run\n"
        "from evals.cli import guarded\n"
        f"run.ROOT = Path({str(root)!r})\n"
        "sys.exit(guarded(run.main, ['--own-only']))\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", script],
        cwd=Path(__file__).parent.parent,
        start_new_session=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    while not started.exists():
        assert process.poll() is None
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert err.decode().strip().endswith("interrupted")


def test_needed_names_come_from_pins(tmp_path: Path) -> None:
    listed = tmp_path / "pins.txt"
    listed.write_text(
        "# a comment\nfastapi[standard]==1.0\n\nsix==1 ; python_version >= '3.12'\n"
    )
    assert environment.needed(listed) == ["fastapi", "six"]
