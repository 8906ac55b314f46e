"""What Dask logs in this process, kept instead of printed.

On the fallback the workers live in the client's process, and what they say of a task
that fails on purpose would go to stderr.
"""

import logging
import logging.handlers
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def captured_log() -> Iterator[list[logging.LogRecord]]:
    """Collect what Dask logs in this process, which otherwise goes to stderr."""
    logger = logging.getLogger("distributed")
    collector = logging.handlers.BufferingHandler(capacity=10_000)
    handlers, logger.handlers = logger.handlers, [collector]
    try:
        yield collector.buffer
    finally:
        logger.handlers = handlers
