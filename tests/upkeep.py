# SPDX-License-Identifier: Apache-2.0
"""A small upstream with releases, a series on its pin, and clones of it."""

import hashlib
import shutil
import tarfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from series.commands import apply_own
from series.git import Repository
from series.manifest import Manifest, load_manifest
from tests.conftest import FORMAT, commit, git

Edit = Callable[[Path], None]
BODY = "    y = x * w\n    y = y + 1\n\n    return y.sum()\n"
OPS = "import math\n" + "".join(
    f"\n\ndef {name}(x, w):\n{BODY}" for name in ("first", "second", "third")
)
CORE = "".join(f"value_{n} = {n}\n" for n in range(60))
TEMPLATE = """\
## Overview

<!-- What it is. -->

## Claims

<!-- What it does. -->

## Validation

<!-- What shows it. -->

## Details

<!-- Why and how. -->

- [ ] AI assistance was used during the creation of this PR.
"""
START = {
    "vllm/__init__.py": "",
    "vllm/ops.py": OPS,
    "vllm/core.py": CORE,
    ".github/PULL_REQUEST_TEMPLATE.md": TEMPLATE,
    "tests/test_ops.py": "def test_ops():\n    assert True\n",
}
DATES = {"0.31.0": 5, "0.32.0": 18, "0.33.0": 25, "0.34.0": 28}


def swap(path: str, old: str, new: str, count: int = 1) -> Edit:
    """An edit that replaces a text which must be there."""

    def edit(root: Path) -> None:
        text = (root / path).read_text()
        assert old in text, old
        (root / path).write_text(text.replace(old, new, count))

    return edit


def add(path: str, text: str) -> Edit:
    """An edit that writes a file."""

    def edit(root: Path) -> None:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)

    return edit


def both(*edits: Edit) -> Edit:
    """Edits one after the other."""

    def edit(root: Path) -> None:
        for one in edits:
            one(root)

    return edit


def in_function(name: str, old: str, new: str) -> Edit:
    """An edit inside one of the look-alike functions of vllm/ops.py."""

    def edit(root: Path) -> None:
        file = root / "vllm/ops.py"
        head, mark, tail = file.read_text().partition(f"def {name}(")
        assert old in tail
        file.write_text(head + mark + tail.replace(old, new, 1))

    return edit


FAST = "    if w is None:\n        return dot(x)\n    y = x * w\n"
SERIES: list[tuple[str, Edit]] = [
    (
        "[ROCm][Perf] Add the dot",
        both(
            in_function("second", "    y = x * w\n", FAST),
            add("vllm/dot.py", "def dot(x):\n    return x.sum()\n"),
        ),
    ),
    ("Move two values", swap("vllm/core.py", "value_20 = 20\n", "value_20 = 'two'\n")),
    (
        "[ROCm] Round the dot",
        swap("vllm/dot.py", "x.sum()\n", "round(x.sum())\n"),
    ),
]
TABLES = """
[[change_set]]
name = "dot"
title = "Add a dot"
upstream = { state = "not submitted" }
related = [{ url = "https://example.com/7", how = "disjoint", state = "merged" }]

[[change_set]]
name = "core"
title = "Move values"
upstream = { state = "not submitted" }

[[patch]]
file = "0001-add-the-dot.patch"
title = "[ROCm][Perf] Add the dot"
purpose = "adds the dot"
series = "dot"
upstream = { state = "not submitted" }
drop_when = { file = "vllm/dot.py", symbol = "upstream_dot" }
symbols = [{ file = "vllm/dot.py", symbol = "dot" }]
tests = ["tests/test_ops.py"]

[[patch]]
file = "0002-move-values.patch"
title = "Move two values"
purpose = "moves values"
series = "core"
upstream = { state = "not submitted" }
symbols = [{ file = "vllm/core.py", symbol = "value_20" }]

[[patch]]
file = "0003-round-the-dot.patch"
title = "[ROCm] Round the dot"
purpose = "rounds the dot"
series = "dot"
upstream = { state = "not submitted" }
"""
NAMES = ("0001-add-the-dot", "0002-move-values", "0003-round-the-dot")
AUTHOR = {
    "GIT_AUTHOR_NAME": "vLLM ROCm series",
    "GIT_AUTHOR_EMAIL": "series@example.invalid",
}


@dataclass
class Lab:
    """Where upkeep is tried.

    Args:
        root: A folder for all of it.
        upstream: Upstream's repository, its releases as tags.
        project: The repository that holds patches/.
    """

    root: Path
    upstream: Path
    project: Path

    @property
    def toml(self) -> Path:
        """The series.toml."""
        return self.project / "patches" / "series.toml"

    @property
    def patches(self) -> Path:
        """The folder of patches."""
        return self.toml.parent

    @property
    def build(self) -> Path:
        """The build folder."""
        return self.root / "build"

    @property
    def manifest(self) -> Manifest:
        """The series.toml, read."""
        return load_manifest(self.toml)

    def release(self, version: str, edit: Edit) -> None:
        """Add a release: the pin's tree, edited; recorded in series.toml."""
        git(self.upstream, "switch", "-q", "-C", f"releases/{version}", "v0.32.0")
        edit(self.upstream)
        facts = self._tag(version)
        text = self.toml.read_text()
        self.toml.write_text(text.replace("[[change_set]]", facts, 1))
        self.save("Record a release")
        git(self.upstream, "switch", "-q", "main")

    def _tag(self, version: str) -> str:
        date = f"2026-10-{DATES[version]:02}T00:00:00+00:00"
        oid = commit(self.upstream, f"Release {version}\n", date)
        git(self.upstream, "tag", f"v{version}")
        size, sha256 = self._sdist(version)
        tree = git(self.upstream, "rev-parse", "HEAD^{tree}")
        sdist = f'filename = "vllm-{version}.tar.gz", size = {size}, '
        return f"""[[release]]
release = "{version}"
tag = "v{version}"
commit = "{oid[:12]}"
tree = "{tree}"
date = {date}
generated = ["PKG-INFO"]
sdist = {{ {sdist}sha256 = "{sha256}" }}

[[change_set]]"""

    def _sdist(self, version: str) -> tuple[int, str]:
        folder = self.root / f"vllm-{version}"
        folder.mkdir()
        git(self.upstream, "checkout-index", "-a", f"--prefix={folder}/")
        (folder / "PKG-INFO").write_text("Name: vllm\n")
        archive = self.root / "cache" / "vllm-series" / f"vllm-{version}.tar.gz"
        archive.parent.mkdir(parents=True, exist_ok=True)
        with tarfile.open(archive, "w:gz") as tar:
            tar.add(folder, arcname=folder.name)
        data = archive.read_bytes()
        return len(data), hashlib.sha256(data).hexdigest()

    def save(self, message: str) -> None:
        """Commit the project."""
        commit(self.project, f"{message}\n")

    def own(self) -> Repository:
        """build/vllm, with the series on it."""
        apply_own(self.toml, self.build, None, force=False)
        path = self.build / "vllm"
        return Repository(path / ".git", path / ".git", path)

    def clone(self, *options: str) -> Path:
        """A user's clone of upstream."""
        path = self.root / "clone"
        url = self.upstream.as_uri()
        git(self.root, "clone", "-q", *options, url, str(path))
        return path

    def amend(self, number: int, old: str, new: str) -> None:
        """Rewrite the patches from one whose text changes on; the project commits."""
        place = self.root / "amended"
        shutil.rmtree(place, ignore_errors=True)
        git(self.root, "clone", "-q", str(self.upstream), str(place))
        git(place, "switch", "-q", "-C", "work", "v0.32.0")
        for count, (title, edit) in enumerate(SERIES, 1):
            edit(place)
            for file in place.glob("vllm/*.py"):
                if count == number and old in file.read_text():
                    file.write_text(file.read_text().replace(old, new))
            make_commit(place, title, count)
        write_patches(place, self.patches)
        text = self.toml.read_text()
        tree = git(place, "rev-parse", "HEAD^{tree}")
        head, mark, tail = text.partition('tree = "" #')
        if not mark:
            raise AssertionError("series.tree is recorded: clear it first")
        self.toml.write_text(f'{head}tree = "" #{tail}')
        assert tree
        self.save("Amend a patch")


def make_commit(repo: Path, title: str, number: int) -> None:
    """Commit a patch of the series."""
    git(repo, "add", "-A")
    date = f"2026-09-0{number}T10:00:00+00:00"
    dates = {"GIT_AUTHOR_DATE": date, "GIT_COMMITTER_DATE": date}
    who = {**AUTHOR, "GIT_COMMITTER_NAME": "x", "GIT_COMMITTER_EMAIL": "x@example.com"}
    text = f"{title}\n\nWhy it is so.\n\nCo-authored-by: Claude <noreply@anthropic.com>"
    git(repo, "commit", "-q", "-m", text, **who, **dates)


def write_patches(repo: Path, patches: Path) -> None:
    """Write the three commits on v0.32.0 as patch files."""
    git(repo, "format-patch", "-q", "-o", str(patches), *FORMAT, "v0.32.0..HEAD")
    for number, name in enumerate(NAMES, 1):
        (patches / str(number)).replace(patches / f"{name}.patch")


def build_lab(root: Path) -> Lab:
    """Make upstream with its pin, and the series as a project of its own."""
    upstream, project = root / "upstream", root / "project"
    for path in (upstream, project):
        path.mkdir(parents=True)
        git(path, "init", "-q", "-b", "main")
    git(upstream, "config", "uploadpack.allowFilter", "true")
    git(upstream, "config", "uploadpack.allowAnySHA1InWant", "true")
    for name, text in START.items():
        add(name, text)(upstream)
    lab = Lab(root, upstream, project)
    facts = lab._tag("0.32.0").replace("\n\n[[change_set]]", "\n")
    facts = facts.replace("[[release]]", "[pin]")
    patches = project / "patches"
    patches.mkdir()
    series = '\n[series]\nbranch = "rocm-series"\ntree = "" # of the series\n'
    (patches / "series.toml").write_text(f"{facts}{series}{TABLES}")
    git(upstream, "switch", "-q", "-C", "work", "v0.32.0")
    for number, (title, edit) in enumerate(SERIES, 1):
        edit(upstream)
        make_commit(upstream, title, number)
    write_patches(upstream, patches)
    git(upstream, "switch", "-q", "main")
    git(upstream, "branch", "-q", "-D", "work")
    lab.save("Begin")
    return lab
