# SPDX-License-Identifier: Apache-2.0
"""The pinned release's source distribution: in the cache, or fetched and checked."""

import hashlib
import os
import pwd
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from .errors import SeriesError
from .locks import locked
from .manifest import Sdist

if TYPE_CHECKING:
    import requests
    from pypi_simple import PyPISimple

Say = Callable[[str], None]
_CHUNK = 1 << 20
_TIMEOUT_S = 60.0


class ReleaseError(SeriesError):
    """The source distribution cannot be had, or is not the pinned one."""


def cache_folder() -> Path:
    """Where archives are kept: below XDG_CACHE_HOME, else ~/.cache."""
    if root := os.environ.get("XDG_CACHE_HOME"):
        return Path(root) / "vllm-series"
    home = os.environ.get("HOME") or pwd.getpwuid(os.getuid()).pw_dir
    return Path(home) / ".cache" / "vllm-series"


def archive_of(
    sdist: Sdist,
    cache: Path,
    say: Say,
    *,
    given: Path | None = None,
    index: str | None = None,
) -> Path:
    """The archive, checked by its sha256 whenever it is asked for.

    Args:
        sdist: What it must be.
        cache: The folder that keeps it; another run there is waited for.
        say: Called with a line before something that takes time.
        given: A local archive to take instead.
        index: Another package index than the public one.

    Raises:
        ReleaseError: Wrong bytes, no network, or an unwritable cache.
    """
    if given is not None:
        _require_given(given, sdist)
        return given
    path = cache / sdist.filename
    try:
        cache.mkdir(parents=True, exist_ok=True)
        with locked(cache, lambda: say("Another run is fetching: waiting.")):
            if path.exists() and sha256_of(path) == sdist.sha256:
                return path
            if path.exists():
                say(f"{path} is damaged: fetching it again.")
                path.unlink()
            part = path.with_name(path.name + ".part")
            _download(sdist, part, say, index)
            os.replace(part, path)
    except OSError as error:
        raise ReleaseError(
            f"The archive cannot be kept in {cache}: {error.strerror or error}.",
            "Set XDG_CACHE_HOME to a folder with 100 MB free, or use --archive FILE.",
        ) from error
    return path


def sha256_of(path: Path) -> str:
    """The sha256 of a file, read in pieces."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _require_given(given: Path, sdist: Sdist) -> None:
    try:
        found = sha256_of(given)
    except OSError as error:
        raise ReleaseError(f"{given} cannot be read: {error.strerror}.") from error
    if found != sdist.sha256:
        raise ReleaseError(
            f"{given} is not {sdist.filename}: its sha256 is {found[:16]}…, the "
            f"pinned one {sdist.sha256[:16]}….",
            "Fetch that file again, or leave --archive out.",
        )


def _download(sdist: Sdist, part: Path, say: Say, index: str | None) -> None:
    """Fetch the archive into part, going on where an earlier run stopped."""
    import requests
    from pypi_simple import PYPI_SIMPLE_ENDPOINT, NoSuchProjectError, PyPISimple

    endpoint = index or os.environ.get("PIP_INDEX_URL") or PYPI_SIMPLE_ENDPOINT
    try:
        with PyPISimple(endpoint=endpoint) as client:
            url = _url_of(client, sdist)
            say(f"{sdist.filename}: {sdist.size / 1e6:.1f} MB, into {part.parent}")
            _stream(client.s, url, sdist, part)
    except (requests.RequestException, NoSuchProjectError) as error:
        raise ReleaseError(
            f"{sdist.filename} could not be fetched: {_reason(error)}.",
            "Run it again with a network (it goes on where it stopped), or give the "
            "file with --archive FILE.",
        ) from error
    if (found := sha256_of(part)) != sdist.sha256:
        part.unlink()
        raise ReleaseError(
            f"{sdist.filename} came with the sha256 {found[:16]}…, the pinned one is "
            f"{sdist.sha256[:16]}…; the file was removed.",
            "Run it again; if it stays so, do not trust the index.",
        )


def _url_of(client: "PyPISimple", sdist: Sdist) -> str:
    # A file's name begins with its project's, dashes as underscores.
    project = sdist.filename.partition("-")[0].replace("_", "-")
    page = client.get_project_page(project, timeout=_TIMEOUT_S)
    for package in page.packages:
        if package.filename != sdist.filename:
            continue
        listed = package.digests.get("sha256", sdist.sha256)
        if listed != sdist.sha256 or package.size not in (None, sdist.size):
            raise ReleaseError(
                f"The index has another {sdist.filename} than series.toml: "
                f"{package.size} bytes, sha256 {listed[:16]}….",
                "Do not trust it before you know why.",
            )
        return package.url
    raise ReleaseError(
        f"The index has no {sdist.filename}.", "Give the file with --archive FILE."
    )


def _stream(
    session: "requests.Session", url: str, sdist: Sdist, part: Path, again: bool = False
) -> None:
    from rich.console import Console
    from rich.progress import DownloadColumn, Progress, TransferSpeedColumn

    have = part.stat().st_size if part.exists() else 0
    if have >= sdist.size:
        part.unlink()
        have = 0
    ask = {"Accept-Encoding": "identity"}
    if have:
        ask["Range"] = f"bytes={have}-"
    with session.get(url, stream=True, headers=ask, timeout=_TIMEOUT_S) as reply:
        if reply.status_code == 416 and not again:
            part.unlink(missing_ok=True)
            return _stream(session, url, sdist, part, again=True)
        reply.raise_for_status()
        whole = reply.status_code != 206
        with (
            part.open("wb" if whole else "ab") as file,
            Progress(
                *Progress.get_default_columns(),
                DownloadColumn(),
                TransferSpeedColumn(),
                console=Console(stderr=True),
                transient=True,
            ) as bar,
        ):
            done = 0 if whole else have
            task = bar.add_task(sdist.filename, total=sdist.size, completed=done)
            for chunk in reply.iter_content(_CHUNK):
                file.write(chunk)
                bar.advance(task, len(chunk))


def _reason(error: Exception) -> str:
    """One short line of a chained network error."""
    cause: BaseException = error
    while cause.__cause__ or cause.__context__:
        cause = cause.__cause__ or cause.__context__  # type: ignore[assignment]
    return str(cause).splitlines()[0] if str(cause) else type(error).__name__
