"""A server that reads a flag of SGLang and one of llama-server, and fails in the ways that real ones do.

    python flagged_server.py --port N [--max-running-requests N] [--parallel N] [...]

It answers what it was started with at /flags, and any completion with one token.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

parser = argparse.ArgumentParser()
parser.add_argument("--port", type=int, required=True)
parser.add_argument("--max-running-requests", type=int, default=0)
parser.add_argument("--parallel", type=int, default=0)
parser.add_argument("--ctx-size", type=int, default=4096)
parser.add_argument("--model", default="tiny")
parser.add_argument("--dies-after", type=float)
parser.add_argument("--stubborn", action="store_true")
parser.add_argument("--child", help="file for the number of a child that it leaves behind")
args = parser.parse_args()
if args.ctx_size > 100_000:
    sys.exit("cudaMalloc failed: out of memory\nerror: failed to allocate KV cache of 99 GiB")
if args.model != "tiny":
    sys.exit(f"OSError: {args.model} is not a local folder and is not a valid model identifier")
if args.stubborn:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
if args.child:
    Path(args.child).write_text(str(subprocess.Popen(["sleep", "300"]).pid))


class Answers(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        if self.path == "/flags":
            self.reply({"max_running_requests": args.max_running_requests, "parallel": args.parallel})
        elif self.path == "/v1/models":
            self.reply({"object": "list", "data": [{"id": "tiny"}]})
        elif self.path == "/health":
            self.reply({})
        else:
            self.send_error(404)

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        usage = {"prompt_tokens": 1, "completion_tokens": 1}
        events = [
            {"id": "1", "choices": [{"index": 0, "delta": {"content": "one"}, "finish_reason": None}]},
            {"id": "1", "choices": [{"index": 0, "delta": {}, "finish_reason": "length"}]},
            {"id": "1", "choices": [], "usage": usage},
        ]
        body = "".join(f"data: {json.dumps(event)}\n\n" for event in events) + "data: [DONE]\n\n"
        self.reply(body, "text/event-stream")

    def reply(self, what: object, kind: str = "application/json") -> None:
        data = (what if isinstance(what, str) else json.dumps(what)).encode()
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *_: object) -> None:
        pass


server = ThreadingHTTPServer(("127.0.0.1", args.port), Answers)
if args.dies_after is not None:
    threading.Timer(
        args.dies_after, lambda: (print("torch.OutOfMemoryError: CUDA out of memory."), os._exit(1))
    ).start()
server.serve_forever()
