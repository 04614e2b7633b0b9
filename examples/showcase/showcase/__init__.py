"""Thirty people's phone sensors, with labels that somebody is paid for."""


class ShowcaseError(Exception):
    """Something that whoever runs the showcase can mend; the text says how."""
