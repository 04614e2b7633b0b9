"""The client decides what stays: retention rules, here as counts of samples.

A retention rule gives buffers for a fleet; ``Buffers`` says what they can do.
"""
