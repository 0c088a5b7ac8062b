"""Reports of a calibrator's segments as one HTML page (`pip install 'platt-jax[report]'`).

The page needs no network: its charts are SVG, and its table is JSON that the page's own script
sorts, searches and pages. A browser runs no other script in it, and loads nothing.
"""

from platt_jax.report.page import to_html

__all__ = ["to_html"]
