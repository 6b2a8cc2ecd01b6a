# SPDX-License-Identifier: Apache-2.0
"""Recorded adaptations: how a patch was made to fit a release whose tree differs.

They lie in patches/onto/RELEASE/, under the number of their patch. The rule by which
one is used, in place of merging the patch itself:

1. The folder is that of the release that the series goes onto; for a revision of a
   clone, the folder of that name.
2. Its `X-Adapts:` line names the file and the digest of the patch that it was made
   from, and the patch has that digest still. The digest is of the changed and context
   lines alone: line numbers, blob ids and the message do not count.
3. Every file that it changes is there with the very content that it was made for.

One that breaks 2 or 3 is reported as outdated, and the patch itself is merged.
"""

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path

from .blobs import NOTHING, entries
from .canonical import write_patches
from .errors import SeriesError, of_system
from .mail import Mail, read_mail
from .manifest import Manifest
from .scratch import Scratch
from .writing import write_whole

_LINE = re.compile(rb"^X-Adapts: (\S+) ([0-9a-f]{40})$", re.MULTILINE)
_NOISE = re.compile(rb"^(index [0-9a-f]|similarity |--- |\+\+\+ )")


@dataclass(frozen=True)
class Adaptation:
    """A recorded adaptation.

    Args:
        path: Its file.
        source: The name of the patch that it was made from.
        digest: The digest of that patch.
    """

    path: Path
    source: str
    digest: str


def folder_for(manifest: Manifest, onto: str) -> Path:
    """Where the adaptations to a release or revision lie."""
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", onto).strip("-.")
    name = re.sub(r"^v(?=\d)", "", name)
    return manifest.folder / "onto" / name


def digest_of(mail: Mail) -> str:
    """What makes two patches the same change, wherever they apply."""
    digest = hashlib.sha1(usedforsecurity=False)
    for line in mail.diff.split(b"\n"):
        if line.startswith(b"@@ "):
            line = b"@@"
        if not _NOISE.match(line):
            digest.update(line + b"\n")
    return digest.hexdigest()


def find(folder: Path, name: str) -> Adaptation | None:
    """The adaptation of the patch with the number of name, None where there is none.

    Raises:
        SeriesError: There are two, or its X-Adapts line is missing.
    """
    files = sorted(folder.glob(f"{name[:4]}-*.patch"))
    if not files:
        return None
    hint = "Remove it, or record it anew with `apply.py apply --onto … --anew`."
    if len(files) > 1:
        raise SeriesError(f"{folder} has two adaptations of {name[:4]}.", hint)
    match = _LINE.search(files[0].read_bytes().partition(b"\n\n")[0])
    if match is None:
        raise SeriesError(f"{files[0]} has no X-Adapts line.", hint)
    return Adaptation(files[0], match[1].decode(), match[2].decode())


def outdated(
    scratch: Scratch, adaptation: Adaptation, mail: Mail, onto: str
) -> tuple[str, Mail | None]:
    """Why an adaptation cannot be used on a commit, or its patch where it can."""
    if adaptation.digest != digest_of(mail):
        return f"{adaptation.path.name} was made for another form of this patch", None
    adapted = read_mail(scratch, adaptation.path)
    there = entries(scratch, onto, list(adapted.paths))
    for change in adapted.changes:
        if there.get(change.path, NOTHING).oid != change.pre:
            why = f"{adaptation.path.name} was made for another {change.path}"
            return why, None
    return "", adapted


def record(
    scratch: Scratch, folder: Path, name: str, mail: Mail, before: str, commit: str
) -> Path:
    """Keep a commit as the adaptation of a patch; replaces an earlier one at once.

    Args:
        folder: The release's folder of adaptations.
        name: The patch's file name.
        mail: The patch.
        before: The commit below.
        commit: The adapted commit.
    """
    [made] = write_patches(scratch, before, commit)
    head, _, body = made.read_bytes().partition(b"\n\n")
    made.unlink()
    line = f"X-Adapts: {name} {digest_of(mail)}".encode()
    data = head + b"\n" + line + b"\n\n" + body
    path = folder / name
    write_whole(path, data)
    try:
        for old in folder.glob(f"{name[:4]}-*.patch"):
            if old != path:
                old.unlink()
    except OSError as error:
        raise of_system(error, folder) from error
    return path
