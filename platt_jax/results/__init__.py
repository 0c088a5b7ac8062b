"""Results of a fit: how they are displayed, applied and stored."""
