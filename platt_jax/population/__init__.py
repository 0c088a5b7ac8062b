"""Segments as a sample from a population: how their parameters spread, estimated from all."""
