# SPDX-License-Identifier: Apache-2.0
"""A small project that stands for vLLM, a series on it, and a quiet git.

`world` holds a repository with history, its source distribution, and patches with
their series.toml; every test gets its own copies. The patches are written by git
itself with every flag spelled out, not by the code under test.
"""

import hashlib
import os
import shutil
import signal
import subprocess
import tarfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from series.manifest import Manifest, load_manifest

USER = {
    "GIT_AUTHOR_NAME": "Dev Eloper",
    "GIT_AUTHOR_EMAIL": "dev@example.com",
    "GIT_COMMITTER_NAME": "Dev Eloper",
    "GIT_COMMITTER_EMAIL": "dev@example.com",
}
OPS = """\
import torch


def first(x, w):
    y = x * w
    y = y + 1

    return y.sum()


def second(x, w):
    y = x * w
    y = y + 1

    return y.sum()


def third(x, w):
    y = x * w
    y = y + 1

    return y.sum()
"""
FILES = {
    "README.md": b"A small project.\n",
    "vllm/__init__.py": b'__version__ = "0.32.0"\n',
    "vllm/ops.py": OPS.encode(),
    "vllm/core.py": "".join(f"value_{n} = {n}\n" for n in range(60)).encode(),
    "vllm/old.py": "".join(
        f"def f{n}():\n    return {n}\n\n" for n in range(9)
    ).encode(),
    "docs/sp ace.md": b"one\n\ntwo\n",
    "win.txt": b"first\r\nsecond\r\n",
    "tools/run.sh": b"#!/bin/sh\ntrue\n",
    "bare-end.txt": b"no newline at the end",
}


@pytest.fixture
def default_signals() -> Iterator[None]:
    """What ends a program ends it, though nohup or a shell's & had it ignored."""
    usual = {
        signal.SIGINT: signal.default_int_handler,
        signal.SIGTERM: signal.SIG_DFL,
        signal.SIGHUP: signal.SIG_DFL,
    }
    ignored = [one for one in usual if signal.getsignal(one) is signal.SIG_IGN]
    for one in ignored:
        signal.signal(one, usual[one])
    yield
    for one in ignored:
        signal.signal(one, signal.SIG_IGN)


def git(cwd: Path, *args: str, **env: str) -> str:
    """Run git as a user would, and return what it says."""
    done = subprocess.run(
        ["git", *args],
        cwd=cwd,
        env={**os.environ, **env},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
    )
    if done.returncode:
        raise AssertionError(f"git {args}: {done.stderr.decode()}")
    return done.stdout.decode("utf-8", "surrogateescape").rstrip("\n")


def commit(repo: Path, message: str, date: str = "2026-01-02T03:04:05+01:00") -> str:
    """Commit everything that is in the work tree, as the test user."""
    git(repo, "add", "-A", "-f")
    dates = {"GIT_AUTHOR_DATE": date, "GIT_COMMITTER_DATE": date}
    git(repo, "commit", "-q", "--cleanup=verbatim", "-m", message, **USER, **dates)
    return git(repo, "rev-parse", "HEAD")


@pytest.fixture(autouse=True)
def quiet_git(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Path:
    """An empty HOME, no settings, no inherited variables, a TMPDIR of its own."""
    home = tmp_path_factory.mktemp("home")
    for name in list(os.environ):
        if name.startswith(("GIT_", "XDG_", "PIP_INDEX")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    monkeypatch.setenv("TMPDIR", str(tmp_path_factory.mktemp("tmp")))
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setattr("tempfile.tempdir", None)
    return home


@dataclass(frozen=True)
class World:
    """The stand-in for upstream.

    Args:
        upstream: A repository: history, the pin (tagged), later commits.
        pin: The pinned commit.
        patches: The folder of patches and series.toml.
        sdist: The source distribution of the pin.
        tree: The tree id of the whole series on the pin.
    """

    upstream: Path
    pin: str
    patches: Path
    sdist: Path
    tree: str

    @property
    def toml(self) -> Path:
        """The series.toml."""
        return self.patches / "series.toml"

    @property
    def manifest(self) -> Manifest:
        """The series.toml, read."""
        return load_manifest(self.toml)


def _write(root: Path, files: dict[str, bytes]) -> None:
    for name, data in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(data)


def _change_one(root: Path) -> None:
    """The fast path goes into the second of three look-alike functions."""
    text = (root / "vllm/ops.py").read_text()
    head, middle, tail = text.split("    y = x * w\n    y = y + 1\n", 2)
    old = "    y = x * w\n    y = y + 1\n"
    new = "    if fast(x):\n        return dot(x, w)\n" + old
    (root / "vllm/ops.py").write_text(head + old + middle + new + tail)
    _write(root, {"vllm/dot é.py": b"def dot(x, w):\n    return (x * w).sum()\n"})


def _change_two(root: Path) -> None:
    lines = (root / "vllm/core.py").read_text().splitlines()
    lines[3], lines[12], lines[50] = "value_3 = 33   ", "", "value_50 = 'é'"
    (root / "vllm/core.py").write_text("\n".join(lines) + "\n")
    (root / "win.txt").write_bytes(b"first\r\nzweite\r\nthird\r\n")
    (root / "bare-end.txt").write_bytes(b"still no newline at the end")
    text = (root / "vllm/ops.py").read_text()
    (root / "vllm/ops.py").write_text(f"{text}\n\ndef fast(x):\n    return x.is_cuda\n")


def _change_three(root: Path) -> None:
    moved = (root / "vllm/old.py").read_text().replace("return 4", "return 44")
    (root / "vllm/old.py").unlink()
    _write(root, {"vllm/new.py": moved.encode(), "empty.txt": b""})
    (root / "tools/run.sh").chmod(0o755)
    (root / "data.bin").write_bytes(bytes(range(256)))


LONG = "Rework core, and say so in a subject that is far too long for one line of mail"
SERIES = [
    ("[ROCm][Perf] Add the fast path [x]", "Why, with an é.\n\n- a list", _change_one),
    (LONG, "", _change_two),
    ("[Core] Move old to new", "Two lines\nof body.", _change_three),
]
FORMAT = [
    "--zero-commit",
    "--full-index",
    "--keep-subject",
    "-p",
    "--no-renames",
    "--binary",
    "--no-signature",
    "--encode-email-headers",
    "--numbered-files",
]
TOML = """\
# A comment that stays.
[pin]
release = "0.32.0"
tag = "v0.32.0"
commit = "{commit}" # abbreviated
tree = "{pin_tree}"
date = 2026-10-18T09:36:00Z
generated = ["PKG-INFO", "vllm.egg-info", "vllm/_version.py"]

[pin.sdist]
filename = "vllm-0.32.0.tar.gz"
size = {size}
sha256 = "{sha256}"

[series]
branch = "rocm-series"
tree = "{tree}" # of all patches

[[change_set]]
name = "tiny-dot"
title = "The dot"
upstream = {{ state = "open", url = "https://example.com/1", since = 2026-09-01 }}
related = [{{ url = "https://example.com/2", how = "disjoint" }}]

[[patch]] # the first
file = "0001-fast-path.patch"
title = "[ROCm][Perf] Add the fast path [x]"
purpose = "Takes the fast path"
series = "tiny-dot"
upstream = {{ state = "open", url = "https://example.com/1" }}
drop_when = {{ file = "vllm/dot é.py", symbol = "dot" }}
symbols = [{{ file = "vllm/dot é.py", symbol = "dot" }}]
tests = ["tests/test_dot.py"]

[[patch]]
file = "0002-rework-core.patch"
title = "{long}"
purpose = "Reworks core"
series = "tiny-dot"
upstream = {{ state = "not submitted" }}
symbols = [
    {{ file = "vllm/ops.py", symbol = "fast" }}, # a comment inside
    {{ file = "vllm/core.py", symbol = "value_50 = 'é'" }},
]

[[patch]]
file = "0003-move-old.patch"
title = "[Core] Move old to new"
purpose = "Moves old to new"
series = "tiny-dot"
upstream = {{ state = "not submitted" }}
"""


@pytest.fixture(scope="session")
def built_world(tmp_path_factory: pytest.TempPathFactory) -> World:
    """Make the world once; tests work on copies."""
    root = tmp_path_factory.mktemp("world")
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("GIT_")]:
            patch.delenv(name)
        patch.setenv("HOME", str(root))
        patch.setenv("GIT_CONFIG_NOSYSTEM", "1")
        patch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
        return _build_world(root)


def _build_world(root: Path) -> World:
    upstream = root / "upstream"
    upstream.mkdir()
    git(upstream, "init", "-q", "-b", "main")
    git(upstream, "config", "uploadpack.allowFilter", "true")
    git(upstream, "config", "uploadpack.allowAnySHA1InWant", "true")
    _write(upstream, {**FILES, "vllm/core.py": b"value = 1\n"})
    commit(upstream, "Start\n")
    _write(upstream, FILES)
    pin = commit(upstream, "The release\n")
    git(upstream, "tag", "v0.32.0")
    sdist = root / "vllm-0.32.0.tar.gz"
    _make_sdist(upstream, root / "sdist" / "vllm-0.32.0", sdist)
    git(upstream, "switch", "-q", "-c", "work")
    for number, (subject, body, change) in enumerate(SERIES):
        change(upstream)
        date = f"2026-09-0{number + 1}T10:00:00+02:00"
        text = f"{subject}\n\n{body}\n" if body else f"{subject}\n"
        commit(upstream, text, date)
    patches = root / "patches"
    git(upstream, "format-patch", "-q", "-o", str(patches), *FORMAT, "v0.32.0..work")
    names = ("0001-fast-path", "0002-rework-core", "0003-move-old")
    for number, name in enumerate(names, 1):
        (patches / str(number)).rename(patches / f"{name}.patch")
    tree = git(upstream, "rev-parse", "work^{tree}")
    data = sdist.read_bytes()
    (patches / "series.toml").write_text(
        TOML.format(
            commit=pin[:12],
            long=LONG,
            pin_tree=git(upstream, "rev-parse", "v0.32.0^{tree}"),
            size=len(data),
            sha256=hashlib.sha256(data).hexdigest(),
            tree=tree,
        )
    )
    git(upstream, "switch", "-q", "main")
    git(upstream, "branch", "-q", "-D", "work")
    _write(upstream, {"vllm/later.py": b"later = 1\n"})
    commit(upstream, "Later\n")
    git(upstream, "reflog", "expire", "--expire=now", "--all")
    git(upstream, "gc", "-q", "--prune=now")
    return World(upstream, pin, patches, sdist, tree)


def _make_sdist(upstream: Path, folder: Path, archive: Path) -> None:
    folder.mkdir(parents=True)
    git(upstream, "checkout-index", "-a", f"--prefix={folder}/")
    _write(folder, {"PKG-INFO": b"Name: vllm\n", "vllm/_version.py": b"v = 1\n"})
    _write(folder, {"vllm.egg-info/SOURCES.txt": b"\n"})
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(folder, arcname=folder.name)


@pytest.fixture
def world(built_world: World, tmp_path: Path) -> World:
    """The world, with patches that the test may change."""
    patches = tmp_path / "patches"
    shutil.copytree(built_world.patches, patches)
    return World(
        built_world.upstream,
        built_world.pin,
        patches,
        built_world.sdist,
        built_world.tree,
    )


@pytest.fixture
def clone(world: World, tmp_path: Path) -> Path:
    """A user's full clone, with a branch, a stash, hooks and edits of their own."""
    path = tmp_path / "my clone é"
    make_clone(world.upstream, path)
    git(path, "switch", "-q", "-c", "mine")
    (path / "mine.txt").write_text("mine\n")
    commit(path, "Mine\n")
    return path


def make_clone(upstream: Path, path: Path, *options: str) -> Path:
    """Clone through the transport, as from a server."""
    git(path.parent, "clone", "-q", *options, upstream.as_uri(), str(path))
    return path


def seen_state(repo: Path) -> dict[str, object]:
    """All that a user could see of a repository, but the series branch itself."""
    common = Path(git(repo, "rev-parse", "--path-format=absolute", "--git-common-dir"))
    ours = ("refs/heads/rocm-series", "refs/series/")
    refs = git(repo, "for-each-ref", "--format=%(refname) %(objectname)").splitlines()
    files: dict[str, object] = {}
    for path in sorted(common.rglob("*")):
        name = str(path.relative_to(common))
        kept = name.startswith(("objects", "logs/refs/heads/rocm-series"))
        if path.is_file() and not kept and not name.startswith(("refs/", "packed")):
            files[name] = path.read_bytes()
    if common.name == ".git":
        for path in sorted(common.parent.rglob("*")):
            if path.is_file() and common not in path.parents:
                stat = path.stat()
                name = str(path.relative_to(common.parent))
                files[name] = (path.read_bytes(), stat.st_mtime_ns, stat.st_mode)
    return {
        "refs": [ref for ref in refs if not ref.startswith(ours)],
        "files": files,
    }


def subjects(repo: Path, spec: str = "v0.32.0..rocm-series") -> list[str]:
    """The subjects of a range of commits, oldest first."""
    return git(repo, "log", "--reverse", "--format=%s", spec).splitlines()


@pytest.fixture
def said() -> Callable[[str], None]:
    """A place for progress lines; its `lines` hold them."""

    def say(line: str) -> None:
        say.lines.append(line)  # type: ignore[attr-defined]

    say.lines = []  # type: ignore[attr-defined]
    return say


@pytest.fixture(scope="session")
def built_lab(tmp_path_factory: pytest.TempPathFactory):
    """Upstream's releases and a series of their own, made once."""
    from .upkeep import build_lab

    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("GIT_")]:
            patch.delenv(name)
        patch.setenv("HOME", str(tmp_path_factory.mktemp("home")))
        patch.setenv("GIT_CONFIG_NOSYSTEM", "1")
        patch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
        return build_lab(tmp_path_factory.mktemp("lab") / "it")


@pytest.fixture
def lab(built_lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A copy of that for one test, its archives in the cache."""
    from .upkeep import Lab

    root = tmp_path / "lab"
    shutil.copytree(built_lab.root, root, symlinks=True)
    monkeypatch.setenv("XDG_CACHE_HOME", str(root / "cache"))
    return Lab(root, root / "upstream", root / "project")
