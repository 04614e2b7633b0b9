"""Connection to Label Studio: address, token, requests, and errors of failed requests.

Plain HTTP with the standard library. Label Studio's own SDK would bring packages of 509 MB to every
client, among them pandas and OpenCV, for the five requests that a supplier makes.
"""

import http.client
import json
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

from tidegate._internal.arguments import check_number
from tidegate._internal.secret import HERE, check_one_place, read_secret
from tidegate.errors import ConfigurationError, SupplierError

VARIABLE = "LABEL_STUDIO_TOKEN"
"""Where the token is, unless another place is named."""
FRESH_SECONDS = 200.0
"""For which a token that was exchanged is used; Label Studio takes it for five minutes."""
LONGEST_REASON = 300
REMEDIES = {
    400: "check that render returns every variable of the project's labelling configuration",
    401: (
        "check that the token is valid, and that the organization's settings allow tokens of "
        "its kind, personal or legacy"
    ),
    403: "use the token of a user who may view and change the project",
    404: "check the project's number and the server's url",
    413: "let render return less, for instance smaller images",
}
ASKED_AGAIN = "the client asks again with the next order; see Label Studio's log"


class RefusedRequestError(SupplierError):
    """Label Studio understood a request and refused it.

    Args:
        supplier: which server.
        reason: what it said, and the remedy.
        status: of HTTP.
    """

    def __init__(self, supplier: str, reason: str, status: int) -> None:
        super().__init__(supplier, reason)
        self.status = status


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Send a token only to the named server."""

    def redirect_request(self, *_: Any) -> None:
        return None


class LabelStudioServer:
    """A Label Studio server, and the user whose token is used there.

    The token is read from its place for each session, and never logged.

    >>> import os
    >>> os.environ["LABEL_STUDIO_TOKEN"] = "of a person, or a legacy one"
    >>> LabelStudioServer("https://labels.example/")
    LabelStudioServer('https://labels.example')
    """

    def __init__(
        self,
        url: str,
        *,
        token_variable: str | None = None,
        token_file: Path | str | None = None,
        timeout: float = 20.0,
    ) -> None:
        """Name a server; the first request connects.

        Args:
            url: where a browser finds it. It must have TLS unless it is on this machine, because
                the token could be read on the way.
            token_variable: the environment variable that holds the token, ``LABEL_STUDIO_TOKEN`` by
                default. A personal token is exchanged for a short-lived one; a legacy token is sent
                as it is.
            token_file: or the file that holds it.
            timeout: seconds after which a request has failed.
        """
        check_one_place("token", token_file, token_variable)
        limit = "a number of seconds above 0"
        check_number("timeout", timeout, limit, lambda seconds: 0 < seconds < float("inf"))
        self.url = _checked_url(url)
        self._place = token_file, (token_variable or VARIABLE) if token_file is None else None
        self._timeout = timeout
        self._exchanged: tuple[float, str] | None = None
        """When, and for what, a personal token was exchanged last."""
        # A proxy would read the token on its way to this machine.
        proxies: dict[str, str] | None = (
            {} if urllib.parse.urlsplit(self.url).hostname in HERE else None
        )
        self._opener = urllib.request.build_opener(
            urllib.request.ProxyHandler(proxies), _NoRedirects()
        )
        self._token()

    def __repr__(self) -> str:
        return f"LabelStudioServer({self.url!r})"

    def get(self, path: str, query: Mapping[str, object] | None = None) -> Any:
        """Return what the server has at a path."""
        return self._request("GET", path, query=query)

    def post(self, path: str, body: object) -> Any:
        """Return the reply to a post."""
        return self._request("POST", path, body=body)

    def find(self, path: str) -> Any:
        """Return what the server has at a path; None if it has nothing."""
        return self._request("GET", path, may_be_absent=True)

    def delete(self, path: str) -> None:
        """Make sure that the server has nothing at a path."""
        self._request("DELETE", path, may_be_absent=True)

    def _request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, object] | None = None,
        body: object = None,
        may_be_absent: bool = False,
    ) -> Any:
        """Send a request with a token; exchange a token that expired meanwhile again."""
        asked = f"{path}?{urllib.parse.urlencode(query)}" if query else path
        for is_last in (False, True):
            try:
                return self._send(method, asked, body, self._authorization())
            except urllib.error.HTTPError as refusal:
                with refusal:
                    if refusal.code == http.HTTPStatus.NOT_FOUND and may_be_absent:
                        return None
                    if (
                        refusal.code != http.HTTPStatus.UNAUTHORIZED
                        or is_last
                        or not self._exchanged
                    ):
                        self._fail(f"{method} {path}", refusal)
                    self._exchanged = None
        raise AssertionError  # the last one returns or fails

    def _send(self, method: str, path: str, body: object, authorization: str | None) -> Any:
        """Send one request; every failure except a refusal is a SupplierError."""
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        if authorization is not None:
            headers["Authorization"] = authorization
        data = None if body is None else json.dumps(body, allow_nan=False).encode()
        request = urllib.request.Request(  # noqa: S310 - its scheme was checked
            f"{self.url}{path}", data=data, headers=headers, method=method
        )
        try:
            with self._opener.open(request, timeout=self._timeout) as answer:
                text = answer.read()
            return json.loads(text) if text else None
        except urllib.error.HTTPError:
            raise
        except (OSError, http.client.HTTPException) as wrong:
            reason = getattr(wrong, "reason", None) or wrong or type(wrong).__name__
            raise SupplierError(
                f"Label Studio at {self.url}",
                (
                    f"cannot be reached ({reason}): start it, or check the url; the client asks "
                    "again with the next order"
                ),
            ) from None
        except ValueError:
            raise SupplierError(
                f"{self.url}",
                "does not reply as Label Studio does; check that the url is that of Label Studio",
            ) from None

    def _fail(self, step: str, refusal: urllib.error.HTTPError) -> NoReturn:
        remedy = REMEDIES.get(refusal.code, ASKED_AGAIN)
        if refusal.headers.get("Location"):
            remedy = (
                f"it redirects to {refusal.headers['Location']}: give the url without redirects"
            )
        raise RefusedRequestError(
            f"Label Studio at {self.url}",
            f"refused {step} with status {refusal.code}{_reason(refusal)}; {remedy}",
            refusal.code,
        ) from None

    def _token(self) -> str:
        token = read_secret("token", *self._place)
        if not token:
            raise ConfigurationError(
                "the token of Label Studio is empty; copy it from your account's settings there"
            )
        return token

    def _authorization(self) -> str:
        """Return the token for a request: a legacy one, or one exchanged for a personal one."""
        token = self._token()
        if token.count(".") != 2:  # noqa: PLR2004 - a personal token is a JWT, of three parts
            return f"Token {token}"
        now = time.monotonic()
        if self._exchanged is None or now - self._exchanged[0] > FRESH_SECONDS:
            path = "/api/token/refresh"
            try:
                given = self._send("POST", path, {"refresh": token}, None)
            except urllib.error.HTTPError as refusal:
                with refusal:
                    self._fail(f"POST {path}", refusal)
            self._exchanged = now, str(given["access"])
        return f"Bearer {self._exchanged[1]}"


def _checked_url(url: str) -> str:
    try:
        parts = urllib.parse.urlsplit(url)
        host = parts.hostname
    except (ValueError, AttributeError, TypeError):
        parts, host = urllib.parse.urlsplit(""), None
    if parts.scheme not in ("http", "https") or not host or parts.query or parts.fragment:
        raise ConfigurationError(
            f"url must be the address of a Label Studio server, got {url!r}; such as "
            "'https://labels.example'"
        )
    if parts.username is not None:
        raise ConfigurationError(
            f"url must not contain a user name or a password, because it is logged; {host} takes "
            "a token from token_file or token_variable"
        )
    if parts.scheme == "http" and host not in HERE:
        raise ConfigurationError(
            f"{url} would send the token to {host} unencrypted; this is allowed only for "
            f"{', '.join(HERE)}. Put TLS in front of the server, and give its https url"
        )
    return url.rstrip("/")


def _reason(refusal: urllib.error.HTTPError) -> str:
    """Return Label Studio's reason, without the task that it quotes."""
    try:
        told = json.loads(refusal.read())
        details = told.get("validation_errors") or {}
        said = [told["detail"], *(text for texts in details.values() for text in texts)]
    except (OSError, http.client.HTTPException, ValueError, KeyError, TypeError, AttributeError):
        return ""
    short = ", ".join(str(text).split(" :: ")[0] for text in said)
    return f" ({short[:LONGEST_REASON]})"
