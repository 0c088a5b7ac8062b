"""`python -m platt_jax` runs the command `platt-jax`."""

import sys

from platt_jax.cli import main

sys.exit(main())
