"""Puts the scenarios into the wheel and compiles the optional reader in C; without a compiler it is left out."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

COMPILERS = ("cc", "gcc", "clang")


class CustomBuildHook(BuildHookInterface):  # type: ignore[misc]  # untyped
    """A shared library called through ctypes: no header of Python's is needed, and any version of it will do."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version != "editable":  # an editable installation finds the scenarios of the checkout
            build_data["force_include"]["scenarios"] = "loadramp/scenarios"
        where = Path(self.root, "loadramp", "client", "http")
        built = where / "_c_reader.so"
        if not sys.platform.startswith("linux"):
            return
        if fault := compiled(where / "c_reader.c", built):
            self.app.display_warning(f"loadramp: installing without the reader in C: {fault}")
            return
        build_data["artifacts"].append("loadramp/client/http/_c_reader.so")
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{sysconfig.get_platform().replace('-', '_').replace('.', '_')}"


def compiled(source: Path, target: Path) -> str:
    """What went wrong, empty when nothing did; an older ``target`` does not outlive a failure."""
    found = next(filter(shutil.which, COMPILERS), COMPILERS[0])
    command = shlex.split(os.environ.get("CC", found))
    part = target.with_suffix(f".{os.getpid()}")
    try:
        subprocess.run([*command, "-O2", "-Wall", "-shared", "-fPIC", "-pthread", "-o", part, source], check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        part.unlink(missing_ok=True)
        target.unlink(missing_ok=True)
        return str(error)
    part.replace(target)
    return ""
