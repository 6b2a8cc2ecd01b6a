# SPDX-License-Identifier: Apache-2.0
"""The trees of both arms: the pin and the series on it, each with what is compiled."""

import fcntl
import filecmp
import json
import os
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from evals import cli, cpu_wheel
from evals.bare.start_server import TREE_FACTS
from evals.proof import Arm
from series.errors import SeriesError
from series.git import Repository
from series.locks import locked
from series.manifest import load_manifest
from tests.harness import tree

STOCK, PATCHED = "stock", "patched"
CPU_PYTHON = ".venv-cpu/bin/python"
"""Of the environment that has vLLM's requirements and no vLLM."""
_PROBE = """
import importlib.metadata, importlib.util, json
spec = importlib.util.find_spec("vllm")
found = {"folder": "", "version": ""}
if spec is not None and spec.origin:
    found["folder"] = spec.origin.rpartition("/")[0]
    found["version"] = importlib.metadata.version("vllm")
print("\\n" + json.dumps(found))
"""
Say = Callable[[str], None]
_held: list[int] = []


class TreesError(SeriesError):
    """An arm's tree cannot be made."""


@dataclass(frozen=True)
class Build:
    """Where an interpreter has a vLLM that is built.

    Attributes:
        folder: The package.
        version: Its version.
    """

    folder: Path
    version: str


def arms(
    root: Path,
    python: Path,
    *,
    vllm: Path | None = None,
    wheel: Path | None = None,
    say: Say = print,
) -> tuple[Arm, Arm]:
    """The stock and the patched arm, their trees made once and kept.

    What is compiled comes from the vLLM that the interpreter has installed, of the same
    release; or, for a CPU, from the release's CPU wheel. Both arms get the same.

    Args:
        root: This repository.
        python: The interpreter that is to run them.
        vllm: A clone with the series branch; build/vllm by default.
        wheel: The CPU wheel, where the interpreter has no vLLM; fetched for the
            environment of `make eval-smoke`.
        say: Told what takes time.

    Raises:
        SeriesError: There is no series branch, or no build of that release.
    """
    python = python.absolute()
    manifest = load_manifest(root / "patches/series.toml")
    source = vllm or root / "build/vllm"
    if vllm is None and not source.exists():
        raise TreesError(f"{source} is not there.", "Run make apply first.")
    repo = Repository.find(source)
    commits = tree.commits(repo, manifest.series.branch, len(manifest.patch))
    base = repo.line("rev-parse", f"{commits[0]}~1")
    pin = manifest.pin
    if not base.startswith(pin.commit) and repo.tree_of(base) != pin.tree:
        raise TreesError(
            f"{source} has other commits on {manifest.series.branch} than patches/: "
            f"{base[:12]} below the last {len(commits)} is not {pin.tag}.",
            "Run make export to keep them, or make apply to put the series back.",
        )
    if wheel is None and python.absolute() == (root / CPU_PYTHON).absolute():
        wheel = cpu_wheel.of_release(root, pin.release, say)
    build = None if wheel else installed(python, pin.release)
    ids = tuple(patch_id(repo, commit) for commit in commits)
    touched = _names(repo, base, commits[-1])
    folder = root / "build/eval/trees"
    folder.mkdir(parents=True, exist_ok=True)
    found: list[Arm] = []
    with locked(folder, lambda: say("Another run makes the trees: waiting.")):
        for name, commit, own in ((STOCK, base, ()), (PATCHED, commits[-1], ids)):
            path = tree.export(repo, commit, folder)
            _hold(path)
            facts = {
                "commit": commit,
                "patch_ids": list(own),
                "files": _blobs(repo, commit, touched),
                "built": cpu_wheel.recipe(wheel) if wheel else str(build),
            }
            if _recorded(path) != facts:
                say(f"{name}: putting what is compiled into {path}")
                (path / TREE_FACTS).unlink(missing_ok=True)
                if wheel is not None:
                    cpu_wheel.unpack(wheel, path, python, pin.release)
                    if found:
                        share(found[0].tree, path)
                elif build is not None:
                    lend(build.folder, path)
                _record(path, facts)
            found.append(Arm(name, path, python, tuple(own)))
        _sweep(folder, {arm.tree.name for arm in found})
    return found[0], found[1]


def installed(python: Path, release: str) -> Build:
    """The built vLLM of an interpreter.

    Raises:
        TreesError: It has none, or one of another release.
    """
    try:
        # From a folder without a vLLM in it, and with none that PYTHONPATH adds.
        clean = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
        words = [str(python), "-P", "-c", _PROBE]
        done = subprocess.run(
            words, cwd="/", env=clean, capture_output=True, text=True, check=False
        )
    except OSError as error:
        raise TreesError(
            f"{python} does not start: {error.strerror}.",
            "Name a Python interpreter: PYTHON=path/to/python3",
        ) from error
    if done.returncode:
        last = done.stderr.strip().splitlines()[-1:] or ["no message"]
        raise TreesError(f"{python} cannot be asked for its vLLM: {last[0]}.")
    said = json.loads(done.stdout.strip().splitlines()[-1])
    hint = (
        f"Name the Python of an image that has vLLM {release} installed: PYTHON=…; "
        "`make eval-smoke` needs none."
    )
    if not said["folder"]:
        raise TreesError(f"{python} has no vLLM, so nothing compiled to run on.", hint)
    if said["version"].partition("+")[0] != release:
        raise TreesError(
            f"{python} has vLLM {said['version']}; the series is on {release}.", hint
        )
    return Build(Path(said["folder"]), said["version"])


def lend(package: Path, tree_path: Path) -> int:
    """Links into a tree what a build added to the same release's source.

    Returns:
        How many files.

    Raises:
        TreesError: The build has added nothing compiled.
    """
    target = tree_path / "vllm"
    count = compiled = 0
    for source in sorted(package.rglob("*")):
        name = source.relative_to(package)
        if not source.is_file() or "__pycache__" in name.parts:
            continue
        link = target / name
        # A link of an earlier run may lead nowhere by now.
        if link.is_symlink():
            link.unlink()
        if not link.exists():
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(source.absolute())
            count += 1
        compiled += source.suffix == ".so"
    if not compiled:
        raise TreesError(
            f"{package} has no compiled extension to run on.",
            "Name the Python of an image whose vLLM is built.",
        )
    return count


def share(first: Path, second: Path) -> int:
    """Makes one file of two, where both trees have the same extension: 0.4 GB less.

    Returns:
        How many files.
    """
    count = 0
    for path in sorted(first.glob("vllm/**/*.so")):
        twin = second / path.relative_to(first)
        if not twin.is_file() or not filecmp.cmp(path, twin, shallow=False):
            continue
        aside = twin.with_name(twin.name + ".part")
        aside.unlink(missing_ok=True)
        try:
            os.link(path, aside)
        except OSError:
            # Not every file system has hard links: two files do as well.
            return count
        os.replace(aside, twin)
        count += 1
    return count


def patch_id(repo: Repository, commit: str) -> str:
    """git's stable patch id of a commit."""
    diff = repo.git("diff-tree", "-p", "--full-index", f"{commit}~1", commit)
    return repo.git("patch-id", "--stable", stdin=diff).decode().partition(" ")[0]


def _names(repo: Repository, base: str, tip: str) -> list[str]:
    out = repo.git("diff-tree", "-r", "--name-only", "-z", base, tip)
    return [os.fsdecode(name) for name in out.split(b"\0") if name]


def _blobs(repo: Repository, commit: str, names: list[str]) -> dict[str, str]:
    """The blob of each file in a commit, empty where it is not."""
    out = os.fsdecode(repo.git("ls-tree", "-r", "-z", commit, "--", *names))
    rows = [row.partition("\t") for row in out.split("\0") if row]
    blobs = {name: entry.split()[2] for entry, _, name in rows}
    return {name: blobs.get(name, "") for name in names}


def _recorded(path: Path) -> dict | None:
    try:
        return dict(json.loads((path / TREE_FACTS).read_text(encoding="utf-8")))
    except (OSError, ValueError):
        return None


def _record(path: Path, facts: dict) -> None:
    """Says that the tree is whole; last, so that a half-made one does not say it."""
    cli.write_json(path / TREE_FACTS, facts)


def _hold(path: Path) -> None:
    """Keeps a tree from being swept by other runs for as long as this process lives."""
    handle = os.open(path, os.O_RDONLY)
    _held.append(handle)
    fcntl.flock(handle, fcntl.LOCK_SH)


def _sweep(folder: Path, keep: set[str]) -> None:
    """Removes trees of an earlier state of the series that no run holds.

    Each takes half a gigabyte.
    """
    for path in folder.iterdir():
        if not path.is_dir() or path.name in keep:
            continue
        handle = os.open(path, os.O_RDONLY)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(path, ignore_errors=True)
        except BlockingIOError:
            pass
        finally:
            os.close(handle)
