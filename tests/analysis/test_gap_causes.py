"""Long gaps and their causes: literal streams in, a cause for each gap out; then streams of real engines."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from records_and_rows import H200_RATES, answer, h200
from test_captures import CAPTURES, replay

from loadramp.analysis.diagnosis.gap_causes import (
    CLIENT,
    ENGINE,
    PREFILL,
    PRIVATE,
    RECOMPUTE,
    Attribution,
    _placed,
    _ranks,
    attribute,
    block_medians,
    jitter_s,
    longest_prefill_s,
    mixing,
    undisturbed,
)
from loadramp.analysis.latency import window_view
from loadramp.record.table import Table
from loadramp.record.types import ClientSample, Record

STEP_S = 0.02


def stream(
    seq: int, gaps: dict[int, float] | None = None, n: int = 200, first_s: float = 0.1, **more: object
) -> Record:
    """A token every 20 ms, but for ``gaps``: index to seconds."""
    lengths = [(gaps or {}).get(i, STEP_S) for i in range(n)]
    return answer(seq, max(0.0, first_s - 0.05), first_s, lengths, **more)


def caused(records: list[Record], client: list[ClientSample] | None = None, **more: float) -> Attribution:
    found = attribute(window_view(Table.of(records), (0.0, 10.0)), client or [], **more)
    assert found is not None
    return found


def test_equal_values_share_the_mean_of_their_ranks() -> None:
    assert _ranks(np.array([3.0, 1.0, 3.0, 2.0, 3.0])).tolist() == [4.0, 1.0, 4.0, 2.0, 4.0]


def test_a_stream_that_stands_still_while_the_others_go_on_was_evicted() -> None:
    found = caused([stream(0), stream(1), stream(2, {50: 0.4})])
    assert found.cause.tolist() == [PRIVATE]
    assert found.excess_s.tolist() == pytest.approx([0.38])
    assert found.request.tolist() == [2]
    assert (found.share(PRIVATE), found.count(PRIVATE), found.moments(PRIVATE), found.requests(PRIVATE)) == (1, 1, 1, 1)


def test_streams_that_stand_still_together_are_held_up_by_the_engine() -> None:
    found = caused([stream(k, {50: 0.4, 80: 0.3}) for k in range(5)])
    assert set(found.cause.tolist()) == {ENGINE}
    assert (found.count(ENGINE), found.moments(ENGINE)) == (10, 2)


def test_a_first_token_of_another_request_at_the_end_of_the_gap_makes_it_prefill() -> None:
    slow = [stream(k, {50: 0.2}) for k in range(3)]
    end_s = slow[0].event_s[51]
    found = caused([*slow, stream(9, first_s=end_s + 0.001, n=20)])
    assert set(found.cause.tolist()) == {PREFILL}


def test_a_first_token_within_the_gap_is_prefill_too_where_prompts_are_computed_alone() -> None:
    slow = [stream(k, {50: 0.2}) for k in range(3)]
    end_s = slow[0].event_s[51]
    found = caused([*slow, stream(8, first_s=end_s - 0.1, n=1), stream(9, first_s=end_s - 0.02, n=20)])
    assert set(found.cause.tolist()) == {PREFILL}


def test_first_tokens_of_others_are_no_sign_that_others_went_on() -> None:
    """Prompts computed one after the other: many first tokens in the gap, and no stream moves."""
    slow = [stream(k, {50: 0.6}) for k in range(2)]
    end_s = slow[0].event_s[51]
    firsts = [
        stream(10 + k, {0: end_s - (end_s - 0.5 + 0.09 * k)}, first_s=end_s - 0.5 + 0.09 * k, n=20) for k in range(5)
    ]
    found = caused([*slow, *firsts])
    assert PRIVATE not in found.cause


def test_a_long_prompt_in_the_making_explains_gaps_until_its_first_token_but_not_while_it_queues() -> None:
    slow = [stream(k, {20: 0.1, 60: 0.1}) for k in range(4)]
    first, second = slow[0].event_s[21], slow[0].event_s[61]
    long = answer(9, first - 1.0, second + 0.05, [STEP_S] * 5, prompt_tokens=4000)
    assert set(caused([*slow, long]).cause.tolist()) == {PREFILL}
    bounded = caused([*slow, long], longest_prefill_s=0.3)
    assert [bounded.count(PREFILL), bounded.count(ENGINE)] == [4, 4]


def test_computing_an_evicted_request_again_holds_up_the_others_and_counts_to_the_eviction() -> None:
    evicted = stream(0, {50: 0.5})
    back_s = evicted.event_s[51]
    others = []
    for k in range(1, 4):
        one = stream(k)
        late = next(i for i, t_s in enumerate(one.event_s) if t_s > back_s - 0.09)
        gaps = {late - 1: back_s - one.event_s[late - 1]}
        others.append(stream(k, gaps))
    found = caused([evicted, *others])
    assert sorted(found.cause.tolist()) == [PRIVATE, *[RECOMPUTE] * 3]
    assert found.share(PRIVATE, RECOMPUTE) == pytest.approx(1.0)


def test_a_late_client_is_blamed_before_anybody_else() -> None:
    records = [stream(k, {50: 0.4}, stamps="user") for k in range(3)]
    end_s = records[0].event_s[51]
    late = [ClientSample(float(t), loop_lag_s=0.1 if t - 1 < end_s <= t else 0.0) for t in range(1, 11)]
    assert set(caused(records, late).cause.tolist()) == {CLIENT}
    other_worker = [ClientSample(s.t_s, worker=1, loop_lag_s=s.loop_lag_s) for s in late]
    assert set(caused(records, other_worker).cause.tolist()) == {ENGINE}
    a_little = [ClientSample(float(t), loop_lag_s=0.05) for t in range(1, 11)]
    assert set(caused(records, a_little).cause.tolist()) == {ENGINE}


def test_where_the_kernel_stamped_a_late_client_can_only_merge_events() -> None:
    late = [ClientSample(float(t), loop_lag_s=0.3) for t in range(1, 11)]
    assert set(caused([stream(k, {50: 0.4}) for k in range(3)], late).cause.tolist()) == {ENGINE}
    merged = [stream(k, {50: 0.4, 51: 0.0, 52: 0.0}) for k in range(3)]
    assert set(caused(merged, late).cause.tolist()) == {CLIENT}


def test_gaps_within_the_jitter_of_the_quietest_step_are_not_long() -> None:
    records = [stream(k, dict.fromkeys(range(5, 100, 10), 0.075)) for k in range(3)]
    assert caused(records).count(ENGINE) == 30
    assert caused(records, jitter_s=0.01).count(ENGINE) == 0


def test_jitter_is_the_scatter_of_ordinary_gaps_not_of_the_rare_ones() -> None:
    rng = np.random.default_rng(0)
    gaps = dict(enumerate(rng.normal(0.02, 0.002, 400)))
    gaps |= dict.fromkeys(range(0, 400, 20), 1.0)
    seen = window_view(Table.of([stream(0, gaps, n=400)]), (0.0, 100.0))
    assert jitter_s(seen.gaps) == pytest.approx(0.002, rel=0.25)


def test_how_long_a_prefill_takes_is_seen_only_with_a_few_long_prompts() -> None:
    table = Table.of([answer(k, 0.0, 0.2 + 0.1 * k, prompt_tokens=2000) for k in range(5)])
    assert longest_prefill_s(table) == pytest.approx(0.58)
    assert longest_prefill_s(Table.of([answer(0, 0.0, 1.0, prompt_tokens=2000)])) is None
    assert longest_prefill_s(Table.of([answer(k, 0.0, 1.0, prompt_tokens=100) for k in range(5)])) is None


def test_lift_and_dose_say_how_gaps_follow_prompts() -> None:
    rng = np.random.default_rng(1)
    firsts, gaps = [], {}
    t_s = 0.1
    for i in range(400):
        tokens = int(rng.integers(500, 4000)) if i % 10 == 5 else 0
        gaps[i] = STEP_S + tokens * 50e-6
        t_s += gaps[i]
        if tokens:
            firsts.append(answer(100 + i, t_s - 0.3, t_s, prompt_tokens=tokens))
    seen = window_view(Table.of([stream(0, gaps, n=400), stream(1, gaps, n=400), *firsts]), (0.0, 100.0))
    found = attribute(seen)
    assert found is not None
    told = mixing(seen, found)
    assert told.lift > 100.0
    assert told.dose > 0.4
    assert np.count_nonzero(~undisturbed(seen, found.median_s)) == 80


def test_nothing_streams_nothing_is_said() -> None:
    assert attribute(window_view(Table.of([answer(0, 0.0, 0.1)]), (0.0, 1.0))) is None


def test_a_million_gaps_take_no_python_for_each() -> None:
    """Counted, not timed: the calls do not grow with the gaps."""
    import sys

    def calls(n: int) -> int:
        seen = window_view(
            Table.of([stream(k, dict.fromkeys(range(0, n, 50), 0.2), n=n) for k in range(4)]), (0.0, 1e6)
        )
        count = 0

        def trace(*_: object) -> None:
            nonlocal count
            count += 1

        sys.setprofile(trace)
        attribute(seen)
        sys.setprofile(None)
        return count

    assert calls(4000) <= calls(400) + 10


def test_real_vllm_streams_over_a_pool_too_small_for_them_show_private_stalls() -> None:
    """14 streams of 700 tokens over a KV pool of 3,072 tokens: vLLM 0.32 preempted and resumed them."""
    records = []
    for k in range(14):
        record = replay(CAPTURES[f"vllm/preempt_stream_{k:02d}"])
        record.seq, record.status = k, "ok"
        records.append(record)
    seen = window_view(Table.of(records), (0.0, 1000.0))
    found = attribute(seen)
    assert found is not None
    assert found.requests(PRIVATE) >= 5
    assert found.share(PRIVATE, RECOMPUTE) > 0.5


@pytest.mark.parametrize("rate", [rate for rate in H200_RATES if rate <= 48])
def test_a_real_engine_that_keeps_up_has_no_long_gaps_worth_a_word(rate: int) -> None:
    seen = window_view(Table.of(h200(rate)), (0.0, 20.0))
    found = attribute(seen, jitter_s=0.0016)
    assert found is not None
    assert found.count(PRIVATE) == 0
    assert found.excess_ratio < 0.01


def test_medians_of_blocks_are_the_upper_ones_and_none_under_the_least() -> None:
    values, block = np.array([3.0, 9.0, 1.0, 5.0, 2.0, 7.0]), np.array([0, 1, 0, 1, 0, 3])
    assert block_medians(values, block, 4, 2).tolist()[:2] == [2.0, 9.0]
    assert np.isnan(block_medians(values, block, 4, 2)[2:]).all()
    assert block_medians(values, block, 4, 1)[3] == 7.0
    many = block_medians(np.tile(values, 2000), np.tile(block, 2000), 4, 2)
    assert many.tolist()[:2] == [2.0, 9.0]


@given(st.lists(st.floats(0.0, 100.0), max_size=6), st.lists(st.floats(-10.0, 110.0), max_size=20))
def test_many_instants_are_placed_as_searchsorted_places_them(instants: list[float], others: list[float]) -> None:
    """Where they are equal, and where they are next to one, too."""
    instants_s = np.sort(np.array(instants))
    at_s = np.array([*others, *instants, *np.nextafter(instants_s, -np.inf), *np.nextafter(instants_s, np.inf)] * 20)
    assert _placed(instants_s, at_s).tolist() == np.searchsorted(instants_s, at_s, "right").tolist()
