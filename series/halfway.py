# SPDX-License-Identifier: Apache-2.0
"""A work tree between two commits: which files git has left so, and putting them back.

Only a file that differs between HEAD and the other commit, and that is missing or holds
what one of them has, whole or cut off, is taken for git's work; in the index, all of
the other commit or nothing.
"""

import os
import stat
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

from .blobs import NOTHING, Entry
from .branch import drop_stale_lock
from .checkout import edited
from .errors import SeriesError, of_system
from .git import GitError, Repository

_LINK, _SUBMODULE = "120000", "160000"


def in_the_way(repo: Repository, going: str) -> list[str]:
    """Files that HEAD does not have, that a commit has, and that are there already.

    git refuses them too, but only here it is sure that no file of a user stands where
    `put_back` will look for what git has written.
    """
    assert repo.worktree is not None
    return sorted(_new(repo, _changed(repo, going)))


def drop_lock(repo: Repository, error: SeriesError) -> None:
    """Remove the lock of the index that a git of ours has left when it failed."""
    lock = repo.gitdir / "index.lock"
    # Where git found the lock there, it is somebody's who is at work.
    if lock.exists() and "File exists" not in getattr(error, "stderr", error.what):
        with suppress(SeriesError):
            require_no_git(repo)


def strangers(repo: Repository, other: str, *, own: bool) -> list[str]:
    """What is edited or staged, and not by a switch between HEAD and a commit."""
    return _strangers(repo, _changed(repo, other), edited(repo, own=own), own)


def _strangers(
    repo: Repository,
    changed: dict[str, tuple[Entry, Entry]],
    files: list[str],
    own: bool,
) -> list[str]:
    mine = {path: changed[path] for path in files if path in changed}
    left = _left_by_git(repo, mine, changed, own)
    staged = _raw(repo, "diff-index", "--cached")
    # Submodules are in no diff here.
    shown = {
        path: sides
        for path, sides in changed.items()
        if not {side.mode for side in sides} <= {NOTHING.mode, _SUBMODULE}
    }
    if shown.items() <= staged.items():
        staged = {path: two for path, two in staged.items() if path not in shown}
    # A new file in the way of what HEAD has there, which git did not write so.
    new = _new(repo, changed)
    way = {
        path
        for path in {*new} - _left_by_git(repo, new, changed, own)
        if any(_one_holds_the_other(path, file) for file in mine)
    }
    return sorted({*staged, *way, *(path for path in files if path not in left)})


def _one_holds_the_other(first: str, second: str) -> bool:
    return first.startswith(f"{second}/") or second.startswith(f"{first}/")


def _new(
    repo: Repository, changed: dict[str, tuple[Entry, Entry]]
) -> dict[str, tuple[Entry, Entry]]:
    """Of what differs, the files that are there and that HEAD does not have."""
    assert repo.worktree is not None
    return {
        path: sides
        for path, sides in changed.items()
        if not sides[0].there
        and not _in_place_of_folder(repo.worktree, path)
        and _is_file(repo.worktree / path)
    }


def unwritten(repo: Repository, *, own: bool) -> list[str]:
    """Edited files that are not, byte for byte, what a checkout of HEAD writes."""
    return [
        path
        for path in edited(repo, own=own)
        if not _is_checked_out(repo, path, own=own)
    ]


def _is_checked_out(repo: Repository, path: str, *, own: bool) -> bool:
    """For git it is edited all the same where a filter does not lead back."""
    assert repo.worktree is not None
    place = repo.worktree / path
    if place.is_symlink() or not place.is_file():
        return False
    words = ("cat-file", "--filters", f"HEAD:{path}")
    try:
        return repo.git(*words, user=not own) == place.read_bytes()
    except (GitError, OSError):
        return False


def put_back(repo: Repository, other: str, *, own: bool) -> int | None:
    """Give the work tree the files of HEAD again, after a switch that was cut off.

    Args:
        other: The commit that was switched to, or from where HEAD has moved already.
        own: The tree is build/vllm: a user's line-end settings do not count.

    Returns:
        How many files were half-way; None where others were edited since, and nothing
        was touched.

    Raises:
        SeriesError: They could not be written; another call goes on from there.
    """
    assert repo.worktree is not None
    changed = _changed(repo, other)
    files = edited(repo, own=own)
    mine = _strangers(repo, changed, files, own)
    fresh = sorted(_left_by_git(repo, _new(repo, changed), changed, own))
    half = {*fresh, *files} - {*mine}
    if not half:
        return 0
    if mine:
        return None
    require_no_git(repo)
    try:
        # Removed first: that makes the room in which the others are written.
        for path in [*fresh, *files]:
            _remove(repo.worktree, path)
    except OSError as error:
        raise of_system(error, repo.worktree) from error
    _write(repo, [path for path in files if changed[path][0].there], own=own)
    return None if unwritten(repo, own=own) else len(half)


def require_no_git(repo: Repository) -> None:
    """Remove the lock of the index that a killed git left, if it is one.

    Raises:
        SeriesError: A git is at work in the work tree.
    """
    lock = repo.gitdir / "index.lock"
    if not lock.exists():
        return
    for link in Path("/proc").glob("[0-9]*/cwd"):
        with suppress(OSError):
            name = (link.parent / "comm").read_text()
            where = Path(os.readlink(link))
            tops = (repo.worktree, repo.gitdir)
            if name.startswith("git") and {*tops} & {where, *where.parents}:
                raise SeriesError(
                    f"A git is at work in {where}, and has {lock}.",
                    "Let it end, and run it again.",
                )
    drop_stale_lock(lock)


def _write(repo: Repository, files: list[str], *, own: bool) -> None:
    """Write files as HEAD has them; the index only where it is not HEAD's already."""
    assert repo.worktree is not None
    if repo.git("diff-index", "--cached", "--name-only", "HEAD"):
        repo.git("reset", "-q", user=not own)
        # In a sparse checkout some are not to be there.
        still = {*edited(repo, own=own)}
        files = [path for path in files if path in still]
    for path in files:
        if (repo.worktree / path).is_dir():
            # git would remove it with all that is in it.
            raise SeriesError(f"{repo.worktree / path} is a folder, not a file.")
    listed = os.fsencode("".join(f"{path}\0" for path in files))
    words = ("checkout-index", "-f", "-q", "-z", "--stdin")
    repo.git(*words, stdin=listed, user=not own)
    # Spares the next command reading them; a full disk may have no room for it.
    try:
        repo.git("update-index", "-q", "--refresh", user=not own)
    except SeriesError as error:
        drop_lock(repo, error)


def _changed(repo: Repository, other: str) -> dict[str, tuple[Entry, Entry]]:
    """What differs between HEAD and a commit, by path."""
    if repo.resolve("HEAD") is None:
        return {}
    return _raw(repo, "diff-tree", "-r", "HEAD", other)


def _raw(repo: Repository, *words: str) -> dict[str, tuple[Entry, Entry]]:
    """Both sides of what a diff command lists, by path; of the index against HEAD."""
    flags = ["-z", "--raw", "--no-renames", "--full-index", "--no-ext-diff"]
    head = ["HEAD"] if words[0] == "diff-index" else []
    flags += ["--ignore-submodules=all"] if head else []
    out = os.fsdecode(repo.git(words[0], *flags, *words[1:], *head))
    parts = out.split("\0")[:-1]
    found = {}
    for meta, path in zip(parts[::2], parts[1::2], strict=True):
        modes, oids = meta.lstrip(":").split(" ")[:2], meta.split(" ")[2:4]
        old, new = map(Entry, modes, oids)
        found[path] = (old, new)
    return found


def _left_by_git(
    repo: Repository,
    changed: dict[str, tuple[Entry, Entry]],
    paths: Collection[str],
    own: bool,
) -> set[str]:
    """The paths whose file is missing, or what one of two sides has, whole or cut.

    Args:
        changed: Which to look at.
        paths: All that differ between the two commits.
    """
    assert repo.worktree is not None
    left = set()
    regular: dict[str, tuple[Entry, ...]] = {}
    modes = repo.ask("config", "--type=bool", "core.filemode") != "false"
    for path, sides in changed.items():
        place = repo.worktree / path
        above = _in_place_of_folder(repo.worktree, path)
        if above and above not in paths:
            continue
        if above or not os.path.lexists(place) or _is_gits(repo.worktree, path, paths):
            left.add(path)
        elif place.is_symlink():
            there = os.fsencode(os.readlink(place))
            links = [side for side in sides if side.mode == _LINK]
            if any(repo.git("cat-file", "blob", s.oid) == there for s in links):
                left.add(path)
        elif place.is_file():
            runs = bool(place.lstat().st_mode & stat.S_IXUSR)
            regular[path] = tuple(
                side
                for side in sides
                if side.there
                and side.mode != _LINK
                and (not modes or runs == (side.mode == "100755"))
            )
    # In the others git would see no path, or another one.
    plain = [p for p in regular if "\n" not in p and p[:1] != '"' and p[-1:] != "\r"]
    whole = _ids(repo, plain, own=own)
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


def _is_start(repo: Repository, path: str, side: Entry, *, own: bool) -> bool:
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


def _in_place_of_folder(top: Path, path: str) -> str:
    """The file or link that stands where a path needs a folder; empty for none."""
    folders = [str(folder) for folder in list(Path(path).parents)[:-1]]
    return next((f for f in reversed(folders) if _is_file(top / f)), "")


def _is_gits(top: Path, path: str, paths: Collection[str]) -> bool:
    """Whether a folder is there that holds nothing but files of the two commits."""
    place = top / path
    if place.is_symlink() or not place.is_dir():
        return False
    # Links to folders count among the folders.
    below = [
        Path(folder) / name
        for folder, folders, names in os.walk(place)
        for name in (*names, *folders)
        if _is_file(Path(folder) / name)
    ]
    return all(str(file.relative_to(top)) in paths for file in below)


def _remove(top: Path, path: str) -> None:
    """Remove a file, and the folders that are empty without it, as git does."""
    place = top / path
    if _in_place_of_folder(top, path) or not os.path.lexists(place):
        return
    if not _is_file(place):
        for below, _, _ in os.walk(place, topdown=False):
            with suppress(OSError):
                os.rmdir(below)
        return
    place.unlink()
    with suppress(OSError):
        for folder in list(Path(path).parents)[:-1]:
            (top / folder).rmdir()
