"""Why a poll failed: a short reason that becomes a label, a sentence for the log."""

REASONS = {
    "unreachable": "no connection to Dagster",
    "connection_lost": "the connection broke before the answer was complete",
    "timeout": "no complete answer within the time-out",
    "tls": "the certificate was not accepted, or it is no TLS server",
    "redirect": "Dagster's address leads elsewhere, usually to a login page",
    "unauthorized": "HTTP 401 or 403: the headers for authentication are not accepted",
    "http_status": "another HTTP status than 200, without a GraphQL answer",
    "not_json": "the answer is no JSON object",
    "too_large": "the answer is larger than the limit",
    "graphql_error": "GraphQL's own list of errors, such as a field it does not know",
    "python_error": "Dagster answered with a PythonError",
    "unexpected_type": "Dagster answered with another member of the union",
    "missing_field": "the answer lacks a field, or it has another type",
    "suspect_page": "an empty page where runs must follow: the cursor's run is gone",
    "internal": "a fault of the exporter itself",
}
"""All values of the label ``reason``."""


class Failure(Exception):
    """A poll that failed. Nothing that was known before is forgotten because of it."""

    def __init__(self, reason: str, detail: str) -> None:
        assert reason in REASONS
        super().__init__(detail)
        self.reason = reason
