"""Passwords and tokens: read from their place when needed, and never kept."""

import os
from pathlib import Path

from tidegate.errors import ConfigurationError

HERE = ("localhost", "127.0.0.1", "::1")
"""Hosts that a secret reaches without crossing a network."""


def check_one_place(name: str, file: Path | str | None, variable: str | None) -> None:
    """Refuse two places for one secret.

    >>> check_one_place("token", "a-file", "A_VARIABLE")
    Traceback (most recent call last):
    ...
    tidegate.errors.ConfigurationError: give token_file or token_variable, not both
    """
    if file is not None and variable is not None:
        raise ConfigurationError(f"give {name}_file or {name}_variable, not both")


def read_secret(name: str, file: Path | str | None, variable: str | None) -> str | None:
    """Read a secret from a file or an environment variable; None if neither is named.

    Args:
        name: of the arguments that name the places, without ``_file`` and ``_variable``.
        file: holds the secret, perhaps followed by a newline.
        variable: of the environment.
    """
    if variable is not None:
        if variable not in os.environ:
            raise ConfigurationError(
                f"the environment variable {variable}, which {name}_variable names, is not set; "
                "set it for this process"
            )
        return os.environ[variable]
    if file is None:
        return None
    try:
        return Path(file).expanduser().read_text("utf-8").rstrip("\r\n")
    except OSError as wrong:
        raise ConfigurationError(
            f"{name}_file {file} cannot be read ({wrong.strerror}); create it, readable only by "
            "the user of this process"
        ) from wrong
