"""Every block of the documents: commands are parsed by our own command line, files are read, and what is short runs."""

from __future__ import annotations

import json
import re
import shutil
import tomllib
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from command_line import commands_in, in_process, parsed

from loadramp.cli import cli
from loadramp.runner.scenarios import load

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
TASKS = ("before-a-launch", "canary-in-argo", "every-night-in-ci", "high-p99", "other-tools", "faq", "first-hour")
RUN, LATER_RUN = Path("reports/20260102-030405-chat"), Path("reports/20260103-030405-chat")
SHORT = {"init", "plan", "gate", "report", "compare", "export", "alerts"}
"""Commands of the task pages that run; the others are parsed here and run in tests of their own."""
ELSEWHERE = {"cat", "cd", "curl", "docker", "kubectl", "make", "pip", "pytest", "python", "source", "eval", "export"}


def blocks(page: Path) -> list[tuple[str, str]]:
    """(language, text) of each fenced block."""
    found, inside = [], None
    for line in page.read_text().splitlines():
        if line.startswith("```") and inside is None:
            inside = (line[3:], [])
        elif line.startswith("```") and inside:
            found.append((inside[0], "\n".join(inside[1]) + "\n"))
            inside = None
        elif inside:
            inside[1].append(line)
    return found


def texts(page: Path, language: str) -> list[str]:
    return [text for name, text in blocks(page) if name == language]


def others(page: Path) -> list[str]:
    """The commands of other programs that a page shows; output and grammars are none."""
    joined = "".join(texts(page, "")).replace("\\\n", " ")
    return [line for line in joined.splitlines() if line.split(" ")[0] in ELSEWHERE]


def ours(page: Path) -> list[list[str]]:
    return commands_in("".join(texts(page, "")))


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory as the pages suppose it: two runs of one scenario, and the files of other tools."""
    for run in (RUN, LATER_RUN):
        shutil.copytree(ROOT / "reports" / "example", tmp_path / run)
    for command in (words for page in PAGES for words in ours(page) if words[0] == "import"):
        for name in command[1:]:
            (tmp_path / name).touch()
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_every_command_is_one_that_we_take(desk: Path) -> None:
    seen = [words for page in PAGES for words in ours(page)]
    assert len(seen) >= 45
    for words in seen:
        parsed(words)


def test_what_other_commands_name_is_there() -> None:
    makefile = (ROOT / "Makefile").read_text()
    for words in (line.split() for page in PAGES for line in others(page)):
        for file in (word for word in words if word.startswith(("deploy/", "benchmarks/", "tests/"))):
            assert (ROOT / file).is_file(), file
        assert words[0] != "make" or re.search(rf"^{words[1]}:", makefile, re.MULTILINE), words


def test_every_option_that_the_text_names_with_its_command_exists() -> None:
    for page in PAGES:
        for name, rest in re.findall(r"`loadramp ([a-z]+)((?: [^`]*)?)`", page.read_text()):
            options = {"--help"} | {long for one in cli.commands[name].params for long in one.opts + one.secondary_opts}
            assert set(re.findall(r"(?<= )--[a-z-]+", rest)) <= options, f"{page.name}: loadramp {name}{rest}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_file_that_a_page_shows_can_be_read(page: Path) -> None:
    for text in texts(page, "toml"):
        keys = tomllib.loads(text)
        if not keys.keys() & {"item", "answers", "gpu", "jobs"}:
            load(text, page.name)
    for text in texts(page, "json"):
        json.loads(text)
    assert {name for name, _ in blocks(page)} <= {"", "toml", "json", "python"}


def test_the_short_commands_of_the_tasks_run(desk: Path, sim: str) -> None:
    pages = [page for page in PAGES if page.stem in TASKS]
    for text in (text for page in pages for text in texts(page, "toml")):
        name = tomllib.loads(text).get("name", "part")
        (desk / f"{name}.toml").write_text(text)
    commands = [words for page in pages for words in ours(page) if words[0] in SHORT]
    assert {words[0] for words in commands} == SHORT
    for words in dict.fromkeys(map(tuple, commands)):
        code, out, err = in_process(*(word.replace("http://host:8000", sim) for word in words))
        assert code in {0, 3, 99}, f"{words}: {err}"
        assert out or "--output" in words


@pytest.mark.long
def test_the_python_of_the_tasks_runs_and_prints_what_it_says(desk: Path) -> None:
    ran = 0
    for page in (page for page in PAGES if page.stem in TASKS):
        names: dict[str, Any] = {}
        for text in texts(page, "python"):
            printed = StringIO()
            with redirect_stdout(printed):
                exec(compile(text, str(page), "exec"), names)
                for test in [found for name, found in names.items() if name.startswith("test_")]:
                    test()
            said = re.findall(r"^print\(.*\)  # (.+)$", text, re.MULTILINE)
            assert not said or printed.getvalue().splitlines() == said
            ran += 1
    assert ran >= 3
