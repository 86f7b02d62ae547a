"""Every block of docs/library.md runs, in order, against a simulated server."""

from __future__ import annotations

import ast
import json
import re
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import plotly.graph_objects as go
import pytest

import loadramp

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "library.md"


def test_every_block_of_the_page_runs(sim: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    assert len(blocks) == 6
    shutil.copytree(ROOT / "reports" / "example", tmp_path / "reports" / "example")
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    for block in blocks:
        block = block.replace("http://127.0.0.1:8000", sim)
        block = block.replace('"ramp.soak_s": 0', '"ramp.soak_s": 0, "prompts.output_tokens": 20')  # quick answers
        exec(compile(block, str(PAGE), "exec"), names)
    (new,) = (path for path in (tmp_path / "reports").iterdir() if path.name.endswith("-chat"))
    assert len(loadramp.read(new).steps) >= 1
    assert names["shown"] is True
    assert (tmp_path / "itl.html").stat().st_size > 100_000
    assert names["judged"].steps.requests.sum() > 0


@pytest.mark.filterwarnings(r"ignore:\*scattermapbox\* is deprecated")  # said by plotly 6.0 of its own template
def test_every_cell_of_the_notebook_runs_and_it_draws_two_charts(monkeypatch: pytest.MonkeyPatch) -> None:
    notebook = json.loads((ROOT / "docs" / "notebook.ipynb").read_text())
    monkeypatch.chdir(ROOT / "docs")
    names: dict[str, Any] = {}
    shown = []
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            *first, last = ast.parse("".join(cell["source"])).body
            assert isinstance(last, ast.Expr)
            exec(compile(ast.Module(first, []), "notebook", "exec"), names)
            shown.append(eval(compile(ast.Expression(last.value), "notebook", "eval"), names))
    assert isinstance(shown[0], loadramp.RunResult)
    assert len([one for one in shown if isinstance(one, go.Figure)]) == 2
    assert shown[-1] == "shown"


@pytest.mark.long
def test_a_script_without_a_guard_ramps_once_with_processes_of_its_own(sim: str, tmp_path: Path) -> None:
    script = tmp_path / "ramp.py"
    short = {"ramp.kind": "ladder", "ramp.rates": [4], "ramp.warmup_s": 0.5, "ramp.measure_s": 1.5}
    short |= {"ramp.settle_s": 0, "ramp.settle_requests": 0, "ramp.tail_s": 1, "prompts.output_tokens": 20}
    script.write_text(
        textwrap.dedent(
            f"""
            import asyncio
            import loadramp

            async def ramp():  # as in a notebook: a loop runs already
                return loadramp.run("chat", base_url={sim!r}, overrides={short!r}, out={str(tmp_path)!r})

            print("steps", len(asyncio.run(ramp()).steps))
            """
        )
    )
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=100, check=False)
    assert done.stdout == "steps 1\n", done.stderr
    assert done.stderr == ""
    assert len([path for path in tmp_path.iterdir() if path.is_dir()]) == 1
