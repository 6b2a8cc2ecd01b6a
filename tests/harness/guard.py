# SPDX-License-Identifier: Apache-2.0
"""Turns what a user can cause into one message and its exit code."""

import sys
from collections.abc import Callable, Sequence

from series.errors import Exit, SeriesError
from tests.harness.treerun import PlanError


def guarded(command: Callable[[Sequence[str]], int], argv: Sequence[str]) -> int:
    """Runs a command and returns its exit code, expected failures included."""
    try:
        return command(argv)
    except SeriesError as error:
        print(f"{error.what} {error.hint}".strip(), file=sys.stderr)
        return error.code
    except PlanError as error:
        print(f"{error}. Correct patches/series.toml.", file=sys.stderr)
        return Exit.FAILURE
    except KeyboardInterrupt:
        print("Interrupted.", file=sys.stderr)
        return Exit.INTERRUPT
