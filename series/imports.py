# SPDX-License-Identifier: Apache-2.0
"""Whether the modules that the series changes import, in an interpreter with torch.

The answer is kept by tree and interpreter: a tree does not change its mind.
"""

import hashlib
import json
import os
import shutil
import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

from .disk import disk_errno
from .errors import of_system
from .locks import locked
from .scratch import Scratch

_LIMIT_S = 300
# Prints one JSON list: module, what is wrong (or nothing), what is not installed.
_PROGRAM = """
import importlib, json, sys
said = []
for name in sys.argv[1:]:
    wrong = lacks = ""
    try:
        importlib.import_module(name)
    except ModuleNotFoundError as error:
        if (error.name or "vllm").split(".")[0] == "vllm":
            wrong = str(error)
        else:
            lacks = error.name
    except BaseException as error:
        wrong = f"{type(error).__name__}: {error}"
    said.append([name, wrong, lacks])
print("\\n@" + json.dumps(said))
"""


@dataclass(frozen=True)
class Import:
    """Modules to import from a tree.

    Args:
        repo: The repository that has the tree.
        tree: Its id.
        version: The release that it is.
        modules: What to import.
    """

    repo: Scratch
    tree: str
    version: str
    modules: tuple[str, ...]


def has_torch(python: str) -> bool:
    """Whether an interpreter starts and finds torch."""
    find = "import importlib.util as u, sys; sys.exit(u.find_spec('torch') is None)"
    try:
        return subprocess.run([python, "-c", find], check=False).returncode == 0
    except OSError:
        return False


def is_whole(job: Import) -> bool:
    """Whether the package's files are all here; a partial clone may lack some."""
    listed = job.repo.git("ls-tree", "-r", "-z", job.tree, "--", "vllm").split(b"\0")
    entries = [entry for entry in listed if entry.endswith(b".py")]
    oids = {entry.split(b"\t")[0].split()[2].decode() for entry in entries}
    return not job.repo.missing(sorted(oids))


def import_faults(jobs: list[Import], python: str, cache: Path) -> list[list[str]]:
    """What does not import, for each tree; two at a time.

    Args:
        jobs: The trees; their objects are read before this returns.
        python: An interpreter with torch.
        cache: A folder for answers and exported trees.
    """
    workers = min(2, os.cpu_count() or 1)
    try:
        cache.mkdir(parents=True, exist_ok=True)
        with locked(cache), ThreadPoolExecutor(workers) as pool:
            _sweep(cache)
            return list(pool.map(lambda job: _faults(job, python, cache), jobs))
    except OSError as error:
        raise of_system(error, cache) from error


def _faults(job: Import, python: str, cache: Path) -> list[str]:
    if not job.modules:
        return []
    words = json.dumps([job.tree, job.modules, python])
    answer = cache / f"{hashlib.sha256(words.encode()).hexdigest()[:24]}.json"
    if answer.exists():
        return list(json.loads(answer.read_text("utf-8")))
    with tempfile.TemporaryDirectory(prefix="tree-", dir=cache) as folder:
        root = Path(folder)
        _export(job, root / "tree")
        faults = _run(job, python, root)
        for fault in faults:
            # Of the disk, not of the tree: the answer would be another with room.
            if number := disk_errno(fault):
                raise of_system(OSError(number, fault), cache)
        part = root / "answer"
        part.write_text(json.dumps(faults), "utf-8")
        os.replace(part, answer)
    return faults


def _export(job: Import, tree: Path) -> None:
    """The Python package alone: nothing else is imported."""
    tree.mkdir()
    index = {"GIT_INDEX_FILE": str(tree.parent / "index")}
    there = replace(job.repo, worktree=tree)
    there.git("read-tree", job.tree, env=index)
    out = there.git("ls-files", "-z", "vllm", env=index)
    paths = b"".join(p + b"\0" for p in out.split(b"\0") if p.endswith(b".py"))
    there.git("checkout-index", "-z", "--stdin", stdin=paths, env=index)
    # Platform detection wants an installed distribution.
    info = tree.parent / "meta" / f"vllm-{job.version}.dist-info"
    info.mkdir(parents=True)
    text = f"Metadata-Version: 2.1\nName: vllm\nVersion: {job.version}\n"
    (info / "METADATA").write_text(text, "utf-8")


def _run(job: Import, python: str, root: Path) -> list[str]:
    paths = [str(root / "tree"), str(root / "meta")]
    # What torch keeps between runs goes with the tree.
    temporary = root / "tmp"
    temporary.mkdir()
    keep = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    env = {
        **keep,
        "PYTHONPATH": os.pathsep.join(paths),
        "PYTHONDONTWRITEBYTECODE": "1",
        # Without a GPU vLLM would replace triton by a stub.
        "CUDA_VISIBLE_DEVICES": "",
        "TRITON_INTERPRET": "1",
        "HOME": str(root),
        "TMPDIR": str(temporary),
    }
    words = [python, "-c", _PROGRAM, *job.modules]
    try:
        done = subprocess.run(
            words, env=env, cwd=root, capture_output=True, timeout=_LIMIT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return [f"importing did not end: {error}"]
    _, mark, said = done.stdout.decode("utf-8", "replace").rpartition("\n@")
    if not mark:
        last = done.stderr.decode("utf-8", "replace").strip().splitlines()[-1:]
        return [f"importing ended with {done.returncode}: {' '.join(last)}"]
    return [f"{name} does not import: {w}" for name, w, _ in json.loads(said) if w]


def _sweep(cache: Path) -> None:
    """Remove exported trees that killed runs have left."""
    for left in cache.glob("tree-*"):
        shutil.rmtree(left, ignore_errors=True)
