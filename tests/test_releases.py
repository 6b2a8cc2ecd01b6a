# SPDX-License-Identifier: Apache-2.0
"""Releases read straight into commits: the tree of the archive, or nothing."""

import errno
import hashlib
import io
import os
import tarfile
from datetime import UTC, datetime
from pathlib import Path

import pytest

from series.errors import DiskError, UsageError
from series.git import Repository
from series.manifest import Pin, load_manifest
from series.releases import (
    ReleasesError,
    bring,
    holds,
    known_releases,
    release_store,
    require_release,
)

from .conftest import git
from .full_disk import failing_git
from .upkeep import Lab, add

DATE = datetime(2026, 10, 1, tzinfo=UTC)


def archive_of(root: Path, members: list[tarfile.TarInfo | tuple[str, bytes, int]]):
    """An sdist of some members, and the pin that describes it."""
    path = root / "cache/vllm-series/vllm-9.tar.gz"
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w:gz") as tar:
        for member in members:
            if isinstance(member, tarfile.TarInfo):
                tar.addfile(member)
                continue
            name, data, mode = member
            info = tarfile.TarInfo(f"vllm-9/{name}")
            info.size, info.mode = len(data), mode
            tar.addfile(info, io.BytesIO(data))
    data = path.read_bytes()
    sdist = {"filename": path.name, "size": len(data)}
    return path, sdist | {"sha256": hashlib.sha256(data).hexdigest()}


def pin_of(sdist: dict, tree: str, generated: list[str]) -> Pin:
    """A release with that archive and tree."""
    fields = {"release": "9", "tag": "v9", "commit": "9" * 9, "tree": tree}
    return Pin.model_validate(
        {**fields, "date": DATE, "generated": generated, "sdist": sdist}
    )


def test_every_kind_of_file_is_as_git_would_add_it(
    tmp_path: Path, said, monkeypatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    link = tarfile.TarInfo("vllm-9/link")
    link.type, link.linkname = tarfile.SYMTYPE, "a/plain.py"
    members = [
        ("a/plain.py", b"x = 1\n", 0o644),
        ("run.sh", b"#!/bin/sh\n", 0o755),
        ("empty", b"", 0o600),
        ('"quoted', b"q\n", 0o644),
        ("sp ace é.txt", b"\r\n\x00\xff", 0o644),
        ("ignored.log", b"l\n", 0o644),
        (".gitignore", b"*.log\n", 0o644),
        ("PKG-INFO", b"generated\n", 0o644),
        ("gen/x", b"generated\n", 0o644),
        link,
    ]
    path, sdist = archive_of(tmp_path, members)
    with tarfile.open(path) as tar:
        tar.extractall(tmp_path / "x", filter="data")
    (tmp_path / "x/vllm-9").rename(tmp_path / "y")
    for name in ("PKG-INFO", "gen/x"):
        (tmp_path / "y" / name).unlink()
    git(tmp_path / "y", "init", "-q")
    git(tmp_path / "y", "add", "-A", "-f")
    tree = git(tmp_path / "y", "write-tree")
    pin = pin_of(sdist, tree, ["PKG-INFO", "gen"])
    store = release_store(tmp_path / "build", [pin], said)
    assert store.tree_of("v9") == tree
    assert store.line("log", "-1", "--format=%an %at", "v9").endswith(
        str(int(pin.date.timestamp()))
    )
    assert said.lines[-1] == "Reading vllm-9.tar.gz."
    said.lines.clear()
    path.unlink()
    assert release_store(tmp_path / "build", [pin], said).resolve("v9")
    assert said.lines == []


def test_the_pin_has_the_commit_of_build_vllm(lab: Lab, said) -> None:
    own = lab.own()
    store = release_store(lab.build, [lab.manifest.pin], said)
    name = "v0.32.0^{commit}"
    assert store.line("rev-parse", name) == own.line("rev-parse", name)


def test_another_tree_than_recorded_is_refused(lab: Lab, said) -> None:
    pin = lab.manifest.pin.model_copy(update={"tree": "1" * 40})
    with pytest.raises(ReleasesError, match=r"series.toml has 1111"):
        release_store(lab.build, [pin], said)
    store = Repository(lab.build / "releases.git", lab.build / "releases.git")
    assert store.git("for-each-ref") == b""
    # The next run, with the right tree, is not disturbed by it.
    assert holds(release_store(lab.build, [lab.manifest.pin], said), lab.manifest.pin)


def test_a_damaged_archive_leaves_nothing(tmp_path: Path, said, monkeypatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    members = [(f"{n}", bytes([n % 256]) * 5000, 0o644) for n in range(200)]
    path, sdist = archive_of(tmp_path, members)
    data = path.read_bytes()[:-800]
    path.write_bytes(data)
    sdist |= {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    pin = pin_of(sdist, "1" * 40, [])
    with pytest.raises(ReleasesError, match="could not be read"):
        release_store(tmp_path / "build", [pin], said)
    store = tmp_path / "build/releases.git"
    assert Repository(store, store).git("for-each-ref") == b""


def test_a_special_file_is_refused(tmp_path: Path, said, monkeypatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    pipe = tarfile.TarInfo("vllm-9/pipe")
    pipe.type = tarfile.FIFOTYPE
    _, sdist = archive_of(tmp_path, [pipe])
    with pytest.raises(ReleasesError, match="special file"):
        release_store(tmp_path / "build", [pin_of(sdist, "1" * 40, [])], said)


def test_a_taken_tag_is_not_moved(lab: Lab, said) -> None:
    lab.release("0.33.0", add("x", "x\n"))
    own = lab.own()
    assert own.worktree is not None
    pin = require_release(lab.manifest, "0.33.0")
    store = release_store(lab.build, [pin], said)
    git(own.worktree, "tag", "v0.33.0", "v0.32.0")
    with pytest.raises(ReleasesError, match="is not the release"):
        bring(store, pin, own)
    git(own.worktree, "tag", "-d", "v0.33.0")
    assert bring(store, pin, own) == store.line("rev-parse", "v0.33.0^{commit}")


def test_names(lab: Lab) -> None:
    lab.release("0.31.0", add("x", "x\n"))
    lab.release("0.33.0", add("x", "y\n"))
    manifest = load_manifest(lab.toml)
    tags = [pin.tag for pin in known_releases(manifest)]
    assert tags == ["v0.31.0", "v0.32.0", "v0.33.0"]
    assert require_release(manifest, "v0.31.0").release == "0.31.0"
    with pytest.raises(UsageError, match=r"which has 0\.31\.0, 0\.32\.0, 0\.33\.0"):
        require_release(manifest, "0.30.0")


def test_disk_full_says_so(tmp_path: Path, said, monkeypatch) -> None:
    """Git ends with the reason of the system; the message passes it on."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    path, sdist = archive_of(tmp_path, [("a", b"a\n", 0o644)])
    store = tmp_path / "build/releases.git"
    release_store(tmp_path / "build", [], said)
    packs = store / "objects/pack"
    if packs.exists():
        packs.rmdir()
    packs.write_text("no folder, so nothing can be written here")
    with pytest.raises(ReleasesError, match="could not be read into") as caught:
        release_store(tmp_path / "build", [pin_of(sdist, "1" * 40, [])], said)
    assert "Free some space" in caught.value.hint
    assert path.exists()


def test_upstreams_own_tags_are_the_same_tree(lab: Lab, said) -> None:
    """What an archive holds is what upstream tagged, in this stand-in."""
    lab.release("0.33.0", add("x", "x\n"))
    store = release_store(lab.build, known_releases(lab.manifest), said)
    for tag in ("v0.32.0", "v0.33.0"):
        assert store.tree_of(tag) == git(lab.upstream, "rev-parse", f"{tag}^{{tree}}")


def test_a_full_disk_is_named_and_leaves_nothing(
    lab: Lab, said, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    armed = failing_git(
        tmp_path / "bin",
        monkeypatch,
        "fast-import",
        "fatal: Unable to write pack: No space left on device",
        before="touch fast_import_crash_1 objects/pack/tmp_pack_x",
    )
    path = lab.build / "releases.git"
    with pytest.raises(DiskError, match="No space left") as caught:
        release_store(lab.build, [lab.manifest.pin], said)
    assert str(path) in caught.value.what
    assert not list(path.glob("fast_import_crash_*"))
    assert list((path / "objects/pack").iterdir()) == []
    # What a killed run has left goes as well.
    (path / "objects/pack/tmp_pack_y").touch()
    armed.unlink()
    store = release_store(lab.build, [lab.manifest.pin], said)
    assert holds(store, lab.manifest.pin)
    assert not list((path / "objects/pack").glob("tmp_*"))


def test_a_store_that_cannot_be_made_is_named(lab: Lab, said, monkeypatch) -> None:
    def refuse(*words: object, **named: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "mkdir", refuse)
    with pytest.raises(DiskError, match=f"^{lab.build}: No space left"):
        release_store(lab.build, [lab.manifest.pin], said)
