# SPDX-License-Identifier: Apache-2.0
"""The series, patch by patch, onto another commit: in memory, nothing is moved."""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from . import adapt
from .blobs import tree_with
from .evidence import History, content, probe
from .git import GitError
from .mail import ABSENT, Mail, PatchError
from .manifest import Patch
from .scratch import Scratch
from .stack import commit_mail, diff_files
from .target import Say, complete
from .threeway import Clash, FileMerge, merge_patch

State = Literal[
    "clean", "moved", "adapted", "resolved", "merged", "empty", "skipped", "conflict"
]
LANDED = ("clean", "moved", "adapted", "resolved")


@dataclass(frozen=True)
class Source:
    """A patch of the series as it lies on the pin.

    Args:
        patch: Its table of series.toml.
        mail: Its file, read.
        before: The commit below it.
        commit: Its commit.
        settled: What became of it on the way, where that decides it.
        via: The release that it comes by way of, and what became of it there.
    """

    patch: Patch
    mail: Mail
    before: str
    commit: str
    settled: "Step | None" = None
    via: str = ""


@dataclass(frozen=True)
class Step:
    """What became of one patch.

    Args:
        file: The patch file.
        title: Its subject.
        state: How it ended.
        evidence: Why: what shows that it is merged, or which lines moved.
        notes: What else a reader should know.
        clashes: Where a person must decide.
        commit: The commit on the new base; empty where nothing landed.
    """

    file: str
    title: str
    state: State
    evidence: str = ""
    notes: tuple[str, ...] = ()
    clashes: tuple[Clash, ...] = ()
    commit: str = ""


@dataclass
class Carrier:
    """Carries sources onto a commit, one after the other.

    Args:
        scratch: Where commits are built.
        onto: The commit that the series goes onto.
        adaptations: The folder of recorded adaptations to it.
        history: Upstream's commits since the pin.
        say: Called with a line before something that takes time.
        anew: Leave recorded adaptations out.
        tip: The commit that the next patch goes onto.
        stuck: Files of patches that did not land, to explain what rests on them.
        files: The merged files of the last patch.
    """

    scratch: Scratch
    onto: str
    adaptations: Path
    history: History
    say: Say
    anew: bool = False
    tip: str = ""
    stuck: dict[str, str] = field(default_factory=dict)
    files: list[FileMerge] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.tip = self.tip or self.onto

    def carry(self, source: Source) -> Step:
        """Carry one patch; the tip moves on where it lands."""
        step = source.settled or self._carry(source)
        if step.state in LANDED:
            self.tip = step.commit
        elif step.state in ("conflict", "skipped"):
            self.give_up(source)
        return step

    def give_up(self, source: Source) -> None:
        """Remember the files of a patch that does not land."""
        for path in source.mail.paths:
            self.stuck.setdefault(path, source.patch.file[:4])

    def _carry(self, source: Source) -> Step:
        patch, mail = source.patch, source.mail
        blank = Step(patch.file, patch.title, "conflict")
        if said := self._merged(source):
            return replace(blank, state="merged", evidence=said)
        notes = [f"by way of {source.via}"] if source.via else []
        if adapted := self._adapted(source, notes):
            return replace(adapted, notes=tuple(notes))
        self.files = merge_patch(
            self.scratch, source.before, source.commit, self.tip, self.need
        )
        if said := content(self.files, self.scratch):
            evidence = f"content: {said}"
            return replace(blank, state="merged", evidence=evidence)
        if clashes := tuple(clash for file in self.files for clash in file.clashes):
            below = {self.stuck[path] for path in mail.paths if path in self.stuck}
            if below:
                notes.append(f"rests on {', '.join(sorted(below))}, which did not land")
            return replace(blank, clashes=clashes, notes=tuple(notes))
        changes = {f.onto: f.result for f in self.files if not f.nothing_left}
        if not changes:
            why = "nothing is left of it to do"
            return replace(blank, state="empty", evidence=why, notes=tuple(notes))
        tree = tree_with(self.scratch, self.tip, changes)
        commit = commit_mail(self.scratch, mail, self.tip, tree)
        evidence = _moves(self.files)
        return replace(
            blank,
            state="moved" if evidence else "clean",
            evidence=evidence,
            notes=tuple(notes),
            commit=commit,
        )

    def _merged(self, source: Source) -> str:
        if said := self.history.same_patch(source.mail):
            return f"patch-id: {said}"
        drop_when = source.patch.drop_when
        if drop_when and (said := probe(self.scratch, self.onto, drop_when, self.need)):
            return f"probe: {said}"
        return ""

    def _adapted(self, source: Source, notes: list[str]) -> Step | None:
        """The patch by its recorded adaptation, None where there is none to use."""
        if self.anew:
            return None
        found = adapt.find(self.adaptations, source.patch.file)
        if found is None:
            return None
        why, mail = adapt.outdated(self.scratch, found, source.mail, self.tip)
        if mail is None:
            notes.append(f"outdated, not used: {why}")
            return None
        self.need([c.pre for c in mail.changes if c.pre != ABSENT])
        commit = apply_exactly(self.scratch, mail, self.tip)
        evidence = f"{found.path.parent.name}/{found.path.name}"
        return Step(source.patch.file, mail.subject, "adapted", evidence, commit=commit)

    def need(self, oids: list[str]) -> None:
        """Fetch blobs that a partial clone has left out."""
        complete(self.history.repo, self.scratch.missing(oids), self.say)


def apply_exactly(scratch: Scratch, mail: Mail, onto: str) -> str:
    """Commit a patch on the very content that it names; returns the commit.

    Raises:
        PatchError: It does not apply, or does not lead where it says.
    """
    scratch.git("read-tree", onto)
    try:
        scratch.git("apply", "--cached", "--whitespace=nowarn", stdin=mail.diff)
    except GitError as error:
        raise PatchError(f"{mail.name} does not apply: {error.what}") from error
    tree = scratch.line("write-tree", "--missing-ok")
    done = {change.path: change.post for change in diff_files(scratch, onto, tree)}
    if wrong := [c.path for c in mail.changes if done.get(c.path, c.pre) != c.post]:
        raise PatchError(
            f"{mail.name} does not lead to the blobs that it names: {wrong[0]}.",
            "It was edited by hand: record it anew.",
        )
    return commit_mail(scratch, mail, onto, tree)


def _moves(files: list[FileMerge]) -> str:
    """Where hunks went that are not at their old place, in words."""
    parts = []
    for file in files:
        said = []
        if file.onto != file.path:
            said.append(f"is {file.onto} there")
        if moved := sorted({offset for offset in file.offsets if offset}):
            lines = ", ".join(f"{offset:+d}" for offset in moved)
            said.append(f"{lines} lines")
        if file.there:
            said.append(f"{file.there} of {file.hunks} hunks there already")
        if said:
            parts.append(f"{file.path}: {', '.join(said)}")
    return "; ".join(parts)
