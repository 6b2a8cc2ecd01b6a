# SPDX-License-Identifier: Apache-2.0
"""Makes .venv and brings it to a level: apply, evals, eval, own, lint, test.

    python3 requirements/environment.py test

The level cpu is an environment of its own, .venv-cpu: vLLM's servers run in it.

make starts it with whatever python3 there is, so it keeps to what old ones understand.
A second run finds its stamps and does nothing. Only pip fetches, as the user set it.
"""

import errno
import fcntl
import hashlib
import os
import shutil
import subprocess
import sys

OLDEST = (3, 11)
HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)
STEPS = {
    "apply": ["apply"],
    "evals": ["apply", "evals"],
    "eval": ["apply", "evals", "client"],
    "own": ["apply", "own", "evals", "client"],
    "lint": ["apply", "lint"],
    # torch before the rest: packages of test.txt would else choose the triton.
    "test": ["apply", "own", "evals", "client", "torch", "triton", "test"],
    "cpu": ["torch", "triton", "test", "cpu"],
}
FOLDERS = {"cpu": ".venv-cpu"}
SAYS = {
    "apply": "what the series needs: 27 packages, 6 MB, 60 MB on disk",
    "evals": "what measuring needs: 15 packages, 74 MB, 240 MB on disk",
    "client": "what asking a server needs: 12 packages, 13 MB, 100 MB on disk",
    "own": "pytest and hypothesis: 8 packages, 2 MB",
    "cpu": "what serving on a CPU needs: 9 packages, 35 MB, 120 MB on disk",
    "lint": "ruff and mypy: 8 packages, 27 MB, 90 MB on disk",
    "torch": """what the patched tree's tests run in, torch 2.13.0 and 149 packages:
  0.7 GB to fetch and 2.8 GB on disk where pip finds a CPU build of torch (by an index
  or find-links of yours); else a CUDA build comes, with several GB more of each.
  An interpreter that has torch does instead: make test PYTHON=path/to/python3""",
}


class SetupError(Exception):
    """What is wrong and what to do about it."""


class Environment:
    """.venv, or another folder, and the stamps in it."""

    def __init__(self, root, folder=".venv"):
        self.folder = os.path.join(root, folder)
        self.python = os.path.join(self.folder, "bin", "python")
        self.marker = os.path.join(self.folder, ".made-by-this-repository")

    def stamp(self, step):
        """Where a finished step is recorded."""
        return os.path.join(self.folder, ".has-" + step)

    def has(self, step, digest):
        """Whether a step was finished for requirements of that digest."""
        try:
            with open(self.stamp(step)) as file:
                return file.read() == digest
        except OSError:
            return False

    def record(self, step, digest):
        """Records a finished step, all at once."""
        try:
            with open(self.stamp(step) + ".part", "w") as file:
                file.write(digest)
        except OSError as error:
            # A failed write names no file itself.
            raise OSError(error.errno, error.strerror, self.stamp(step)) from error
        os.replace(self.stamp(step) + ".part", self.stamp(step))

    def make(self):
        """An environment with pip in it; what an interrupted run left is made anew."""
        if os.path.exists(self.folder):
            if self.has("python", OLDEST_TEXT) and os.path.exists(self.python):
                return
            if os.listdir(self.folder) and not os.path.exists(self.marker):
                raise SetupError(
                    self.folder + " was not made by this repository: move it away."
                )
            shutil.rmtree(self.folder)
        interpreter = choose()
        os.mkdir(self.folder)
        open(self.marker, "w").close()
        words = [interpreter, "-m", "venv", self.folder]
        call(words, os.path.basename(self.folder) + " could not be made")
        self.record("python", OLDEST_TEXT)

    def install(self, step, digest):
        """Installs one requirements file, after saying what that costs."""
        if step == "triton" and self.imports("triton"):
            self.record(step, digest)
            return
        if step in SAYS:
            print("fetching " + SAYS[step], flush=True)
        words = [self.python, "-m", "pip", "install", "--no-input"]
        words += ["--disable-pip-version-check"]
        words += [] if sys.stdout.isatty() else ["--quiet"]
        words += OPTIONS.get(step, [])
        call([*words, "-r", listing(step)], "pip could not install " + listing(step))
        self.record(step, digest)

    def imports(self, name):
        """Whether a package is there."""
        check = f"from importlib import util; exit(not util.find_spec({name!r}))"
        return subprocess.call([self.python, "-c", check]) == 0


OPTIONS = {
    "torch": ["-c", os.path.join(HERE, "test.txt")],
    "triton": ["--no-deps"],
    "client": ["--no-deps"],
    "cpu": ["--no-deps"],
}
OLDEST_TEXT = "{}.{}".format(*OLDEST)


def listing(step):
    """The path of one requirements file."""
    return os.path.join(HERE, step + ".txt")


def digest_of(path):
    """The sha256 of a file."""
    with open(path, "rb") as file:
        return hashlib.sha256(file.read()).hexdigest()


def call(words, problem):
    """Runs a command; its own output says why it failed."""
    if subprocess.call(words):
        raise SetupError(problem + ": the reason is above. Then run it again.")


def choose():
    """A Python new enough that can make environments."""
    tried = []
    names = [sys.executable, "python3.13", "python3.12", "python3.11", "python3.14"]
    for name in names:
        path = shutil.which(name) if name else None
        if path is None:
            continue
        check = f"import sys, ensurepip, venv; sys.exit(sys.version_info < {OLDEST})"
        done = subprocess.run([path, "-c", check], stderr=subprocess.DEVNULL)
        if done.returncode == 0:
            return path
        tried.append(path)
    raise SetupError(
        f"Python {OLDEST_TEXT} or newer with venv and ensurepip is needed; tried "
        f"{', '.join(tried)}.\nInstall one (on Debian and Ubuntu python3-venv too) and "
        "put it on the PATH."
    )


def refused(error):
    """What a user reads of a failure that the operating system reported."""
    hint = "Run it again once that is mended."
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        hint = "Free some space, then run it again."
    elif error.errno in (errno.EROFS, errno.EACCES, errno.EPERM):
        hint = "Make it writable, then run it again."
    place = error.filename or "standard output"
    return f"{place}: {error.strerror or error}\n{hint}"


def main(level, root=ROOT):
    """Brings the level's environment to it.

    Raises:
        SetupError: No Python is new enough, or pip could not install.
    """
    environment = Environment(root, FOLDERS.get(level, ".venv"))
    # Two makes at once would install into the same folder.
    build = os.path.join(root, "build")
    if os.path.islink(build) and not os.path.isdir(build):
        raise SetupError(
            f"{build} is a link to {os.readlink(build)}, which is no folder.\n"
            "Make or mount that folder, or remove the link. Then run it again."
        )
    os.makedirs(build, exist_ok=True)
    with open(os.path.join(build, ".venv.lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        environment.make()
        for step in STEPS[level]:
            digest = digest_of(listing(step))
            if not environment.has(step, digest):
                environment.install(step, digest)


if __name__ == "__main__":
    if len(sys.argv) != 2 or sys.argv[1] not in STEPS:
        print("usage: environment.py " + "|".join(STEPS), file=sys.stderr)
        sys.exit(2)
    try:
        main(sys.argv[1])
    except SetupError as error:
        print(error, file=sys.stderr)
        sys.exit(1)
    except OSError as error:
        if error.filename is None:
            # What standard output did not take would fail again at exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        if error.filename is not None or error.errno != errno.EPIPE:
            print(refused(error), file=sys.stderr)
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)
