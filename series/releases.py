# SPDX-License-Identifier: Apache-2.0
"""The releases' trees as commits of one bare repository, build/releases.git.

Each commit is made straight from the source distribution and has no parent, so the
pin and another release are two sides whose files can be merged three-way.
"""

import os
import tarfile
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from .errors import DiskError, SeriesError, UsageError, of_system
from .git import Repository, make_repository
from .locks import locked
from .manifest import Manifest, Pin
from .pins import IDENTITY_EMAIL, IDENTITY_NAME
from .release import archive_of, cache_folder

Say = Callable[[str], None]
_STORE = "releases.git"
# git keeps a report, and what it had of the pack.
_LEFT = ("fast_import_crash_*", "objects/pack/tmp_*")


class ReleasesError(SeriesError):
    """A release's tree cannot be made."""


def known_releases(manifest: Manifest) -> list[Pin]:
    """The pin and the other recorded releases, oldest first."""
    return sorted([manifest.pin, *manifest.release], key=lambda pin: pin.date)


def release_named(manifest: Manifest, name: str) -> Pin | None:
    """The recorded release of a name: 0.33.0 or v0.33.0."""
    for pin in known_releases(manifest):
        if name in (pin.release, pin.tag):
            return pin
    return None


def require_release(manifest: Manifest, name: str) -> Pin:
    """As `release_named`.

    Raises:
        UsageError: No release of series.toml has that name.
    """
    if pin := release_named(manifest, name):
        return pin
    names = ", ".join(pin.release for pin in known_releases(manifest))
    raise UsageError(
        f"{name} is no release of {manifest.path.name}, which has {names}.",
        "Name one of them, or a revision of your clone with --vllm.",
    )


def release_store(
    build: Path,
    pins: list[Pin],
    say: Say,
    *,
    archives: dict[str, Path] | None = None,
    index: str | None = None,
) -> Repository:
    """The repository that holds the given releases, each under its tag.

    Args:
        build: The folder that it lies in.
        pins: The releases that are needed; what is there is not fetched again.
        say: Called with a line before something that takes time.
        archives: Local source distributions by release, instead of the cache.
        index: Another package index than the public one.

    Raises:
        SeriesError: An archive cannot be had, or has another tree than recorded.
    """
    path = build / _STORE
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise of_system(error, build) from error
    with locked(path, lambda: say("Another run is reading releases: waiting.")):
        if (path / "HEAD").exists():
            store = Repository(path, path)
        else:
            store = make_repository(path, bare=True)
        _sweep(store)
        for pin in pins:
            if not holds(store, pin):
                given = (archives or {}).get(pin.release)
                archive = archive_of(
                    pin.sdist, cache_folder(), say, given=given, index=index
                )
                say(f"Reading {archive.name}.")
                _import(store, archive, pin)
        return store


def holds(repo: Repository, pin: Pin) -> bool:
    """Whether the tag of a release is there, on the recorded tree."""
    commit = repo.resolve(f"refs/tags/{pin.tag}^{{commit}}")
    return commit is not None and repo.tree_of(commit) == pin.tree


def bring(store: Repository, pin: Pin, receiver: Repository) -> str:
    """Put a release beside the pin in build/vllm, under its tag; returns the commit.

    Raises:
        ReleasesError: The tag is taken by something else.
    """
    ref = f"refs/tags/{pin.tag}"
    if not holds(receiver, pin):
        if receiver.resolve(ref):
            raise ReleasesError(
                f"The tag {pin.tag} of {receiver.worktree} is not the release.",
                f"Remove it: git -C '{receiver.worktree}' tag -d {pin.tag}",
            )
        flags = ["-q", "--no-tags", "--no-write-fetch-head", "--no-auto-maintenance"]
        receiver.git("fetch", *flags, str(store.gitdir), f"{ref}:{ref}")
    return receiver.line("rev-parse", f"{ref}^{{commit}}")


def _import(store: Repository, archive: Path, pin: Pin) -> None:
    ref = f"refs/series/import/{pin.tag}"
    read, write = os.pipe()
    failed: list[BaseException] = []

    def feed() -> None:
        # A reader that has died is told by git's own exit.
        with suppress(BrokenPipeError), os.fdopen(write, "wb") as out:
            try:
                _stream(archive, pin, ref, out)
            except (tarfile.TarError, EOFError, OSError, SeriesError) as error:
                failed.append(error)

    with os.fdopen(read, "rb") as source:
        thread = threading.Thread(target=feed)
        thread.start()
        try:
            store.git("fast-import", "--quiet", "--done", stdin=source)
        except SeriesError as error:
            if not failed:
                failed.append(error)
    thread.join()
    if failed:
        _sweep(store)
    if failed and isinstance(failed[0], DiskError):
        raise failed[0]
    if failed:
        raise ReleasesError(
            f"{archive.name} could not be read into {store.gitdir}: {failed[0]}.",
            "Free some space there (200 MB), and run it again.",
        ) from failed[0]
    commit = store.line("rev-parse", f"{ref}^{{commit}}")
    tree = store.tree_of(commit)
    store.git("update-ref", "-d", ref)
    if tree != pin.tree:
        raise ReleasesError(
            f"The tree of {archive.name} is {tree[:12]}, series.toml has "
            f"{pin.tree[:12]}.",
            "Correct `tree` or `generated` of that release.",
        )
    store.git("update-ref", f"refs/tags/{pin.tag}", commit)


def _sweep(store: Repository) -> None:
    """Remove what an import that failed has left; nobody else is at work here."""
    for pattern in _LEFT:
        for path in store.gitdir.glob(pattern):
            path.unlink(missing_ok=True)


def _stream(archive: Path, pin: Pin, ref: str, out: BinaryIO) -> None:
    """One commit in fast-import's words, file by file as the archive has them."""
    stamp = f"{IDENTITY_NAME} <{IDENTITY_EMAIL}> {int(pin.date.timestamp())} +0000"
    message = f"vLLM {pin.release}, as its source distribution has it\n".encode()
    out.write(f"commit {ref}\nauthor {stamp}\ncommitter {stamp}\n".encode())
    out.write(b"data %d\n%s" % (len(message), message))
    with tarfile.open(archive, "r|gz") as tar:
        for member in tar:
            name = "/".join(PurePosixPath(member.name).parts[1:])
            if member.isdir() or not name or _is_below(name, pin.generated):
                continue
            if member.issym():
                mode, data = "120000", os.fsencode(member.linkname)
            elif member.isreg():
                mode = "100755" if member.mode & 0o100 else "100644"
                file = tar.extractfile(member)
                data = file.read() if file else b""
            else:
                raise ReleasesError(f"{archive.name} has a special file: {name}.")
            out.write(f"M {mode} inline {_quoted(name)}\ndata {len(data)}\n".encode())
            out.write(data)
            out.write(b"\n")
    out.write(b"done\n")


def _quoted(name: str) -> str:
    if not name.startswith('"') and "\n" not in name:
        return name
    return '"' + name.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _is_below(name: str, generated: list[str]) -> bool:
    return any(name == path or name.startswith(f"{path}/") for path in generated)
