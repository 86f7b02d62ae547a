"""Feeds the client replies of real servers that were changed at random (`make fuzz`), and says what does not hold.

Each is read whole, in pieces, and by the reader in C: no exception, no hang, the same record. Every reply is made from
the seed and its number alone, so `--only NUMBER` runs one again. The reader in C runs under ASan and UBSan beside it.
"""

from __future__ import annotations

import argparse
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from pathlib import Path
from random import Random
from types import FrameType
from typing import IO

from mutated_replies import Mutated, mutated, sources
from reply_invariants import SOURCE, Fed, cuts, faults_of, in_python

HANG_S = 20.0
SHOWN = 20


class Hang(Exception):
    """A reply kept the client busy for too long."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--replies", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=0, metavar="NUMBER")
    parser.add_argument("--only", type=int, metavar="NUMBER", help="run one reply and show it")
    asked = parser.parse_args()
    signal.signal(signal.SIGPROF, _hang)
    with tempfile.TemporaryDirectory() as where:
        fed = Fed(Path(where))
        corpus = sources()
        if asked.only is not None:
            one = mutated(asked.seed, asked.only, corpus)
            sys.stdout.write(f"{one.raw!r}\n{one.name}, {one.ending}\n")
            faults = _faults(one, fed)
            sys.stdout.write("\n".join(faults or ["nothing"]) + "\n")
            return bool(faults)
        with _sanitized(Path(where)) as program:
            assert program.stdin is not None
            failed = _run(asked, corpus, fed, program.stdin)
            program.stdin.close()
            crashed = program.wait() != 0
        fed.close()
    if crashed:
        sys.stdout.write("c_reader.c under ASan and UBSan failed\n")
    return 1 if failed or crashed else 0


def _run(asked: argparse.Namespace, corpus: list, fed: Fed, program: IO[bytes]) -> int:  # type: ignore[type-arg]
    statuses: Counter[str] = Counter()
    failed, slowest, began_s, total = 0, (0.0, 0), time.monotonic(), 0
    for number in range(asked.first, asked.first + asked.replies):
        one = mutated(asked.seed, number, corpus)
        before_s = time.process_time()
        faults = _faults(one, fed)
        slowest = max(slowest, (time.process_time() - before_s, number))
        total += len(one.raw)
        if faults:
            failed += 1
            if failed <= SHOWN:
                sys.stdout.write(f"reply {number} ({one.name}): " + "\n    ".join(faults[:6]) + "\n")
        else:
            record = in_python(one, [one.raw]) if number % 50 == 0 else None
            if record is not None:
                statuses[record.error or record.status] += 1
        if number % 4 == 0:
            _send(program, cuts(Random(number), one.raw, ("many", "events", "groups")[number // 4 % 3]))
        if number % 10_000 == 9_999:
            rate = (number + 1 - asked.first) / (time.monotonic() - began_s)
            sys.stdout.write(f"{number + 1} replies, {failed} failed, {rate:.0f} a second\n")
            sys.stdout.flush()
    sys.stdout.write(
        f"seed {asked.seed}: {asked.replies} replies, {total / 1e6:.0f} MB, {failed} failed; the slowest was number "
        f"{slowest[1]}, {slowest[0]:.2f} s for all its readings; of every 50th: {dict(statuses.most_common())}\n"
    )
    return failed


def _faults(one: Mutated, fed: Fed) -> list[str]:
    signal.setitimer(signal.ITIMER_PROF, HANG_S)
    try:
        return faults_of(one, fed)
    except Hang:
        return [f"not done after {HANG_S:g} s of CPU time"]
    except Exception:  # whatever a reply can raise is what is looked for
        return [traceback.format_exc(limit=-6)]
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0.0)


def _hang(_: int, __: FrameType | None) -> None:
    raise Hang


def _send(program: IO[bytes], pieces: list[bytes]) -> None:
    for _ in range(2):  # the second time it begins as the reply before
        for piece in pieces:
            program.write(len(piece).to_bytes(4, sys.byteorder) + piece)
        program.write(bytes(4))


def _sanitized(where: Path) -> subprocess.Popen[bytes]:
    """The reader in C as a program that stops at the first access that is not allowed."""
    checks = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-DPROGRAM"]
    subprocess.run(["cc", "-O1", "-g", "-Wall", *checks, "-o", where / "gather_fed", SOURCE], check=True)
    return subprocess.Popen([where / "gather_fed"], stdin=subprocess.PIPE)


if __name__ == "__main__":
    sys.exit(main())
