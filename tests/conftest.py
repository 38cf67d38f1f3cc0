"""What holds for every test: no hub, no network, one thread, no deadlines."""

from __future__ import annotations

import ipaddress
import os
import socket

# Read when the libraries are first imported, so before anything else is.
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["HF_HUB_DISABLE_TELEMETRY"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
# Also for the processes that tests start: two of them with two threads each slow each other tenfold.
os.environ["OMP_NUM_THREADS"] = "1"

import hypothesis
import pytest
import torch

torch.set_num_threads(1)
hypothesis.settings.register_profile("memsearcher", deadline=None)
hypothesis.settings.load_profile("memsearcher")


@pytest.fixture(scope="session", autouse=True)
def no_network():
    """Fail the test that reaches for another machine: by an address, or by a name that would have to be looked up.

    For the whole session, so that fixtures of modules are held to it too. `pytest.fail` raises no
    `Exception`, so code that treats a network error as an answer does not hide the attempt.
    """
    with pytest.MonkeyPatch.context() as patch:
        for name in ("connect", "connect_ex"):
            patch.setattr(socket.socket, name, _only_near(getattr(socket.socket, name)))
        patch.setattr(socket, "getaddrinfo", _only_near_names(socket.getaddrinfo))
        yield


def _only_near(method):
    def guarded(self, address):
        if self.family != socket.AF_UNIX:
            _check(address[0])
        return method(self, address)

    return guarded


def _only_near_names(lookup):
    def guarded(host, *arguments, **options):
        _check(host)
        return lookup(host, *arguments, **options)

    return guarded


def _check(host):
    name = host.decode() if isinstance(host, bytes) else host
    if name not in (None, "", "localhost") and not _is_near(name):
        pytest.fail(f"a test reached for the network: {name}")


def _is_near(name):
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False
