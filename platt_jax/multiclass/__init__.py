"""Calibration of several classes at once, by segment: temperature, vector and ordinal scaling."""
