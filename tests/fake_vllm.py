# SPDX-License-Identifier: Apache-2.0
"""A vLLM tree of three small files, whose `vllm serve` fails as FAKE_VLLM tells."""

import hashlib
import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from evals.bare.start_server import TREE_FACTS

CLI = '''
import json, os, signal, subprocess, sys, time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

FAULT = os.environ.get("FAKE_VLLM", "")
SLEEP = [sys.executable, "-c", "import time; time.sleep(600)"]
STUBBORN = [sys.executable, "-c", """
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("deaf", flush=True)
time.sleep(600)
"""]


def option(name):
    return sys.argv[sys.argv.index(name) + 1]


def note(child):
    with open("children", "a") as file:
        print(child, file=file)


def hang():
    open("stuck", "w").close()
    time.sleep(600)


def start_children():
    note(subprocess.Popen(SLEEP).pid)
    note(subprocess.Popen(SLEEP, start_new_session=True).pid)
    deaf = subprocess.Popen(STUBBORN, start_new_session=True, stdout=subprocess.PIPE)
    deaf.stdout.readline()
    note(deaf.pid)
    # One whose parent is gone at once.
    code = (
        "import subprocess, sys;"
        "p = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'],"
        " start_new_session=True, stdout=subprocess.DEVNULL); print(p.pid)"
    )
    done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE)
    note(int(done.stdout))


class Handler(BaseHTTPRequestHandler):
    def log_message(self, *args):
        pass

    def say(self, status, body):
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def do_GET(self):
        self.say(200, {})

    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if FAULT == "no-answer":
            self.say(500, {"error": "the forward pass failed"})
        elif FAULT == "never-answers":
            hang()
        elif FAULT == "dies-answering":
            print("ERROR [core.py:1] RuntimeError: a kernel failed", flush=True)
            print("shutting down\\n" * 100, flush=True)
            os._exit(7)
        elif asked["model"] != option("--served-model-name") or FAULT == "other":
            self.say(404, {"error": "no such model"})
        else:
            made = 0 if FAULT == "says-nothing" else 2
            body = {"choices": [{"text": " two"}], "usage": {"completion_tokens": made}}
            self.say(200, body)


def main():
    assert sys.argv[:2] == ["vllm", "serve"], sys.argv
    print("loading", sys.argv[2], flush=True)
    if FAULT == "dies":
        print("no memory for the weights", flush=True)
        sys.exit(3)
    if FAULT == "hangs":
        hang()
    if FAULT == "deaf":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if FAULT == "children":
        start_children()
    if FAULT == "kernel":
        print("INFO [layer.py:1] GDN spec decode kernel: Triton", flush=True)
    server = ThreadingHTTPServer(("127.0.0.1", int(option("--port"))), Handler)
    server.daemon_threads = True
    server.serve_forever()
'''


def make_tree(
    folder: Path, patch_ids: Sequence[str] = (), files: Mapping[str, str] = {}
) -> Path:
    """Writes such a tree, with facts that fit it."""
    package = folder / "vllm"
    (package / "entrypoints/cli").mkdir(parents=True)
    for name in (".", "entrypoints", "entrypoints/cli"):
        (package / name / "__init__.py").touch()
    (package / "entrypoints/cli/main.py").write_text(CLI)
    blobs = {}
    for name, text in files.items():
        (folder / name).write_text(text)
        data = text.encode()
        blobs[name] = hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()
    facts = {"commit": "c0ffee", "patch_ids": list(patch_ids), "files": blobs}
    (folder / TREE_FACTS).write_text(json.dumps(facts))
    return folder


def make_model(folder: Path) -> Path:
    """Writes a folder that passes for a model's."""
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    return folder


def is_alive(pid: int) -> bool:
    """Whether a process runs."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return text[text.rindex(")") + 2] not in "ZX"


def all_gone(pids: Sequence[int], limit_s: float = 30.0) -> list[int]:
    """Those that still run after a while."""
    end_s = time.monotonic() + limit_s
    while (left := [pid for pid in pids if is_alive(pid)]) and time.monotonic() < end_s:
        time.sleep(0.05)
    return left
