"""What was measured, on what, with what: the conditions of one night, as text by key. Pure."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from loadramp.record.table import Run
from loadramp.scenario.scenario import read_tables, split_override

LOAD_TABLES = ("prompts", "arrivals", "ramp", "seed")
REQUEST_KEYS = ("api", "stream", "force_length", "body", "token_ids")
"""Of ``[target]``: they change what is asked, the others only where."""
DIGITS = 12


def fingerprint_of(run: Run, digest: str, labels: Mapping[str, str], reference_rps: float | None) -> dict[str, str]:
    """Only what is known; ``labels`` are what the endpoint does not tell of itself and win over what it does.

    Args:
        run: as read from its directory.
        digest: of its scenario, see ``digest_of``.
        labels: for instance ``gpu``, ``driver``, ``flags``.
        reference_rps: the rate at which latencies are compared.
    """
    info, target, host = run.info, run.info.target, run.info.host
    last = {name: value for sample in run.samples for name, value in sample.values.items()}
    known: dict[str, Any] = {
        "scenario": digest,
        "corpus": " ".join(file.sha256[:DIGITS] for file in info.files or ()),
        "reference_rps": f"{reference_rps:.6g}" if reference_rps else None,
        "model": target.model,
        "engine": info.dialect or target.engine,
        "version": target.version,
        "max_model_len": target.max_model_len,
        "max_num_seqs": last.get("max_num_seqs"),
        "block_size": last.get("block_size"),
        "kv_blocks": last.get("kv_blocks"),
        "client": info.loadramp,
        "host": f"{host.cpu} x {host.cores or '?'}".strip() if host else None,
        "libraries": " ".join(f"{name} {version}" for name, version in sorted((info.versions or {}).items())),
        **labels,
    }
    return {key: f"{value:g}" if isinstance(value, float) else str(value) for key, value in known.items() if value}


def digest_of(text: str, overrides: Sequence[str] = ()) -> str:
    """What a scenario asks of the endpoint, as 12 hexadecimal digits: prompts, arrivals, ramp, form of request, seed.

    Where it is sent and what is judged do not change what is measured; nor do comments, order or a new default.
    """
    raw = read_tables(text)
    asked: dict[str, Any] = {key: raw.get(key) for key in LOAD_TABLES}
    target = raw.get("target", {})
    asked["target"] = {key: target[key] for key in REQUEST_KEYS if key in target}
    asked["set"] = sorted(override for override in overrides if _of_load(override))
    encoded = json.dumps(asked, sort_keys=True, default=str).encode()
    return hashlib.sha256(encoded, usedforsecurity=False).hexdigest()[:DIGITS]


def _of_load(override: str) -> bool:
    (table, *keys), _ = split_override(override)
    return table in LOAD_TABLES or (table == "target" and keys[:1] in [[key] for key in REQUEST_KEYS])
