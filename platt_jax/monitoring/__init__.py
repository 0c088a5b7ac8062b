"""Watches predictions night after night: alarms whose error rate holds at every look."""

from platt_jax.monitoring.monitor import Monitor

__all__ = ["Monitor"]
