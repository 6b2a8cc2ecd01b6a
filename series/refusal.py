# SPDX-License-Identifier: Apache-2.0
"""Why a change set should not be sent upstream: it is there, or somebody sends it."""

from .carry import Step
from .errors import SeriesError
from .expected import load_expected
from .git import Repository
from .manifest import ChangeSet, Manifest
from .pins import IDENTITY_EMAIL
from .releases import known_releases


class RefusedError(SeriesError):
    """The submission would be a duplicate, or nobody signs it."""


def change_named(manifest: Manifest, name: str) -> ChangeSet:
    """The change set of a name.

    Raises:
        RefusedError: There is none.
    """
    for change in manifest.change_set:
        if change.name == name:
            return change
    names = ", ".join(change.name for change in manifest.change_set)
    raise RefusedError(f"No change set is named {name}.", f"There are: {names}.")


def reasons(manifest: Manifest, change: ChangeSet, steps: list[Step]) -> list[str]:
    """The evidence against sending a change set, empty for none.

    Args:
        steps: What became of its patches on the newest upstream that was given.
    """
    found = []
    state, url = change.upstream.state, change.upstream.url
    since = f" since {change.upstream.since}" if change.upstream.since else ""
    if state == "merged":
        found.append(f"recorded as merged upstream{since}: {url or 'no URL'}")
    if state == "open":
        found.append(f"an open public change holds it{since}: {url or 'no URL'}")
    if state == "superseded":
        found.append(f"recorded as superseded{since}: {url or 'no URL'}")
    for related in change.related:
        if related.covers and related.state in ("open", "merged"):
            found.append(f"{related.url} ({related.state}) covers it: {related.how}")
    for step in steps:
        if step.state == "merged":
            found.append(f"{step.file[:4]} is merged upstream: {step.evidence}")
    found += _recorded(manifest, change)
    return found


def _recorded(manifest: Manifest, change: ChangeSet) -> list[str]:
    """Releases after the pin in which a patch is known to be merged."""
    expected = load_expected(manifest)
    later = [p.tag for p in known_releases(manifest) if p.date > manifest.pin.date]
    mine = [patch for patch in manifest.patch if patch.series == change.name]
    return [
        f"{patch.file[:4]} is {word} in {tag}, as expected.toml records"
        for tag in later
        for patch in mine
        if (word := expected.get(tag, {}).get(patch.file, "")).startswith("merged")
    ]


def submitter(repo: Repository) -> tuple[str, str]:
    """Who signs the submission off: the user's own git identity.

    Raises:
        RefusedError: There is none.
    """
    name = repo.ask("config", "--get", "user.name", user=True) or ""
    email = repo.ask("config", "--get", "user.email", user=True) or ""
    if not name or "@" not in email or email == IDENTITY_EMAIL:
        raise RefusedError(
            "A submission is signed off by a person, and git knows no name and address "
            "of yours.",
            "git config --global user.name 'Your Name'; "
            "git config --global user.email you@example.com",
        )
    return name, email
