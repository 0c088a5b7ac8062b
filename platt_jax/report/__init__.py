"""One HTML page of a calibrator's segments (`pip install 'platt-jax[report]'`).

The page needs no network: its charts are SVG, and its table is JSON that a script of its own sorts,
searches and pages. A browser runs no other script in it, and loads nothing.
"""

from platt_jax.report.page import to_html

__all__ = ["to_html"]
