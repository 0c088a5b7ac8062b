#!/usr/bin/env bash
# JAX on a CPU: a program that came from the persistent compilation cache, serialized once more.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet jax==0.10.2 jaxlib==0.10.2 numpy==2.4.6
cat > "$folder/program.py" <<'PY'
import pickle
import sys

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import serialize_executable

what, path = sys.argv[1:]
x = np.arange(1000, dtype=np.float32)
if what == "write":
    program = jax.jit(lambda x: jnp.sin(x) + jnp.cumsum(x)).lower(x).compile()
    program(x).block_until_ready()
    with open(path, "wb") as file:
        pickle.dump(serialize_executable.serialize(program), file)
else:
    with open(path, "rb") as file:
        program = serialize_executable.deserialize_and_load(*pickle.load(file))
    try:
        np.asarray(program(x))
        print("runs")
    except jax.errors.JaxRuntimeError:
        print("fails when it runs")
PY
export JAX_PLATFORMS=cpu JAX_COMPILATION_CACHE_DIR="$folder/cache"
export JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS=0 JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES=0
python="$folder/venv/bin/python"
"$python" "$folder/program.py" write "$folder/compiled"
"$python" "$folder/program.py" write "$folder/from_cache"
compiled=$("$python" "$folder/program.py" read "$folder/compiled")
from_cache=$("$python" "$folder/program.py" read "$folder/from_cache")
echo "jax 0.10.2, jaxlib 0.10.2, on a CPU"
echo "guess: a program that runs can be serialized, and what is read back runs"
echo "seen:  serialized after compiling it $compiled; serialized after JAX's cache read it, it $from_cache"
[ "$compiled" = "runs" ] && [ "$from_cache" = "fails when it runs" ]
