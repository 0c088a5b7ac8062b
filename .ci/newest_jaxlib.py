"""Fails where the newest jaxlib is one on which the fast path for CPUs was not tried."""

import json
import subprocess
import sys

from platt_jax.backend.xla import is_tried

NEWEST_PYTHON = "3.15"  # whose jaxlib may be newer than the one for this Python

command = "-m pip install --quiet --dry-run --ignore-installed --no-deps --only-binary=:all:"
command += " --ignore-requires-python"
command += f" --python-version {NEWEST_PYTHON} --target unused --report - jaxlib"
report = subprocess.run(
    [sys.executable, *command.split()], check=True, capture_output=True, text=True
)
version = json.loads(report.stdout)["install"][0]["metadata"]["version"]
if not is_tried(version):
    sys.exit(f"jaxlib {version} is out: try it, and raise the limit in platt_jax/backend/xla.py")
print(f"jaxlib {version}, the newest, is one of those tried")
