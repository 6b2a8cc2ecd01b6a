# SPDX-License-Identifier: Apache-2.0
"""JSON over HTTP to a server on this machine, and the port that it gets."""

import json
import socket
import urllib.error
import urllib.request
from typing import Any

from series.errors import SeriesError

HOST = "127.0.0.1"
_CONNECT_S = 2.0
# A proxy of the user's has no say in what goes to this machine.
_DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class PortTakenError(SeriesError):
    """Something answers where a server is to be started."""


class ReplyError(Exception):
    """The server said no.

    Args:
        status: The HTTP status.
        said: What came with it.
    """

    def __init__(self, status: int, said: str) -> None:
        super().__init__(f"{status}: {said}")
        self.status, self.said = status, said


def free_port() -> int:
    """A port that nothing listens on now."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def require_free(port: int) -> None:
    """Refuses a port on which something answers.

    vLLM shares its port with whoever listens there: without this, a server that an
    earlier run left would get a part of the requests.

    Raises:
        PortTakenError: Naming the port.
    """
    with socket.socket() as probe:
        probe.settimeout(_CONNECT_S)
        taken = probe.connect_ex((HOST, port)) == 0
    if not taken:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((HOST, port))
            except OSError:
                taken = True
    if taken:
        raise PortTakenError(
            f"Port {port} is taken: another server answers there.",
            "Stop that one, or leave the port out: a free one is chosen.",
        )


def ask(url: str, body: Any = None, *, timeout_s: float = 30.0) -> Any:
    """Sends a GET, or a POST of JSON; returns the JSON that came, None for no text.

    Raises:
        ReplyError: The status is none of success.
        OSError: There is no connection, or no answer in time.
    """
    request = urllib.request.Request(url)
    if body is not None:
        request.data = json.dumps(body).encode()
        request.add_header("Content-Type", "application/json")
    try:
        with _DIRECT.open(request, timeout=timeout_s) as reply:
            text = reply.read()
    except urllib.error.HTTPError as error:
        said = error.read().decode(errors="replace").strip()
        raise ReplyError(error.code, said[:400] or error.reason) from error
    try:
        return json.loads(text) if text.strip() else None
    except ValueError as error:
        raise ReplyError(200, f"no JSON: {text[:80]!r}") from error
