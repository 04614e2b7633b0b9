"""Connection to Label Studio: address, token, requests, and errors of failed requests."""

import ssl
from collections.abc import Mapping
from http import HTTPStatus
from pathlib import Path
from typing import Any, NoReturn

from tidegate._internal.arguments import check_number
from tidegate._internal.secret import HERE, check_one_place, read_secret
from tidegate.errors import ConfigurationError, SupplierError

try:
    import httpx
except ModuleNotFoundError as missing:
    raise ModuleNotFoundError(
        "httpx is not installed; pip install 'tidegate[label-studio]'", name="httpx"
    ) from missing

VARIABLE = "LABEL_STUDIO_TOKEN"
"""Where the token is, unless another place is named."""
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


class LabelStudioServer:
    """A Label Studio server, and the user whose token is used there.

    The token is read from its place for each request, and never logged. Redirects are refused: the
    token is sent only to the named server.

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
        address = _checked_url(url)
        self.url = url.rstrip("/")
        self._place = token_file, (token_variable or VARIABLE) if token_file is None else None
        self._access: str | None = None
        """What a personal token was exchanged for last."""
        self._client = httpx.Client(
            base_url=self.url,
            timeout=timeout,
            verify=ssl.create_default_context(),  # what the system trusts, not what httpx brings
            trust_env=address.host not in HERE,  # a proxy would read the token on its way
            limits=httpx.Limits(max_keepalive_connections=0),  # hours pass between two rounds
        )
        self._token()

    def __repr__(self) -> str:
        return f"LabelStudioServer({self.url!r})"

    def get(self, path: str, query: Mapping[str, str | int] | None = None) -> Any:
        """Return what the server has at a path."""
        return self._request("GET", path, params=query)

    def post(self, path: str, body: object) -> Any:
        """Return the reply to a post."""
        return self._request("POST", path, json=body)

    def find(self, path: str) -> Any:
        """Return what the server has at a path; None if it has nothing."""
        return self._request("GET", path, may_be_absent=True)

    def delete(self, path: str) -> None:
        """Make sure that the server has nothing at a path."""
        self._request("DELETE", path, may_be_absent=True)

    def _request(
        self, method: str, path: str, *, may_be_absent: bool = False, **content: Any
    ) -> Any:
        """Send a request with a token; exchange a token again that has expired meanwhile."""
        response = self._send(method, path, self._authorization(), **content)
        if response.status_code == HTTPStatus.UNAUTHORIZED and self._access is not None:
            self._access = None
            response = self._send(method, path, self._authorization(), **content)
        if response.status_code == HTTPStatus.NOT_FOUND and may_be_absent:
            return None
        return self._content(response)

    def _send(
        self, method: str, path: str, headers: Mapping[str, str], **content: Any
    ) -> httpx.Response:
        try:
            return self._client.request(method, path, headers=headers, **content)
        except httpx.RequestError as wrong:
            raise SupplierError(
                f"Label Studio at {self.url}",
                (
                    f"cannot be reached ({wrong or type(wrong).__name__}): start it, or check the "
                    "url; the client asks again with the next order"
                ),
            ) from None

    def _content(self, response: httpx.Response) -> Any:
        """Return what a reply holds; a refusal is an error that names the remedy."""
        if not response.is_success:
            self._refused(response)
        try:
            return response.json() if response.content else None
        except ValueError:
            raise SupplierError(
                f"{self.url}",
                "does not reply as Label Studio does; check that the url is that of Label Studio",
            ) from None

    def _refused(self, response: httpx.Response) -> NoReturn:
        status, step = response.status_code, response.request
        remedy = REMEDIES.get(status, ASKED_AGAIN)
        if "Location" in response.headers:
            elsewhere = response.headers["Location"]
            remedy = f"it redirects to {elsewhere}: give the url without redirects"
        raise RefusedRequestError(
            f"Label Studio at {self.url}",
            (
                f"refused {step.method} {step.url.path} with status {status}{_reason(response)}; "
                f"{remedy}"
            ),
            status,
        )

    def _token(self) -> str:
        token = read_secret("token", *self._place)
        if not token:
            raise ConfigurationError(
                "the token of Label Studio is empty; copy it from your account's settings there"
            )
        return token

    def _authorization(self) -> dict[str, str]:
        """Return the header with a legacy token, or with one exchanged for a personal one."""
        token = self._token()
        if token.count(".") != 2:  # noqa: PLR2004 - a personal token is a JWT, of three parts
            return {"Authorization": f"Token {token}"}
        if self._access is None:
            response = self._send("POST", "/api/token/refresh", {}, json={"refresh": token})
            self._access = str(self._content(response)["access"])
        return {"Authorization": f"Bearer {self._access}"}


def _checked_url(url: str) -> httpx.URL:
    """Return a url to which a token may be sent."""
    try:
        parts = httpx.URL(url)
    except (httpx.InvalidURL, TypeError):
        parts = httpx.URL("")
    if parts.scheme not in ("http", "https") or not parts.host or parts.query or parts.fragment:
        raise ConfigurationError(
            f"url must be the address of a Label Studio server, got {url!r}; such as "
            "'https://labels.example'"
        )
    if parts.userinfo:
        raise ConfigurationError(
            "url must not contain a user name or a password, because it is logged; "
            f"{parts.host} takes a token from token_file or token_variable"
        )
    if parts.scheme == "http" and parts.host not in HERE:
        raise ConfigurationError(
            f"{url} would send the token to {parts.host} unencrypted; this is allowed only for "
            f"{', '.join(HERE)}. Put TLS in front of the server, and give its https url"
        )
    return parts


def _reason(response: httpx.Response) -> str:
    """Return Label Studio's reason, without the task that it quotes."""
    try:
        told = response.json()
        details = told.get("validation_errors") or {}
        said = [told["detail"], *(text for texts in details.values() for text in texts)]
    except (ValueError, KeyError, TypeError, AttributeError):
        return ""
    short = ", ".join(str(text).split(" :: ")[0] for text in said)
    return f" ({short[:LONGEST_REASON]})"
