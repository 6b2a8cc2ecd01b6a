# SPDX-License-Identifier: Apache-2.0
"""Refuses an interpreter that cannot run the tree, in words for its owner."""

from collections.abc import Sequence

from series.errors import SeriesError
from tests.harness import environment
from tests.harness.environment import Environment


def ready(interpreter: str, needs: Sequence[str]) -> Environment:
    """The interpreter to run the tree's code in, once it has what that needs.

    Args:
        needs: Names of distributions.

    Raises:
        SeriesError: It does not start, or packages are missing; nothing is installed.
    """
    try:
        found = environment.probe(interpreter, needs)
    except environment.ProbeError as error:
        raise SeriesError(
            f"{error}.", "Name a Python interpreter: PYTHON=path/to/python3"
        ) from error
    if found.missing:
        raise SeriesError(
            f"{interpreter} lacks {', '.join(found.missing)}.",
            "Install them there, or leave PYTHON out for an environment of its own.",
        )
    return found
