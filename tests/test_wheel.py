"""What a user installs: the wheel, in an environment of its own, used in an empty directory far from the checkout."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest
from command_line import free_port
from lowest_versions import PROJECT, pins

import loadramp

ROOT = Path(__file__).parent.parent
SHORT = ("prompts.input_tokens=20", "prompts.output_tokens=4", "ramp.start_rps=20", "ramp.max_rps=20")
QUICK = ("ramp.warmup_s=0.3", "ramp.measure_s=1.2", "ramp.settle_s=0.2", "ramp.settle_requests=0", "ramp.tail_s=0.3",
         "ramp.soak_s=0")  # fmt: skip


BUILD = (sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "--no-index", "-w")


def run(command: list[str | Path], cwd: Path, **env: str) -> subprocess.CompletedProcess[str]:
    """Like a user's shell: nothing of this process's Python reaches the command."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")} | env
    return subprocess.run(command, cwd=cwd, env=kept, capture_output=True, text=True, timeout=100)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of what the build reads: building writes beside its sources."""
    source = tmp_path_factory.mktemp("source") / "source"
    ignore = shutil.ignore_patterns("__pycache__", "*.so")
    for folder in ("loadramp", "scenarios"):
        shutil.copytree(ROOT / folder, source / folder, ignore=ignore)
    for name in ("pyproject.toml", "hatch_build.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    return source


@pytest.fixture(scope="module")
def wheel(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    where = tmp_path_factory.mktemp("wheel")
    built = run([*BUILD, where, source], where)
    assert built.returncode == 0, built.stderr
    (path,) = where.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The ``loadramp`` command of a fresh environment. Its dependencies are this environment's: no network is needed,
    and the checkout is not on the path, since nothing reads the .pth files of a folder that a .pth file names."""
    where = tmp_path_factory.mktemp("environment")
    made = run([sys.executable, "-m", "venv", "--without-pip", where], where)
    assert made.returncode == 0, made.stderr
    python = where / "bin" / "python"
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    folders = [path for path in sys.path if Path(path).name in {"site-packages", "dist-packages"}]
    (where / "lib" / version / "site-packages" / "dependencies.pth").write_text("\n".join(folders) + "\n")
    options = ("-q", "--no-deps", "--no-index", "--no-compile")
    done = run([sys.executable, "-m", "pip", "--python", python, "install", *options, wheel], where)
    assert done.returncode == 0, done.stderr
    return where / "bin" / "loadramp"


@pytest.mark.long
def test_the_wheel_holds_every_scenario_with_its_files(wheel: Path) -> None:
    held = {Path(name).name for name in zipfile.ZipFile(wheel).namelist() if name.startswith("loadramp/scenarios/")}
    assert held == {path.name for path in (ROOT / "scenarios").iterdir()}
    assert {"demo.toml", "chat.toml", "trace-replay.jsonl"} <= held


def test_the_wheel_is_typed_and_names_its_licence_and_version(wheel: Path) -> None:
    held = zipfile.ZipFile(wheel)
    assert "loadramp/py.typed" in held.namelist()
    assert [name for name in held.namelist() if name.endswith("licenses/LICENSE")]
    (metadata,) = (held.read(name).decode() for name in held.namelist() if name.endswith(".dist-info/METADATA"))
    assert f"\nVersion: {loadramp.__version__}\n" in metadata
    assert "\nLicense-Expression: Apache-2.0\n" in metadata


def test_a_wheel_without_a_compiler_is_for_every_machine(source: Path, tmp_path: Path) -> None:
    built = run([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", tmp_path], source, CC="/nowhere/cc")
    assert built.returncode == 0, built.stderr
    (path,) = tmp_path.glob("*.whl")
    assert path.name.endswith("-py3-none-any.whl")
    assert not [name for name in zipfile.ZipFile(path).namelist() if name.endswith(".so")]


@pytest.mark.long
def test_the_source_distribution_builds_a_wheel(source: Path, tmp_path: Path) -> None:
    packed = run([sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", tmp_path], source)
    assert packed.returncode == 0, packed.stderr
    (archive,) = tmp_path.glob("*.tar.gz")
    built = run([*BUILD, tmp_path, archive], tmp_path)
    assert built.returncode == 0, built.stderr
    assert len(list(tmp_path.glob("*.whl"))) == 1


@pytest.mark.skipif(sysconfig.get_platform() != "linux-x86_64", reason="the reader in C is built on Linux")
def test_the_wheel_says_for_which_machine_its_reader_is(wheel: Path) -> None:
    assert "loadramp/client/http/_c_reader.so" in zipfile.ZipFile(wheel).namelist()
    assert wheel.name.endswith("-py3-none-linux_x86_64.whl")


@pytest.mark.long
@pytest.mark.parametrize("name", ["chat.toml", "trace-replay"])
def test_plan_finds_a_shipped_scenario_by_its_name(installed: Path, tmp_path: Path, name: str) -> None:
    done = run([installed, "plan", name, "--set", "ramp.measure_s=10", "--json"], tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["steps"]
    assert not list(tmp_path.iterdir())


def test_a_name_that_nobody_ships_is_answered_with_those_that_are(installed: Path, tmp_path: Path) -> None:
    done = run([installed, "plan", "chta"], tmp_path)
    assert done.returncode == 2
    assert "chta: no such scenario file; shipped ones: batch-summarise, burst, campaign, canary, chat" in done.stderr


def test_a_shipped_scenario_runs_by_its_name_and_leaves_its_report(installed: Path, tmp_path: Path) -> None:
    port = free_port()
    simulate = [installed, "simulate", "--port", str(port)]
    with subprocess.Popen(simulate, cwd=tmp_path, stdout=subprocess.PIPE) as server:
        assert server.stdout is not None
        server.stdout.readline()
        settings = [word for setting in (*SHORT, *QUICK) for word in ("--set", setting)]
        url = f"http://127.0.0.1:{port}"
        done = run([installed, "run", "chat", "--base-url", url, *settings, "--yes", "--json"], tmp_path)
        server.terminate()
    assert done.returncode in {0, 3, 99}, done.stderr
    document = json.loads(done.stdout)
    assert document["steps"][0]["requests"] > 10
    (run_dir,) = (tmp_path / "reports").iterdir()
    assert (run_dir / "report.html").stat().st_size > 100_000
    again = run([installed, "report", run_dir], tmp_path)
    assert again.returncode == done.returncode, again.stderr


def test_bash_completes_the_installed_command(installed: Path, tmp_path: Path) -> None:
    script = (
        'eval "$(_LOADRAMP_COMPLETE=bash_source loadramp)"\n'
        "COMP_WORDS=(loadramp run --abort); COMP_CWORD=2\n"
        '_loadramp_completion loadramp; echo "${COMPREPLY[@]}"'
    )
    path = f"{installed.parent}:{os.environ['PATH']}"
    assert run(["bash", "-c", script], tmp_path, PATH=path).stdout == "--abort-on-fail\n"


def test_every_dependency_has_a_lower_bound_to_test_with() -> None:
    found = pins(PROJECT.read_text())
    assert "openai==1.66" in found
    assert len(found) == 17
    with pytest.raises(ValueError, match="numpy: expected a lower bound"):
        pins('[project]\ndependencies = ["numpy"]\noptional-dependencies = { parquet = [], tokenizers = [] }')


@pytest.mark.slow
def test_the_demo_runs_in_an_empty_directory(installed: Path, tmp_path: Path) -> None:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    command = [installed, "demo", "--json", "--quiet"]
    done = subprocess.run(command, cwd=tmp_path, env=kept, capture_output=True, text=True, timeout=300)
    document = json.loads(done.stdout)
    late = any(step["void"] for step in document["steps"])  # a machine with much else to do sends too late, and says so
    assert done.returncode == 0 or (late and done.returncode == 3), done.stderr
    assert document["ceiling"]["status"] == "found" or late
