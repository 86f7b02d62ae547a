"""The scraper against a real llama.cpp server: what it counts is what its answers say."""

import asyncio
import json
import socket
import time
import urllib.request
from pathlib import Path

from llamacpp import serving, write_model

from loadramp.analysis.server_window import deltas
from loadramp.metrics.scraper import Scraper, find_metrics


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


def complete(base_url: str, prompt: str, tokens: int) -> dict[str, int]:
    body = {"prompt": prompt, "max_tokens": tokens, "ignore_eos": True, "model": "tiny"}
    request = urllib.request.Request(f"{base_url}/v1/completions", json.dumps(body).encode())
    request.add_header("Content-Type", "application/json")
    with urllib.request.urlopen(request, timeout=30) as answer:
        usage: dict[str, int] = json.load(answer)["usage"]
    return usage


def test_a_real_servers_counters_agree_with_the_usage_in_its_answers(tmp_path: Path) -> None:
    write_model(tmp_path / "tiny.gguf")
    with serving(tmp_path / "tiny.gguf", free_port()) as base_url:
        found = asyncio.run(find_metrics(f"{base_url}/v1"))
        assert found == (f"{base_url}/metrics", "llamacpp")
        t0_s = time.monotonic()
        scraper = Scraper([found[0]], tmp_path / "server.jsonl", t0_s=t0_s, period_s=0.2, dialects={found[0]: found[1]})
        scraper.start()
        samples = []
        while not any(sample.values for sample in samples):
            time.sleep(0.01)
            samples += scraper.read()
        usages = [complete(base_url, "the same words again and again " * 20, 16) for _ in range(3)]
        answered_s = time.monotonic() - t0_s
        while sum(sample.t_s > answered_s for sample in samples if sample.values) < 2:  # one may have been under way
            time.sleep(0.01)
            samples += scraper.read()
        asyncio.run(scraper.stop())
        samples += scraper.read()
    grown = deltas(samples, samples[0].t_s, samples[-1].t_s)
    assert not grown.restarted
    assert grown.get("output_tokens") == sum(usage["completion_tokens"] for usage in usages) == 48
    assert grown.get("prompt_tokens") == sum(usage["prompt_tokens"] for usage in usages)
    assert (grown.get("prefix_hits") or 0.0) > 0.0
    assert grown.get("preemptions") is None
