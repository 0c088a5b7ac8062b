"""Runs a call for many problems: groups rows, cuts them into chunks, fits these on threads."""
