"""The compose file and the image, where no Docker runs.

The file is read by a strict parser of the Compose specification after its variables are filled in, every command of our
image is parsed by our own command line, and the steps of the Dockerfile are carried out in a folder of their own.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from loadramp.cli import cli

ROOT = Path(__file__).parent.parent
FILE = ROOT / "docker-compose.yml"
OURS = "loadramp:local"
BUILD_READS = (
    "pyproject.toml",
    "hatch_build.py",
    "README.md",
    "loadramp/client/http/c_reader.c",
    "loadramp/client/http/event_bytes.h",
    "scenarios/demo.toml",
)


def filled(text: str, values: dict[str, str] | None = None) -> str:
    """``${NAME:-default}`` as Compose fills it in."""
    known = values or {}
    return re.sub(r"\$\{(\w+):-([^}]*)\}", lambda found: known.get(found[1]) or found[2], text)


def services() -> dict[str, dict[str, Any]]:
    return dict(yaml.safe_load(filled(FILE.read_text()))["services"])


def services_of(text: str) -> set[str]:
    """The services of a file that follows the specification; ValueError: it does not."""
    from compose_spec import PyCompose  # a fifth of a second, which only this file's tests need

    return set(PyCompose.from_yaml(text).service_names())


def test_the_file_follows_the_specification() -> None:
    assert services_of(filled(FILE.read_text())) == set(services())


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("condition: service_healthy", "condition: healthy"),
        ("healthcheck:", "healthchek:"),
        ("interval: 5s", "interval: 5 parsecs"),
        ("capabilities: [gpu]", "capabilities: gpu"),
    ],
)
def test_a_file_that_does_not_is_refused(right: str, wrong: str) -> None:
    text = filled(FILE.read_text())
    assert right in text
    with pytest.raises(ValueError, match=r"services|deploy"):
        services_of(text.replace(right, wrong))


def test_what_a_service_waits_for_is_in_each_of_its_profiles() -> None:
    found = services()
    for name, service in found.items():
        needs = service.get("depends_on", [])
        for other in needs:
            assert set(service["profiles"]) <= set(found[other]["profiles"]), (name, other)
            waits = isinstance(needs, dict) and needs[other]["condition"] == "service_healthy"
            assert not waits or "healthcheck" in found[other], (name, other)


@pytest.mark.parametrize("name", sorted(name for name, one in services().items() if one["image"] == OURS))
def test_each_command_is_one_of_ours(name: str) -> None:
    words = [str(word) for word in services()[name]["command"]]
    command = cli.get_command(click.Context(cli), words[0])
    assert command is not None
    command.make_context(words[0], words[1:])


def test_ramps_write_into_reports_as_a_normal_user() -> None:
    text = FILE.read_text()
    for values, user in (({}, "1000:1000"), ({"RAMP_USER": "1234:100"}, "1234:100")):
        found = yaml.safe_load(filled(text, values))["services"]
        for name in ("ramp", "ramp-gpu"):
            assert found[name]["user"] == user
            assert "./reports:/reports" in found[name]["volumes"]
            assert found[name]["command"][-2:] == ["--out", "/reports"]
            assert found[name]["environment"]["HOME"] == "/tmp"  # a user without an entry has none that it may write


def test_the_documented_commands_name_what_is_there() -> None:
    found = services()
    lines = [line.lstrip("# ") for line in FILE.read_text().splitlines() if line.startswith("#   docker compose")]
    assert len(lines) == 4
    for line in lines:
        words = shlex.split(line)
        profile, verb, rest = words[3], words[4], words[5:]
        assert any(profile in one["profiles"] for one in found.values()), line
        if verb == "run":
            name, own = next(word for word in rest if not word.startswith("-")), rest[rest.index("ramp-gpu") + 1 :]
            assert profile in found[name]["profiles"], line
            command = cli.get_command(click.Context(cli), own[0]) if own else None
            assert not own or (command and command.make_context(own[0], own[1:])), line


def steps(text: str) -> Iterator[tuple[str, str]]:
    """The instructions of a Dockerfile, with lines that go on joined."""
    for line in text.replace("\\\n", " ").splitlines():
        if line.strip() and not line.startswith("#"):
            word, _, rest = line.partition(" ")
            yield word, rest.strip()


class Image:
    """Carries out the steps of a Dockerfile, one folder a stage; what changes the system is only looked at.

    ``really`` runs pip; without it a wheel is an empty file, made where there is all that the build reads.
    """

    def __init__(self, root: Path, context: Path, *, really: bool) -> None:
        self.root, self.context, self.really = root, context, really
        self.stages: dict[str, Path] = {}
        self.stage, self.place = root, "/"
        self.entry: list[str] = []
        self.skipped: list[str] = []

    def FROM(self, rest: str) -> None:
        image, _, name = rest.partition(" AS ")
        assert ":" in image
        self.stage, self.place = self.root / (name or "last"), "/"
        self.stage.mkdir()
        self.stages[name] = self.stage

    def WORKDIR(self, rest: str) -> None:
        self.place = rest
        self.inside(rest).mkdir(parents=True, exist_ok=True)

    def COPY(self, rest: str) -> None:
        words = rest.split()
        source = self.stages[words.pop(0).partition("=")[2]] if words[0].startswith("--from=") else self.context
        target = self.inside(words[-1])
        for word in words[:-1]:
            what = source / word.lstrip("/")
            if what.is_dir():
                shutil.copytree(what, target, ignore=ignored, dirs_exist_ok=True)
            else:
                target.mkdir(parents=True, exist_ok=True)
                shutil.copy(what, target)

    def RUN(self, rest: str) -> None:
        for command in rest.split(" && "):
            words = shlex.split(command)
            if words[:2] == ["pip", "wheel"]:
                self.pip("wheel", "--no-build-isolation", *self.moved(words[2:]))
            elif words[:2] == ["pip", "install"]:
                self.pip("install", "--no-deps", "--prefix", str(self.stage / "usr"), *self.moved(words[2:]))
            elif words[0] == "mkdir":
                self.inside(words[1]).mkdir(parents=True)
            else:
                self.skipped.append(words[0])

    def USER(self, rest: str) -> None:
        assert rest != "root"

    def ENTRYPOINT(self, rest: str) -> None:
        self.entry = json.loads(rest)

    def CMD(self, rest: str) -> None:
        self.entry += json.loads(rest)

    def inside(self, path: str) -> Path:
        return self.stage / os.path.join(self.place, path).lstrip("/")  # noqa: PTH118 (an absolute one begins anew)

    def moved(self, words: list[str]) -> list[str]:
        """Arguments with the paths of the image put into its folder; a pattern becomes the files."""
        out = []
        for word in words:
            if word.startswith("/"):
                found = sorted(self.inside("/").glob(word[1:])) if "*" in word else [self.inside(word)]
                assert found, f"nothing matches {word}"
                out += map(str, found)
            else:
                out.append(word)
        return out

    def pip(self, *words: str) -> None:
        if not self.really:
            if words[0] == "wheel":
                for name in BUILD_READS:
                    assert self.inside(name).exists(), name
                folder = Path(words[words.index("--wheel-dir") + 1])
                folder.mkdir()
                (folder / "loadramp.whl").touch()
            return
        kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        done = subprocess.run(
            [sys.executable, "-m", "pip", words[0], "-q", "--no-index", *words[1:]],
            cwd=self.inside("."), env=kept, capture_output=True, text=True, timeout=100, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr


def ignored(folder: str, names: list[str]) -> set[str]:
    """What .dockerignore and an older build leave out."""
    return {name for name in names if name == "__pycache__" or name.endswith(".so")}


def built(text: str, root: Path, *, really: bool) -> Image:
    image = Image(root, ROOT, really=really)
    for word, rest in steps(text):
        getattr(image, word)(rest)
    return image


def test_every_step_of_the_image_finds_what_it_takes(tmp_path: Path) -> None:
    image = built((ROOT / "Dockerfile").read_text(), tmp_path, really=False)
    assert image.entry == ["loadramp", "--help"]
    assert set(image.skipped) == {"apt-get", "useradd", "chown"}
    assert (image.stage / "app/scenarios/chat.toml").is_file()
    assert (image.stage / "reports").is_dir()


@pytest.mark.parametrize(
    "gone",
    [
        "COPY loadramp ./loadramp\n",
        "COPY pyproject.toml hatch_build.py README.md LICENSE ./\n",
        "COPY --from=built /wheels /wheels\n",
    ],
)
def test_a_step_that_is_missing_is_seen(tmp_path: Path, gone: str) -> None:
    text = (ROOT / "Dockerfile").read_text()
    assert gone in text
    with pytest.raises(AssertionError):
        built(text.replace(gone, ""), tmp_path, really=False)


@pytest.mark.slow
def test_the_steps_of_the_image_make_a_command_that_starts(tmp_path: Path) -> None:
    image = built((ROOT / "Dockerfile").read_text(), tmp_path, really=True)
    (package,) = (image.stage / "usr").glob("**/site-packages")
    code = f"import sys; sys.path.insert(0, {str(package)!r}); import loadramp.cli as c; print(c.__file__); c.main()"
    command = [sys.executable, "-c", code, "plan", "scenarios/chat.toml"]
    done = subprocess.run(command, cwd=image.inside("."), capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(str(package))
    assert "chat" in done.stdout
