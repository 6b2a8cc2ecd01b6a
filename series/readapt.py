# SPDX-License-Identifier: Apache-2.0
"""Adaptations made anew after their patches were amended, where that needs no person.

An adaptation shows how a release's tree looked with the old form of a patch. What the
amendment changed between the old form and the new one is merged into that tree. The old
form comes from this repository's history of patches/.
"""

import os
import shutil
from pathlib import Path

from . import adapt
from .blobs import tree_with
from .carry import LANDED, Source, Step
from .errors import ConflictError, SeriesError
from .git import Repository, require_git
from .locks import scratch_folder
from .mail import read_mail
from .manifest import Manifest, load_manifest
from .releases import release_store, require_release
from .scratch import Scratch
from .sources import Rebase, rebase_over, release_in
from .stack import commit_mail
from .target import Say
from .threeway import merge_patch


class ReadaptError(SeriesError):
    """The old form of a patch cannot be found."""


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
        stale = _outdated(new, folder)
        if not stale:
            return []
        old_manifest = _old_series(new.scratch, manifest, stale, folder, aside)
        with rebase_over(store, old_manifest, onto, say) as old:
            steps = [old.carrier.carry(source) for source in old.sources]
            old.scratch.give(new.scratch)
        made = _carry(new, old.sources, steps, stale)
        return [
            adapt.record(new.scratch, folder, s.patch.file, s.mail, before, commit)
            for s, before, commit in made
        ]


def _outdated(new: Rebase, folder: Path) -> dict[str, adapt.Adaptation]:
    """The adaptations that were made from another form of their patch."""
    stale = {}
    for source in new.sources:
        found = adapt.find(folder, source.patch.file)
        if found and found.digest != adapt.digest_of(source.mail):
            stale[source.patch.file] = found
    return stale


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
    old: list[Source],
    steps: list[Step],
    stale: dict[str, adapt.Adaptation],
) -> list[tuple[Source, str, str]]:
    """The amended patches on the release: each with the commit below, and its own."""
    made = []
    before = {source.patch.file: n for n, source in enumerate(old)}
    for source in new.sources:
        tip = new.carrier.tip
        one = stale.get(source.patch.file)
        number = before.get(one.source) if one else None
        if one is None or number is None or steps[number].state not in LANDED:
            step = new.carrier.carry(source)
            if step.state == "conflict":
                raise _by_hand(source, new.onto.name)
            continue
        landed = steps[number].commit
        files = merge_patch(new.scratch, old[number].commit, source.commit, landed)
        if any(file.clashes for file in files):
            raise _by_hand(source, new.onto.name)
        changes = {f.onto: f.result for f in files if not f.nothing_left}
        tree = tree_with(new.scratch, landed, changes)
        commit = commit_mail(new.scratch, source.mail, tip, tree)
        new.carrier.tip = commit
        made.append((source, tip, commit))
    return made


def _by_hand(source: Source, onto: str) -> ConflictError:
    return ConflictError(
        f"The amendment of {source.patch.file} meets lines that its adaptation to "
        f"{onto} has changed.",
        f"Decide it by hand: apply.py apply --onto {onto}",
    )
