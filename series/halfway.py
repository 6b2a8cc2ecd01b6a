# SPDX-License-Identifier: Apache-2.0
"""A work tree between two commits: which files git has left so, and putting them back.

Only a file that differs between HEAD and the commit that was gone to, and that is
missing or holds what one of them has, whole or cut off, is taken for git's work.
"""

import os
import stat
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from .branch import drop_stale_lock
from .checkout import edited
from .errors import SeriesError, of_system
from .git import GitError, Repository

_LINK = "120000"


@dataclass(frozen=True)
class _Side:
    """A file as a commit has it; an empty mode stands for none."""

    mode: str
    oid: str

    @property
    def there(self) -> bool:
        return bool(self.mode)


def in_the_way(repo: Repository, going: str) -> list[str]:
    """Files that HEAD does not have, that a commit has, and that are there already.

    git refuses them too, but only here it is sure that no file of a user stands where
    `put_back` will look for what git has written.
    """
    assert repo.worktree is not None
    return [
        path
        for path, (old, new) in _changed(repo, going).items()
        if not old.there and new.there and _is_file(repo.worktree / path)
    ]


def drop_lock(repo: Repository, error: SeriesError) -> None:
    """Remove the lock of the index that a git of ours has left when it failed."""
    lock = repo.gitdir / "index.lock"
    # Where git found the lock there, it is somebody's who is at work.
    if lock.exists() and "File exists" not in error.what:
        drop_stale_lock(lock)


def strangers(repo: Repository, going: str, *, own: bool) -> list[str]:
    """The edited files that no switch from HEAD to a commit can have left so."""
    changed = _changed(repo, going)
    files = edited(repo, own=own)
    left = _left_by_git(repo, {p: changed[p] for p in files if p in changed}, own=own)
    return [path for path in files if path not in left]


def put_back(repo: Repository, going: str, *, own: bool) -> int | None:
    """Give the work tree the files of HEAD again, after a switch that was cut off.

    Args:
        going: The commit that was switched to.
        own: The tree is build/vllm: a user's line-end settings do not count.

    Returns:
        How many files were half-way; None where others were edited since, and nothing
        was touched.

    Raises:
        SeriesError: They could not be written; another call goes on from there.
    """
    assert repo.worktree is not None
    changed = _changed(repo, going)
    files = edited(repo, own=own)
    if strangers(repo, going, own=own):
        return None
    new = {
        path: sides
        for path, sides in changed.items()
        if not sides[0].there and _is_file(repo.worktree / path)
    }
    fresh = sorted(_left_by_git(repo, new, own=own))
    if not files and not fresh:
        return 0
    try:
        # Removed first: that makes the room in which the others are written.
        for path in {*fresh, *files}:
            _remove(repo.worktree, path)
    except OSError as error:
        raise of_system(error, repo.worktree) from error
    if any((repo.worktree / path).is_dir() for path in files):
        # Somebody's files lie in a folder where HEAD has a file; git would remove them.
        return None
    _write(repo, files, own=own)
    return None if edited(repo, own=own) else len({*fresh, *files})


def _write(repo: Repository, files: list[str], *, own: bool) -> None:
    """Write files as HEAD has them; the index only where it is not HEAD's already."""
    if repo.git("diff-index", "--cached", "--name-only", "HEAD"):
        repo.git("reset", "-q", "--hard", "HEAD", user=not own)
        return
    listed = os.fsencode("".join(f"{path}\0" for path in files))
    words = ("checkout-index", "-f", "-q", "-z", "--stdin")
    repo.git(*words, stdin=listed, user=not own)
    # Spares the next command reading them; a full disk may have no room for it.
    try:
        repo.git("update-index", "-q", "--refresh", user=not own)
    except SeriesError as error:
        drop_lock(repo, error)


def _changed(repo: Repository, going: str) -> dict[str, tuple[_Side, _Side]]:
    """What differs between HEAD and a commit, by path."""
    if repo.resolve("HEAD") is None:
        return {}
    flags = ["-r", "-z", "--raw", "--no-renames", "--full-index", "--no-ext-diff"]
    out = os.fsdecode(repo.git("diff-tree", *flags, "HEAD", going))
    parts = out.split("\0")[:-1]
    found = {}
    for meta, path in zip(parts[::2], parts[1::2], strict=True):
        modes, oids = meta.lstrip(":").split(" ")[:2], meta.split(" ")[2:4]
        old, new = (
            _Side(mode if mode != "000000" else "", oid)
            for mode, oid in zip(modes, oids, strict=True)
        )
        found[path] = (old, new)
    return found


def _left_by_git(
    repo: Repository, changed: dict[str, tuple[_Side, _Side]], *, own: bool
) -> set[str]:
    """The paths whose file is missing, or what one of two sides has, whole or cut."""
    assert repo.worktree is not None
    left = set()
    regular: dict[str, tuple[_Side, ...]] = {}
    modes = repo.config("core.filemode") != "false"
    for path, sides in changed.items():
        place = repo.worktree / path
        if _through_link(repo.worktree, path):
            continue
        if not _is_file(place):
            left.add(path)
        elif place.is_symlink():
            there = os.fsencode(os.readlink(place))
            links = [side for side in sides if side.mode == _LINK]
            if any(repo.git("cat-file", "blob", s.oid) == there for s in links):
                left.add(path)
        else:
            runs = bool(place.lstat().st_mode & stat.S_IXUSR)
            regular[path] = tuple(
                side
                for side in sides
                if side.there
                and side.mode != _LINK
                and (not modes or runs == (side.mode == "100755"))
            )
    whole = _ids(repo, [path for path in regular if "\n" not in path], own=own)
    for path, fits in regular.items():
        if any(whole.get(path) == side.oid for side in fits) or any(
            _is_start(repo, path, side, own=own) for side in fits
        ):
            left.add(path)
    return left


def _ids(repo: Repository, paths: list[str], *, own: bool) -> dict[str, str]:
    """The blob ids that files would be added as."""
    listed = os.fsencode("".join(f"{path}\n" for path in paths))
    out = repo.git("hash-object", "--stdin-paths", stdin=listed, user=not own)
    return dict(zip(paths, out.decode().split(), strict=True))


def _is_start(repo: Repository, path: str, side: _Side, *, own: bool) -> bool:
    """Whether a file holds the first bytes of what a checkout of a blob writes."""
    assert repo.worktree is not None
    try:
        there = (repo.worktree / path).read_bytes()
    except OSError as error:
        raise of_system(error, repo.worktree) from error
    if not there:
        return True
    try:
        words = ("cat-file", "--filters", f"--path={path}", side.oid)
        return repo.git(*words, user=not own).startswith(there)
    except GitError:
        return False


def _is_file(path: Path) -> bool:
    """Whether a file or link is there; a folder is none."""
    return os.path.lexists(path) and (path.is_symlink() or not path.is_dir())


def _through_link(top: Path, path: str) -> bool:
    folders = list(Path(path).parents)[:-1]
    return any((top / folder).is_symlink() for folder in folders)


def _remove(top: Path, path: str) -> None:
    """Remove a file, and the folders that are empty without it, as git does."""
    if not _is_file(top / path):
        return
    (top / path).unlink()
    with suppress(OSError):
        for folder in list(Path(path).parents)[:-1]:
            (top / folder).rmdir()
