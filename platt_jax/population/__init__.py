"""Segments as a sample from a population: the spread of their parameters, estimated jointly."""
