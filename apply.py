#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The patch series on vLLM: apply it, export it, see where it stands."""

import signal
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from types import FrameType
from typing import Annotated, Any

import typer

from series.errors import Exit, SeriesError

HERE = Path(__file__).resolve().parent

app = typer.Typer(
    help=__doc__,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


@dataclass
class Setting:
    """Where this run reads the series and builds the tree."""

    series: Path = HERE / "patches" / "series.toml"
    build: Path = HERE / "build"
    debug: bool = False


SETTING = Setting()


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
        if SETTING.debug:
            traceback.print_exc()
        print(f"error: {error.what}", file=sys.stderr)
        if error.hint:
            print(f"       {error.hint}", file=sys.stderr)
        raise typer.Exit(error.code) from error
    except KeyboardInterrupt as error:
        print("interrupted: nothing is lost, run it again.", file=sys.stderr)
        raise typer.Exit(Exit.INTERRUPT) from error
    except typer.Exit:
        raise
    except OSError as error:
        if SETTING.debug:
            traceback.print_exc()
        where = f"{error.filename}: " if error.filename else ""
        print(f"error: {where}{error.strerror or error}", file=sys.stderr)
        raise typer.Exit(Exit.FAILURE) from error
    except Exception as error:
        if SETTING.debug:
            traceback.print_exc()
        kind = type(error).__name__
        print(f"bug: {kind}: {error}", file=sys.stderr)
        print("       Run it with `apply.py --debug …` and report it.", file=sys.stderr)
        raise typer.Exit(Exit.FAILURE) from error


Vllm = Annotated[
    Path | None,
    typer.Option("--vllm", help="Your clone of vLLM; left out: build/vllm."),
]
Json = Annotated[bool, typer.Option("--json", help="Data instead of text.")]


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
            options: dict[str, Any] = {"switch": switch, "force": force, "anew": anew}
            options |= {"vllm": vllm, "edit": tuple(edit or ())}
            step("begin", series, build, onto, as_json=as_json, **options)
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


def step(name: str, *words: Any, as_json: bool, **options: Any) -> None:
    """Run one step of a rebase; a conflict ends it with exit code 3."""
    from series import onto, progress, report

    done = getattr(onto, name)(*words, report.say, **options)
    if as_json:
        report.print_data(progress.progress_data(done))
    else:
        progress.print_progress(done)
    if conflict := progress.conflict_of(done):
        raise conflict


@app.command("continue")
def continue_(vllm: Vllm = None, as_json: Json = False) -> None:
    """Take the resolution of a conflict, and go on with the next patch."""
    with error_handler():
        step("resume", SETTING.build, vllm, as_json=as_json)


@app.command()
def skip(vllm: Vllm = None, as_json: Json = False) -> None:
    """Leave the conflicting patch out, and go on with the next one."""
    with error_handler():
        step("resume", SETTING.build, vllm, as_json=as_json, skip=True)


@app.command()
def abort(vllm: Vllm = None) -> None:
    """Give a waiting rebase up; nothing else was changed by it."""
    with error_handler():
        from series import onto, report

        state, _ = onto.abort(SETTING.build, vllm)
        report.say(
            f"Gave the rebase onto {state.onto} up; {state.branch} is where it was. "
            "Resolutions that were kept stay in patches/onto/."
        )


@app.command()
def check(
    vllm: Vllm = None,
    onto: Annotated[
        list[str] | None,
        typer.Option("--onto", help="Releases, or revisions of the clone, alone."),
    ] = None,
    python: Annotated[
        str, typer.Option("--python", help="An interpreter with torch, to import in.")
    ] = "",
    summary: Annotated[
        Path | None, typer.Option("--markdown", help="Add the table to this file.")
    ] = None,
    record: Annotated[
        bool, typer.Option("--record", help="Make these outcomes the expected ones.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Try every patch on every release, and on a clone's main; changes nothing."""
    with error_handler():
        from series import checking, report

        words = (SETTING.series, SETTING.build, report.say)
        good = checking.run(*words, vllm, onto, python, summary, record, as_json)
        if not good:
            raise typer.Exit(Exit.CONFLICT)


@app.command()
def pr(
    name: Annotated[str, typer.Argument(help="A change set of series.toml.")],
    vllm: Vllm = None,
    onto: Annotated[
        str | None,
        typer.Option("--onto", help="The newest upstream; left out, the pin."),
    ] = None,
    anyway: Annotated[
        bool, typer.Option("--anyway", help="Though it looks merged or covered.")
    ] = False,
    lint: Annotated[bool, typer.Option(help="Run upstream's linters.")] = True,
    as_json: Json = False,
) -> None:
    """Make a change set ready for upstream: branch, patches, body; never pushes."""
    with error_handler():
        from series import progress, report
        from series.submit import submit

        results = HERE / "evals" / "results"
        words = (SETTING.series, SETTING.build, name, results, report.say)
        made = submit(*words, vllm=vllm, onto=onto, anyway=anyway, lint=lint)
        if as_json:
            report.print_data(asdict(made))
        else:
            progress.print_submission(made)


@app.command()
def repin(
    to: Annotated[str, typer.Argument(help="A recorded release, or its commit.")],
    vllm: Annotated[
        Path | None,
        typer.Option("--vllm", help="A clone, to record all 40 digits of the commit."),
    ] = None,
    test: Annotated[
        bool, typer.Option(help="Make the new tree and run its tests afterwards.")
    ] = True,
    as_json: Json = False,
) -> None:
    """Move the pin: rebase, export, series.toml and outcomes, in one change."""
    with error_handler():
        from series import progress, renew, report
        from series.repin import repin as move_pin

        series, build = SETTING.series, SETTING.build
        done = move_pin(series, build, to, report.say, clone=vllm)
        if as_json:
            report.print_data(asdict(done))
        else:
            progress.print_repinned(done)
        if test:
            renew.renew(series, build, done.old)
            renew.run_tests(HERE)


@app.command()
def readapt(release: Annotated[str, typer.Argument(help="The release.")]) -> None:
    """Make the adaptations to a release anew, after patches were amended."""
    with error_handler():
        from series import report
        from series.readapt import readapt as make_anew

        made = make_anew(SETTING.series, SETTING.build, release, report.say)
        print(*[f"wrote {path}" for path in made] or ["Nothing to do."], sep="\n")


def main() -> None:
    """Run the command line; a termination ends as cleanly as an interrupt."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, stop)
    app()


if __name__ == "__main__":
    main()
