"""An HTTP front in the manner of OpenAI's /v1/completions: token ids in, token ids out.

    python front.py --workers prefill@cpu,decode@cpu --transport hetccl --port 8000
    curl localhost:8000/v1/completions -d '{"prompt": [1, 2, 3], "max_tokens": 8, "stream": true}'

The web library is the standard library's http.server, a thread per connection.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import queue
import select
import socket
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from router import Completion, FailedError, Router

_MOST_BYTES = 16 << 20  # of a request's body
_STATUS = {"refused": 400, "aborted": 499, "failed": 503}
_LOOK_SECONDS = 0.1  # how often a waiting request looks whether its client is still there


class Front(ThreadingHTTPServer):
    """Serves a router's workers at `address`, a host and a port (0: any free one)."""

    daemon_threads = True
    request_queue_size = 256

    def __init__(self, address: tuple[str, int], router: Router) -> None:
        super().__init__(address, _Handler)
        self.router = router


class _Handler(BaseHTTPRequestHandler):
    server: Front

    def do_GET(self) -> None:
        """Answers /health with the workers that live."""
        if self.path != "/health":
            self._answer(404, _error("refused", f"there is no {self.path}"))
            return
        workers = self.server.router.workers
        self._answer(200 if workers else 503, {"workers": workers})

    def do_POST(self) -> None:
        """Answers /v1/completions."""
        if self.path != "/v1/completions":
            self._answer(404, _error("refused", f"there is no {self.path}"))
            return
        with contextlib.suppress(ConnectionError):  # the client has left
            try:
                prompt, most, streams = self._read()
                completion = self.server.router.submit(prompt, most)
            except FailedError as error:
                self._answer(_STATUS[error.kind], _error(error.kind, str(error)))
                return
            try:
                self._complete(completion, streams)
            finally:
                self.server.router.abort(completion, "the client has left")

    def log_message(self, format: str, *args: Any) -> None:
        """Logs nothing."""

    def _read(self) -> tuple[list[int], int, bool]:
        """Returns prompt, max_tokens and stream. Raises FailedError for a wrong request."""
        try:
            size = int(self.headers.get("Content-Length", ""))
            if not 0 <= size <= _MOST_BYTES:
                raise ValueError(f"a body of {size} bytes: {_MOST_BYTES} is the most")
            values = json.loads(self.rfile.read(size))
            prompt, most = values["prompt"], values.get("max_tokens", 16)
            streams = values.get("stream", False)
            if not isinstance(prompt, list) or not all(type(one) is int for one in prompt):
                raise ValueError("prompt must be a list of token ids")
            if type(most) is not int or most < 1 or type(streams) is not bool:
                raise ValueError("max_tokens must be a positive integer, and stream a boolean")
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise FailedError("refused", f"{type(error).__name__}: {error}") from None
        return prompt, most, streams

    def _complete(self, completion: Completion, streams: bool) -> None:
        tokens: list[int] = []
        try:
            for token in self._tokens(completion):
                if streams and not tokens:
                    self._begin(200, "text/event-stream")
                tokens.append(token)
                if streams:
                    self._stream(_body(completion, [token], len(tokens) == completion.most))
        except FailedError as error:
            problem = _error(error.kind, str(error))
            if streams and tokens:
                self._stream(problem)
            else:
                self._answer(_STATUS[error.kind], problem)
            return
        if streams:
            self.wfile.write(b"data: [DONE]\n\n")
        else:
            self._answer(200, _body(completion, tokens, True))

    def _tokens(self, completion: Completion) -> Iterator[int]:
        """Waits for all tokens. Raises ConnectionError once the client has left."""
        for _ in range(completion.most):
            while True:
                with contextlib.suppress(queue.Empty):
                    yield completion.next(_LOOK_SECONDS)
                    break
                if self._has_left():
                    raise ConnectionError("the client has left")

    def _has_left(self) -> bool:
        is_readable = select.select([self.connection], [], [], 0)[0]
        return bool(is_readable) and not self.connection.recv(1, socket.MSG_PEEK)

    def _begin(self, status: int, kind: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Connection", "close")
        self.end_headers()

    def _stream(self, body: dict[str, Any]) -> None:
        self.wfile.write(b"data: " + json.dumps(body).encode() + b"\n\n")

    def _answer(self, status: int, body: dict[str, Any]) -> None:
        self._begin(status, "application/json")
        self.wfile.write(json.dumps(body).encode() + b"\n")


def _error(kind: str, cause: str) -> dict[str, Any]:
    return {"error": {"type": kind, "message": cause}}


def _body(completion: Completion, tokens: list[int], is_last: bool) -> dict[str, Any]:
    """Returns a whole answer, or a piece of a streamed one; the last one has the counts, and the
    times of the workers."""
    choice = {
        "index": 0, "text": "", "token_ids": tokens, "finish_reason": "length" if is_last else None,
    }  # fmt: skip
    body: dict[str, Any] = {"object": "text_completion", "choices": [choice]}
    if is_last:
        counts = len(completion.prompt), completion.most
        names = ("prompt_tokens", "completion_tokens", "total_tokens")
        body["usage"] = dict(zip(names, (*counts, sum(counts)), strict=True))
        body["serving"] = {"attempts": completion.attempt + 1, "times": completion.times}
    return body


def main() -> None:
    """Serves until it is interrupted."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--workers", default="prefill@cpu,decode@cpu")
    options.add_argument("--transport", default="hetccl")
    options.add_argument("--host", default="127.0.0.1")
    options.add_argument("--port", type=int, default=8000)
    given, of_workers = options.parse_known_args()
    with (
        Router(given.workers, given.transport, of_workers) as router,
        Front((given.host, given.port), router) as front,
    ):
        print(f"serving at http://{given.host}:{front.server_port}", flush=True)
        with contextlib.suppress(KeyboardInterrupt):
            front.serve_forever()


if __name__ == "__main__":
    main()
