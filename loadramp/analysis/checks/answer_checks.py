"""Checks on the answers themselves: were they as long as asked, as cheap as they should be, and stamped one by one?"""

from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np

from loadramp.record.event_columns import runs
from loadramp.record.prompt_facts import always_new
from loadramp.record.table import Floats, Gaps, Run, Table, within
from loadramp.record.types import EVENTS, Check
from loadramp.units import agreed, counted, percent, plural

BURST_SHARE = 0.2
"""Above this share of events that come with the one before, gaps say nothing about the engine."""


TOGETHER_S = 0.0002
SPACING_S = 0.002
"""Bursts closer than this hold nothing back that anybody could see."""
WITHIN_RATIO = 0.1
"""Of a stream's time, at most so much passes within its bursts."""
LARGEST = 32
"""Events a burst on average, where they did not come in one read: a longer run is an engine that paused."""


def burst_share(gaps: Gaps, wait_s: float | None = None) -> float:
    """Share of output events less than 0.2 ms after the one before; 0 under 100 gaps, and unless most streams were held
    back: a stream that froze alone gets all that it missed at once, too.

    An engine that makes a token every 0.1 ms holds nothing back: its time passes within what looks like a burst, and a
    pause of it now and then makes no bursts either.

    Args:
        gaps: of many streams.
        wait_s: the usual wait for a first event; an answer that comes whole must have come in less than 5 % of it.
    """
    return _share_of_bursts([_bursts(gaps, wait_s)])


def _share_of_bursts(counts: Sequence[tuple[int, int, int, int]]) -> float:
    """``burst_share`` of several windows, each as ``_bursts`` counts it."""
    gaps, together, streams, held = (sum(counted) for counted in zip(*counts, strict=True)) if counts else (0, 0, 0, 0)
    return together / gaps if gaps >= 100 and held > 0.5 * streams else 0.0


def _bursts(gaps: Gaps, wait_s: float | None) -> tuple[int, int, int, int]:
    """How many gaps there are, and how many of them are shorter than 0.2 ms; how many streams, and how many of them
    were held back."""
    together = gaps.gap_s < TOGETHER_S
    first = runs(gaps.request)
    events, close = np.diff(first, append=len(together)), np.add.reduceat(together, first, dtype=np.int64)
    some = close > BURST_SHARE / 2.0 * events
    counts = len(gaps.gap_s), int(np.count_nonzero(together)), len(events)
    if not some.any():
        return *counts, 0
    weights = (gaps.gap_s == 0.0, gaps.gap_s, np.where(together, gaps.gap_s, 0.0))
    zero, total_s, within_s = (np.bincount(gaps.request, weight)[gaps.request[first]] for weight in weights)
    apart = events - close
    whole = (apart == 0) & (zero > events / 2.0) & (total_s < (np.inf if wait_s is None else 0.05 * wait_s))
    spaced = (apart > 0) & (total_s >= SPACING_S * apart) & (within_s < WITHIN_RATIO * total_s)
    bursts = spaced & ((zero >= close / 2.0) | (events <= LARGEST * apart))
    return *counts, int(np.count_nonzero(some & (whole | bursts)))


def delivery(run: Run) -> list[Check]:
    """Events that came in bursts, or brought several tokens: gaps are then not the engine's."""
    windows, out = _windows(run), []
    waits_s = np.concatenate([np.zeros(0), *(table.sent_ttft_s for table in windows)])
    waits_s = waits_s[~np.isnan(waits_s)]
    wait_s = float(np.median(waits_s)) if len(waits_s) else None
    share = _share_of_bursts([_bursts(part.gaps(), wait_s) for window in windows for _, part in window.slices()])
    if share > BURST_SHARE:
        together = f"{percent(share)} of the output events came together with the one before"
        message = f"{together}: something on the way buffers"
        advice = "turn proxy buffering off (X-Accel-Buffering: no), or trust TTFT and end-to-end times only"
        out.append(Check("burst_delivery", "warn", message, advice))
    events = sum(len(table.event_tokens) for table in windows)
    if events > sum(map(len, windows)):  # answers of one event each have no gaps
        tokens = sum(int(table.event_tokens.sum()) for table in windows) / events
        if tokens > 1.05:
            message = (
                f"{counted(format(tokens, '.3g'), 'token')} an event on average: ITL is the gap divided by its "
                f"tokens, the gap is longer"
            )
            out.append(Check("tokens_per_event", "note", message, "read the gap columns for what a reader sees"))
    return out


def output_length(run: Run) -> list[Check]:
    """Answers shorter than asked."""
    measured = _measured(run)
    out = []
    free = int(measured.length_free.sum())
    if free:
        message = (
            f"{free} of {plural(len(measured), 'answer')} {agreed(free, 'have')} a form of their own "
            f"(response_format, a grammar, tools): "
            "their length was not forced"
        )
        out.append(Check("length_not_forced", "note", message, "what they cost is what such answers cost, no more"))
    counted = measured.token_source != EVENTS  # an event may carry several tokens: that is not a short answer
    forced = measured.select(~measured.length_free & counted)
    share = _ratio(forced, forced.output_tokens, forced.asked_output_tokens)
    if share is None or share >= 0.95:
        return out
    message = f"answers had {percent(share)} of the output tokens asked for"
    advice = "the server ignores ignore_eos and min_tokens: compare only with runs on the same prompts"
    return [*out, Check("output_length", "warn", message, advice)]


def prompt_length(run: Run) -> list[Check]:
    """Prompts whose tokens, as the server counts them, are not what was planned."""
    measured = _measured(run)
    share = _ratio(measured, measured.prompt_tokens, measured.asked_input_tokens)
    if share is None or 0.9 <= share <= 1.1:
        return []
    message = f"prompts had {percent(share)} of the tokens planned, as the server counts them"
    return [Check("prompt_length", "warn", message, "the tokenizer or the chat template differs: adjust input_tokens")]


def token_source(run: Run) -> list[Check]:
    """Token counts that are not the server's own."""
    measured = _measured(run)
    implausible = measured.warned("implausible_usage")
    counts = Counter(str(source) for source in measured.token_source[~implausible] if source)
    counts["implausible"] = int(implausible.sum())
    total = sum(counts.values())
    words = {
        "pro_rata": "tokens were spread over events by length of text, since only their sum is known",
        "events": "the server sends no usage: every event counts as one token",
    }
    checks = [
        Check("token_source", "warn", f"{percent(counts[name] / total)} of the answers: {what}",
              "ITL and TPOT are approximate; gap, TTFT and end-to-end times are not")
        for name, what in words.items()
        if total and counts[name] > 0.01 * total
    ]  # fmt: skip
    if counts["implausible"]:
        message = (
            f"{percent(counts['implausible'] / total)} of the answers: the server's token count cannot be right (fewer "
            "tokens than events with text, more than were asked for, or a running count that does not grow) "
            "and was not believed"
        )
        advice = "tokens were counted by events: tokens per second and TPOT are approximate; report it to the server"
        checks.append(Check("implausible_usage", "warn", message, advice))
    return checks


def parsing(run: Run) -> list[Check]:
    """Answers that took the client long to parse."""
    measured = _measured(run)
    slow = measured.warned("slow_parse")
    if not slow.any():
        return []
    message = f"{percent(float(slow.mean()))} of the answers took the client more than 50 ms to parse"
    late = sum(int(np.count_nonzero(table.parsed_late)) for table in _windows(run))
    if late:
        message += f"; the times of {late} of them may include that"
    return [Check("slow_parse", "warn" if late else "note", message, "see what the server sends: loadramp probe")]


def prefix_hits(run: Run) -> list[Check]:
    """Prompts that should be unique and were found in the prefix cache, beyond what a chat template puts before all."""
    if not always_new(run):
        return []
    measured = _measured(run)
    ratios = [row.prefix_hit_ratio for row in run.rows if row.prefix_hit_ratio is not None]
    known = ~np.isnan(measured.cached_tokens)
    if known.any() and float(np.nansum(measured.prompt_tokens[known])) > 0.0:
        ratios.append(float(measured.cached_tokens[known].sum() / np.nansum(measured.prompt_tokens[known])))
    share = max(ratios, default=0.0)
    if share - template_ratio(run) < 0.01:
        return []
    message = f"{percent(share)} of the prompt tokens came from the prefix cache, though every prompt should be new"
    advice = "a cache warmed by an earlier run with the same seed flatters TTFT: another seed, or restart the server"
    return [Check("prefix_hits", "warn", message, advice)]


def template_ratio(run: Run) -> float:
    """Share of the prompt tokens that the chat template adds to every request, as counted before the run: a cache that
    finds these has found no prompt. 0 where it was not counted."""
    measured = _measured(run)
    counted = measured.input_tokens
    total = float(np.nansum(counted))
    calibration = run.info.calibration
    if calibration is None or total <= 0.0:
        return 0.0
    return calibration.overhead_tokens * int(np.count_nonzero(~np.isnan(counted))) / total


def stamps(run: Run) -> list[Check]:
    """Time stamps taken by the program because the kernel's were not to be had."""
    measured = _measured(run)
    if len(measured) == 0 or measured.kernel_stamps.all():
        return []
    share = 1.0 - float(measured.kernel_stamps.mean())
    message = f"{percent(share)} of the answers were stamped when the program read them, not when they arrived"
    return [Check("user_stamps", "note", message, "a busy client then shows in ITL; watch the loop lag")]


ANSWER_CHECKS: dict[str, Callable[[Run], list[Check]]] = {
    "delivery": delivery,
    "output_length": output_length,
    "prompt_length": prompt_length,
    "token_source": token_source,
    "slow_parse": parsing,
    "prefix_hits": prefix_hits,
    "stamps": stamps,
}


def _windows(run: Run) -> list[Table]:
    """Successes of each measured window."""
    ok = run.table.ok
    return [run.table.select(ok & within(run.table.due_s, row.window_s)) for row in run.rows]


def _measured(run: Run) -> Table:
    """Successes of the measured windows, without their events."""
    due = run.table.without_events().due_in(*(row.window_s for row in run.rows))
    return due.select(due.ok)


def _ratio(table: Table, got: Floats, asked: Floats) -> float | None:
    known = ~np.isnan(got) & ~np.isnan(asked)
    return float(got[known].sum() / asked[known].sum()) if len(table) and asked[known].sum() > 0 else None
