"""`python -m platt_jax` is `platt-jax`."""

import sys

from platt_jax.cli import main

sys.exit(main())
