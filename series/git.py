# SPDX-License-Identifier: Apache-2.0
"""The only place that starts git: pinned settings, no inherited location."""

import os
import re
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, cast

# Without it GitPython runs `git version` at import and dies where git is missing.
os.environ.setdefault("GIT_PYTHON_REFRESH", "quiet")

from git.cmd import Git
from git.exc import GitCommandNotFound

from .disk import brief, disk_error, ended
from .errors import SeriesError, of_system
from .pins import settings, variables

OLDEST = (2, 34)


class GitError(SeriesError):
    """A git command ended with an error; that of a disk is a DiskError instead.

    Args:
        cmd: The words of the command, from `git` on.
        rc: Its exit status.
        stdout: What it wrote to its output.
        stderr: What it said.
    """

    def __init__(self, cmd: list[str], rc: int, stdout: bytes, stderr: str) -> None:
        reason = brief(stderr) or "it gave no reason"
        what = f"`{' '.join(cmd)}` failed ({ended(rc)}): {reason}"
        super().__init__(what, _hint(stderr))
        self.cmd, self.rc, self.stdout, self.stderr = cmd, rc, stdout, stderr

    @property
    def said(self) -> str:
        """The line that tells most: the first fatal one, else the last."""
        lines = [line for line in self.stderr.splitlines() if line.strip()]
        fatal = [line for line in lines if line.startswith(("fatal:", "error:"))]
        return (fatal or lines or ["no reason given"])[-1 if not fatal else 0]


def _hint(stderr: str) -> str:
    """The way out for the failures that have nothing to do with the command."""
    if "ermission denied" in stderr or "insufficient permission" in stderr:
        return "Make the repository writable for you, or use a clone of your own."
    return ""


@dataclass(frozen=True)
class Repository:
    """One git repository, by its git directory, and every call made in it.

    Args:
        gitdir: The git directory; of a linked worktree, its own.
        common: The directory that all worktrees of the repository share.
        worktree: The work tree that belongs to gitdir, if there is one.
    """

    gitdir: Path
    common: Path
    worktree: Path | None = None

    @classmethod
    def find(cls, path: Path) -> "Repository":
        """The repository that path lies in, found as the user's own git would.

        Raises:
            SeriesError: path cannot be used: it says why and what to do.
        """
        # Not every shell expands the ~ of make's VLLM=~/vllm.
        path = path.expanduser()
        _require_folder(path)
        path = path.absolute()
        say = ["rev-parse", "--path-format=absolute"]
        try:
            out = _run(
                ["-C", str(path), *say, "--git-dir", "--git-common-dir"],
                cwd=path,
                user=True,
            )
        except GitError as error:
            raise _not_usable(path, error) from error
        gitdir, common = (Path(os.fsdecode(line)) for line in out.splitlines())
        worktree: Path | None = None
        try:
            top = _run(["-C", str(path), *say, "--show-toplevel"], cwd=path, user=True)
            worktree = Path(os.fsdecode(top.removesuffix(b"\n")))
        except GitError:
            if gitdir.name == ".git":
                worktree = gitdir.parent
        return cls(gitdir, common, worktree)

    def git(
        self,
        *args: str,
        stdin: bytes | BinaryIO | None = None,
        env: Mapping[str, str] | None = None,
        user: bool = False,
    ) -> bytes:
        """Run one git command here and return its output as bytes.

        Args:
            args: The words after `git`.
            stdin: Its input, as bytes or an open file; empty when left out.
            env: Variables on top of the pinned ones.
            user: With the user's own global settings, variables and line ends: for
                their remotes and their work tree only.

        Raises:
            GitError: git ended with an error.
            DiskError: What it wrote did not fit.
        """
        where = [f"--git-dir={self.gitdir}"]
        if self.worktree is not None:
            where.append(f"--work-tree={self.worktree}")
        cwd = self.worktree or self.gitdir
        return _run([*where, *args], cwd=cwd, stdin=stdin, env=env, user=user)

    def line(self, *args: str, env: Mapping[str, str] | None = None) -> str:
        """The output of a command that answers with one line."""
        return os.fsdecode(self.git(*args, env=env)).strip()

    def ask(self, *args: str, user: bool = False) -> str | None:
        """As `line`, None where git says no."""
        try:
            return os.fsdecode(self.git(*args, user=user)).strip()
        except GitError:
            return None

    def resolve(self, name: str) -> str | None:
        """The object id that an exact ref or expression names, or None."""
        return self.ask("rev-parse", "--verify", "--quiet", "--end-of-options", name)

    def tree_of(self, commit: str) -> str:
        """The tree id of a commit."""
        return self.line("rev-parse", "--verify", f"{commit}^{{tree}}")

    def config(self, key: str) -> str | None:
        """One setting of this repository alone, None when it is not set."""
        return self.ask("config", "--get", key)


def make_repository(path: Path, *, bare: bool = False) -> Repository:
    """Create an empty repository from no template, and return it."""
    words = ["init", "-q", "--template=", "-b", "main", *(["--bare"] * bare)]
    path.mkdir(parents=True, exist_ok=True)
    _run([*words, "."], cwd=path)
    gitdir = path if bare else path / ".git"
    return Repository(gitdir, gitdir, None if bare else path)


def require_git() -> None:
    """Refuse a missing git and one that is too old for the flags used here."""
    said = _run(["version"], cwd=Path(os.sep)).decode()
    number = re.search(r"(\d+)\.(\d+)", said)
    found = tuple(map(int, number.groups())) if number else (0, 0)
    if found < OLDEST:
        have, need = (".".join(map(str, v)) for v in (found, OLDEST))
        raise SeriesError(
            f"git {have} is too old: {need} or newer is needed.", "Update git."
        )


def _require_folder(path: Path) -> None:
    readable = "Make it readable for you, or name another clone."
    try:
        if not path.exists():
            raise SeriesError(f"{path} does not exist.", "Name a clone of vLLM.")
        if not path.is_dir():
            raise SeriesError(f"{path} is a file.", "Name the folder of a clone.")
    except OSError as error:
        reason = error.strerror or str(error)
        raise SeriesError(f"{path} cannot be read: {reason}.", readable) from error
    if not os.access(path, os.R_OK | os.X_OK):
        raise SeriesError(f"{path} cannot be read.", readable)


def _not_usable(path: Path, error: GitError) -> SeriesError:
    if "dubious ownership" in error.stderr:
        return SeriesError(
            f"{path} belongs to another user, and git does not trust it.",
            f"If you do: git config --global --add safe.directory '{path}'",
        )
    if "not a git repository" in error.stderr:
        return SeriesError(
            f"{path} is no git repository.",
            "Name a clone of vLLM, or leave VLLM out to get the pinned tree.",
        )
    return error


@contextmanager
def _as_file(data: bytes | BinaryIO | None) -> Iterator[BinaryIO | None]:
    if not isinstance(data, bytes):
        yield data
        return
    with ExitStack() as stack:
        try:
            file = stack.enter_context(tempfile.TemporaryFile(buffering=0))
            left = memoryview(data)
            while left:
                left = left[file.write(left) :]
            file.seek(0)
        except OSError as error:
            raise of_system(error, f"{tempfile.gettempdir()} (TMPDIR)") from error
        yield cast(BinaryIO, file)


def _run(
    args: list[str],
    *,
    cwd: Path,
    stdin: bytes | BinaryIO | None = None,
    env: Mapping[str, str] | None = None,
    user: bool = False,
) -> bytes:
    drop, ours = variables(env or {}, user=user)
    words = settings(user=user)
    # GitPython adds to the environment but cannot take from it; env(1) can.
    unset = ["env", *(word for name in drop for word in ("-u", name))] if drop else []
    try:
        with _as_file(stdin) as istream:
            answer = Git(cwd).execute(
                [*unset, "git", *words, *args],
                istream=istream,
                with_extended_output=True,
                with_exceptions=False,
                stdout_as_string=False,
                strip_newline_in_stdout=False,
                env=ours,
            )
    except GitCommandNotFound as error:
        raise SeriesError("git is not installed.", "Install git 2.34+.") from error
    except OSError as error:
        raise of_system(error, cwd) from error
    rc, out, err = cast(tuple[int, bytes | None, str], answer)
    if rc == 127 and unset:
        raise SeriesError("git is not installed.", "Install git 2.34 or newer.")
    if rc != 0:
        shown = [word for word in args if not word.startswith("--git-dir=")]
        cmd = ["git", *shown]
        if full := disk_error(cmd, rc, err, cwd):
            raise full
        raise GitError(cmd, rc, out or b"", err)
    return out or b""
