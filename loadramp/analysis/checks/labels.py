"""Labels that the user gave against what the server tells of itself. Pure.

Rule: a label is what somebody remembers, the page is what is served. Where they differ, comparisons by label are wrong.
"""

import re
from collections.abc import Mapping

from loadramp.record.table import Run
from loadramp.record.types import Check
from loadramp.units import plural

SAME_AS = {
    "model_name": "model", "model_path": "model", "served_model_name": "model", "model_id": "model",
    "max_running_requests": "max_num_seqs", "max_batch_size": "max_num_seqs", "max_concurrent_requests": "max_num_seqs",
    "context_length": "max_model_len", "max_context_len": "max_model_len", "session_len": "max_model_len",
    "num_gpu_blocks": "kv_blocks", "num_gpu_blocks_override": "kv_blocks", "page_size": "block_size",
    "engine_version": "version",
}  # fmt: skip
"""What engines call the same thing, to the name of the fact."""
NUMBERS = ("max_num_seqs", "block_size", "kv_blocks", "max_model_len")
WORDS = ("model", "version")
ADDED_UP = ("max_num_seqs", "kv_blocks")
"""Facts of which a page that several engines share shows the sum."""
_FLAG = re.compile(r"(?:^|\s)--?([A-Za-z][\w-]*)(?:[ =]+(?!-)(\"[^\"]*\"|'[^']*'|\S+))?")
ADVICE = "correct the label (--label, [target] labels), or see whether this is the server that you meant"


def contradictions(run: Run) -> list[Check]:
    """Labels, and flags named in a label, that the server's own pages contradict."""
    labels = facts(run)
    checks = []
    for name, (label, value) in claims(run.info.labels or {}).items():
        page = labels.get(name)
        difference = _differs(name, value, page) if page is not None else _overrun(run, name, value)
        if difference:
            checks.append(Check("labels", "warn", f"the label says {label} = {value}, {difference}", ADVICE))
    return checks


def claims(labels: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    """Fact to (the label's or flag's own name, its value). A label of its own wins over a flag within another one."""
    pairs: dict[str, tuple[str, str]] = {}
    for text in labels.values():
        for flag, value in _FLAG.findall(text):
            if value and _fact(flag) in (*NUMBERS, *WORDS):
                pairs[_fact(flag)] = (f"--{flag}", value.strip("\"'"))
    for name, text in labels.items():
        if _fact(name) in (*NUMBERS, *WORDS) and text.strip():
            pairs[_fact(name)] = (name, text.strip())
    return pairs


def facts(run: Run) -> dict[str, str]:
    """What the server's pages tell: of its models page and version, and of its metrics (the last value of each)."""
    page = run.info.target
    known = {name: str(value) for name in ("model", "version", "max_model_len") if (value := getattr(page, name))}
    for sample in run.samples:
        known |= {name: f"{sample.values[name]:g}" for name in NUMBERS if name in sample.values}
    return known


def _fact(name: str) -> str:
    plain = name.strip().lower().replace("-", "_")
    return SAME_AS.get(plain, plain)


def _differs(name: str, label: str, page: str) -> str:
    """How the page contradicts the label; empty where it does not."""
    if name in WORDS:
        named, other = _bare(label), _bare(page)
        return "" if named in other or other in named else f"the server says {page}"
    claimed, shown = _number(label), _number(page)
    if claimed is None or shown is None or claimed == shown:
        return ""
    engines = shown / claimed if claimed else 0.0
    several = name in ADDED_UP and engines > 1.0 and engines == int(engines)
    only = f" (right only where {plural(round(engines), 'engine')} share its page)" if several else ""
    return f"the server says {page}{only}"


def _overrun(run: Run, name: str, label: str) -> str:
    """A batch larger than the label allows; the page need not show the limit for that."""
    most = max((sample.values["running"] for sample in run.samples if "running" in sample.values), default=0.0)
    claimed = _number(label)
    if name != "max_num_seqs" or claimed is None or most <= claimed:
        return ""
    return (
        f"and the server had {plural(round(most), 'request')} running at once (right only where several engines "
        f"share its page)"
    )


def _bare(text: str) -> str:
    """A name without its owner's, its case and its punctuation: ``meta-llama/Llama-3.1-8B`` to ``llama318b``."""
    return re.sub(r"[^a-z0-9]", "", text.lower().rstrip("/").rpartition("/")[2].removeprefix("v"))


def _number(text: str) -> float | None:
    plain = text.strip().lower().replace(",", "").replace("_", "")
    factor = {"k": 1024.0, "m": 1024.0**2}.get(plain[-1:], 1.0)
    try:
        return float(plain.removesuffix("k").removesuffix("m")) * factor
    except ValueError:
        return None
