"""Retention rules: how long clients keep samples, simulated as counts.

A retention rule creates the buffers of a fleet, which implement ``Buffers``.
"""
