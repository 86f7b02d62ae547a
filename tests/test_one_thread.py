"""Processes of a run have one thread of OpenBLAS, and what they start for the user knows nothing of it."""

import os
import subprocess
import sys
from functools import cache

import pytest

from loadramp.one_thread import VARIABLE, one_thread

LOOK = """
import os
from loadramp.commands.options import command

def look():
    print(len(os.listdir("/proc/self/task")), flush=True)
    os.system("env")
    return 0

command(look).main([], standalone_mode=False)
"""


@cache
def seen_by_a_command() -> tuple[int, str]:
    """The threads of a command's process, and the environment of a process that it starts."""
    env = {name: value for name, value in os.environ.items() if name not in {VARIABLE, "OMP_NUM_THREADS"}}
    shown = subprocess.run([sys.executable, "-c", LOOK], env=env, capture_output=True, text=True, check=True).stdout
    threads, _, environment = shown.partition("\n")
    return int(threads), environment


def test_a_command_has_one_thread_although_it_loads_numpy_and_scipy() -> None:
    assert seen_by_a_command()[0] == 1


def test_what_a_command_starts_finds_the_environment_that_the_command_had() -> None:
    environment = seen_by_a_command()[1]
    assert "PATH=" in environment
    assert VARIABLE not in environment


def test_the_variable_is_there_for_a_moment_and_the_users_own_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    with one_thread():
        assert os.environ[VARIABLE] == "1"
    assert VARIABLE not in os.environ
    monkeypatch.setenv(VARIABLE, "4")
    with one_thread():
        assert os.environ[VARIABLE] == "4"
    assert os.environ[VARIABLE] == "4"
