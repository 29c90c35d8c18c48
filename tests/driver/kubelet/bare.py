"""A plugin that does nothing but flush one file: what the kubelet's call of any driver costs at least.

``python -m tests.driver.kubelet.bare SOCKET FILE`` serves until its input ends.
"""

import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import grpc

from driver.durable import write_whole
from driver.kubelet.handlers import service, unary
from driver.protos import dra_pb2 as dra

SERVICE, METHOD = "bare", "Prepare"
CONTENT = b"x" * 1000
"""As many bytes as a claim's file in the ledger has."""


def serve(socket: Path, file: Path) -> None:
    """Answer until the input ends."""

    def prepare(
        request: dra.NodePrepareResourcesRequest, context: grpc.ServicerContext
    ) -> dra.NodePrepareResourcesResponse:
        write_whole(file, CONTENT)
        return dra.NodePrepareResourcesResponse()

    method = unary(prepare, dra.NodePrepareResourcesRequest, dra.NodePrepareResourcesResponse)
    server = grpc.server(ThreadPoolExecutor(8), handlers=[service(SERVICE, {METHOD: method})])
    server.add_insecure_port(f"unix:{socket}")
    server.start()
    print("serving", flush=True)
    sys.stdin.read()
    server.stop(None)


@contextmanager
def serving(folder: Path) -> Iterator[Path]:
    """The socket of such a plugin, in a process of its own; its file is in the folder."""
    socket = folder / "bare.sock"
    command = [sys.executable, "-m", __name__, str(socket), str(folder / "bare")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline()
        try:
            yield socket
        finally:
            process.communicate()
    (folder / "bare").unlink()


def call_times(socket: Path, calls: int) -> list[float]:
    """Seconds of each call, one after the other."""
    found = []
    with grpc.insecure_channel(f"unix:{socket}") as channel:
        call = channel.unary_unary(
            f"/{SERVICE}/{METHOD}",
            dra.NodePrepareResourcesRequest.SerializeToString,
            dra.NodePrepareResourcesResponse.FromString,
        )
        request = dra.NodePrepareResourcesRequest(claims=[dra.Claim(namespace="default", uid="u", name="c")])
        for _ in range(calls):
            began = time.perf_counter()
            call(request, timeout=20)
            found.append(time.perf_counter() - began)
    return found


if __name__ == "__main__":
    serve(Path(sys.argv[1]), Path(sys.argv[2]))
