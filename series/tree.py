# SPDX-License-Identifier: Apache-2.0
"""build/vllm: the pinned tree as a git repository, made from the archive."""

import shutil
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

from .errors import SeriesError, of_system
from .git import Repository, make_repository
from .locks import locked
from .manifest import Manifest, Pin

Say = Callable[[str], None]
_TEMPORARY = ".tmp-"


class TreeError(SeriesError):
    """The pinned tree cannot be made, or something else stands in its place."""


def tree_at(build: Path, pin: Pin) -> Repository | None:
    """The repository in build/vllm, None where there is nothing yet.

    Raises:
        TreeError: Something else is there, or a tree of another pin.
    """
    path = build / "vllm"
    if not path.exists():
        return None
    hint = f"Move {path} away if you need it, else remove it."
    if not (path / ".git").is_dir():
        raise TreeError(f"{path} is not a tree that `apply.py apply` made.", hint)
    repo = Repository(path / ".git", path / ".git", path)
    base = repo.resolve(f"refs/tags/{pin.tag}^{{commit}}")
    if base is None or repo.tree_of(base) != pin.tree:
        raise TreeError(f"{path} does not hold the pinned {pin.tag}.", hint)
    return repo


@contextmanager
def new_tree(
    build: Path, manifest: Manifest, archive: Callable[[], Path], say: Say
) -> Iterator[Repository]:
    """Make the pinned tree aside; it becomes build/vllm when the block ends well.

    Args:
        build: The folder that holds it.
        archive: Gives the checked archive.
        say: Called with a line before something that takes time.

    Yields:
        The repository, with the pinned commit tagged and checked out.
    """
    source = archive()
    try:
        folder = Path(tempfile.mkdtemp(prefix=_TEMPORARY, dir=build))
    except OSError as error:
        raise of_system(error, build) from error
    try:
        say(f"Unpacking {source.name}.")
        unpack(source, folder / "vllm", manifest.pin.generated)
        yield commit_tree(folder / "vllm", manifest.pin)
        (folder / "vllm").rename(build / "vllm")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def build_folder(build: Path, say: Say) -> Iterator[None]:
    """Hold the build folder, without what killed runs have left in it."""
    try:
        build.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise TreeError(
            f"{build} cannot be made: {error.strerror}.", "Name another with --build."
        ) from error
    with locked(build, lambda: say("Another run is at work in build/: waiting.")):
        for left in build.glob(f"{_TEMPORARY}*"):
            shutil.rmtree(left, ignore_errors=True)
        yield


def unpack(archive: Path, to: Path, generated: list[str]) -> None:
    """Unpack a source distribution without its top folder and the generated paths.

    Raises:
        TreeError: The archive is damaged, or the disk is full.
    """
    if not hasattr(tarfile, "data_filter"):
        raise TreeError("This Python cannot unpack safely.", "Use Python 3.11.4+.")
    try:
        to.mkdir()
        with tarfile.open(archive, "r|gz") as tar:
            for member in tar:
                parts = PurePosixPath(member.name).parts[1:]
                name = "/".join(parts)
                if not parts or _is_below(name, generated):
                    continue
                tar.extract(member.replace(name=name, deep=False), to, filter="data")
    except (tarfile.TarError, EOFError, OSError) as error:
        raise TreeError(
            f"{archive.name} could not be unpacked into {to.parent}: {error}.",
            "Free some space there (400 MB), and run it again.",
        ) from error


def commit_tree(path: Path, pin: Pin) -> Repository:
    """Make a folder a repository: one commit, tagged, with a reproducible id.

    Raises:
        TreeError: The content is not the recorded tree.
    """
    repo = make_repository(path)
    # A user's own line-end settings would show every file as edited.
    repo.git("config", "core.autocrlf", "false")
    repo.git("config", "core.safecrlf", "false")
    repo.git("add", "-A", "-f")
    tree = repo.line("write-tree")
    if tree != pin.tree:
        raise TreeError(
            f"The release's tree is {tree[:12]}, series.toml has {pin.tree[:12]}.",
            "The file system may change names or modes; use another for --build.",
        )
    stamp = {"GIT_AUTHOR_DATE": pin.date.isoformat()}
    stamp["GIT_COMMITTER_DATE"] = stamp["GIT_AUTHOR_DATE"]
    message = f"vLLM {pin.release}, as its source distribution has it\n".encode()
    out = repo.git("commit-tree", tree, stdin=message, env=stamp)
    commit = out.decode().strip()
    repo.git("update-ref", f"refs/tags/{pin.tag}", commit)
    repo.git("update-ref", "--no-deref", "HEAD", commit)
    return repo


def _is_below(name: str, generated: list[str]) -> bool:
    return any(name == path or name.startswith(f"{path}/") for path in generated)
