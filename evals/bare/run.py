# SPDX-License-Identifier: Apache-2.0
"""Runs a bundle on the machine it was carried to; needs Python and its torch alone.

    python3 run.py store               keep the pieces that came; says which are missing
    python3 run.py unpack              check everything, unpack, say what is missing
    python3 run.py test [--op] [-- …]  the patched tree's kernel tests on the GPU
    python3 run.py bench [NAME] [--op] [-- …]
                                       dot, gdn, or one of the tree's kernel benchmarks
    python3 run.py decode gdn|gate [-- …]
                                       steps of the whole engine, arm against arm
    python3 run.py ab -- …             any arms; SERIES_PATCHED, SERIES_STOCK: the trees

Nothing is installed into the machine's Python. Where all pieces do not travel at once,
bring some beside run.py and bundle.json, run store, and bring the next. --op builds the
tree's CUDA op first, so that it is compared with. --stock takes the release's own tree.
What follows -- goes to pytest, the benchmark or the comparison. decode needs a bundle
that was made with --engine.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

if __package__:
    from evals.bare import fitting, unpacking
    from evals.bare.unpacking import BundleError
else:
    import fitting  # type: ignore[import-not-found, no-redef]
    import unpacking  # type: ignore[import-not-found, no-redef]
    from unpacking import BundleError  # type: ignore[no-redef]

HERE = Path(__file__).resolve().parent


def build_op(folder: Path) -> Path:
    """Builds the CUDA op into the folder, once."""
    out = folder / "gdn_op.so"
    if not out.exists():
        print("building the CUDA op, about half a minute", flush=True)
        script = folder / "evals/gdn_op/build.py"
        aside = out.with_suffix(".part")
        call = [sys.executable, str(script), str(folder / "tree"), str(aside)]
        if subprocess.run(call).returncode:
            raise BundleError(
                "the CUDA op did not build; leave --op out to go without."
            )
        os.replace(aside, out)
    return out


def prepare(folder: Path, op: bool) -> None:
    """Sets this process's module path and variables for what it starts."""
    user_path = os.environ.get("PYTHONPATH", "")
    os.environ["PYTHONPATH"] = os.pathsep.join(
        filter(None, [str(folder / "site"), user_path])
    )
    sys.path.insert(0, str(folder))
    if op:
        os.environ["SERIES_HARNESS_OP"] = str(build_op(folder))


def missing(folder: Path, described: dict) -> tuple[str, ...]:
    """What neither this Python nor the bundle has."""
    from tests.harness import environment

    return environment.probe(sys.executable, described["needs"]).missing


def run_tests(folder: Path, args: list[str]) -> int:
    """The kernel tests of the tree, with the closing lines of `make test`."""
    from tests.harness import environment, plan, summary, treerun

    text = (folder / "plan.json").read_text(encoding="utf-8")
    planned = plan.load(text, folder / "tree")
    found = environment.probe(sys.executable, [])
    parts = treerun.run(planned, found, folder, folder / "cache", args)
    failed = summary.problems(planned, parts, narrowed=bool(args))
    print("\n".join(summary.lines(planned, parts)), flush=True)
    for problem in failed:
        print(f"failed: {problem}", file=sys.stderr)
    return 1 if failed else 0


def gpu_variables(folder: Path, tree: Path) -> dict[str, str]:
    """The environment of what measures; raises where there is no GPU."""
    from tests.harness import environment, treerun

    found = environment.probe(sys.executable, [])
    if not found.gpu:
        raise BundleError("torch sees no GPU: there is nothing to measure.")
    version = json.loads((folder / "plan.json").read_text())["version"]
    cache = folder / "cache"
    paths = [tree, treerun.metadata_folder(cache, version)]
    env = environment.variables(found, paths, cache, [])
    trees = {"SERIES_PATCHED": folder / "tree", "SERIES_STOCK": folder / "stock"}
    return env | {name: str(path) for name, path in trees.items()}


def run_bench(folder: Path, name: str, tree: Path, args: list[str]) -> int:
    """evals/NAME.py, or else the tree's kernel benchmark of that name."""
    script = tree / "benchmarks/kernels" / f"{name}.py"
    if name in ("dot", "gdn"):
        script = folder / f"evals/{name}.py"
    op = os.environ.get("SERIES_HARNESS_OP")
    args = [*(["--op", op] if op and name == "gdn" else []), *args]
    if not script.exists():
        there = sorted(path.stem for path in script.parent.glob("bench_*.py"))
        raise BundleError(
            f"no benchmark {name}; there are: dot, gdn, {', '.join(there)}"
        )
    env = gpu_variables(folder, tree)
    call = [sys.executable, str(script), *args]
    return subprocess.run(call, cwd=tree, env=env).returncode


def run_compared(
    folder: Path, described: dict, tree: Path, command: str, args: list[str]
) -> int:
    """evals.decode or evals.ab; where there are extensions, they must load."""
    env = gpu_variables(folder, tree)
    if described.get("extensions"):
        fitting.load_extensions(folder, described, env)
    call = [sys.executable, str(folder / f"evals/{command}.py"), *args]
    return subprocess.run(call, env=env).returncode


def parsed(argv: list[str]) -> tuple[argparse.Namespace, list[str]]:
    """The command's own words, and those that it hands on."""
    parser = argparse.ArgumentParser(
        description=__doc__,
        allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = ["store", "unpack", "test", "bench", "decode", "ab"]
    parser.add_argument("command", choices=commands)
    parser.add_argument("name", nargs="?", help="of the benchmark or the workload")
    parser.add_argument(
        "--into", type=Path, help="a folder; a temporary one if left out"
    )
    parser.add_argument("--op", action="store_true", help="build the CUDA op first")
    parser.add_argument("--stock", action="store_true", help="the release's own tree")
    at = argv.index("--") if "--" in argv else len(argv)
    options = parser.parse_args(argv[:at])
    if options.command == "decode" and options.name is None:
        parser.error("decode needs a workload: gdn or gate")
    options.into = options.into or Path(tempfile.gettempdir())
    return options, argv[at + 1 :]


def run(options: argparse.Namespace, described: dict, rest: list[str]) -> int:
    """Unpacks, checks, and runs one command but store."""
    fitting.check_python(described)
    facts = fitting.torch_facts()
    print(", ".join(f"{name} {value}" for name, value in facts.items()), flush=True)
    if options.command == "decode":
        fitting.check_extensions(described, facts)
    paths = unpacking.found(described, HERE, options.into / "store")
    folder = unpacking.unpack(described, paths, options.into, facts)
    # The release's own extension has the op: a second one could not be registered.
    prepare(folder, options.op and not described.get("extensions"))
    lacking = missing(folder, described)
    if lacking:
        raise BundleError(
            f"{sys.executable} lacks {', '.join(lacking)}, and so does the bundle: "
            "make it again with --have and this machine's own pip list."
        )
    print(f"unpacked in {folder}", flush=True)
    tree = folder / ("stock" if options.stock else "tree")
    if options.command == "test":
        return run_tests(folder, rest)
    if options.command == "bench":
        return run_bench(folder, options.name or "bench_tiny_dot", tree, rest)
    if options.command in ("decode", "ab"):
        words = [*([options.name] if options.name else []), *rest]
        return run_compared(folder, described, tree, options.command, words)
    return 0


def main(argv: list[str]) -> int:
    """Runs a subcommand; returns its exit code."""
    options, rest = parsed(argv)
    described = unpacking.load_index(HERE)
    if options.command != "store":
        return run(options, described, rest)
    store = options.into / "store"
    lost = unpacking.keep(described, HERE, store)
    print(f"kept in {store}; missing still: {', '.join(lost) or 'nothing'}")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except BundleError as error:
        print(error, file=sys.stderr)
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)
