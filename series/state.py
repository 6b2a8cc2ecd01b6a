# SPDX-License-Identifier: Apache-2.0
"""What an interrupted rebase has to remember: one JSON file, written at once."""

import json
import shutil
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from .carry import Step
from .errors import SeriesError, of_system
from .git import Repository
from .threeway import Clash
from .writing import write_whole

VERSION = 1
_FILE = "state.json"


class StateError(SeriesError):
    """There is no rebase of ours here, or its state cannot be read."""


@dataclass(frozen=True)
class State:
    """A rebase that waits for a person.

    Args:
        gitdir: The git directory of the repository that gets the branch.
        common: The directory that its worktrees share.
        worktree: Its work tree, empty for a bare one.
        own: It is build/vllm.
        branch: The series branch.
        old: The tip of that branch when the rebase began, empty for none.
        onto: The name of the new base.
        commit: The new base.
        series: The digest of patches/ when the rebase began.
        manifest: The series.toml.
        switch: Check the branch out at the end.
        force: Give up what is in the way at the end; it is kept.
        anew: Recorded adaptations are left out.
        edit: Numbers of patches to stop at though they land.
        tip: The commit that the waiting patch goes onto.
        steps: What became of the patches before it, and of itself.
        ready: The work tree of the rebase is as the waiting patch needs it.
    """

    gitdir: str
    common: str
    worktree: str
    own: bool
    branch: str
    old: str
    onto: str
    commit: str
    series: str
    manifest: str
    switch: bool
    force: bool
    anew: bool
    tip: str
    edit: tuple[str, ...] = ()
    steps: tuple[Step, ...] = field(default=())
    ready: bool = False

    @property
    def repo(self) -> Repository:
        """The repository that gets the branch."""
        worktree = Path(self.worktree) if self.worktree else None
        return Repository(Path(self.gitdir), Path(self.common), worktree)

    @property
    def waiting(self) -> Step:
        """The patch that a person must decide about."""
        return self.steps[-1]


@dataclass(frozen=True)
class Session:
    """A folder of build/onto: state.json, and the work tree with conflict marks."""

    folder: Path

    @property
    def tree(self) -> Path:
        """The work tree in which a conflict is resolved."""
        return self.folder / "tree"

    @property
    def repo(self) -> Repository:
        """The repository of that work tree."""
        git = self.tree / ".git"
        return Repository(git, git, self.tree)

    def load(self) -> State:
        """Read the state.

        Raises:
            StateError: It is damaged, or of another version of this tool.
        """
        path = self.folder / _FILE
        try:
            data: dict[str, Any] = json.loads(path.read_text("utf-8"))
            if data.pop("version") != VERSION:
                raise ValueError("written by another version of this tool")
            steps = []
            for step in data.pop("steps"):
                clashes = tuple(Clash(**clash) for clash in step.pop("clashes"))
                notes = tuple(step.pop("notes"))
                steps.append(Step(**step, notes=notes, clashes=clashes))
            edit = tuple(data.pop("edit"))
            return State(**data, edit=edit, steps=tuple(steps))
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise StateError(
                f"{path} cannot be read: {error}.",
                f"Give that rebase up: rm -r '{self.folder}'; nothing else knows it.",
            ) from error

    def save(self, state: State) -> None:
        """Write the state; a kill leaves the old one or the new one."""
        data = {"version": VERSION, **asdict(state)}
        write_whole(self.folder / _FILE, json.dumps(data, indent=1).encode())

    def remove(self) -> None:
        """Forget the rebase: the state goes first, then the work tree."""
        (self.folder / _FILE).unlink(missing_ok=True)
        shutil.rmtree(self.folder, ignore_errors=True)


def sessions(build: Path) -> Iterator[Session]:
    """The rebases that wait; folders without a state are what killed runs left."""
    for folder in sorted((build / "onto").glob("*")):
        if (folder / _FILE).exists():
            yield Session(folder)


def session_for(build: Path, repo: Repository) -> Session | None:
    """The rebase of one repository."""
    for session in sessions(build):
        if Path(session.load().common) == repo.common:
            return session
    return None


def the_session(build: Path, path: Path | None) -> Session:
    """The rebase that a command means: that of a clone, or the only one.

    Raises:
        StateError: There is none, or there are several.
    """
    if path is not None:
        repo = Repository.find(path)
        if found := session_for(build, repo):
            return found
        raise StateError(
            f"No rebase of the series is under way for {path}.",
            "Begin one with `apply.py apply --vllm … --onto …`; a rebase, am, merge or "
            "cherry-pick of your own is continued and aborted by git itself.",
        )
    waiting = list(sessions(build))
    with suppress(SeriesError):
        if len(waiting) > 1 and (
            found := session_for(build, Repository.find(Path.cwd()))
        ):
            return found
    if len(waiting) == 1:
        return waiting[0]
    if not waiting:
        raise StateError(
            "No rebase of the series is under way.",
            "Begin one with `apply.py apply --onto …`; a rebase, am, merge or "
            "cherry-pick of your own is continued and aborted by git itself.",
        )
    states = [session.load() for session in waiting]
    places = ", ".join(state.worktree or state.gitdir for state in states)
    raise StateError(f"Several rebases wait: {places}.", "Name one with --vllm.")


def new_session(build: Path, repo: Repository) -> Session:
    """A folder for a rebase of a repository, free of what killed runs left."""
    root = build / "onto"
    try:
        root.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise of_system(error, build) from error
    for folder in root.glob("*"):
        if not (folder / _FILE).exists():
            shutil.rmtree(folder, ignore_errors=True)
    name = (repo.worktree or repo.gitdir).name
    number = 1
    while (root / f"{name}-{number}").exists():
        number += 1
    return Session(root / f"{name}-{number}")
