"""A page of another server shows a queue and a KV cache, too: what ties it to the load that was sent."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from simulated_ramps import codes, found, ladder

from benchmarks.engine_population import Lengths
from loadramp.analysis.page_ties import untied
from loadramp.record.table import Run
from loadramp.record.types import Sample
from loadramp.report import verdict_sentence
from loadramp.runner.assess import assess
from loadramp.simulator.profiles import PROFILES

KV = Lengths(512, 0.0, 128, 0.0)
COUNTED = ("requests_done", "prompt_tokens", "output_tokens")


def with_page(run: Run, change: Callable[[Sample], dict[str, float]]) -> Run:
    """The run judged again, as if the page had shown something else."""
    samples = [replace(sample, values=change(sample)) for sample in run.samples]
    return assess(replace(run, samples=samples, rows=[], checks=[], findings=[]))


def foreign(sample: Sample) -> dict[str, float]:
    """A server with a load of its own, 20 req/s, and a KV cache that is too small for it."""
    counts = dict(zip(COUNTED, (20.0, 10_000.0, 2_000.0), strict=True))
    gauges = {"running": 30.0, "waiting": 40.0, "kv_used_ratio": 1.0}
    return gauges | {name: rate * sample.t_s for name, rate in {**counts, "preemptions": 5.0}.items()}


def test_a_page_of_another_server_makes_no_cause_more_than_possible() -> None:
    run = with_page(ladder(PROFILES["small"], [2, 4, 8]), foreign)
    assert codes(run) == ["healthy"]
    finding = found(run, "kv_eviction")
    assert finding.confidence == "possible"
    assert finding.evidence[-1].startswith("nothing ties the metrics page to the load that was sent: it counted ")
    (check,) = [check for check in run.checks if check.code == "metrics_untied"]
    assert check.level == "warn"
    assert check.message == (
        "the metrics page does not follow the load that was sent: it counted 600 finished requests at 2 req/s, where "
        "the client counted 57 and 600 finished requests at 8 req/s, where the client counted 237"
    )


def test_a_page_of_another_server_hides_no_cause_that_the_client_sees() -> None:
    idle = with_page(
        ladder(PROFILES["kv-limited"], [4, 16, 24, 32], KV),
        lambda sample: {"running": 1.0, "waiting": 0.0, "kv_used_ratio": 0.1, "preemptions": 0.0, "requests_done": 7.0},
    )
    assert (idle.findings[0].code, idle.findings[0].confidence) == ("kv_eviction", "likely")


@pytest.mark.parametrize(
    ("factor", "others"), [(1.0, 0.0), (0.25, 0.0), (1.0, 50.0)], ids=["alone", "one replica of four", "shared"]
)
def test_a_page_that_counts_more_where_more_was_sent_is_tied_to_it(factor: float, others: float) -> None:
    def shown(sample: Sample) -> dict[str, float]:
        return sample.values | {
            name: factor * sample.values[name] + others * sample.t_s * size
            for name, size in zip(COUNTED, (1.0, 512.0, 128.0), strict=True)
            if name in sample.values
        }

    run = with_page(ladder(PROFILES["kv-limited"], [4, 16, 24, 32], KV), shown)
    assert untied(run) is None
    assert (run.findings[0].code, run.findings[0].confidence) == ("kv_eviction", "certain")


def test_a_page_without_counters_is_tied_by_its_batch_alone() -> None:
    def without_counters(sample: Sample) -> dict[str, float]:
        return {name: value for name, value in sample.values.items() if name not in COUNTED}

    run = ladder(PROFILES["kv-limited"], [4, 16, 24, 32], KV)
    assert untied(with_page(run, without_counters)) is None
    still = untied(with_page(run, lambda sample: {**without_counters(sample), "running": 40.0}))
    assert still is not None
    assert still.against
    assert still.why.startswith("it had 40 requests in the batch where ")
    nothing = untied(with_page(run, lambda sample: {"kv_used_ratio": 1.0}))
    assert nothing is not None
    assert (nothing.against, nothing.why) == (
        False, "it has no counts to compare, or too few requests or seconds to compare them",
    )  # fmt: skip


def test_the_headline_names_no_kv_cache_that_nothing_ties_to_the_load() -> None:
    run = ladder(PROFILES["h200-8b-seqs64"], [8, 16, 32, 64], KV)
    assert "KV cache" not in verdict_sentence(with_page(run, foreign))
