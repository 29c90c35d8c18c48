"""A child process that does with a message what the message says."""

import os
import struct
import sys
import time
from multiprocessing.connection import Connection


def main() -> None:
    descriptor = int(sys.argv[2])
    with Connection(descriptor) as connection:
        while True:
            said = connection.recv_bytes()
            if said == b"drip":
                os.write(descriptor, struct.pack("!i", 1000))
                while True:
                    os.write(descriptor, b" ")
                    time.sleep(0.05)
            if said in (b"-1", b"1000000"):
                os.write(descriptor, struct.pack("!i", int(said)))
            elif said == b"end":
                os._exit(0)
            elif said == b"half":
                os.write(descriptor, struct.pack("!i", 100) + b"half")
                os._exit(0)
            elif said == b"sleep":
                time.sleep(600)
            else:
                connection.send_bytes(said)


if __name__ == "__main__":
    main()
