# SPDX-License-Identifier: Apache-2.0
from dataclasses import replace
from pathlib import Path

import pytest

import series.disk
from series.canonical import lost_on_the_way, write_patches
from series.errors import DiskError
from series.git import Repository
from series.mail import read_mail
from series.scratch import scratch_over
from series.stack import build_stack, read_commits

from .conftest import World


@pytest.fixture
def scratch(world: World, clone: Path):
    with scratch_over(Repository.find(clone)) as made:
        made.begin_at(world.pin)
        yield made


def test_bytes_are_those_that_git_alone_writes(world: World, scratch) -> None:
    mails = [read_mail(scratch, path) for path in world.manifest.files]
    tips = build_stack(scratch, world.pin, mails)
    files = write_patches(scratch, world.pin, tips[-1])
    assert [path.name[:5] for path in files] == ["0001-", "0002-", "0003-"]
    assert [path.read_bytes() for path in files] == [
        path.read_bytes() for path in world.manifest.files
    ]


def test_a_part_that_gets_lost_is_noticed(world: World, scratch) -> None:
    mails = [read_mail(scratch, path) for path in world.manifest.files]
    tips = build_stack(scratch, world.pin, mails)
    commits = read_commits(scratch, world.pin, tips[-1])
    files = world.manifest.files
    assert lost_on_the_way(scratch, world.pin, commits, files) is None
    for part in (
        {"message": "Other\n"},
        {"author": ("Else", "dev@example.com")},
        {"date": "1 +0000"},
        {"tree": "0" * 40},
    ):
        changed = [commits[0], replace(commits[1], **part), commits[2]]
        lost = lost_on_the_way(scratch, world.pin, changed, files)
        assert lost == changed[1], part
    assert lost_on_the_way(scratch, world.pin, [], []) is None


def test_patches_that_may_be_cut_off_are_not_taken(
    world: World, scratch, monkeypatch: pytest.MonkeyPatch
) -> None:
    mails = [read_mail(scratch, path) for path in world.manifest.files]
    tips = build_stack(scratch, world.pin, mails)

    def full(**named: object) -> object:
        return open("/dev/full", "wb", buffering=0)

    monkeypatch.setattr(series.disk.tempfile, "TemporaryFile", full)
    with pytest.raises(DiskError, match="No space left"):
        write_patches(scratch, world.pin, tips[-1])
