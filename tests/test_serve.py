# SPDX-License-Identifier: Apache-2.0
"""A server is the arm asked for, or is refused; and it never outlives its block."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from evals import processes, ready, serve
from evals.local_http import PortTakenError, ask, free_port
from evals.proof import METADATA
from evals.serve import (
    Arm,
    NotReadyError,
    Running,
    ServerDied,
    ServerError,
    WrongServerError,
)
from tests.fake_vllm import all_gone, is_alive, make_model, make_tree

ROOT = Path(__file__).parent.parent
PYTHON = Path(sys.executable)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Short waits, and a proxy that must not be asked."""
    monkeypatch.setattr(ready, "POLL_S", 0.02)
    monkeypatch.setattr(processes, "GRACE_S", 1.0)
    for name in ("http_proxy", "HTTP_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    monkeypatch.delenv("PYTHONPATH", raising=False)


@pytest.fixture
def arm(tmp_path: Path) -> Arm:
    """The patched arm on a fake tree."""
    tree = make_tree(tmp_path / "tree", ["a1", "b2"], {"vllm/dot.py": "dot = 1\n"})
    return Arm("patched", tree, PYTHON, ("a1", "b2"))


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return make_model(tmp_path / "model")


@contextmanager
def served(arm: Arm, model: Path, folder: Path, fault: str = "", **words: object):
    words.setdefault("ready_s", 60)
    env = {"FAKE_VLLM": fault}
    with serve.serve(arm, model, folder, env=env, **words) as running:  # type: ignore
        yield running


def pid_of(running: Running) -> int:
    return int(str(running.facts["pid"]))


def refused_pid(folder: Path) -> int:
    return int(json.loads((folder / "facts.json").read_text())["pid"])


def test_what_answers_is_the_arm(arm: Arm, model: Path, tmp_path: Path) -> None:
    said: list[str] = []
    words = {"args": ["--max-model-len", "64"], "on_wait": said.append}
    with served(arm, model, tmp_path / "own", "kernel", **words) as running:
        facts = running.facts
        assert facts["module"] == str(arm.tree / "vllm/__init__.py")
        assert facts["patch_ids"] == ["a1", "b2"]
        assert facts["commit"] == "c0ffee"
        assert facts["decode_kernel"] == "GDN spec decode kernel: Triton"
        assert facts["command"][-2:] == ["--max-model-len", "64"]  # type: ignore
        assert not running.url.endswith("/")
        body = {"model": running.model, "prompt": "1"}
        assert ask(f"{running.url}/v1/completions", body)["choices"]
        running.check()
        pid = pid_of(running)
        assert is_alive(pid)
        assert running.log == tmp_path / "own/server.log"
        assert f"loading {model}" in running.log.read_text()
    assert not is_alive(pid)
    with pytest.raises(OSError):
        ask(f"{running.url}/health")
    assert said
    assert all(line.startswith("patched: starting") for line in said)


def test_a_key_of_the_users_is_not_asked_for(
    arm: Arm, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VLLM_API_KEY", "secret")
    monkeypatch.setenv("VLLM_USE_THAT", "1")
    monkeypatch.setenv("VLLM_STORE_SECRET", "secret")
    with served(arm, model, tmp_path / "own") as running:
        settings = running.facts["settings"]
        assert "VLLM_API_KEY" not in settings  # type: ignore
        assert settings["VLLM_USE_THAT"] == "1"  # type: ignore
        assert "secret" not in str(running.facts)
        assert str(tmp_path) not in str(settings)


def test_two_arms_share_no_port_cache_or_name(
    arm: Arm, model: Path, tmp_path: Path
) -> None:
    stock = Arm("stock", make_tree(tmp_path / "stock"), PYTHON)
    with (
        served(stock, model, tmp_path / "own/stock") as one,
        served(arm, model, tmp_path / "own/patched") as two,
    ):
        assert one.url != two.url
        assert one.model != two.model
        for name in ("VLLM_CACHE_ROOT", "VLLM_CONFIG_ROOT"):
            first, second = (f.facts["folders"][name] for f in (one, two))  # type: ignore
            assert first.startswith(str(tmp_path / "own/stock/"))
            assert second.startswith(str(tmp_path / "own/patched/"))
    compiled = {"TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "CUDA_CACHE_PATH"}
    assert compiled <= set(serve._CACHES)


def test_a_port_with_a_server_on_it_is_refused(
    arm: Arm, model: Path, tmp_path: Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with (
            pytest.raises(PortTakenError, match=f"Port {port} is taken"),
            served(arm, model, tmp_path / "own", port=port),
        ):
            pass
    assert not (tmp_path / "own/server.log").exists()
    with served(arm, model, tmp_path / "own", port=port) as running:
        assert running.url == f"http://127.0.0.1:{port}"


def test_a_bound_port_that_does_not_listen_is_taken_too(
    arm: Arm, model: Path, tmp_path: Path
) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        port = other.getsockname()[1]
        with (
            pytest.raises(PortTakenError, match=str(port)),
            served(arm, model, tmp_path / "own", port=port),
        ):
            pass


@pytest.mark.parametrize(
    ("fault", "error", "words"),
    [
        ("dies", ServerDied, ["ended with 3", "no memory for the weights"]),
        (
            "dies-answering",
            ServerDied,
            ["ended with 7", "\n  RuntimeError: a kernel failed\n", "down"],
        ),
        ("no-answer", NotReadyError, ["500", "the forward pass failed", "loading"]),
        ("says-nothing", NotReadyError, ["answers no request", "loading"]),
        ("other", WrongServerError, ["does not serve patched-", "another server"]),
    ],
)
def test_a_server_that_does_not_get_ready(
    arm: Arm, model: Path, tmp_path: Path, fault: str, error: type, words: list[str]
) -> None:
    with (
        pytest.raises(error) as caught,
        served(arm, model, tmp_path / "own", fault),
    ):
        pytest.fail("it was taken for ready")
    assert all(word in caught.value.what for word in words)
    assert caught.value.hint
    assert not is_alive(refused_pid(tmp_path / "own"))


@pytest.mark.parametrize(
    ("fault", "stage"), [("hangs", "did not come up"), ("never-answers", "no request")]
)
def test_a_server_that_takes_too_long(
    arm: Arm,
    model: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    fault: str,
    stage: str,
) -> None:
    class Clock:
        """Stands far ahead as soon as the server is stuck."""

        sleep = staticmethod(time.sleep)

        @staticmethod
        def monotonic() -> float:
            ahead = 1e6 if (tmp_path / "own/stuck").exists() else 0.0
            return time.monotonic() + ahead

    monkeypatch.setattr(ready, "time", Clock)
    with (
        pytest.raises(NotReadyError, match=stage) as caught,
        served(arm, model, tmp_path / "own", fault, ready_s=1e5),
    ):
        pytest.fail("it was taken for ready")
    assert "loading" in caught.value.what
    assert not is_alive(refused_pid(tmp_path / "own"))


def test_another_tree_than_asked_for(arm: Arm, model: Path, tmp_path: Path) -> None:
    other = make_tree(tmp_path / "other")
    script = tmp_path / "python"
    script.write_text(f'#!/bin/sh\nPYTHONPATH={other} exec {PYTHON} "$@"\n')
    script.chmod(0o755)
    wrong = Arm("patched", arm.tree, script, arm.patch_ids)
    with (
        pytest.raises(WrongServerError, match=r"imported .*other/vllm"),
        served(wrong, model, tmp_path / "own"),
    ):
        pass
    assert not is_alive(refused_pid(tmp_path / "own"))


def test_an_interpreter_that_is_a_script_of_its_own(
    arm: Arm, model: Path, tmp_path: Path
) -> None:
    script = tmp_path / "python"
    script.write_text(f'#!/bin/sh\n{PYTHON} "$@"\n')
    script.chmod(0o755)
    wrong = Arm("patched", arm.tree, script, arm.patch_ids)
    with (
        pytest.raises(WrongServerError, match="not as the one started"),
        served(wrong, model, tmp_path / "own"),
    ):
        pass
    assert not is_alive(refused_pid(tmp_path / "own"))


def test_other_patches_than_asked_for(arm: Arm, model: Path, tmp_path: Path) -> None:
    wrong = Arm("patched", arm.tree, PYTHON, ("a1", "b2", "c3"))
    with (
        pytest.raises(WrongServerError, match=r"2 patches .*not the 3 asked for"),
        served(wrong, model, tmp_path / "own"),
    ):
        pass


def test_a_tree_that_was_changed(arm: Arm, model: Path, tmp_path: Path) -> None:
    (arm.tree / "vllm/dot.py").write_text("dot = 2\n")
    with (
        pytest.raises(WrongServerError, match=r"vllm/dot\.py differ"),
        served(arm, model, tmp_path / "own"),
    ):
        pass


def test_everything_that_it_started_ends_with_it(
    arm: Arm, model: Path, tmp_path: Path
) -> None:
    with served(arm, model, tmp_path / "own", "children"):
        children = [*map(int, (tmp_path / "own/children").read_text().split())]
        assert len(children) == 4
        assert all(map(is_alive, children))
    assert all_gone(children) == []


def test_a_server_that_does_not_listen_to_sigterm(
    arm: Arm, model: Path, tmp_path: Path
) -> None:
    with served(arm, model, tmp_path / "own", "deaf") as running:
        pid = pid_of(running)
    assert not is_alive(pid)


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit])
def test_it_ends_with_its_block_however_that_ends(
    arm: Arm, model: Path, tmp_path: Path, error: type[BaseException]
) -> None:
    pids = []
    try:
        with served(arm, model, tmp_path / "own") as running:
            pids.append(pid_of(running))
            raise error
    except error:
        pass
    assert not is_alive(pids[0])


def test_an_interrupt_while_it_loads(arm: Arm, model: Path, tmp_path: Path) -> None:
    def interrupt(line: str) -> None:
        if (tmp_path / "own/facts.json").exists():
            raise KeyboardInterrupt

    with (
        pytest.raises(KeyboardInterrupt),
        served(arm, model, tmp_path / "own", "hangs", on_wait=interrupt),
    ):
        pytest.fail("it was taken for ready")
    assert not is_alive(refused_pid(tmp_path / "own"))


SCRIPT = """
import sys, time
from pathlib import Path
sys.path.insert(0, {root!r})
from evals import cli, processes, ready, serve
ready.POLL_S = 0.02
processes.GRACE_S = 1.0

def main(argv):
    arm = serve.Arm("patched", Path({tree!r}), Path(sys.executable), ("a1", "b2"))
    with serve.serve(arm, Path({model!r}), Path({own!r}),
                     env={{"FAKE_VLLM": "children"}}, ready_s=60):
        print("ready", flush=True)
        time.sleep(600)

sys.exit(cli.guarded(main, []))
"""


@pytest.mark.usefixtures("default_signals")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_signal_to_the_run_ends_its_server(
    arm: Arm, model: Path, tmp_path: Path, number: signal.Signals
) -> None:
    own = tmp_path / "own"
    with started(arm, model, own) as run:
        pids = [refused_pid(own), *map(int, (own / "children").read_text().split())]
        assert all(map(is_alive, pids))
        run.send_signal(number)
        assert run.wait(60) == 130
    assert all_gone(pids) == []


def test_a_killed_run_takes_its_server_along(
    arm: Arm, model: Path, tmp_path: Path
) -> None:
    own = tmp_path / "own"
    with started(arm, model, own) as run:
        pid = refused_pid(own)
        children = [*map(int, (own / "children").read_text().split())]
        run.kill()
        run.wait(60)
    try:
        assert all_gone([pid]) == []
    finally:
        # The fake engine leaves its children behind; vLLM's own ends with its parent.
        for child in children:
            if is_alive(child):
                os.kill(child, signal.SIGKILL)


@contextmanager
def started(arm: Arm, model: Path, own: Path) -> Iterator[subprocess.Popen]:
    """A run in a process of its own, its server ready."""
    text = SCRIPT.format(
        root=str(ROOT), tree=str(arm.tree), model=str(model), own=str(own)
    )
    run = subprocess.Popen(
        [sys.executable, "-c", text], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    try:
        assert run.stdout is not None
        assert run.stdout.readline() == b"ready\n"
        yield run
    finally:
        run.kill()
        run.communicate()


def test_a_server_killed_in_the_middle_is_noticed(
    arm: Arm, model: Path, tmp_path: Path
) -> None:
    with served(arm, model, tmp_path / "own") as running:
        os.kill(pid_of(running), signal.SIGKILL)
        assert all_gone([pid_of(running)]) == []
        with pytest.raises(ServerDied, match="killed by signal 9") as caught:
            running.check()
        assert "loading" in caught.value.what


def test_what_is_no_model_is_refused_at_once(arm: Arm, tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    for folder, why in ((empty, "has no config.json"), (tmp_path / "x", "no folder")):
        with pytest.raises(ServerError, match=why), served(arm, folder, tmp_path / "o"):
            pass
    assert not (tmp_path / "o").exists()


def test_what_is_no_tree_is_refused_at_once(model: Path, tmp_path: Path) -> None:
    arm = Arm("stock", tmp_path, PYTHON)
    with (
        pytest.raises(ServerError, match="no vLLM tree"),
        served(arm, model, tmp_path / "own"),
    ):
        pass


def test_an_interpreter_that_is_not_there(
    arm: Arm, model: Path, tmp_path: Path
) -> None:
    gone = Arm("patched", arm.tree, tmp_path / "no-python", arm.patch_ids)
    with (
        pytest.raises(processes.StartError, match="no-python does not start"),
        served(gone, model, tmp_path / "own"),
    ):
        pass


def test_a_folder_is_one_arms_and_one_runs(
    arm: Arm, model: Path, tmp_path: Path
) -> None:
    own = tmp_path / "own"
    with (
        served(arm, model, own),
        pytest.raises(ServerError, match="in use by another run"),
        served(arm, model, own),
    ):
        pass
    stock = Arm("stock", make_tree(tmp_path / "stock"), PYTHON)
    with (
        pytest.raises(ServerError, match="is the patched arm's"),
        served(stock, model, own),
    ):
        pass


def test_another_tree_gets_no_cache_of_the_last_one(
    arm: Arm, model: Path, tmp_path: Path
) -> None:
    own = tmp_path / "own"
    with served(arm, model, own):
        (own / "cache/inductor").mkdir(parents=True)
        (own / "cache/inductor/kernel").write_text("compiled")
    with served(arm, model, own):
        assert (own / "cache/inductor/kernel").exists()
    tree = make_tree(tmp_path / "later", ["a1"])
    with served(Arm("patched", tree, PYTHON, ("a1",)), model, own):
        assert not (own / "cache/inductor").exists()


def test_the_trees_own_metadata_is_found_first(
    arm: Arm, model: Path, tmp_path: Path
) -> None:
    info = arm.tree / METADATA / "lib/site-packages/vllm-0.32.0+cpu.dist-info"
    info.mkdir(parents=True)
    text = "Metadata-Version: 2.1\nName: vllm\nVersion: 0.32.0+cpu\n"
    (info / "METADATA").write_text(text)
    with served(arm, model, tmp_path / "own") as running:
        assert running.facts["version"] == "0.32.0+cpu"


def test_outside_the_main_thread_it_works_without_signals(
    arm: Arm, model: Path, tmp_path: Path
) -> None:
    found: list[int] = []

    def run() -> None:
        with served(arm, model, tmp_path / "own") as running:
            found.append(pid_of(running))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert len(found) == 1
    assert not is_alive(found[0])


def test_a_free_port_is_free() -> None:
    port = free_port()
    with socket.create_server(("127.0.0.1", port)):
        pass
