"""Compiles programs in float32 for a TPU v5e without one: ``python -m benchmarks.gpu.tpu``.

It needs libtpu: ``pip install libtpu``.
"""

from __future__ import annotations

import os

import numpy as np

# Before JAX: libtpu is not to ask the machine which TPU it has.
os.environ |= {"TPU_SKIP_MDS_QUERY": "1", "TPU_WORKER_HOSTNAMES": "localhost"}
os.environ |= {"TPU_ACCELERATOR_TYPE": "v5litepod-4"}

from jax.experimental import topologies

from benchmarks.gpu import entries, target

_NAMES = "solve 10,000 x 1,000", "block of one problem", "predict_proba"


def main() -> None:
    devices = topologies.get_topology_desc(platform="tpu", topology_name="v5e:2x2").devices
    with target.chosen():
        every = entries.entries(np.dtype("float32"))
        for name in _NAMES:
            target.lowered(every[name], devices[0]).compile()
            print(f"{name}: compiled for a TPU v5e", flush=True)


if __name__ == "__main__":
    main()
