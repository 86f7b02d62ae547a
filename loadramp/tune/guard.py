"""Holds a server that must not outlive whoever started it: a program of its own, which imports nothing of the package.

    python -P guard.py SECONDS LOG WORD...

It starts WORD... in a process group of its own, its output in LOG. When its standard input ends, because the parent
closes it or is gone, however that came, it ends the group: politely, and after SECONDS by force. Its exit code is that
of the server; 128 plus the number of a signal; 127 where it could not be started.
"""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time

NOT_STARTED = 127
POLL_S = 0.05


def main(stop_s: float, log: str, words: list[str]) -> int:
    """Start, watch and end the server; its exit code."""
    with open(log, "ab") as output:  # noqa: PTH123 (no pathlib: it starts with every server)
        try:
            server = subprocess.Popen(  # noqa: S603 (the user's own command)
                words, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
            )
        except OSError as error:
            output.write(f"{words[0]}: cannot be started: {error.strerror or error}\n".encode())
            return NOT_STARTED
    parent_gone = threading.Event()

    def wait_for_parent() -> None:
        while os.read(0, 1):  # not sys.stdin, whose lock a thread would hold at the end of this program
            pass
        parent_gone.set()

    threading.Thread(target=wait_for_parent, daemon=True).start()
    while server.poll() is None and not parent_gone.wait(POLL_S):
        pass
    end(server, stop_s if parent_gone.is_set() else 0.0)
    code = server.wait()
    return code if code >= 0 else 128 - code


def end(server: "subprocess.Popen[bytes]", stop_s: float) -> None:
    """End the whole group: asked first, killed when ``stop_s`` seconds are over."""
    deadline_s = time.monotonic() + stop_s
    signals = [signal.SIGTERM, signal.SIGKILL] if stop_s > 0.0 else [signal.SIGKILL]
    for number in signals:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(server.pid, number)
        while number == signal.SIGTERM and time.monotonic() < deadline_s and group_alive(server):
            time.sleep(POLL_S)


def group_alive(server: "subprocess.Popen[bytes]") -> bool:
    """Something of the group still lives."""
    server.poll()
    try:
        os.killpg(server.pid, 0)
    except (ProcessLookupError, PermissionError):
        return False
    return True


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1]), sys.argv[2], sys.argv[3:]))
