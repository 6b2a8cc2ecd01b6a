# SPDX-License-Identifier: Apache-2.0
"""A server that speaks the API and fails as told: a child process of the tests.

    python fake_server.py --port N --log FILE [--fault KIND:WHEN ...]

It answers a prompt with the number that stands last in it, plus --add. Each request
becomes a line of the log: what was asked, and what was done.
"""

import argparse
import hashlib
import json
import os
import re
import threading
import time
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any


def parse() -> argparse.Namespace:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    add = parser.add_argument
    add("--port", type=int, default=0)
    add("--log", type=Path, required=True)
    add("--ready", type=Path, help="a file that gets the port")
    add("--add", type=int, default=0, help="to every answer")
    add("--wrong", type=int, default=0, help="answers one in so many otherwise")
    add("--seconds", type=float, default=0.0, help="that an answer takes")
    add("--one-at-a-time", action="store_true")
    add("--no-template", action="store_true", help="refuses chats")
    add("--no-tokens", action="store_true", help="counts none")
    add("--fault", action="append", default=[], metavar="KIND:WHEN")
    return parser.parse_args()


ARGS = parse()
LOCK = threading.Lock()
WORK = threading.Lock()
SEEN: Counter[str] = Counter()
UNDER_WAY = [0]
SERVED = [0]


def fault(prompt: str) -> str:
    """The fault that this request meets, empty if none.

    Prompts without a question mark meet none. KIND:first meets the first try of every
    question, KIND:always every one, KIND:share/N those whose digest is divisible by N,
    KIND:after/N all from the Nth on.
    """
    # Asking whether the server is ready is no question.
    if "?" not in prompt:
        return ""
    key = hashlib.sha256(prompt.encode()).hexdigest()
    with LOCK:
        SEEN[key] += 1
        SERVED[0] += 1
        tries, served = SEEN[key], SERVED[0]
    for one in ARGS.fault:
        kind, _, when = one.partition(":")
        when, _, count = when.partition("/")
        hit = {
            "first": tries == 1,
            "always": True,
            "share": bool(count) and int(key[:8], 16) % int(count or 1) == 0,
            "after": served > int(count or 0),
        }[when]
        if hit:
            return kind
    return ""


class Handler(BaseHTTPRequestHandler):
    """The API's paths that the tests need."""

    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None:
        """Keeps quiet."""

    def say(self, status: int, body: Any) -> None:
        """Sends JSON."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def do_GET(self) -> None:
        """Health and models."""
        self.say(200, {"data": [{"id": "fake"}]})

    def do_POST(self) -> None:
        """Completions, chats and tokens."""
        length = int(self.headers["Content-Length"])
        asked = json.loads(self.rfile.read(length))
        chat = "messages" in asked
        prompt = asked["messages"][-1]["content"] if chat else asked["prompt"]
        if self.path == "/tokenize":
            if ARGS.no_tokens:
                self.say(404, {"message": "no"})
            else:
                self.say(200, {"count": len(prompt.split())})
            return
        with LOCK:
            UNDER_WAY[0] += 1
            at_once = UNDER_WAY[0]
        try:
            self.complete(asked, chat, prompt, at_once)
        finally:
            with LOCK:
                UNDER_WAY[0] -= 1

    def complete(self, asked: dict, chat: bool, prompt: str, at_once: int) -> None:
        """One completion, or its fault."""
        kind = fault(prompt)
        if chat and ARGS.no_template:
            kind = "refuse"
        line = {**asked, "path": self.path, "fault": kind, "at_once": at_once}
        with LOCK, ARGS.log.open("a") as log:
            log.write(json.dumps(line) + "\n")
        if kind == "die":
            os._exit(9)
        if kind == "hang":
            time.sleep(3600)
        if kind == "drop":
            self.close_connection = True
            self.connection.close()
            return
        if kind in ("error", "refuse"):
            self.say(500 if kind == "error" else 400, {"message": "no"})
            return
        if kind == "garbage":
            self.say(200, b"{not json")
            return
        if kind == "other":
            self.say(200, {"object": "something else"})
            return
        if ARGS.one_at_a_time:
            with WORK:
                time.sleep(ARGS.seconds)
        else:
            time.sleep(ARGS.seconds)
        found = re.findall(r"\d+", prompt)
        value = int(found[-1]) + ARGS.add if found else 0
        digest = int(hashlib.sha256(prompt.encode()).hexdigest()[:8], 16)
        if ARGS.wrong and digest % ARGS.wrong == 0:
            value += 1
        text = f" It is so.\n#### {value}"
        finish = "abort" if kind == "abort" else "stop"
        choice: dict[str, Any] = {"index": 0, "finish_reason": finish}
        choice |= {"message": {"content": text}} if chat else {"text": text}
        self.say(200, {"choices": [choice], "usage": {"completion_tokens": 7}})


class Server(ThreadingHTTPServer):
    """One thread a request; what a client gave up on is no news."""

    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, request: object, client_address: object) -> None:
        """Keeps quiet."""


if __name__ == "__main__":
    with Server(("127.0.0.1", ARGS.port), Handler) as server:
        if ARGS.ready:
            aside = ARGS.ready.with_suffix(".part")
            aside.write_text(str(server.server_port))
            os.replace(aside, ARGS.ready)
        server.serve_forever()
