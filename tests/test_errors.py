# SPDX-License-Identifier: Apache-2.0
"""What a user reads when the operating system refuses something."""

import errno
import os
from pathlib import Path

import pytest

from series.errors import DiskError, Exit, SeriesError, of_system


def error(number: int, *more: object) -> OSError:
    return OSError(number, os.strerror(number), *more)


@pytest.mark.parametrize(
    ("raised", "where", "what"),
    [
        (error(errno.EACCES, "/a"), "", "/a: Permission denied"),
        (error(errno.EACCES, b"/a\xff"), "/b", "/a\udcff: Permission denied"),
        (error(errno.EIO), Path("/b"), "/b: Input/output error"),
        (error(errno.EIO, 3), "", "Input/output error"),
        (error(errno.EIO, 3), "/b", "/b: Input/output error"),
        (OSError("no reason"), "", "no reason"),
    ],
)
def test_the_place_and_the_reason(raised: OSError, where: object, what: str) -> None:
    said = of_system(raised, where)
    assert (said.what, said.hint, said.code) == (what, "", Exit.FAILURE)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_says_what_to_do(number: int) -> None:
    assert "make clean" in of_system(error(number), "/b").hint


@pytest.mark.parametrize(
    ("number", "hint"),
    [
        (errno.ENOSPC, "space"),
        (errno.EDQUOT, "space"),
        (errno.EROFS, "writable"),
        (errno.EFBIG, "ulimit -f"),
        (errno.EMFILE, "ulimit -n"),
        (errno.ENFILE, "open"),
    ],
)
def test_what_the_disk_refuses_is_told_from_the_rest(number: int, hint: str) -> None:
    said = of_system(error(number), "/b")
    assert isinstance(said, DiskError)
    assert hint in said.hint
    assert type(of_system(error(errno.EACCES), "/b")) is SeriesError
