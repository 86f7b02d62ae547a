"""A real llama.cpp server for tests: a random tiny Llama written here, served by the development dependency xllamacpp.

The model is noise; the server, its HTTP, its event stream and its /metrics are the real thing. Ready in about a second.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from gguf import GGUFWriter

HIDDEN, LAYERS, HEADS, KV_HEADS, FEED_FORWARD, CONTEXT = 64, 2, 4, 2, 128, 4096
SPECIAL = ("<pad>", "<s>", "</s>")
TEMPLATE = (
    "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant: {% endif %}"
)

SERVER = """
import signal, sys, threading
import xllamacpp
params = xllamacpp.CommonParams()
params.model.path, params.port, params.n_parallel = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
params.n_ctx, params.endpoint_metrics, params.model_alias = 8192, True, {"tiny"}
params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
server = xllamacpp.Server(params)
print(server.listening_address, flush=True)
ended = threading.Event()
signal.signal(signal.SIGTERM, lambda *_: ended.set())
while not ended.wait(0.2):
    pass
"""


def byte_tokens() -> list[str]:
    """The 256 byte tokens of a byte-level BPE: printable bytes stand for themselves, the others move above U+0100."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    moved = iter(range(256, 512))
    return [chr(byte) if byte in printable else chr(next(moved)) for byte in range(256)]


def write_model(path: Path, seed: int = 1) -> None:
    """A random Llama of about 0.2 million parameters as GGUF."""
    rng = np.random.default_rng(seed)
    tokens = [*SPECIAL, *byte_tokens(), "er"]  # one merge: the loader refuses a vocabulary without any
    writer = GGUFWriter(str(path), "llama")
    writer.add_name("tiny-random")
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(HIDDEN)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(FEED_FORWARD)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(HIDDEN // HEADS)
    writer.add_vocab_size(len(tokens))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("default")
    writer.add_token_list(tokens)
    writer.add_token_types([3] * len(SPECIAL) + [1] * 257)
    writer.add_token_merges(["e r"])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_add_bos_token(False)
    writer.add_chat_template(TEMPLATE)

    def add(name: str, *shape: int) -> None:
        writer.add_tensor(name, (rng.standard_normal(shape) * 0.05).astype(np.float32))

    def ones(name: str) -> None:
        writer.add_tensor(name, np.ones(HIDDEN, dtype=np.float32))

    add("token_embd.weight", len(tokens), HIDDEN)
    # bytes that are no text of their own get logit 0, so that a greedy answer is made of printable characters:
    # a real tokenizer's answers are rarely cut in the middle of a character, random bytes nearly always are
    output = (rng.standard_normal((len(tokens), HIDDEN)) * 0.05).astype(np.float32)
    output[[not (token.isascii() and token not in SPECIAL) for token in tokens]] = 0.0
    writer.add_tensor("output.weight", output)
    ones("output_norm.weight")
    kv = HIDDEN // HEADS * KV_HEADS
    for layer in range(LAYERS):
        block = f"blk.{layer}."
        ones(block + "attn_norm.weight")
        ones(block + "ffn_norm.weight")
        for name, rows in (("attn_q", HIDDEN), ("attn_k", kv), ("attn_v", kv), ("attn_output", HIDDEN)):
            add(f"{block}{name}.weight", rows, HIDDEN)
        add(block + "ffn_gate.weight", FEED_FORWARD, HIDDEN)
        add(block + "ffn_up.weight", FEED_FORWARD, HIDDEN)
        add(block + "ffn_down.weight", HIDDEN, FEED_FORWARD)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@contextmanager
def serving(model: Path, port: int, slots: int = 4) -> Iterator[str]:
    """The base URL of a running server; it is ended by its own process id."""
    process = subprocess.Popen(
        [sys.executable, "-c", SERVER, str(model), str(port), str(slots)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    url = f"http://127.0.0.1:{port}"
    try:
        for _ in range(600):
            assert process.poll() is None, "llama.cpp server died"
            try:
                with urllib.request.urlopen(f"{url}/health", timeout=1) as answer:
                    if answer.status == 200:
                        break
            except OSError:
                time.sleep(0.05)
        yield url
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
