"""Whether healthy replicas took the load of one that was killed, and whether its requests were retried. Pure.

Only the pages of several replicas tell: one page, or one behind a load balancer, shows neither.
"""

from collections.abc import Sequence

from loadramp.campaign.criteria import Criterion, holds
from loadramp.record.types import Sample
from loadramp.units import plural

ABSORBED = 0.9
"""Share of the arriving requests that the healthy replicas must finish while one is away."""
LEAST_S = 10.0
RETRIED_ASKED = "failed requests are retried"
ABSORBED_ASKED = "healthy replicas absorb the load"


def absorbed(
    samples: Sequence[Sample], begin_s: float, end_s: float, arrival_rps: float, failed: int
) -> list[Criterion]:
    """The two criteria, from the replicas' pages between the kill and ``end_s``.

    Args:
        samples: of all pages.
        begin_s, end_s: from the command to the recovery, seconds since the run began.
        arrival_rps: what arrives, of all replicas together.
        failed: requests whose failure reached the caller in that time.
    """
    pages: dict[str, list[Sample]] = {}
    for sample in samples:
        pages.setdefault(sample.url, []).append(sample)
    shown = {url: page for url, page in pages.items() if any("requests_done" in one.values for one in page)}
    if len(shown) < 2:
        return _unseen("not seen: name the metrics page of every replica in [metrics] urls")
    hit = [url for url, page in shown.items() if _went(page, begin_s, end_s)]
    if not hit or len(hit) == len(shown):
        return _unseen(f"not seen: {len(hit)} of {plural(len(shown), 'replica')}' pages went away or restarted")
    busy = sum(_last(shown[url], begin_s, "running") for url in hit)
    if failed:
        said = f"{plural(failed, 'failure')} reached the caller"
        retried = Criterion("retried", RETRIED_ASKED, "fail", said)
    elif busy:
        said = f"about {plural(round(busy), 'request')} ran on the killed replica, and no failure reached the caller"
        retried = Criterion("retried", RETRIED_ASKED, "pass", said)
    else:
        retried = Criterion("retried", RETRIED_ASKED, "inconclusive", "nothing ran on the killed replica")
    until_s = max(end_s, begin_s + LEAST_S)
    done = sum(
        _last(page, until_s, "requests_done") - _last(page, begin_s, "requests_done")
        for url, page in shown.items()
        if url not in hit
    )
    rate_rps = done / (until_s - begin_s)
    said = f"they finished {rate_rps:.3g} of {arrival_rps:.3g} req/s while {len(hit)} of {len(shown)} was away"
    return [retried, holds("absorbed", ABSORBED_ASKED, rate_rps >= ABSORBED * arrival_rps, said)]


def _unseen(why: str) -> list[Criterion]:
    return [Criterion("retried", RETRIED_ASKED, "inconclusive", why),
            Criterion("absorbed", ABSORBED_ASKED, "inconclusive", why)]  # fmt: skip


def _went(page: Sequence[Sample], begin_s: float, end_s: float) -> bool:
    """It could not be read, or its counters began anew."""
    after = [one for one in page if begin_s <= one.t_s <= max(end_s, begin_s + LEAST_S)]
    before = _last(page, begin_s, "requests_done")
    return any(one.error or one.values.get("requests_done", before) < before for one in after)


def _last(page: Sequence[Sample], until_s: float, name: str) -> float:
    return next((one.values[name] for one in reversed(page) if one.t_s <= until_s and name in one.values), 0.0)
