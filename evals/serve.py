# SPDX-License-Identifier: Apache-2.0
"""`vllm serve` of one arm: started, proven to be that arm, and always stopped."""

import contextlib
import fcntl
import json
import os
import shutil
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from evals import cli, proof, ready
from evals.local_http import HOST, free_port, require_free
from evals.processes import Group, ended_by_signals
from evals.proof import Arm, NotReadyError, ServerDied, ServerError, WrongServerError

__all__ = [
    "Arm",
    "NotReadyError",
    "Running",
    "ServerDied",
    "ServerError",
    "WrongServerError",
    "require_model",
    "serve",
]

STARTER = Path(__file__).resolve().parent / "bare/start_server.py"
_CACHES = {
    "VLLM_CACHE_ROOT": "vllm",
    "VLLM_CONFIG_ROOT": "vllm-config",
    "TORCHINDUCTOR_CACHE_DIR": "inductor",
    "TRITON_CACHE_DIR": "triton",
    "CUDA_CACHE_PATH": "cuda",
}
_OWNER = "arm.json"


@dataclass(frozen=True)
class Running:
    """A server that answers.

    Attributes:
        url: Its address without a trailing slash; the API is below /v1.
        model: The name to ask for. It is made for this start alone: another server
            on the same port refuses it.
        log: What the server and its engine wrote.
        facts: Which tree answers: module, version, patch_ids, commit, decode_kernel
            (the log's line or None), command, settings, folders, ready_s.
    """

    url: str
    model: str
    log: Path
    facts: dict[str, object]
    _group: Group = field(repr=False)

    def check(self) -> None:
        """Notices a server that is gone.

        Raises:
            ServerDied: With the end of its log.
        """
        if (code := self._group.child.poll()) is not None:
            raise proof.died(str(self.facts["arm"]), code, self.log)


@contextmanager
def serve(
    arm: Arm,
    model: Path | str,
    folder: Path,
    *,
    args: Sequence[str] = (),
    env: Mapping[str, str] = {},
    ready_s: float = 1800,
    on_wait: Callable[[str], None] | None = None,
    port: int | None = None,
) -> Iterator[Running]:
    """Serves a model from an arm's tree for as long as the block runs.

    The server and all that it started are gone when the block ends, however it ends;
    SIGTERM and SIGHUP end it as Ctrl-C does.

    Args:
        arm: What is served.
        model: A model's folder, or its name on the hub.
        folder: Of this arm alone: its log, caches and compiled code.
        args: More words for `vllm serve`.
        env: Variables on top of this process's own.
        ready_s: Seconds that loading may take.
        on_wait: Told every second what the server does.
        port: Where to listen; a free one by default.

    Raises:
        PortTakenError: Something answers there already.
        ServerError: It does not start, die or is not ready in time, or what answers
            is not that arm.
    """
    proof.require_tree(arm)
    require_model(model)
    at = port or free_port()
    require_free(at)
    folder = folder.absolute()
    name = f"{arm.name}-{uuid.uuid4().hex[:8]}"
    words = [str(arm.python), "-P", str(STARTER), str(folder / "facts.json")]
    # A single word, so that --help and the like in args stay the server's.
    words += ["serve", str(model), "--host", HOST, "--port", str(at)]
    words += ["--served-model-name", name, *args]
    log = folder / "server.log"
    with _own(folder, arm), ended_by_signals():
        group: Group | None = None
        try:
            started_s = time.monotonic()
            variables = _variables(arm, model, folder, env)
            group = Group.start(words, variables, folder, log)
            launch = ready.Launch(
                arm, f"http://{HOST}:{at}", name, group, log, folder / "facts.json"
            )
            facts = ready.wait(launch, ready_s, on_wait or (lambda line: None))
            facts |= {"arm": arm.name, "model": str(model), "command": words[4:]}
            facts["ready_s"] = round(time.monotonic() - started_s, 1)
            yield Running(launch.url, name, log, facts, group)
        finally:
            if group is not None:
                group.stop()


def require_model(model: Path | str) -> None:
    """Refuses a folder that holds no model, before minutes are spent on it.

    Raises:
        ServerError: There is no config.json in it.
    """
    text = str(model)
    path = Path(text).expanduser()
    is_path = isinstance(model, Path) or text.startswith(("/", ".", "~"))
    if not is_path and not path.exists():
        return
    if not (path / "config.json").is_file():
        what = "has no config.json" if path.is_dir() else "is no folder"
        raise ServerError(
            f"{text} holds no model: it {what}.",
            "Name a model's folder, or its name on the hub.",
        )


def _variables(
    arm: Arm, model: Path | str, folder: Path, env: Mapping[str, str]
) -> dict[str, str]:
    """The server's environment: the arm's tree first, its caches its own."""
    whole = {**os.environ, **env}
    # It listens on this machine alone, and a key would go into every request and log.
    whole.pop("VLLM_API_KEY", None)
    paths = [arm.tree.absolute(), *proof.metadata(arm.tree)]
    extra = [whole["PYTHONPATH"]] if whole.get("PYTHONPATH") else []
    whole["PYTHONPATH"] = os.pathsep.join([*map(str, paths), *extra])
    whole |= {key: str(folder / "cache" / name) for key, name in _CACHES.items()}
    whole |= {
        "PYTHONUNBUFFERED": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_LOGGING_COLOR": "0",
    }
    if Path(str(model)).expanduser().is_dir():
        whole["HF_HUB_OFFLINE"] = "1"
    return whole


@contextmanager
def _own(folder: Path, arm: Arm) -> Iterator[None]:
    """Holds a folder for this server; what another tree compiled there is removed."""
    folder.mkdir(parents=True, exist_ok=True)
    handle = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise ServerError(
                f"{folder} is in use by another run.",
                "Wait for it, or name another folder.",
            ) from error
        owner = {"arm": arm.name, "tree": str(arm.tree), "python": str(arm.python)}
        before = _read(folder / _OWNER)
        if before and before.get("arm") != arm.name:
            raise ServerError(
                f"{folder} is the {before.get('arm')} arm's, not the {arm.name} one's.",
                "Give each arm a folder of its own.",
            )
        if before != owner:
            shutil.rmtree(folder / "cache", ignore_errors=True)
            cli.write_json(folder / _OWNER, owner)
        (folder / "facts.json").unlink(missing_ok=True)
        yield
    finally:
        os.close(handle)


def _read(path: Path) -> dict[str, Any]:
    with contextlib.suppress(OSError, ValueError):
        said = json.loads(path.read_text(encoding="utf-8"))
        return said if isinstance(said, dict) else {}
    return {}
