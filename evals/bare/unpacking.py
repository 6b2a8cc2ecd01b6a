# SPDX-License-Identifier: Apache-2.0
"""A bundle's pieces on the machine: found, checked, kept, unpacked once."""

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import IO

STAND_IN = "vllm/_C_stable_libtorch"
CHUNK = 1 << 20


class BundleError(Exception):
    """What is wrong, and what to do about it."""


def load_index(here: Path) -> dict:
    """bundle.json of the folder that run.py lies in."""
    index = here / "bundle.json"
    if not index.exists():
        raise BundleError(f"{index} is missing: make bundle did not finish.")
    return json.loads(index.read_text(encoding="utf-8"))


def _whole(path: Path, piece: dict) -> bool:
    if not path.exists():
        return False
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest() == piece["sha256"]


def keep(described: dict, here: Path, store: Path) -> list[str]:
    """Copies what lies beside run.py into the store; returns what is missing still.

    Raises:
        BundleError: A piece beside run.py has other bytes than it should.
    """
    store.mkdir(parents=True, exist_ok=True)
    missing = []
    for piece in described["pieces"]:
        kept, brought = store / piece["file"], here / piece["file"]
        if brought.exists():
            if not _whole(brought, piece):
                raise BundleError(f"{brought} is damaged: copy it anew.")
            aside = kept.with_name(kept.name + ".part")
            shutil.copyfile(brought, aside)
            os.replace(aside, kept)
        elif not _whole(kept, piece):
            missing.append(piece["file"])
    return missing


def found(described: dict, here: Path, store: Path) -> dict[str, Path]:
    """Where each piece lies, beside run.py or in the store, its bytes checked.

    Raises:
        BundleError: Pieces are missing, all of them named, or damaged.
    """
    paths, lost = {}, []
    for piece in described["pieces"]:
        name = piece["file"]
        there = [path for path in (here / name, store / name) if path.exists()]
        whole = [path for path in there if _whole(path, piece)]
        if whole:
            paths[name] = whole[0]
        elif there:
            raise BundleError(f"{there[0]} is damaged: copy it anew.")
        else:
            lost.append(name)
    if lost:
        raise BundleError(
            f"missing: {', '.join(lost)}. Copy them beside {here / 'run.py'}, or bring "
            "a part at a time and run `run.py store` after each."
        )
    return paths


class _Joined:
    """The parts of an archive as one stream."""

    def __init__(self, files: list[IO[bytes]]) -> None:
        self.files = files

    def read(self, size: int = CHUNK) -> bytes:
        while self.files:
            if data := self.files[0].read(size):
                return data
            self.files.pop(0)
        return b""


def _archives(described: dict, paths: dict[str, Path]) -> Iterator[tuple[str, list]]:
    """Each archive's folder and the files that it consists of, in order."""
    groups: dict[tuple[str, str], list[Path]] = {}
    for piece in described["pieces"]:
        stem, _, last = piece["file"].rpartition(".")
        name = stem if last.isdigit() else piece["file"]
        groups.setdefault((name, piece["into"]), []).append(paths[piece["file"]])
    for (_, into), files in groups.items():
        yield into, sorted(files)


def _placed(member: tarfile.TarInfo, folder: str) -> tarfile.TarInfo:
    """The data filter; makes the member's folder, which other archives may share.

    tarfile makes it too, but fails where another thread made it since it looked.
    """
    safe = tarfile.data_filter(member, folder)
    (Path(folder) / safe.name).parent.mkdir(parents=True, exist_ok=True)
    return safe


def _extract(folder: Path, files: list[Path]) -> None:
    with ExitStack() as stack:
        opened = [stack.enter_context(path.open("rb")) for path in files]
        stream = _Joined(list(opened))
        with tarfile.open(fileobj=stream, mode="r|*", bufsize=CHUNK) as archive:  # type: ignore[call-overload]
            archive.extractall(folder, filter=_placed)


def unpack(described: dict, paths: dict[str, Path], into: Path, facts: dict) -> Path:
    """Unpacks everything into one folder, once; it gets its name when it is whole.

    Args:
        described: The index.
        paths: Where each piece lies.
        into: The folder that the other is made in.
        facts: What this Python's torch is.
    """
    text = json.dumps(described, sort_keys=True).encode()
    name = "vllm-rocm-series-" + hashlib.sha256(text).hexdigest()[:12]
    target = into / name
    if target.exists():
        return target
    into.mkdir(parents=True, exist_ok=True)
    aside = Path(tempfile.mkdtemp(prefix=name, dir=into))
    try:
        with ThreadPoolExecutor() as pool:
            done = [
                pool.submit(_extract, aside / folder, files)
                for folder, files in _archives(described, paths)
            ]
            for one in done:
                one.result()
        if (aside / "wheels").exists():
            install(aside)
        if facts["cuda"] and not list((aside / "tree").glob(STAND_IN + ".*")):
            # vLLM's CUDA platform cannot start without a module of that name.
            (aside / "tree" / f"{STAND_IN}.py").touch()
        link_stock(aside, described.get("added", []))
        os.replace(aside, target)
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    return target


def link_stock(folder: Path, added: list[str]) -> None:
    """Makes the release's own tree whole: what the patches left alone is linked."""
    tree, stock = folder / "tree", folder / "stock"
    if not stock.exists():
        return
    for path in tree.rglob("*"):
        name = path.relative_to(tree)
        copy = stock / name
        if path.is_file() and name.as_posix() not in added and not copy.exists():
            copy.parent.mkdir(parents=True, exist_ok=True)
            os.link(path, copy)


def install(folder: Path) -> None:
    """Unpacks the wheels into a folder of their own, without a network."""
    wheels = sorted(map(str, (folder / "wheels").glob("*.whl")))
    call = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index"]
    call += ["--no-deps", "--no-compile", "--no-cache-dir"]
    call += ["--disable-pip-version-check"]
    call += ["--target", str(folder / "site"), *wheels]
    done = subprocess.run(call, capture_output=True, text=True)
    if done.returncode:
        raise BundleError(f"pip could not unpack the wheels: {done.stderr.strip()}")
