"""How a client reaches its MQTT broker: address, session, certificates and password."""

import ssl
from dataclasses import dataclass
from pathlib import Path

from tidegate._internal.arguments import check_number, check_whole_number
from tidegate._internal.secret import HERE, check_one_place, read_secret
from tidegate.errors import ConfigurationError

LARGEST_PORT = 65_535
DAY = 24 * 3600
MOST_DAYS = 49_000
"""Seconds are sent in 32 bits."""


@dataclass(frozen=True)
class MqttConnection:
    """Address and credentials for a broker; the password itself is never held here.

    >>> MqttConnection("broker.example", client_id="site-0").port
    8883
    """

    host: str
    client_id: str
    """Names the session at the broker; no two clients may have the same."""
    port: int = 8883
    user_name: str | None = None
    password_file: Path | str | None = None
    """File with the password, perhaps followed by a newline; read for each connection."""
    password_variable: str | None = None
    """Or the environment variable that holds it."""
    ca_file: Path | str | None = None
    """The authority behind the broker's certificate; by default those that the system knows."""
    certificate_file: Path | str | None = None
    """Of this client, where the broker wants one; with ``key_file``."""
    key_file: Path | str | None = None
    tls: bool = True
    """Without TLS, anybody on the network can read everything; a password is then sent only to this
    machine."""
    session_days: float = 7.0
    """How long the broker keeps session and messages of a client that is away."""

    def __post_init__(self) -> None:
        if not (self.host and self.client_id):
            raise ConfigurationError(
                f"a connection needs host and client_id, got host={self.host!r}, "
                f"client_id={self.client_id!r}; without its own client id the broker keeps no "
                "messages for the client"
            )
        check_whole_number("port", self.port, most=LARGEST_PORT)
        limit = f"a number above 0 and at most {MOST_DAYS}"
        check_number("session_days", self.session_days, limit, lambda days: 0 < days <= MOST_DAYS)
        check_one_place("password", self.password_file, self.password_variable)
        given = self.password_file is not None or self.password_variable is not None
        if given and self.user_name is None:
            raise ConfigurationError("a password needs a user_name")
        if (self.certificate_file is None) != (self.key_file is None):
            raise ConfigurationError("give certificate_file and key_file together, or neither")
        if not self.tls and given and self.host not in HERE:
            raise ConfigurationError(
                f"tls=False would send the password to {self.host} unencrypted; this is allowed "
                f"only for {', '.join(HERE)}. Leave tls=True"
            )
        self.password()
        self.context()

    @property
    def session_seconds(self) -> int:
        """How long the broker keeps the session."""
        return max(int(self.session_days * DAY), 1)

    def password(self) -> str | None:
        """Read the password from its place; None if there is none."""
        return read_secret("password", self.password_file, self.password_variable)

    def context(self) -> ssl.SSLContext | None:
        """Return how certificates are checked and presented; None without TLS."""
        if not self.tls:
            return None
        try:
            context = ssl.create_default_context(cafile=_path(self.ca_file))
            if self.certificate_file is not None:
                context.load_cert_chain(str(_path(self.certificate_file)), _path(self.key_file))
        except OSError as wrong:  # an SSLError is one
            files = [self.ca_file, self.certificate_file, self.key_file]
            named = ", ".join(str(file) for file in files if file is not None)
            raise ConfigurationError(
                f"certificates cannot be used ({wrong}): check that {named} are PEM files that "
                "this user may read"
            ) from wrong
        return context


def _path(file: Path | str | None) -> str | None:
    return None if file is None else str(Path(file).expanduser())
