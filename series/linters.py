# SPDX-License-Identifier: Apache-2.0
"""Upstream's own linters on changed files, in the versions that its tree pins."""

import json
import re
import subprocess
import venv
from dataclasses import dataclass
from pathlib import Path

from .locks import locked
from .writing import write_whole

CONFIG = ".pre-commit-config.yaml"
_TOOLS = {"ruff-pre-commit": "ruff", "typos": "typos"}
_COMMANDS = {
    "ruff-check": ["ruff", "check", "--no-cache"],
    "ruff-format": ["ruff", "format", "--check", "--no-cache"],
    "typos": ["typos", "--force-exclude"],
}
_LIMIT_S = 900
# The file is YAML, which the linters' own environment can read.
_READ = (
    "import json, sys, yaml; print(json.dumps(yaml.safe_load(sys.stdin), default=str))"
)


@dataclass(frozen=True)
class Lint:
    """One hook of upstream on the changed files.

    Args:
        hook: Its id.
        state: passed, failed, or not run.
        said: What it said, or why it was not run.
    """

    hook: str
    state: str
    said: str = ""


def run_linters(tree: Path, files: list[str], home: Path) -> list[Lint]:
    """Run what can be installed here; the rest is listed as not run.

    Args:
        tree: A whole tree, with upstream's configuration and scripts.
        files: The changed files.
        home: Where the linters' environment is kept.
    """
    config = tree / CONFIG
    if not config.exists():
        return [Lint("all", "not run", f"the tree has no {CONFIG}")]
    home.mkdir(parents=True, exist_ok=True)
    with locked(home):
        python = home / "bin" / "python"
        if not python.exists():
            venv.create(home, with_pip=True)
        if reason := _install(python, ["PyYAML"]):
            return [Lint("all", "not run", f"PyYAML cannot be installed: {reason}")]
        words = [str(python), "-c", _READ]
        data = config.read_text("utf-8")
        said = subprocess.run(words, input=data, capture_output=True, text=True)
        if said.returncode:
            return [Lint("all", "not run", f"{CONFIG} cannot be read")]
        found: list[Lint] = []
        for repo in json.loads(said.stdout).get("repos", []):
            for hook in repo.get("hooks", []):
                found.append(_run_hook(tree, files, python, repo, hook))
        return found


def _run_hook(
    tree: Path, files: list[str], python: Path, repo: dict, hook: dict
) -> Lint:
    name = str(hook.get("id", "?"))
    mine = _files_for(hook, files)
    if not mine:
        return Lint(name, "not run", "no changed file is of its kind")
    command, needs = _command(tree, python, repo, hook)
    if not command:
        return Lint(name, "not run", "it needs more than Python packages")
    if reason := _install(python, needs):
        return Lint(name, "not run", f"cannot be installed here: {reason}")
    words = [*command, *([] if hook.get("pass_filenames") is False else mine)]
    path = f"{python.parent}:/usr/local/bin:/usr/bin:/bin"
    env = {"PATH": path, "HOME": str(python.parent.parent), "LC_ALL": "C.UTF-8"}
    try:
        done = subprocess.run(
            words, cwd=tree, env=env, capture_output=True, text=True, timeout=_LIMIT_S
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return Lint(name, "not run", f"it did not end: {error}")
    text = (done.stdout + done.stderr).strip()
    return Lint(name, "failed" if done.returncode else "passed", text[-2000:])


def _command(
    tree: Path, python: Path, repo: dict, hook: dict
) -> tuple[list[str], list[str]]:
    """The words of a hook, and the packages that it needs; nothing if not for here."""
    name, source = str(hook.get("id")), str(repo.get("repo", ""))
    if name in _COMMANDS:
        tool = _TOOLS.get(source.rsplit("/", 1)[-1])
        version = str(repo.get("rev", "")).lstrip("v")
        if not tool or not re.fullmatch(r"[0-9.]+", version):
            return [], []
        head, *rest = _COMMANDS[name]
        return [str(python.parent / head), *rest], [f"{tool}=={version}"]
    entry = str(hook.get("entry", "")).split()
    if source != "local" or hook.get("language") != "python" or len(entry) < 2:
        return [], []
    script = tree / entry[1]
    if entry[0] != "python" or not script.is_file():
        return [], []
    rest = [word.strip("\"'") for word in entry[2:]]
    needs = [str(need) for need in hook.get("additional_dependencies", [])]
    return [str(python), entry[1], *rest], needs


def _files_for(hook: dict, files: list[str]) -> list[str]:
    """The changed files that a hook takes, by its pattern and kinds."""
    pattern, exclude = str(hook.get("files", "")), str(hook.get("exclude", "^$"))
    kinds = {*hook.get("types", []), *hook.get("types_or", [])}
    endings = {"python": ".py", "pyi": ".pyi", "c++": ".cpp", "cuda": ".cu"}
    python_only = {"ruff-check", "ruff-format"}
    if hook.get("id") in python_only:
        kinds = {"python", "pyi"}
    wanted = tuple(endings.get(kind, f".{kind}") for kind in kinds)
    return [
        file
        for file in files
        if re.search(pattern, file)
        and not re.search(exclude, file)
        and (not wanted or file.endswith(wanted))
    ]


def _install(python: Path, needs: list[str]) -> str:
    """Install packages; returns why not, empty for done. A second time is quick."""
    stamp = python.parent.parent / "installed.txt"
    have = set(stamp.read_text("utf-8").splitlines()) if stamp.exists() else set()
    missing = [need for need in needs if need not in have]
    if not missing:
        return ""
    flags = ["install", "-q", "--disable-pip-version-check", "--no-input"]
    words = [str(python), "-m", "pip", *flags, *missing]
    done = subprocess.run(words, capture_output=True, text=True, timeout=_LIMIT_S)
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if line.strip()]
        return lines[-1] if lines else f"pip ended with {done.returncode}"
    # A name that was cut off would have its package installed no more.
    write_whole(stamp, ("\n".join(sorted(have | set(missing))) + "\n").encode())
    return ""


def summary(found: list[Lint]) -> list[str]:
    """One line a state: what passed, what failed, what was not run and why."""
    lines = []
    for state in ("passed", "failed"):
        if names := [lint.hook for lint in found if lint.state == state]:
            lines.append(f"{state}: {', '.join(names)}")
    reasons: dict[str, list[str]] = {}
    for lint in found:
        if lint.state == "not run":
            reasons.setdefault(lint.said, []).append(lint.hook)
    lines += [f"not run ({why}): {', '.join(n)}" for why, n in reasons.items()]
    return lines
