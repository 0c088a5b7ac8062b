"""Reports of a calibrator's segments as one HTML page (`pip install 'platt-jax[report]'`).

The page needs no network: its charts are SVG, and it holds the numbers of all segments, which its
own script draws, searches and lists. A browser runs no other script in it, and loads nothing.
"""

from platt_jax.report.page import to_html

__all__ = ["to_html"]
