"""The mathematics of one problem. Everything is elementwise; there are no loops over rows."""
