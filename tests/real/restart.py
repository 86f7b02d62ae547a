"""The chaos command of the campaign against a real vLLM: kill -9 of the server and its engine, then a new one.

    python restart.py PID_FILE PORT [OPTION...]

Leaves the new server's process id in PID_FILE and does not wait for it.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from real.server import kill, start


def main(pid_file: Path, port: int, options: list[str]) -> None:
    kill(int(pid_file.read_text()))
    pid_file.write_text(str(start(port, *options).pid))
    print("killed, and started again")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3:])
