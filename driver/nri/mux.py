"""Frames of NRI's multiplexer: two byte streams over one unix socket."""

import contextlib
import socket
import threading
import time
from struct import Struct

from models import CpusatError

PLUGIN, RUNTIME = 1, 2
"""Connection ids: on the first the runtime calls us, on the second we call it."""

HEADER = Struct(">II")
LARGEST = (4 << 20) + 10
"""Bytes of a frame: a whole ttrpc message with its header."""

FIRST_FRAME = 4096
"""The runtime's side reads a message through a buffer of so many bytes, and drops a connection whose frame
does not fit in it."""

PATIENCE = 5.0
"""Seconds in which what was begun, a frame or a message, must be finished, in either direction."""


class WireError(CpusatError):
    """The other side does not keep to the protocol. The connection cannot be used any more."""


class Mux:
    """One end of the socket. Any thread may send, one receives."""

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self._lock = threading.Lock()
        sock.settimeout(PATIENCE)

    def send(self, connection: int, message: bytes) -> None:
        """Send one whole message, cut as the runtime can read it. Raises ``OSError``, which ends the connection:
        the other side would take the next message for the rest of this one."""
        cuts = (message[:FIRST_FRAME], message[FIRST_FRAME:])
        frames = b"".join(HEADER.pack(connection, len(cut)) + cut for cut in cuts if cut)
        with self._lock:
            try:
                self._socket.sendall(frames)
            except OSError:
                self.close()
                raise

    def receive(self) -> tuple[int, bytes] | None:
        """The next frame: connection id and bytes. ``None`` when nothing came for a while.

        Raises ``EOFError`` at the orderly end, ``WireError`` for a frame that is too long, cut off or too slow,
        ``OSError``.
        """
        header = self._read(HEADER.size, begun=False)
        if header is None:
            return None
        connection, length = HEADER.unpack(header)
        if length > LARGEST:
            raise WireError(f"a frame of {length} bytes is longer than the {LARGEST} allowed")
        return connection, self._read(length, begun=True) or b""

    def close(self) -> None:
        """End it. Whoever receives gets ``EOFError`` or ``OSError``."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def _read(self, count: int, *, begun: bool) -> bytes | None:
        got = bytearray()
        end = time.monotonic() + PATIENCE
        while len(got) < count:
            try:
                part = self._socket.recv(count - len(got))
            except TimeoutError:
                if begun or got:
                    raise WireError("a frame was begun and not finished in time") from None
                return None
            if not part:
                raise WireError("the connection ended within a frame") if begun or got else EOFError
            if not got and not begun:
                end = time.monotonic() + PATIENCE
            got += part
            if len(got) < count and time.monotonic() > end:
                raise WireError("a frame was begun and not finished in time")
        return bytes(got)
