"""The engine keeps its books: blocks, order, budget, tokens; and does what an engine of its limits is known to do."""

import dataclasses
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.engine_population import random_profile
from benchmarks.offline_engine import Offline, simulate
from loadramp.metrics.dialects import CANONICAL
from loadramp.simulator.engine import Engine, RefusedError
from loadramp.simulator.engine.decode_batch import Lockstep
from loadramp.simulator.profiles import PROFILES, EngineProfile
from loadramp.simulator.regimes import Stall

PLAIN = EngineProfile(
    name="plain",
    t0_s=0.010,
    decode_s=0.001,
    context_s=0.0,
    prefill_s=0.0001,
    noise_ratio=0.0,
    max_num_seqs=4,
    token_budget=64,
    kv_blocks=64,
    max_model_len=512,
)


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def own_blocks(engine: Engine) -> int:
    """Private blocks of all running requests, counted one by one."""
    total = sum(request.own_blocks for request in engine.prefilling)
    for request in engine.lane.requests.values():
        computed = request.computed
        if isinstance(engine.lane, Lockstep):
            computed += len(engine.lane.tick_end_s) - request.joined
            total += -(-computed // engine.profile.block_tokens) - len(request.held)
        else:
            total += request.own_blocks
    return total


def check_books(engine: Engine) -> None:
    pool = engine.pool
    running = [*engine.lane.requests.values(), *engine.prefilling]
    held: dict[Any, int] = {}
    for request in running:
        for key in request.held:
            held[key] = held.get(key, 0) + 1
    assert pool.refs == held
    assert pool.used == len(held) + own_blocks(engine)
    assert 0 <= pool.used <= pool.capacity
    assert pool.idle_blocks == sum(pool.idle.values())
    assert pool.used + pool.idle_blocks <= pool.capacity
    assert not set(pool.idle) & set(pool.refs)
    assert engine.running <= engine.profile.max_num_seqs


def test_one_request_on_an_idle_engine_takes_its_prefill_step_and_one_step_a_token() -> None:
    table, _ = simulate(PLAIN, [1.0], 30, 4, rng())
    # prefill 10 ms + 30 * 0.1 ms; decode 10 ms + 1 ms
    assert table.event_s == pytest.approx([1.013, 1.024, 1.035, 1.046])
    assert table.status.tolist() == ["ok"]
    assert table.ttft_s == pytest.approx([0.013])
    assert table.tpot_s == pytest.approx([0.011])


def test_a_prompt_longer_than_the_budget_is_computed_in_chunks_beside_the_decodes() -> None:
    engine = Engine(PLAIN, rng())
    engine.submit("a", 0.0, 10, 20)
    first = engine.step(0.0)
    engine.submit("b", 0.0, 150, 1)
    assert first is not None
    steps = []
    now_s = first.end_s
    for _ in range(3):
        outcome = engine.step(now_s)
        assert outcome is not None
        steps.append((outcome.decodes, outcome.prefill_tokens, [key for key, _ in outcome.tokens]))
        now_s = outcome.end_s
    assert steps == [(1, 63, ["a"]), (1, 63, ["a"]), (1, 24, ["a", "b"])]


def test_without_chunked_prefill_a_prompt_goes_first_and_all_decodes_stand_still() -> None:
    profile = dataclasses.replace(PLAIN, chunked_prefill=False)
    table, _ = simulate(profile, [0.0, 0.02], [10, 150], [20, 1], rng())
    gaps = table.gaps()
    a = gaps.gap_s[gaps.request == 0]
    assert a.max() == pytest.approx(0.011 + 0.010 + 150 * 0.0001)
    assert np.sort(a)[:-1] == pytest.approx([0.011] * 18)
    chunked, _ = simulate(PLAIN, [0.0, 0.02], [10, 150], [20, 1], rng())
    assert chunked.gaps().gap_s.max() == pytest.approx(0.011 + 63 * 0.0001)


def test_max_num_seqs_holds_the_fifth_request_back_until_a_seat_is_free() -> None:
    table, samples = simulate(PLAIN, np.zeros(5), 1, 10, rng(), sample_period_s=0.05)
    first = table.first_s
    assert first[:4] == pytest.approx([0.0104] * 4)
    assert first[4] == pytest.approx(0.0104 + 9 * 0.014 + 0.0101)
    assert [s.values["waiting"] for s in samples[:3]] == [1, 1, 1]
    assert samples[-1].values["running"] == 1


def test_deterministic_arrivals_below_capacity_never_wait() -> None:
    # D/D/1: one seat, service 0.0101 + 9 * 0.011 = 0.1091 s, arrivals every 0.2 s
    profile = dataclasses.replace(PLAIN, max_num_seqs=1)
    table, _ = simulate(profile, np.arange(20) * 0.2, 1, 10, rng())
    assert table.ttft_s == pytest.approx([0.0101] * 20)
    assert table.e2e_s == pytest.approx([0.1091] * 20)


def test_poisson_arrivals_at_one_seat_wait_as_an_m_d_1_queue_says() -> None:
    # M/D/1: mean wait = rho * S / (2 (1 - rho)); at rho 0.7 and S 10.1 ms it is 11.78 ms
    profile = dataclasses.replace(PLAIN, max_num_seqs=1)
    due_s = np.cumsum(rng(3).exponential(0.0101 / 0.7, 25_000))
    table, _ = simulate(profile, due_s, 1, 1, rng(), sample_period_s=0)
    assert (table.ttft_s - 0.0101).mean() == pytest.approx(0.01178, rel=0.04)


def test_arrivals_past_capacity_queue_up_linearly() -> None:
    profile = dataclasses.replace(PLAIN, max_num_seqs=1)
    table, _ = simulate(profile, np.arange(50) * 0.05, 1, 10, rng())
    assert np.diff(table.first_s) == pytest.approx([0.1091] * 49)


def test_a_full_pool_pushes_out_the_request_admitted_last_and_it_is_computed_again() -> None:
    # 4 blocks of 16: two requests of 16 prompt tokens grow to 3 blocks each
    profile = dataclasses.replace(PLAIN, kv_blocks=4, max_model_len=48, prefix_cache=False)
    engine = Engine(profile, rng())
    engine.submit("old", 0.0, 16, 30)
    engine.submit("new", 0.0, 16, 30)
    now_s, pushed, prefills = 0.0, [], []
    for _ in range(80):
        outcome = engine.step(now_s)
        if outcome is None:
            break
        now_s = outcome.end_s
        pushed += outcome.preempted
        prefills.append(outcome.prefill_tokens)
        check_books(engine)
    assert pushed == ["new"]
    assert engine.stats.preemptions == 1
    assert sum(prefills) == 16 + 16 + 16 + 17  # prompts, then its prompt and the 17 tokens it had made
    assert engine.pool.used == 0


def test_a_preempted_request_still_ends_with_exactly_its_tokens_and_one_long_gap() -> None:
    profile = dataclasses.replace(PLAIN, kv_blocks=4, max_model_len=48, prefix_cache=False)
    table, samples = simulate(profile, [0.0, 0.0], 16, 30, rng(), sample_period_s=0.1)
    assert table.events.tolist() == [30, 30]
    gaps = table.gaps()
    assert gaps.gap_s[gaps.request == 0].max() < 0.02
    # 17 tokens beside the other, then 13 steps of the other alone, then 33 tokens to compute again
    assert gaps.gap_s[gaps.request == 1] == pytest.approx([0.012] * 16 + [13 * 0.011 + 0.0133] + [0.011] * 12)
    assert samples[-1].values["preemptions"] == 1


def test_what_a_preempted_request_had_computed_is_found_again_when_nobody_needed_the_blocks() -> None:
    profile = dataclasses.replace(PLAIN, kv_blocks=8, max_model_len=96, max_num_seqs=2)
    tokens = {}
    for cached in (False, True):
        engine = Engine(dataclasses.replace(profile, prefix_cache=cached), rng())
        engine.submit("old", 0.0, 40, 50)
        engine.submit("new", 0.0, 40, 50)
        now_s = total = 0.0
        while (outcome := engine.step(now_s)) is not None:
            now_s, total = outcome.end_s, total + outcome.prefill_tokens
            check_books(engine)
        assert engine.stats.preemptions >= 1
        tokens[cached] = total
    assert tokens[True] < tokens[False]


def test_equal_leading_blocks_are_computed_once() -> None:
    engine = Engine(PLAIN, rng())
    engine.submit("a", 0.0, 48, 1, blocks=("x", "y", "z"))
    outcome = engine.step(0.0)
    assert outcome is not None
    assert outcome.prefill_tokens == 48
    engine.submit("b", 1.0, 60, 1, blocks=("x", "y", "other"))
    outcome = engine.step(1.0)
    assert outcome is not None
    assert outcome.prefill_tokens == 28
    assert outcome.finished[0].cached_tokens == 32
    assert (engine.stats.prefix_queries, engine.stats.prefix_hits) == (108, 32)


def test_a_wholly_cached_prompt_still_computes_its_last_block() -> None:
    engine = Engine(PLAIN, rng())
    for key in ("a", "b"):
        engine.submit(key, 0.0, 48, 1, blocks=("x", "y", "z"))
        outcome = engine.step(0.0)
        check_books(engine)
    assert outcome is not None
    assert outcome.prefill_tokens == 16


def test_an_answer_stays_in_the_prefix_cache_for_the_next_turn() -> None:
    engine = Engine(PLAIN, rng())
    engine.submit("turn 1", 0.0, 20, 30, blocks=("x", "xy", "xyz"))  # 50 tokens: three full blocks
    now_s = 0.0
    while (outcome := engine.step(now_s)) is not None:
        now_s = outcome.end_s
    engine.submit("turn 2", now_s, 60, 1, blocks=("x", "xy", "xyz"))
    outcome = engine.step(now_s)
    assert outcome is not None
    assert outcome.prefill_tokens == 60 - 48


def test_idle_content_is_forgotten_least_recently_used_first() -> None:
    engine = Engine(dataclasses.replace(PLAIN, kv_blocks=4, max_model_len=64, max_num_seqs=1), rng())
    for name in ("a", "b", "c"):
        engine.submit(name, 0.0, 32, 1, blocks=(name, name + "2"))
        engine.step(0.0)
        check_books(engine)
    assert list(engine.pool.idle) == ["b2", "b", "c2", "c"]


def test_speculative_decoding_brings_several_tokens_a_step_and_counts_what_was_accepted() -> None:
    profile = dataclasses.replace(PROFILES["h100-8b"], draft_tokens=3, accept_ratio=0.6)
    table, samples = simulate(profile, np.arange(200) * 0.05, 100, 200, rng(1))
    assert table.output_tokens.tolist() == [200.0] * 200
    assert table.status.tolist() == ["ok"] * 200
    per_event = table.event_tokens[np.setdiff1d(np.arange(len(table.event_s)), table.begin[:-1])]
    assert per_event.mean() == pytest.approx(1 + 0.6 + 0.36 + 0.216, rel=0.02)
    values = samples[-1].values
    assert values["spec_accepted_tokens"] / values["spec_draft_tokens"] == pytest.approx(1.176 / 3, rel=0.03)
    plain, _ = simulate(PROFILES["h100-8b"], np.arange(200) * 0.05, 100, 200, rng(1))
    assert np.median(table.e2e_s) < 0.6 * np.median(plain.e2e_s)


def test_refusals_name_what_was_full() -> None:
    engine = Engine(dataclasses.replace(PLAIN, max_queue=1, max_in_flight=5), rng())
    for i in range(5):  # four seats, one in the queue
        engine.submit(i, 0.0, 10, 5)
        engine.step(0.0)
    with pytest.raises(RefusedError) as full:
        engine.submit(5, 0.0, 10, 5)
    with pytest.raises(RefusedError) as long:
        engine.submit("long", 0.0, 510, 10)
    capped = Engine(dataclasses.replace(PLAIN, max_in_flight=1), rng())
    capped.submit(0, 0.0, 10, 5)
    with pytest.raises(RefusedError) as cap:
        capped.submit(1, 0.0, 10, 5)
    assert [e.value.reason for e in (full, long, cap)] == ["queue", "too_long", "in_flight"]
    assert (engine.stats.rejected, capped.stats.rejected) == (1, 1)


def test_refused_requests_are_failed_records() -> None:
    profile = dataclasses.replace(PLAIN, max_queue=2)
    table, samples = simulate(profile, np.zeros(10), 5, 5, rng(), sample_period_s=0.01)
    assert table.status.tolist() == ["ok", "ok"] + ["error"] * 8
    assert set(table.error[2:]) == {"in_band"}
    assert samples[0].values["requests_rejected"] == 8


def test_stalls_freeze_all_streams_at_any_load() -> None:
    profile = dataclasses.replace(PLAIN, stalls=(Stall(2.0, 0.3),))
    table, _ = simulate(profile, np.arange(300) * 0.2, 10, 15, rng())
    gaps = table.gaps()
    long = gaps.gap_s > 0.25
    assert 12 <= len(np.unique(np.round(gaps.end_s[long], 6))) <= 45
    assert np.median(gaps.gap_s) < 0.02


def test_a_change_of_speed_scales_every_step_from_then_on() -> None:
    profile = dataclasses.replace(PLAIN, speeds=((5.0, 0.5),))
    table, _ = simulate(profile, [0.0, 6.0], 10, 5, rng())
    assert table.gaps().gap_s == pytest.approx([0.011] * 4 + [0.022] * 4)


def test_loading_an_adapter_freezes_all_streams_once_while_it_is_held() -> None:
    profile = dataclasses.replace(PLAIN, adapter_load_s=1.0, max_adapters=2)
    table, _ = simulate(profile, np.arange(5) * 5.0, 10, 2, rng(), adapters=["a", "a", "b", "c", "a"])
    assert table.ttft_s == pytest.approx([1.011, 0.011, 1.011, 1.011, 1.011])


def test_an_abort_in_mid_step_takes_effect_at_its_end_and_frees_everything() -> None:
    engine = Engine(PLAIN, rng())
    for key in ("running", "prefilling", "waiting"):
        engine.submit(key, 0.0, 100, 50)
    engine.step(0.0)
    engine.step(1.0)
    engine.begin(2.0)
    for key in ("running", "prefilling", "waiting", "unknown"):
        engine.abort(key)
    assert engine.running + len(engine.waiting) == 3
    engine.finish()
    assert (engine.running, len(engine.waiting), engine.pool.used) == (0, 0, 0)
    assert engine.begin(3.0) is None


LOADS = st.lists(
    st.tuples(st.floats(0, 2), st.integers(1, 120), st.integers(1, 40), st.integers(0, 3)), min_size=1, max_size=25
)


@settings(max_examples=120)
@given(
    load=LOADS,
    blocks=st.integers(11, 40),
    seqs=st.integers(1, 6),
    chunked=st.booleans(),
    cache=st.booleans(),
    draft=st.sampled_from([0, 0, 2]),
    abort_every=st.sampled_from([0, 0, 3]),
)
def test_whatever_is_submitted_the_books_balance_and_every_request_ends_with_its_tokens(
    load: list[tuple[float, int, int, int]],
    blocks: int,
    seqs: int,
    chunked: bool,
    cache: bool,
    draft: int,
    abort_every: int,
) -> None:
    profile = dataclasses.replace(
        PLAIN,
        kv_blocks=blocks,
        max_model_len=160,
        max_num_seqs=seqs,
        chunked_prefill=chunked,
        prefix_cache=cache,
        draft_tokens=draft,
        noise_ratio=0.1,
    )
    engine = Engine(profile, rng(1))
    coming = sorted(load)
    got = dict.fromkeys(range(len(coming)), 0)
    finished, aborted, firsts = set(), set(), []
    now_s = steps = 0
    while coming or engine.running or engine.waiting:
        while coming and coming[0][0] <= now_s:
            number = len(got) - len(coming)
            _, prompt, output, prefix = coming.pop(0)
            known = [f"{prefix}-{i}" for i in range((prompt + output) // 16)] if prefix else []
            engine.submit(number, now_s, prompt, output, known)
        duration_s = engine.begin(now_s)
        if duration_s is None:
            now_s = coming[0][0]
            continue
        if abort_every and steps % abort_every == 0:
            victim = steps % len(got)
            if victim not in finished:
                engine.abort(victim)
                aborted.add(victim)
        outcome = engine.finish()
        check_books(engine)
        assert outcome.decodes * engine.lane.tokens_each + outcome.prefill_tokens <= max(
            profile.token_budget, 0 if chunked else 160
        )
        for key, tokens in outcome.tokens:
            firsts += [key] if got[key] == 0 else []
            got[key] += tokens
        finished |= {request.id for request in outcome.finished}
        now_s += duration_s
        steps += 1
    assert engine.pool.used == 0
    for number, (_, _, output, _) in enumerate(sorted(load)):
        if number in finished:
            assert got[number] == output
        else:
            assert number in aborted
    if not aborted and not engine.stats.preemptions and cache is False:
        assert firsts == sorted(firsts)  # first come, first served
    assert sum(got.values()) == engine.stats.output_tokens


def ramp_of(seed: int) -> tuple[Any, ...]:
    profile, lengths = random_profile(rng(seed))
    due_s = np.sort(rng(seed).uniform(0, 60, 400))
    return profile, due_s, *lengths.draw(rng(seed), 400)


def test_one_seed_gives_the_same_bits_and_another_does_not() -> None:
    profile, due_s, prompt, output = ramp_of(5)
    first, again, other = (simulate(profile, due_s, prompt, output, rng(seed))[0] for seed in (1, 1, 2))
    assert first.event_s.tobytes() == again.event_s.tobytes()
    assert first.event_s.tobytes() != other.event_s.tobytes()


def test_another_process_with_another_hash_seed_gets_the_same_bits() -> None:
    script = (
        "import zlib, numpy as np\n"
        "from benchmarks.offline_engine import simulate\nfrom loadramp.simulator.profiles import PROFILES\n"
        "t, _ = simulate(PROFILES['kv-limited'], np.arange(200) * 0.02, 500, 60, np.random.default_rng(3),"
        " blocks=[['a', 'b', str(i)] for i in range(200)]); print(zlib.crc32(t.event_s.tobytes()))"
    )
    seen = {
        subprocess.run(
            [sys.executable, "-c", script], env={"PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True
        ).stdout
        for seed in ("1", "2")
    }
    assert len(seen) == 1


def test_running_in_pieces_gives_the_same_bits_as_running_in_one_go() -> None:
    profile, due_s, prompt, output = ramp_of(6)
    whole, samples = simulate(profile, due_s, prompt, output, rng(1))
    pieces = Offline(profile, rng(1))
    for begin in range(0, 400, 100):
        pieces.offer(due_s[begin : begin + 100], prompt[begin : begin + 100], output[begin : begin + 100])
        if begin < 300:
            pieces.run(float(due_s[begin + 100]))
            assert pieces.table().event_s.max() <= due_s[begin + 100]
    pieces.run()
    assert pieces.table().event_s.tobytes() == whole.event_s.tobytes()
    assert pieces.samples == samples


def test_a_run_that_is_cut_shows_unfinished_requests_with_their_tokens_so_far() -> None:
    whole, _ = simulate(PLAIN, np.arange(10) * 0.1, 10, 50, rng())
    cut, _ = simulate(PLAIN, np.arange(10) * 0.1, 10, 50, rng(), until_s=0.6)
    assert set(cut.status) == {"ok", "in_flight"} or set(cut.status) == {"in_flight"}
    assert cut.event_s.tolist() != []
    for i in range(10):
        mine = cut.event_s[cut.begin[i] : cut.begin[i + 1]]
        theirs = whole.event_s[whole.begin[i] : whole.begin[i + 1]]
        assert mine.tolist() == theirs[theirs <= 0.6].tolist()
        assert cut.in_flight[i] == (len(mine) < 50)


def test_samples_are_canonical_and_agree_with_the_table() -> None:
    profile = dataclasses.replace(PLAIN, max_num_seqs=16)
    table, samples = simulate(profile, np.arange(100) * 0.03, 20, 30, rng())
    assert [s.t_s for s in samples] == list(range(len(samples)))
    assert set(samples[-1].values) <= set(CANONICAL)
    for sample in samples:
        assert sample.values["output_tokens"] == np.sum(table.event_s <= sample.t_s)
        assert sample.values["requests_done"] == np.sum(table.stream_end_s <= sample.t_s)
        arrived = np.sum(table.due_s <= sample.t_s) - sample.values["requests_done"]
        assert abs(sample.values["running"] + sample.values["waiting"] - arrived) <= 1


def test_steps_label_the_requests() -> None:
    table, _ = simulate(PLAIN, np.arange(4) * 1.0, 10, 5, rng(), steps=[0, 0, 1, 1])
    assert table.step.tolist() == [0, 0, 1, 1]


def test_histograms_hold_the_identities_of_n_requests_with_m_tokens() -> None:
    engine = Engine(PLAIN, rng())
    for i in range(7):
        engine.submit(i, 0.0, 11, 9)
    now_s = 0.0
    while (outcome := engine.step(now_s)) is not None:
        now_s = outcome.end_s
    stats = engine.stats
    assert stats.ttft_s.count == 7
    assert stats.itl_s.count == 7 * 8
    assert stats.request_output_tokens.sum == 7 * 9
    assert stats.prompt_tokens == 7 * 11
    assert stats.done == {"length": 7, "stop": 0}
    assert stats.itl_s.sum == pytest.approx(stats.decode_s.sum)
    assert stats.e2e_s.sum == pytest.approx(stats.queue_s.sum + stats.prefill_s.sum + stats.decode_s.sum)


def test_profiles_that_no_engine_would_start_with_are_refused() -> None:
    with pytest.raises(ValueError, match="token_budget"):
        EngineProfile(max_num_seqs=512, token_budget=256)
    with pytest.raises(ValueError, match="KV pool"):
        EngineProfile(kv_blocks=10)
