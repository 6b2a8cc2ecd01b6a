# SPDX-License-Identifier: Apache-2.0
"""Adaptations to the other releases, carried over when the pin moves."""

import shutil
from pathlib import Path

from . import adapt
from .carry import LANDED
from .git import Repository
from .manifest import Manifest, Pin
from .releases import known_releases
from .sources import Rebase, rebase_over, release_in
from .target import Say


def carry_over(
    store: Repository, old: Manifest, new: Manifest, pin: Pin, say: Say
) -> list[str]:
    """Adaptations of the new patches to the other releases, old pin included.

    Where a patch would not land there as it used to, the old result is recorded.
    """
    shutil.rmtree(new.folder / "onto", ignore_errors=True)
    written = []
    for release in known_releases(new):
        if release.tag == pin.tag:
            continue
        onto = release_in(store, release)
        with (
            rebase_over(store, old, onto, say) as before,
            rebase_over(store, new, onto, say) as after,
        ):
            kept = {}
            tip = onto.commit
            for source in before.sources:
                step = before.carrier.carry(source)
                if step.state in LANDED:
                    kept[source.patch.title] = (tip, step.commit)
                    tip = step.commit
            before.scratch.give(after.scratch)
            folder = adapt.folder_for(new, release.tag)
            written += _keep(after, kept, folder)
    return written


def _keep(
    after: Rebase,
    kept: dict[str, tuple[str, str]],
    folder: Path,
) -> list[str]:
    written = []
    scratch = after.scratch
    for source in after.sources:
        tip = after.carrier.tip
        step = after.carrier.carry(source)
        if source.patch.title not in kept:
            continue
        below, commit = kept[source.patch.title]
        same = step.state in LANDED and scratch.tree_of(step.commit) == scratch.tree_of(
            commit
        )
        if same or scratch.tree_of(tip) != scratch.tree_of(below):
            continue
        name = source.patch.file
        path = adapt.record(scratch, folder, name, source.mail, below, commit)
        written.append(f"{folder.parent.name}/{folder.name}/{path.name}")
        after.carrier.tip = commit
    return written
