"""Guests: what connects Tidegate with other programs, a folder each. Nothing else imports them.

An app imports the guests that it uses. What a command has to find by itself, a guest enters by an
entry point of its package, and so can anybody else's: see ``tidegate._internal.guests``.
"""
