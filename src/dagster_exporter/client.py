"""One question to Dagster: a deadline for all of it, a bound on its size, one answer.

Every way in which it can go wrong is a ``Failure`` with a reason of its own.
"""

import asyncio
import json
import ssl
from pathlib import Path
from typing import Any

import httpx

from dagster_exporter.answers import Node
from dagster_exporter.failures import Failure
from dagster_exporter.log import hide
from dagster_exporter.settings import Settings

QUERIES = Path(__file__).parent / "queries"


class Client:
    """Asks the queries of ``queries/`` at the address that the settings name."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._queries = {
            path.stem: path.read_text("utf-8") for path in QUERIES.glob("*.graphql")
        }
        self._http = httpx.AsyncClient(
            headers={**settings.headers, "Accept-Encoding": "identity"},
            verify=_trust(settings),
            # The deadline in ``ask`` covers everything; httpx has one per step only.
            timeout=None,
            follow_redirects=False,
            # No .netrc and no proxy variables: only what the settings say.
            trust_env=False,
            # A connection that is kept may be one that Dagster's restart closed.
            limits=httpx.Limits(max_keepalive_connections=0),
        )

    async def close(self) -> None:
        """Give the connections back."""
        await self._http.aclose()

    async def ask(self, query: str, **variables: Any) -> Node:
        """The ``data`` of the answer to ``queries/{query}.graphql``.

        Raises ``Failure`` for everything else, no later than the time-out.
        """
        question = {"query": self._queries[query], "variables": variables}
        try:
            async with asyncio.timeout(self._settings.timeout):
                status, body = await self._post(json.dumps(question).encode())
        except TimeoutError:
            seconds = self._settings.timeout
            raise Failure("timeout", f"no complete answer in {seconds:g} s") from None
        except httpx.ConnectError as error:
            raise _no_connection(error) from None
        except httpx.HTTPError as error:
            name = type(error).__name__
            raise Failure("connection_lost", f"the connection broke: {name}") from None
        return self._data(status, body)

    async def _post(self, question: bytes) -> tuple[int, bytes]:
        headers = {"Content-Type": "application/json"}
        async with self._http.stream(
            "POST", self._settings.endpoint, content=question, headers=headers
        ) as response:
            if response.is_redirect:
                raise Failure(
                    "redirect",
                    f"HTTP {response.status_code} leads elsewhere, usually to a login "
                    "page: check the endpoint and the headers for authentication",
                )
            body = bytearray()
            async for part in response.aiter_raw():
                body += part
                if len(body) > self._settings.max_body:
                    limit = self._settings.max_body
                    raise Failure("too_large", f"more than {limit} bytes of answer")
            return response.status_code, bytes(body)

    def _data(self, status: int, body: bytes) -> Node:
        if status in (401, 403):
            raise Failure("unauthorized", f"HTTP {status}: check the headers")
        try:
            answer = json.loads(body)
        except (ValueError, RecursionError):
            answer = None
        if not isinstance(answer, dict) or not answer.keys() & {"data", "errors"}:
            if status != 200:
                raise Failure("http_status", f"HTTP {status}")
            raise Failure("not_json", "the answer is no GraphQL answer in JSON")
        # Dagster sends GraphQL errors with HTTP 500 and 400: the body says more.
        if answer.get("errors"):
            message = hide(
                _first_message(answer["errors"]), self._settings.headers.values()
            )
            reason = "python_error" if "PythonError" in message else "graphql_error"
            raise Failure(reason, f"HTTP {status}, GraphQL: {message}")
        if status != 200:
            raise Failure("http_status", f"HTTP {status}")
        if not isinstance(answer.get("data"), dict):
            raise Failure("missing_field", "the answer has no data")
        data: Node = answer["data"]
        return data


def _trust(settings: Settings) -> ssl.SSLContext | bool:
    # A context loads every authority of the system: several MB, so only for https.
    if not settings.endpoint.startswith("https:") or not settings.verify:
        return False
    return ssl.create_default_context(cafile=settings.ca_file)


def _no_connection(error: BaseException) -> Failure:
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLError):
            return Failure("tls", f"TLS failed: {cause.reason or 'no reason given'}")
        cause = cause.__cause__ or cause.__context__
    return Failure("unreachable", "no connection: nothing listens, or no such host")


def _first_message(errors: Any) -> str:
    first = errors[0] if isinstance(errors, list) else errors
    message = first.get("message") if isinstance(first, dict) else first
    return str(message).strip()
