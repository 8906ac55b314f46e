"""What Dask logs in this process is collected, and only as long as it is to be."""

import logging

import pytest

from dask_cluster_lab.logs import captured_log


def test_captured_log(capsys: pytest.CaptureFixture[str]) -> None:
    logger = logging.getLogger("distributed")
    handlers = list(logger.handlers)
    with captured_log() as records:
        logging.getLogger("distributed.worker").error("task %s failed", "x")
    assert [record.getMessage() for record in records] == ["task x failed"]
    assert capsys.readouterr().err == ""
    assert logger.handlers == handlers


def test_handlers_return_after_an_error() -> None:
    logger = logging.getLogger("distributed")
    handlers = list(logger.handlers)
    with pytest.raises(ZeroDivisionError), captured_log():
        _ = 1 / 0
    assert logger.handlers == handlers
