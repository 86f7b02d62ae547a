"""Do the promises of other benchmarks still hold? Their tables at two commits, side by side, as Markdown.

    git archive 3a3325f | tar x -C OLD
    python benchmarks/side_by_side.py [--before OLD] [--processes 16] [--repetitions 1.0] [--minutes 9] [--keep DIR]

Runs knee, coverage, canary, diagnosis, drift and trend of this tree and, with ``--before``, those of another checkout,
each with its own benchmark files and the same seeds; then those that take noise again on engines with the regimes that
were fitted to a real one. Several run at once, each with a share of the processes. What has not ended after
``--minutes`` is stopped, and the table says so: figures of what was finished stay.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

HERE = Path(__file__).resolve().parents[1]
SHARES, AT_ONCE = 4, 5
"""Each benchmark gets a quarter of the processes, and one more than four run at once: each ends with a few long jobs,
in which the others use the cores."""
Figures = dict[str, dict[str, str]]
"""Case to figures by name."""


def fixed(text: str, head: str, width: int, picked: str) -> Figures:
    """A table of fixed columns below the line that begins with ``head``, up to the first line that is none of it."""
    lines = text.splitlines()
    at = next((i for i, line in enumerate(lines) if line.startswith(head)), None)
    if at is None:
        return {}
    names = lines[at][width:].split()
    out: Figures = {}
    for line in lines[at + 1 :]:
        values = line[width:].split()
        if len(values) < 2 or not re.fullmatch(r"[\d.]+|nan", values[0]):
            break
        told = dict(zip(names, values, strict=False))
        out[line[:width].strip()] = {name: told[name] for name in picked.split() if name in told}
    return out


def knee(text: str) -> Figures:
    out = fixed(text, "case ", 20, "n found early +-10% covers half")
    false = re.findall(r"^([a-z ]+?) +(\d+) of (\d+)", text, re.M)
    return out | {f"false ceilings: {case}": {"ramps": f"{bad} of {n}"} for case, bad, n in false}


def coverage(text: str) -> Figures:
    cells = re.findall(r"^(\w+) .* ([\d.]+) \(([\d.]+)\)$", text.split("## every printed", 1)[-1], re.M)
    out = {column: {"covers": covers, "printed": share} for column, covers, share in cells}
    total = re.search(r"all printed intervals: ([\d.]+) of (\d+)", text)
    return out | ({"all": {"covers": total[1], "intervals": total[2]}} if total else {})


def canary(text: str) -> Figures:
    return fixed(text, "candidate ", 38, "n pass fail min sd")


def canary_regimes(text: str) -> Figures:
    picked = ("pairs", "pass", "fail", "blocks", "needs", "asks for", "figure", "range")
    return {f"{row['regimes']}, {row['candidate']}": {name: row.get(name, "") for name in picked}
            for row in markdown(text)}  # fmt: skip


def diagnosis(text: str) -> Figures:
    lines, before = [], ""
    for line in text.splitlines():  # what is the same as the line above is named after it
        name = line[:22].strip()
        lines.append(f"{before[:9]}, no metrics"[:22].ljust(22) + line[22:] if name == "same, no metrics" else line)
        before = before if name == "same, no metrics" else name
    return fixed("\n".join(lines), "what is wrong", 22, "n right named")


def drift(text: str) -> Figures:
    out = {}
    for row in markdown(text):
        if "n" in row:
            out[f"AR(1), n {row['n']}, r {row['correlation']}"] = {"alarms": row["this test"]}
        elif "engine" in row:
            case = f"{row['engine']}, load {row['load']}, {row['slower at the end']} slower"
            out[case] = {name: row[name] for name in ("fail", "inconclusive", "pass")}
    return out


def soaks(text: str) -> Figures:
    return {case: figures for case, figures in drift(text).items() if "pass" in figures}


def trend(text: str) -> Figures:
    out: Figures = {}
    sd, kinds = "", []
    for line in text.splitlines():
        if line.startswith("## nights"):
            sd = line.rsplit(" ", 1)[-1]
        parts = [part.strip() for part in line.split("|")]
        if len(parts) == 3 and parts[0] == "rule":
            kinds = parts[1].split()
        elif len(parts) == 3 and kinds and parts[0] and sd:
            rates = dict(zip(kinds, parts[1].split(), strict=False))
            out[f"sd {sd}, {parts[0]}"] = rates | {"found 3/7/14": "; ".join(parts[2].split())}
    return out


def markdown(text: str) -> list[dict[str, str]]:
    """The rows of every Markdown table in ``text``."""
    out, names = [], []
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if not line.startswith("|"):
            names = []
        elif not names:
            names = cells
        elif set(line) - set("|-"):
            out.append(dict(zip(names, cells, strict=False)))
    return out


@dataclass(slots=True, frozen=True)
class Bench:
    """One script, how many repetitions each of its options asks for at 1.0, and how its text is read."""

    script: str
    read: Callable[[str], Figures]
    counts: dict[str, int]
    more: tuple[str, ...] = ()
    own_pool: bool = True
    """Takes --processes."""

    def command(self, repetitions: float, processes: int) -> list[str]:
        counts = [word for name, n in self.counts.items() for word in (name, str(max(round(n * repetitions), 2)))]
        pool = ["--processes", str(processes)] if self.own_pool else []
        return [sys.executable, "-u", f"benchmarks/{self.script}.py", *counts, *self.more, *pool]


PLAIN_CASES = ("population", "no chunked prefill", "1024 sequences", "kv bound", "hiccups", "stalls", "bursty")
BENCHES = (
    Bench("canary", canary, {"--equal": 12, "--other": 5, "--beside": 2}, ("--seed", "39000")),
    Bench("knee", knee, {"--ramps": 9, "--quiet-ramps": 45}, ("--cases", *PLAIN_CASES)),
    Bench("drift", drift, {"--series": 300, "--soaks": 6}),
    Bench("trend", trend, {"--years": 8, "--changes": 30}),
    Bench("coverage", coverage, {"--windows": 18}, ("--seed", "47000")),
    Bench("diagnosis", diagnosis, {"--seeds": 8, "--population": 8}),
)
"""The longest first."""
NOISY = (
    Bench("knee", knee, {"--ramps": 16, "--quiet-ramps": 0}, ("--cases", "regimes", "doubling")),
    Bench("canary_regimes", canary_regimes, {"--engines": 6}, ("--only", "captured,neighbour")),
    Bench("coverage", coverage, {"--windows": 18}, ("--seed", "47000", "--regimes", "captured")),
    Bench("drift", soaks, {"--series": 0, "--soaks": 6}, ("--regimes", "captured")),
    Bench("diagnosis", diagnosis, {"--seeds": 16, "--population": 0}, ("--only", "stretches")),
)


@dataclass(slots=True, frozen=True)
class Ran:
    bench: Bench
    figures: Figures
    seconds: float
    ended: str
    """What went wrong; empty: nothing."""


def run(tree: Path, bench: Bench, repetitions: float, processes: int, until_s: float, kept: Path | None) -> Ran:
    """One script of one tree; what it prints goes to ``kept``. Its workers end with it: they are of its own group."""
    begun_s = time.monotonic()
    if until_s - begun_s < 1.0:
        return Ran(bench, {}, 0.0, "not begun in time")
    given = [Path(one).resolve() for one in os.environ.get("PYTHONPATH", "").split(os.pathsep) if one]
    path = [str(one) for one in (tree, *given) if one == tree or one != HERE]
    env = os.environ | {"PYTHONPATH": os.pathsep.join(path), "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    child = subprocess.Popen(bench.command(repetitions, processes), cwd=tree, env=env, text=True,
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True)  # fmt: skip
    try:
        said, why = child.communicate(timeout=until_s - begun_s)
        ended = "" if child.returncode == 0 else f"exit {child.returncode}: {why.strip().splitlines()[-1:]}"
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, signal.SIGKILL)
        said, ended = child.communicate()[0], "stopped: out of time"
    if kept is not None:
        kept.write_text(f"{' '.join(bench.command(repetitions, processes))}\n{said}\n{ended}\n")
    return Ran(bench, bench.read(said), time.monotonic() - begun_s, ended)


def table(title: str, before: dict[str, Ran], now: dict[str, Ran], name: str, brief: bool) -> str:
    """Case by case, both trees beside each other; without ``before`` one column less. ``brief``: only what differs."""
    heads = ["benchmark", "case", "figures", *([name] if before else []), "now"]
    lines = [f"\n## {title}\n", f"| {' | '.join(heads)} |", "|" + "---|" * len(heads)]
    for key, ran in now.items():
        own, other = ran.figures, before[key].figures if key in before else {}
        alike = [case for case in own if case in other and _same(own[case], other[case])]
        if brief and alike:
            lines.append(f"| {key} | {len(alike)} cases | all | the same | the same |")
        for case in dict.fromkeys([*other, *own]):
            if brief and case in alike:
                continue
            names = list(dict.fromkeys([*other.get(case, {}), *own.get(case, {})]))
            sides = [_cell(side.get(case, {}), names) for side in ([other, own] if before else [own])]
            lines.append(f"| {key} | {case} | {', '.join(names)} | {' | '.join(sides)} |")
    ended = [f"{key} ({tree}): {ran.ended}" for tree, side in ((name, before), ("now", now))
             for key, ran in side.items() if ran.ended]  # fmt: skip
    took = sum(ran.seconds for side in (before, now) for ran in side.values())
    return "\n".join([*lines, "", *ended, f"{took:.0f} s, added up over scripts that ran at once."])


def _same(one: dict[str, str], other: dict[str, str]) -> bool:
    """Every figure that both have is the same."""
    return all(value == other.get(name, value) for name, value in one.items())


def _cell(figures: dict[str, str], names: list[str]) -> str:
    return ", ".join(figures.get(name, "-") or "-" for name in names) if figures else ""


def benches_of(tree: Path, benches: tuple[Bench, ...], only: str) -> list[Bench]:
    """Those that the tree has, with the options that they know there."""
    out = []
    for bench in benches:
        path = tree / "benchmarks" / f"{bench.script}.py"
        if path.exists() and (not only or bench.script in only.split(",")):
            out.append(
                replace(bench, own_pool='"--processes"' in path.read_text() or '"processes"' in path.read_text())
            )
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", type=Path, help="another checkout")
    parser.add_argument("--name", default="before", help="what its column is called")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 2, help="worker processes in all")
    parser.add_argument("--repetitions", type=float, default=1.0, help="times as many as the default")
    parser.add_argument("--minutes", type=float, default=9.0, help="stop after these")
    parser.add_argument("--brief", action="store_true", help="only the cases that differ")
    parser.add_argument("--keep", type=Path, help="a folder for what each script printed")
    parser.add_argument("--only", default="", help="scripts, with commas between")
    asked = parser.parse_args()
    until_s = time.monotonic() + 60.0 * asked.minutes
    each = -(-asked.processes // SHARES)
    jobs = [(kind, tree, bench) for kind, benches in (("plain", BENCHES), ("noise", NOISY))
            for tree in filter(None, (asked.before, HERE)) if kind == "plain" or tree is HERE
            for bench in benches_of(tree.resolve(), benches, asked.only)]  # fmt: skip

    def one(job: tuple[str, Path, Bench]) -> Ran:
        kind, tree, bench = job
        side = "now" if tree is HERE else asked.name
        kept = asked.keep / f"{bench.script}-{kind}-{side}.txt" if asked.keep else None
        return run(tree.resolve(), bench, asked.repetitions, each, until_s, kept)

    if asked.keep:
        asked.keep.mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor(AT_ONCE) as pool:
        ran = list(pool.map(one, jobs))
    sides = {side: {one.bench.script: one for job, one in zip(jobs, ran, strict=True)
                    if (job[0], job[1] is HERE) == side}
             for side in (("plain", False), ("plain", True), ("noise", True))}  # fmt: skip
    print(f"{asked.processes} processes, repetitions times {asked.repetitions:g}")
    print(table("Without regimes", sides["plain", False], sides["plain", True], asked.name, asked.brief))
    print(table("With the fitted noise", {}, sides["noise", True], asked.name, asked.brief))


if __name__ == "__main__":
    main()
