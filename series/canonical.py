# SPDX-License-Identifier: Apache-2.0
"""Commits as patch files whose bytes depend on the commits alone."""

from pathlib import Path

from .disk import require_room
from .mail import read_mail
from .scratch import Scratch
from .stack import Commit, build_stack, read_commits

# Everything that a setting or a version could decide is decided here.
_FLAGS = (
    "--zero-commit",
    "--full-index",
    "--keep-subject",
    "--no-numbered",
    "--start-number=1",
    "--suffix=.patch",
    "-p",
    "--unified=3",
    "--inter-hunk-context=0",
    "--diff-algorithm=myers",
    "--indent-heuristic",
    "--no-renames",
    "--binary",
    "--no-ext-diff",
    "--no-textconv",
    "--no-color",
    "--src-prefix=a/",
    "--dst-prefix=b/",
    "--submodule=short",
    "--no-attach",
    "--no-thread",
    "--no-cover-letter",
    "--no-base",
    "--no-notes",
    "--no-signoff",
    "--no-signature",
    "--no-from",
    "--no-to",
    "--no-cc",
    "--no-add-header",
    "--encode-email-headers",
)


def write_patches(scratch: Scratch, base: str, tip: str) -> list[Path]:
    """Write one patch file per commit into the scratch folder.

    Returns:
        The files in order, named NNNN-subject.patch as git names them.
    """
    folder = scratch.folder / "patches"
    folder.mkdir(exist_ok=True)
    scratch.git("format-patch", "-q", "-o", str(folder), *_FLAGS, f"{base}..{tip}")
    require_room(folder)
    return sorted(folder.glob("*.patch"))


def lost_on_the_way(
    scratch: Scratch, base: str, commits: list[Commit], files: list[Path]
) -> Commit | None:
    """The first commit that its patch file would not bring back, None for all well."""
    mails = [read_mail(scratch, path) for path in files]
    tips = build_stack(scratch, base, mails)
    again = read_commits(scratch, base, tips[-1] if tips else base)
    for commit, rebuilt in zip(commits, again, strict=True):
        if commit.content != rebuilt.content:
            return commit
    return None
