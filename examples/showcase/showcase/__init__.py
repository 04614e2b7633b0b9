"""Thirty people's phone sensors, with labels that somebody is paid for."""
