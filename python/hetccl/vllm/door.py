"""The side channel of a prefill engine: it hands out the metadata of its workers' sessions."""

from __future__ import annotations

import http.client
import http.server
import json
import threading
from typing import Any

from hetccl.kv.errors import KvError, check_list, check_text
from hetccl.kv.messages import MOST_BYTES

_PATH = "/hetccl/sessions"
_MOST = 64 << 20  # bytes of an answer


class Door:
    """Answers GET requests in a thread, until `close`. `metadata` is that of each worker. It holds
    their secrets unless HETCCL_SECRET_FILE is set, so `host` is then this machine's loopback."""

    def __init__(self, host: str, port: int, session: str, metadata: list[str]) -> None:
        answer = json.dumps({"session": session, "metadata": metadata}).encode()

        class Handler(http.server.BaseHTTPRequestHandler):
            timeout = 10  # seconds of silence of a client

            def do_GET(self) -> None:
                """Answers with all metadata."""
                is_known = self.path == _PATH
                self.send_response(200 if is_known else 404)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(answer) if is_known else 0))
                self.end_headers()
                if is_known:
                    self.wfile.write(answer)

            def log_message(self, format: str, *args: Any) -> None:
                """Logs nothing."""

        self._server = http.server.ThreadingHTTPServer((host, port), Handler)
        self._server.daemon_threads = True
        self.host, self.port = host, int(self._server.server_address[1])
        self._thread = threading.Thread(
            target=self._server.serve_forever, name="hetccl-door", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """Stops answering."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def fetch(host: str, port: int, session: str, timeout: float) -> list[str]:
    """Returns the metadata of the workers behind a door. Raises KvError if it does not answer in
    `timeout` seconds, or belongs to another incarnation of the engine than `session`."""
    where = f"the prefill engine at {host}:{port}"
    connection = http.client.HTTPConnection(host, port, timeout=timeout)
    try:
        connection.request("GET", _PATH)
        answer = connection.getresponse()
        data = answer.read(_MOST)
    except (OSError, http.client.HTTPException) as error:
        raise KvError(f"{where} does not answer: {error}") from None
    finally:
        connection.close()
    try:
        values = json.loads(data)
        found = check_text("session", values["session"], 64)
        metadata = check_list("metadata", values["metadata"], 1, 4096)
    except (ValueError, KeyError, TypeError) as error:
        raise KvError(f"{where} gives a wrong answer: {error!r:.200}") from None
    if found != session:
        raise KvError(f"{where} was started again: the cache of this request is gone")
    return [check_text("metadata", one, 2 * MOST_BYTES) for one in metadata]
