"""What belongs to the process and not to a library. Does not import platt_jax."""

import csv
import os
import random
import signal
import sys
import warnings

import jax
import numpy as np


def global_state():
    """All of it by name, in a form that can be compared."""
    return {
        "jax": dict(jax.config.values),
        "jax_enable_x64 in this thread": jax.config.jax_enable_x64,
        "warning filters": list(warnings.filters),
        "showwarning": warnings.showwarning,
        "numpy errors": np.geterr(),
        "numpy error call": np.geterrcall(),
        "numpy printing": np.get_printoptions(),
        "numpy random": str(np.random.get_state()),
        "random": random.getstate(),
        "environment": dict(os.environ),
        "directory": os.getcwd(),
        "signals": [signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM)],
        "recursion": sys.getrecursionlimit(),
        "csv": (csv.field_size_limit(), csv.list_dialects()),
        "output": (sys.stdout, sys.stderr),
        "excepthook": sys.excepthook,
    }
