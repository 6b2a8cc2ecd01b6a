#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The patch series on vLLM: apply it, export it, see where it stands."""

import signal
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from types import FrameType
from typing import Annotated, Any

import typer

from series import output, upkeep
from series.errors import Exit, SeriesError, of_system
from series.upkeep import Json, Vllm

HERE = Path(__file__).resolve().parent

app = typer.Typer(
    help=__doc__,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


SETTING = upkeep.Setting(HERE)


@app.callback()
def setting(
    series: Annotated[
        Path, typer.Option(help="The series.toml to use.", show_default=False)
    ] = SETTING.series,
    build: Annotated[
        Path, typer.Option(help="Where the pinned tree is made.", show_default=False)
    ] = SETTING.build,
    debug: Annotated[
        bool, typer.Option("--debug", help="Show the traceback of a failure.")
    ] = False,
) -> None:
    """The patch series on vLLM: apply it, export it, see where it stands."""
    SETTING.series = series.absolute()
    SETTING.build = build.absolute()
    SETTING.debug = debug


@contextmanager
def error_handler() -> Iterator[None]:
    """Turn failures into one message and the exit code that belongs to them."""
    try:
        yield
    except SeriesError as error:
        raise _told(error) from error
    except KeyboardInterrupt as error:
        print("interrupted: nothing is lost, run it again.", file=sys.stderr)
        raise typer.Exit(Exit.INTERRUPT) from error
    except typer.Exit:
        raise
    except OSError as error:
        if output.is_lost(error):
            raise
        raise _told(of_system(error)) from error
    except Exception as error:
        if SETTING.debug:
            traceback.print_exc()
        kind = type(error).__name__
        print(f"bug: {kind}: {error}", file=sys.stderr)
        print("       Run it with `apply.py --debug …` and report it.", file=sys.stderr)
        raise typer.Exit(Exit.FAILURE) from error


def _told(error: SeriesError) -> typer.Exit:
    if SETTING.debug:
        traceback.print_exc()
    output.tell(error)
    return typer.Exit(error.code)


@app.command()
def apply(
    vllm: Vllm = None,
    switch: Annotated[
        bool, typer.Option("--switch", help="Check the branch out as well.")
    ] = False,
    force: Annotated[
        bool,
        typer.Option("--force", help="Give up commits and edits in the way; kept."),
    ] = False,
    archive: Annotated[
        Path | None,
        typer.Option("--archive", help="The source distribution, as a local file."),
    ] = None,
    onto: Annotated[
        str | None,
        typer.Option("--onto", help="A release, or a revision of the clone, instead."),
    ] = None,
    anew: Annotated[
        bool, typer.Option("--anew", help="Leave recorded adaptations out.")
    ] = False,
    edit: Annotated[
        list[str] | None,
        typer.Option("--edit", help="Stop at this patch (0001) though it lands."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Put the series on a branch of the pinned tree, or of your clone."""
    with error_handler():
        from series import commands, report

        series, build = SETTING.series, SETTING.build
        if onto is not None:
            from series.onto import begin

            options: dict[str, Any] = {"switch": switch, "force": force, "anew": anew}
            options |= {"vllm": vllm, "edit": tuple(edit or ())}
            upkeep.step(begin, series, build, onto, as_json=as_json, **options)
            return
        if vllm is None:
            outcome = commands.apply_own(series, build, archive, force=force)
        else:
            outcome = commands.apply_to(series, vllm, switch=switch, force=force)
        own = vllm is None
        if as_json:
            report.print_data(report.outcome_data(outcome, own=own))
        else:
            report.print_outcome(outcome, own=own)
        if outcome.not_switched:
            raise outcome.not_switched


@app.command()
def export(
    vllm: Vllm = None,
    prune: Annotated[
        bool, typer.Option("--prune", help="Remove patches whose commits are gone.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Write the commits of the series branch back to patches/."""
    with error_handler():
        from series import commands, report

        done = commands.export(SETTING.series, SETTING.build, vllm, prune=prune)
        if as_json:
            report.print_data(asdict(done))
        else:
            report.print_export(done)


@app.command()
def status(vllm: Vllm = None, as_json: Json = False) -> None:
    """Say where the pin, the archive, the tree and the branch are; changes nothing."""
    with error_handler():
        from series import progress, report
        from series.status import look

        facts = look(SETTING.series, SETTING.build, vllm)
        if as_json:
            waiting = progress.waiting_data(SETTING.build)
            report.print_data({**asdict(facts), "waiting": waiting})
        else:
            report.print_status(facts)
            progress.print_waiting(SETTING.build)


upkeep.add_commands(app, SETTING, error_handler)


def main() -> None:
    """Run the command line; a termination ends as cleanly as an interrupt."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, stop)
    sys.exit(output.whole(app))


if __name__ == "__main__":
    main()
