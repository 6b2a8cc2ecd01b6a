# SPDX-License-Identifier: Apache-2.0
"""The commands of apply.py that keep the series on a moving upstream."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from .errors import Exit


class Setting:
    """Where a run reads the series and builds trees.

    Args:
        root: The folder of this repository.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.series = root / "patches" / "series.toml"
        self.build = root / "build"
        self.debug = False


Vllm = Annotated[
    Path | None,
    typer.Option("--vllm", help="Your clone of vLLM; left out: build/vllm."),
]
Json = Annotated[bool, typer.Option("--json", help="Data instead of text.")]


def step(act: Callable[..., Any], *words: Any, as_json: bool, **options: Any) -> None:
    """Run one step of a rebase and tell about it.

    Args:
        act: onto.begin, or resuming.resume.

    Raises:
        ConflictError: It waits for a person now.
    """
    from . import progress, report

    done = act(*words, report.say, **options)
    if as_json:
        report.print_data(progress.progress_data(done))
    else:
        progress.print_progress(done)
    if conflict := progress.conflict_of(done):
        raise conflict


def add_commands(
    app: typer.Typer,
    setting: Setting,
    handler: Callable[[], AbstractContextManager[None]],
) -> None:
    """Add the commands to the command line.

    Args:
        app: The command line.
        setting: Filled when a command runs.
        handler: Turns failures into messages and exit codes.
    """

    @app.command("continue")
    def continue_(vllm: Vllm = None, as_json: Json = False) -> None:
        """Take the resolution of a conflict, and go on with the next patch."""
        with handler():
            from .resuming import resume

            step(resume, setting.build, vllm, as_json=as_json)

    @app.command()
    def skip(vllm: Vllm = None, as_json: Json = False) -> None:
        """Leave the conflicting patch out, and go on with the next one."""
        with handler():
            from .resuming import resume

            step(resume, setting.build, vllm, as_json=as_json, skip=True)

    @app.command()
    def abort(vllm: Vllm = None) -> None:
        """Give a waiting rebase up; nothing else was changed by it."""
        with handler():
            from . import report, resuming

            state, _ = resuming.abort(setting.build, vllm)
            report.say(
                f"Gave the rebase onto {state.onto} up; {state.branch} is where it "
                "was. Resolutions that were kept stay in patches/onto/."
            )

    @app.command()
    def check(
        vllm: Vllm = None,
        onto: Annotated[
            list[str] | None,
            typer.Option("--onto", help="Releases, or revisions of the clone, alone."),
        ] = None,
        python: Annotated[
            str,
            typer.Option("--python", help="An interpreter with torch, to import in."),
        ] = "",
        summary: Annotated[
            Path | None, typer.Option("--markdown", help="Add the table to this file.")
        ] = None,
        record: Annotated[
            bool,
            typer.Option("--record", help="Make these outcomes the expected ones."),
        ] = False,
        as_json: Json = False,
    ) -> None:
        """Try every patch on every release, and on a clone's main; changes nothing."""
        with handler():
            from . import checking, report

            words = (setting.series, setting.build, report.say)
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
        with handler():
            from . import progress, report
            from .submit import submit

            results = setting.root / "evals" / "results"
            words = (setting.series, setting.build, name, results, report.say)
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
            typer.Option(
                "--vllm", help="A clone, to record all 40 digits of the commit."
            ),
        ] = None,
        test: Annotated[
            bool, typer.Option(help="Make the new tree and run its tests afterwards.")
        ] = True,
        as_json: Json = False,
    ) -> None:
        """Move the pin: rebase, export, series.toml and outcomes, in one change."""
        with handler():
            from . import progress, renew, report
            from .repin import repin as move_pin

            series, build = setting.series, setting.build
            done = move_pin(series, build, to, report.say, clone=vllm)
            if as_json:
                report.print_data(asdict(done))
            else:
                progress.print_repinned(done)
            if test:
                renew.renew(series, build, done.old)
                renew.run_tests(setting.root)

    @app.command()
    def readapt(release: Annotated[str, typer.Argument(help="The release.")]) -> None:
        """Make the adaptations to a release anew, after patches were amended."""
        with handler():
            from . import report
            from .readapt import readapt as make_anew

            made = make_anew(setting.series, setting.build, release, report.say)
            print(*[f"wrote {path}" for path in made] or ["Nothing to do."], sep="\n")
