"""The null server behind TLS, which logs when it hands each token to TLS: what timing.py holds TLS stamps against.

python tls_metronome.py CERTIFICATE KEY LOG: prints its port, writes LOG (stage.SENT) when it is ended.
"""

from __future__ import annotations

import asyncio
import re
import signal
import ssl
import sys
import time
from pathlib import Path

import numpy as np
import uvloop
from stage import SENT

from loadramp.simulator.null_server import Answering, TokenBeat

_NUMBER = re.compile(rb"x-request-id: *\S*?(\d+)\r\n", re.IGNORECASE)
SENT_AT: list[tuple[int, int, int, int, int]] = []


class Logged(Answering):
    """An answer whose tokens are written down."""

    number = 0

    def data_received(self, data: bytes) -> None:
        found = _NUMBER.search(data)
        if found:
            self.number = int(found[1])
        super().data_received(data)

    def token(self) -> bool:
        SENT_AT.append((self.number, self._sent, self._tokens, time.monotonic_ns(), 0))
        return super().token()


async def main(certificate: str, key: str) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    loop = asyncio.get_running_loop()
    beat, ended = TokenBeat(loop), asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, ended.set)
    server = await loop.create_server(lambda: Logged(beat), "127.0.0.1", 0, ssl=context, backlog=4096)
    sys.stdout.write(f"{server.sockets[0].getsockname()[1]}\n")
    sys.stdout.flush()
    await ended.wait()


if __name__ == "__main__":
    uvloop.run(main(*sys.argv[1:3]))
    np.array(SENT_AT, dtype=SENT).tofile(Path(sys.argv[3]))
