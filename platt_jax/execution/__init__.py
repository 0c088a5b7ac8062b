"""A call of many problems: rows grouped, cut into chunks, run on several threads."""
