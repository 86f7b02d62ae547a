"""Replies of real servers, changed at random: no exception, and one record however they came (see `make fuzz`)."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
from mutated_replies import Mutated, mutated, sources
from reply_invariants import SOURCE, Fed, cuts, faults_of, in_python
from scripted_server import DONE, FIN, UNTIL_CLOSE, C

from hatch_build import COMPILERS
from loadramp.client.http.response import ResponseReader

CORPUS = sources()
ROOT = Path(__file__).parents[1]
CC = next(filter(None, map(shutil.which, COMPILERS)), None) if sys.platform.startswith("linux") else None


@pytest.fixture(scope="module")
def fed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fed | None]:
    """The reader in C; None where it cannot be built."""
    if CC is None:
        yield None
        return
    one = Fed(tmp_path_factory.mktemp("fed"))
    yield one
    one.close()


@pytest.mark.parametrize(
    ("seed", "replies"),
    [
        (0, 750),
        (1, 750),
        pytest.param(2, 750, marks=pytest.mark.long),
        pytest.param(3, 750, marks=pytest.mark.long),
        pytest.param(2, 20_000, marks=pytest.mark.slow),
    ],
)
def test_a_reply_changed_at_random_makes_one_record_however_it_came(seed: int, replies: int, fed: Fed | None) -> None:
    for number in range(replies):
        one = mutated(seed, number, CORPUS)
        assert faults_of(one, fed) == [], f"tests/fuzz.py --seed {seed} --only {number}"


def test_the_same_seed_and_number_make_the_same_reply() -> None:
    assert mutated(3, 5, CORPUS) == mutated(3, 5, CORPUS)
    assert mutated(3, 5, CORPUS) != mutated(3, 6, CORPUS)


def test_the_replies_are_of_every_kind() -> None:
    made = [mutated(9, number, CORPUS) for number in range(400)]
    records = [in_python(one, [one.raw]) for one in made]
    assert {"ok", "error", "empty", "incomplete"} <= {record.status for record in records}
    assert {"http_4xx", "http_5xx", "in_band", "truncated", "reset", "timeout_total"} <= {r.error for r in records}
    assert sum(bool(record.event_s) for record in records) > 100
    assert sum(record.malformed_events > 0 for record in records) > 20


def test_pieces_are_the_whole_however_it_is_cut() -> None:
    raw = mutated(1, 1, CORPUS).raw
    for how in ("whole", "few", "many", "bytes", "events"):
        assert b"".join(cuts(Random(2), raw, how)) == raw


@pytest.mark.skipif(CC is None, reason="no compiler for the reader in C")
def test_the_reader_in_c_reads_nothing_that_is_not_its_own(tmp_path: Path) -> None:
    program = tmp_path / "fed"
    checks = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-DPROGRAM"]
    try:
        subprocess.run([str(CC), "-O1", *checks, "-o", program, SOURCE], check=True, capture_output=True)
    except subprocess.CalledProcessError:
        pytest.skip("this compiler has no sanitizers")
    reads = bytearray()
    for number in [n // 2 for n in range(400)]:  # each twice: the second one may begin as the first
        for piece in cuts(Random(number), mutated(11, number, CORPUS).raw, "events" if number % 3 else "groups"):
            reads += len(piece).to_bytes(4, sys.byteorder) + piece
        reads += bytes(4)
    done = subprocess.run([program], input=bytes(reads), capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()[:2_000]
    assert done.stdout.startswith(b"400 connections, ")
    assert int(done.stdout.split()[-3]) > 300  # events noted
    assert int(done.stdout.split()[-6]) > 50  # reads that open a reply as the one before


def test_a_reader_that_depends_on_the_cuts_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    body = b"".join(C(word) for word in ("a", "b", "c", "d")) + FIN("stop") + DONE
    made = [Mutated("x", str(n), UNTIL_CLOSE + body, "eof", True, True, None, 0) for n in range(20)]
    assert all(faults_of(one, None) == [] for one in made)
    feed = ResponseReader.feed
    monkeypatch.setattr(ResponseReader, "feed", lambda self, data, t_s: feed(self, data.rstrip(b"\n"), t_s))
    assert any(faults_of(one, None) for one in made)


@pytest.mark.long
def test_make_fuzz_starts_as_the_makefile_says() -> None:
    makefile = (ROOT / "Makefile").read_text()
    line = next(line for line in makefile.splitlines() if "tests/fuzz.py" in line)
    path, command = line.split("PYTHONPATH=")[1].split(" ", 1)
    arguments = command.replace("$(N)", "30").replace("$(SEED)", "1").split()
    done = subprocess.run(
        [sys.executable, *arguments[1:]],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "30 replies" in done.stdout
