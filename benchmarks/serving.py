"""A retrieval server in a process of its own, for the benchmarks that ask one."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def serving(command: list[str], quiet: bool = False) -> Iterator[int]:
    """The port of a server, which `command` of Python gets as its last argument, once it answers."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    output = subprocess.DEVNULL if quiet else None
    process = subprocess.Popen([sys.executable, *command, str(port)], stdout=output, stderr=output)
    try:
        while True:
            try:
                socket.create_connection(("127.0.0.1", port)).close()
                break
            except ConnectionRefusedError:
                if process.poll() is not None:
                    raise SystemExit(f"{command[0]} ended with {process.returncode}") from None
                time.sleep(0.2)
        yield port
    finally:
        process.terminate()
        process.wait()
