"""A real S3 server on a folder (localbucket), and a proxy before it that fails on command."""

from __future__ import annotations

import http.client
import socket
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

BUCKET = "runs"
CREDENTIALS = {"key": "test-key", "secret": "test-secret"}

# It ends when its standard input does: also when the process that started it is killed.
_SERVER = """
import os, sys, threading
threading.Thread(target=lambda: (sys.stdin.read(), os._exit(0)), daemon=True).start()
import localbucket
localbucket.main()
"""


@contextmanager
def run_s3_server(folder: Path) -> Iterator[str]:
    """Run a server on a free port, with one bucket; its URL."""
    (folder / BUCKET).mkdir(parents=True, exist_ok=True)
    for _ in range(5):  # another process may take the port that was free
        port = _free_port()
        process = subprocess.Popen(
            [sys.executable, "-c", _SERVER, str(folder), "--port", str(port)],
            stdin=subprocess.PIPE,
            stderr=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
        )
        try:
            if any(b" serving " in line for line in process.stderr):
                threading.Thread(target=process.stderr.read, daemon=True).start()
                yield f"http://127.0.0.1:{port}"
                return
        finally:
            process.kill()
            process.wait(timeout=10)
            process.stdin.close()
            process.stderr.close()
    raise AssertionError("the S3 server did not start")


def _free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def closed_port() -> str:
    """The URL of a port that nobody listens on."""
    return f"http://127.0.0.1:{_free_port()}"


@dataclass
class Fault:
    """What happens to requests that match.

    kind: ``status`` answers with ``code``; ``lose-answer`` does the work and says nothing; ``cut-body`` sends half of
    it; ``short-body`` sends half and calls it all; ``hang`` answers nothing until the proxy is healed; ``answer`` gives
    ``body``.
    """

    kind: str
    methods: tuple[str, ...] = ("GET", "HEAD", "PUT", "POST", "DELETE")
    part: str = ""
    times: int | None = None
    code: int = 500
    name: str = "InternalError"
    body: bytes = b""


@dataclass
class FaultProxy:
    """Passes requests on to a server, but for its faults. Keeps metadata of objects, which localbucket does not."""

    upstream: str
    url: str = ""
    keeps_conditions: bool = True
    keeps_metadata: bool = True
    faults: list[Fault] = field(default_factory=list)
    fired: Counter = field(default_factory=Counter)
    requests: list[tuple[str, str]] = field(default_factory=list)
    metadata: dict[str, dict[str, str]] = field(default_factory=dict)
    released: threading.Event = field(default_factory=threading.Event)
    mutex: threading.Lock = field(default_factory=threading.Lock)

    def fail(self, kind: str, **how: Any) -> None:
        self.released.clear()
        self.faults.append(Fault(kind, **how))

    def heal(self) -> None:
        self.faults.clear()
        self.released.set()

    def fault_of(self, method: str, path: str) -> Fault | None:
        with self.mutex:
            self.requests.append((method, path))
            for fault in self.faults:
                if method in fault.methods and fault.part in path and fault.times != 0:
                    fault.times = None if fault.times is None else fault.times - 1
                    self.fired[fault.kind] += 1
                    return fault
        return None


@contextmanager
def run_proxy(upstream: str) -> Iterator[FaultProxy]:
    proxy = FaultProxy(upstream)
    handler = type("Handler", (_Handler,), {"proxy": proxy})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        server.daemon_threads = True
        proxy.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        thread.start()
        try:
            yield proxy
        finally:
            proxy.heal()
            server.shutdown()
            thread.join()


class _Handler(BaseHTTPRequestHandler):
    proxy: FaultProxy
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # head and body in one packet
    disable_nagle_algorithm = True

    def log_message(self, *args: object) -> None:
        pass

    def handle_expect_100(self) -> bool:
        answer = super().handle_expect_100()
        self.wfile.flush()
        return answer

    def _handle(self) -> None:
        body = self._body()
        fault = self.proxy.fault_of(self.command, self.path)
        kind = fault.kind if fault else ""
        if kind == "hang":
            self.proxy.released.wait(30)
            self.close_connection = True
        elif kind == "status":
            self._send(fault.code, {}, _error_xml(fault.name) if self.command != "HEAD" else b"")
        elif kind == "answer":
            self._send(200, {"Content-Type": "application/xml"}, fault.body)
        else:
            self._pass_on(body, kind)

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _handle  # noqa: N815 - names that http.server looks for

    def _pass_on(self, body: bytes, kind: str) -> None:
        status, headers, data = self._ask(body)
        if kind == "lose-answer":
            self.close_connection = True
            return
        half = data[: len(data) // 2]
        if kind == "cut-body":
            self._send(status, headers, half, promised=len(data))
            self.close_connection = True
        else:
            self._send(status, headers, half if kind == "short-body" else data)

    def _ask(self, body: bytes) -> tuple[int, dict[str, str], bytes]:
        drop = {"host", "transfer-encoding", "content-length", "connection"}
        if not self.proxy.keeps_conditions:
            drop.add("if-none-match")
        headers = {k: v for k, v in self.headers.items() if k.lower() not in drop}
        connection = http.client.HTTPConnection(urlsplit(self.proxy.upstream).netloc, timeout=20)
        try:
            connection.request(self.command, self.path, body if body or self.command == "PUT" else None, headers)
            answer = connection.getresponse()
            data = answer.read()
        finally:
            connection.close()
        kept = {k: v for k, v in answer.getheaders() if k.lower() not in ("connection", "server", "date")}
        self._keep_metadata(answer.status, kept)
        return answer.status, kept, data

    def _keep_metadata(self, status: int, answer: dict[str, str]) -> None:
        path = urlsplit(self.path).path
        if not self.proxy.keeps_metadata or status >= 300:
            return
        if self.command == "PUT":
            marks = {k: v for k, v in self.headers.items() if k.lower().startswith("x-amz-meta-")}
            self.proxy.metadata[path] = marks
        elif self.command in ("GET", "HEAD"):
            answer.update(self.proxy.metadata.get(path, {}))

    def _send(self, status: int, headers: dict[str, str], data: bytes, promised: int | None = None) -> None:
        self.send_response(status)
        lengths = {"content-length": str(len(data) if promised is None else promised)}
        if self.command == "HEAD" and "Content-Length" in headers:
            lengths = {}
        for name, value in {**{k: v for k, v in headers.items() if k.lower() not in lengths}, **lengths}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)
        with suppress(OSError):
            self.wfile.flush()

    def _body(self) -> bytes:
        if "chunked" not in self.headers.get("Transfer-Encoding", ""):
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        data = b""
        while size := int(self.rfile.readline().split(b";")[0], 16):
            data += self.rfile.read(size)
            self.rfile.readline()
        while self.rfile.readline().strip():
            pass
        return data


def _error_xml(code: str) -> bytes:
    return f'<?xml version="1.0"?><Error><Code>{code}</Code><Message>no</Message></Error>'.encode()


def in_threads(n: int, work: Callable[[int], object]) -> None:
    """Run ``work(i)`` in n threads at once."""
    barrier = threading.Barrier(n)
    threads = [threading.Thread(target=lambda i=i: (barrier.wait(), work(i))) for i in range(n)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
