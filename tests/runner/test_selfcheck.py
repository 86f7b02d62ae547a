"""The null server says what it must; the machine's own measure is taken, kept, and found again only where it holds."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, nullcontext
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from command_line import in_process

from loadramp import __version__
from loadramp.cli import cli
from loadramp.client.probe import probe
from loadramp.record.row import Void
from loadramp.record.run_directory import host
from loadramp.record.table import Table
from loadramp.record.types import ClientSample, Record, Step
from loadramp.runner import selfcheck
from loadramp.runner.selfcheck import ClientCapacity, LoadLevel
from loadramp.scenario.scenario import Target
from loadramp.simulator import practise
from loadramp.simulator.null_server import event
from loadramp.simulator.practise import null_server


@pytest.fixture(scope="module")
def null() -> Iterator[str]:
    with null_server() as url:
        yield url


def test_an_event_is_one_chunk_and_the_last_one_ends_the_answer() -> None:
    size, _, rest = event(2, False).partition(b"\r\n")
    assert len(rest) == int(size, 16) + 2
    assert rest.startswith(b'data: {"id":"chatcmpl-null"')
    assert b'"completion_tokens":2' in rest
    assert event(2, True).endswith(b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n")


@pytest.mark.parametrize("tokens", [1, 7])
def test_the_null_server_answers_with_the_tokens_asked_for(null: str, tokens: int) -> None:
    import time

    target = Target(base_url=null, model="null")
    record = asyncio.run(probe(target, prompt="x", output_tokens=tokens, clock=time.monotonic))
    assert (record.status, record.output_tokens, record.finish_reason) == ("ok", tokens, "length")
    assert record.token_source == "continuous"
    assert len(record.event_s) == tokens


@pytest.mark.parametrize("void", [(), (Void("a client process used 72 % of a core (allowed 70 %)"),)])
def test_a_machine_is_measured_and_the_result_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, void: tuple[Void, ...]
) -> None:
    """Of a worker that does all that it is asked, in literal times: what a machine is good for is no matter of this
    one's load."""

    @dataclass
    class Worker:
        tokens: int

        async def level(self, rate_rps: float) -> LoadLevel:
            lags_s = [0.001 * (i % 5) for i in range(round(2 * rate_rps))]
            due = [Record(i, 0, i / rate_rps, sent_s=i / rate_rps + lag_s) for i, lag_s in enumerate(lags_s)]
            cpu_ratio = rate_rps * (4e-4 + 2e-5 * self.tokens)  # 0.4 ms a request, 20 us a token
            sample = ClientSample(
                0.0, tokens=round(rate_rps) * self.tokens, in_flight=30, cpu_ratio=cpu_ratio, loop_lag_s=0.002
            )
            over = void if rate_rps * self.tokens > 20_000 else ()
            return LoadLevel(Step(0, rate_rps=rate_rps), Table.of(due), (sample, sample), over)

    @asynccontextmanager
    async def bench(url: str, tokens: int, seconds: float, workers: int = 1) -> AsyncIterator[Worker]:
        assert (url, seconds) == ("http://null", 2.0)
        yield Worker(tokens)

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(practise, "null_server", lambda: nullcontext("http://null"))
    monkeypatch.setattr(selfcheck, "_bench", bench)
    done = CliRunner().invoke(cli, ["selfcheck", "--seconds", "2", "--json", "--quiet"], catch_exceptions=False)
    result = json.loads(done.stdout)
    assert done.exit_code == 0
    assert [level["requests"] for level in result["pacing"]] == [20, 200, 2000]
    for pace in result["pacing"]:
        lags = [pace[f"lag_{name}_s"] for name in ("p50", "p99", "max")]
        assert lags == pytest.approx([0.002, 0.004, 0.004])
    assert result["cpu_per_token_s"] == pytest.approx(2e-5)
    assert result["open_files"] > 100
    asked = [2500.0, 5000.0, 10_000.0, 20_000.0, 40_000.0, 60_000.0, 80_000.0]
    tried = [level["tokens_per_s"] for level in result["levels"]]
    assert tried == (asked[:5] if void else asked)
    assert (result["most_tokens_per_s"], result["most_streams"]) == (20_000.0 if void else 80_000.0, 30)
    assert result["limit"] == (void[0].what if void else None)
    assert result["levels"][3]["cpu_ratio"] == pytest.approx(400 * 1.4e-3)
    assert result["levels"][3]["loop_lag_p99_s"] == pytest.approx(0.002)
    stored = selfcheck.stored()
    assert stored is not None
    assert asdict(stored) == result
    noted = selfcheck.noted()
    assert noted is not None
    assert noted.lag_p99_s_at_100_rps == result["pacing"][1]["lag_p99_s"]
    assert (noted.most_tokens_per_s, noted.reader) == (result["most_tokens_per_s"], result["reader"])


def test_a_level_is_what_a_real_worker_was_asked_to_send(null: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selfcheck, "WARMUP_S", 0.2)

    async def measured() -> LoadLevel:
        async with selfcheck._bench(null, 7, 1.0) as bench:
            return await bench.level(100.0)

    level = asyncio.run(measured())
    assert len(level.due) == 90
    assert set(level.due.status) == {"ok"}
    assert set(level.due.output_tokens) == {7.0}
    assert (selfcheck.pacing_lag_s(level.due) >= 0.0).all()


def capacity(**known: Any) -> ClientCapacity:
    """A result of this machine and version, apart from what is ``known``."""
    plain: dict[str, Any] = {
        "measured_at": "2026-01-01T00:00:00+00:00", "loadramp": __version__, "host": host(), "seconds": 4.0,
        "pacing": [], "cpu_per_token_s": 1.23e-5, "reader": "c", "levels": [], "most_tokens_per_s": 20204.0,
        "most_streams": 416, "limit": None, "open_files": 1000,
    }  # fmt: skip
    return ClientCapacity(**plain | known)


def test_a_result_of_another_machine_or_version_is_not_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert selfcheck.stored() is None
    selfcheck.LAST.keep(known := capacity())
    assert selfcheck.stored() == known
    selfcheck.LAST.keep(capacity(loadramp="0.0"))
    assert selfcheck.stored() is None
    selfcheck.LAST.keep(capacity(host=replace(host(), cores=1000)))
    assert selfcheck.stored() is None
    selfcheck.LAST.path.write_text("{torn")
    assert selfcheck.stored() is None
    selfcheck.LAST.path.write_text("{}")
    assert selfcheck.stored() is None


def test_the_words_say_what_one_worker_takes() -> None:
    assert capacity().words() == (
        "One worker here times 20204 tokens/s in 416 streams; 12.3 us of CPU a token. No limit was met."
    )
    assert (
        capacity(limit="a client process used 80 % of a core")
        .words()
        .endswith("Beyond that: a client process used 80 % of a core")
    )
    several = capacity(workers=4, most_tokens_per_s=240_000.0, most_streams=4800)
    assert several.words().startswith("4 workers here time 240000 tokens/s in 4,800 streams; 12.3 us of CPU a token.")
    none = capacity(most_tokens_per_s=None, limit="too slow")
    assert none.words() == "not even 2500 tokens/s could be timed here (12.3 us of CPU a token): too slow"


def test_several_workers_are_measured_together_and_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    samples = [
        ClientSample(t_s, worker, tokens=1000 * (1 + worker), in_flight=20 + worker + int(t_s))
        for worker in (0, 1)
        for t_s in (1.0, 2.0)
    ]
    level = LoadLevel(Step(0, rate_rps=60.0), Table.of([]), tuple(samples), ())
    assert (level.tokens_per_s, level.streams) == (3000.0, 45)
    asked: list[tuple[int, float]] = []

    @dataclass
    class Workers:
        count: int

        async def level(self, rate_rps: float) -> LoadLevel:
            asked.append((self.count, rate_rps))
            over = (Void("too slow"),) if len(asked) > 6 else ()
            return replace(level, void=over)

    @asynccontextmanager
    async def bench(url: str, tokens: int, seconds: float, workers: int = 1) -> AsyncIterator[Workers]:
        yield Workers(workers)

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(practise, "null_server", lambda: nullcontext("http://null"))
    monkeypatch.setattr(selfcheck, "_bench", bench)
    done = CliRunner().invoke(cli, ["selfcheck", "--workers", "2", "--json", "--quiet"], catch_exceptions=False)
    result = json.loads(done.stdout)
    assert asked[5:] == [(2, 100.0), (2, 200.0)]
    assert (result["workers"], result["most_tokens_per_s"], result["limit"]) == (2, 3000.0, "too slow")
    assert selfcheck.stored() is None


def test_a_measure_that_cannot_be_kept_is_printed_all_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def measured(seconds: float, say: object, workers: int) -> ClientCapacity:
        return capacity(most_tokens_per_s=5000.0, most_streams=100)

    (tmp_path / "file").write_text("no directory")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    monkeypatch.setattr(selfcheck, "selfcheck", measured)
    code, out, err = in_process("selfcheck", "--quiet")
    assert code == 0
    assert out.startswith("One worker here times 5000 tokens/s in 100 streams")
    assert "not kept for later runs" in err


def test_a_user_without_a_home_has_no_earlier_measure(monkeypatch: pytest.MonkeyPatch) -> None:
    def nowhere() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", nowhere)
    assert selfcheck.noted() is None
