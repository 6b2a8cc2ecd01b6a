# SPDX-License-Identifier: Apache-2.0
"""Adaptations made anew after their patches were amended, where that needs no person.

An adaptation shows how a release's tree looked with the old form of a patch. It is
carried to the release's tree as the patches below it leave it now, and what the
amendment changed between the old form and the new one is merged into that. The old form
comes from this repository's history of patches/. Its message is always the patch's own.
"""

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from . import adapt
from .blobs import tree_with
from .carry import LANDED, Source
from .errors import ConflictError, SeriesError
from .git import Repository, require_git
from .locks import scratch_folder
from .mail import Mail, read_mail
from .manifest import Manifest, load_manifest
from .releases import release_store, require_release
from .scratch import Scratch
from .sources import Rebase, rebase_over, release_in
from .stack import commit_mail
from .target import Say
from .threeway import FileMerge, merge_patch


class ReadaptError(SeriesError):
    """The old form of a patch cannot be found."""


@dataclass(frozen=True)
class Landing:
    """An adaptation as it lay on the release, with the old form of its patch.

    Args:
        source: The old form, on the pin.
        before: The commit below, on the release.
        commit: Its commit there.
    """

    source: Source
    before: str
    commit: str


def readapt(series: Path, build: Path, name: str, say: Say) -> list[Path]:
    """Make the outdated adaptations to a release anew.

    Args:
        series: series.toml.
        build: The folder of the releases.
        name: The release.

    Returns:
        The files that were written.

    Raises:
        ConflictError: An amendment meets the adapted lines: a person must decide.
    """
    require_git()
    manifest = load_manifest(series)
    pin = require_release(manifest, name)
    store = release_store(build, [manifest.pin, pin], say)
    onto = release_in(store, pin)
    folder = adapt.folder_for(manifest, onto.name)
    with rebase_over(store, manifest, onto, say) as new, scratch_folder() as aside:
        found = _recorded(new, folder)
        amended = _amended(new, found)
        old = {}
        if amended:
            old_manifest = _old_series(new.scratch, manifest, amended, folder, aside)
            with rebase_over(store, old_manifest, onto, say) as was:
                old = _landings(was)
                was.scratch.give(new.scratch)
        return [
            adapt.record(new.scratch, folder, s.patch.file, s.mail, before, commit)
            for s, before, commit in _carry(new, found, old, say)
        ]


def _recorded(new: Rebase, folder: Path) -> dict[str, adapt.Adaptation]:
    """The adaptations to the release, by their patches' files."""
    found = {s.patch.file: adapt.find(folder, s.patch.file) for s in new.sources}
    return {file: one for file, one in found.items() if one}


def _amended(
    new: Rebase, found: dict[str, adapt.Adaptation]
) -> dict[str, adapt.Adaptation]:
    """Those that were made from another form of their patch."""
    now = {s.patch.file: adapt.digest_of(s.mail) for s in new.sources}
    return {file: one for file, one in found.items() if one.digest != now[file]}


def _landings(was: Rebase) -> dict[str, Landing]:
    """What landed of the old series, by file."""
    landed = {}
    for source in was.sources:
        before = was.carrier.tip
        step = was.carrier.carry(source)
        if step.state in LANDED:
            landed[source.patch.file] = Landing(source, before, step.commit)
    return landed


def _old_series(
    scratch: Scratch,
    manifest: Manifest,
    stale: dict[str, adapt.Adaptation],
    folder: Path,
    aside: Path,
) -> Manifest:
    """The newest committed patches/ that the adaptations were made from."""
    here = Repository.find(manifest.folder)
    assert here.worktree is not None
    where = manifest.folder.resolve().relative_to(here.worktree.resolve()).as_posix()
    for number, commit in enumerate(
        here.line("log", "--format=%H", "--", where).split()
    ):
        old = aside / str(number)
        names = os.fsdecode(
            here.git("ls-tree", "-z", "--name-only", f"{commit}:{where}")
        )
        old.mkdir()
        for file in names.split("\0"):
            if file.endswith((".patch", ".toml")):
                data = here.git("cat-file", "blob", f"{commit}:{where}/{file}")
                (old / file).write_bytes(data)
        if all(_made_from(scratch, old, one) for one in stale.values()):
            shutil.copytree(folder, old / "onto" / folder.name)
            return load_manifest(old / manifest.path.name)
        shutil.rmtree(old)
    raise ReadaptError(
        f"{where} never had, in this repository's history, the patches that "
        f"{', '.join(sorted(one.path.name for one in stale.values()))} was made from.",
        "Make it anew by hand: apply.py apply --onto … ",
    )


def _made_from(scratch: Scratch, folder: Path, one: adapt.Adaptation) -> bool:
    path = folder / one.source
    return path.exists() and adapt.digest_of(read_mail(scratch, path)) == one.digest


def _carry(
    new: Rebase,
    found: dict[str, adapt.Adaptation],
    old: dict[str, Landing],
    say: Say,
) -> list[tuple[Source, str, str]]:
    """What is to be recorded: each patch with the commit below, and its own."""
    made = []
    scratch, carrier = new.scratch, new.carrier
    for source in new.sources:
        tip = carrier.tip
        one = found.get(source.patch.file)
        landing = old.get(one.source) if one else None
        if one and landing and adapt.outdated(scratch, one, source.mail, tip)[0]:
            tree = _again(new, landing, source)
        else:
            step = carrier.carry(source)
            if step.state == "conflict" and one:
                raise _by_hand(source, new.onto.name)
            if step.state == "conflict":
                say(
                    f"{source.patch.file} has no adaptation to {new.onto.name} and "
                    f"conflicts: apply.py apply --onto {new.onto.name}"
                )
            if one is None or step.state != "adapted" or _says(scratch, one, source):
                continue
            tree = scratch.tree_of(step.commit)
        commit = commit_mail(scratch, source.mail, tip, tree)
        carrier.tip = commit
        made.append((source, tip, commit))
    return made


def _says(scratch: Scratch, one: adapt.Adaptation, source: Source) -> bool:
    """Whether an adaptation has its patch's author, date and message."""

    def said(mail: Mail) -> tuple[tuple[str, str], str, str]:
        return mail.author, mail.date, mail.message

    return said(read_mail(scratch, one.path)) == said(source.mail)


def _again(new: Rebase, landing: Landing, source: Source) -> str:
    """The tree of an adaptation on the tip of today, the amendment merged in."""
    scratch, was = new.scratch, landing.source
    files = merge_patch(scratch, landing.before, landing.commit, new.carrier.tip)
    tree = _merged(new, source, files, new.carrier.tip)
    # The amendment alone: what changed below came with the tip, or is not wanted there.
    files = merge_patch(scratch, was.before, was.commit, source.before)
    then = {f.onto: f.sides[1] if f.clashes else f.result for f in files}
    unamended = tree_with(scratch, source.before, then)
    files = merge_patch(scratch, unamended, source.commit, tree)
    return _merged(new, source, files, tree)


def _merged(new: Rebase, source: Source, files: list[FileMerge], tree: str) -> str:
    """A tree with merged files.

    Raises:
        ConflictError: They do not merge.
    """
    if any(file.clashes for file in files):
        raise _by_hand(source, new.onto.name)
    changes = {file.onto: file.result for file in files if not file.nothing_left}
    return tree_with(new.scratch, tree, changes)


def _by_hand(source: Source, onto: str) -> ConflictError:
    return ConflictError(
        f"The amendment of {source.patch.file} meets lines that its adaptation to "
        f"{onto} has changed.",
        f"Decide it by hand: apply.py apply --onto {onto}",
    )
