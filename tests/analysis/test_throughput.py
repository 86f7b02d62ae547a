from records_and_rows import row

from loadramp.analysis.throughput import falls_behind

STEADY = [54.6 * (1 + 0.005 * (-1) ** k) for k in range(10)]
WIDE = [54.6 * (1 + 0.2 * (-1) ** k) for k in range(10)]


def behind(rate_rps: float, blocks: list[float], signals: list[str], cv: float = 1.0) -> bool:
    one = row(rate_rps, throughput_blocks=blocks, first_token_blocks=blocks)
    return falls_behind(one, signals, rate_rps, 120.0, cv)


def test_a_queue_and_a_throughput_whose_interval_is_below_the_load_are_a_deficit() -> None:
    """54.6 of 64 req/s for two minutes: 0.853, more than the 0.85 that a batch which fills up may lack."""
    assert behind(64.0, STEADY, ["queue", "backlog", "ttft_trend"])
    assert behind(64.0, STEADY, ["server_queue"])


def test_without_a_queue_outside_the_batch_it_may_be_filling_up() -> None:
    assert not behind(64.0, STEADY, ["backlog", "ttft_trend"])
    assert not behind(64.0, STEADY, [])


def test_what_chance_may_explain_is_no_deficit() -> None:
    assert not behind(64.0, WIDE, ["queue"])  # its interval reaches beyond 64
    assert not behind(57.0, STEADY, ["queue"])  # 0.958 of the load: too little to matter
    assert not behind(64.0, STEADY, ["queue"], cv=7.0)  # bursts may come late
