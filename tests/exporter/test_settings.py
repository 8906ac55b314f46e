"""Settings: valid ones, and one sentence for each that cannot be meant."""

import subprocess
import sys
from pathlib import Path

import pytest

from dagster_exporter.__main__ import main
from dagster_exporter.settings import OPTIONS, Settings, SettingsError, read_settings

SECRET = "Bearer hush-hush-4711"


def test_defaults() -> None:
    settings = read_settings([], {})
    assert settings == Settings()
    assert settings.listen == ("127.0.0.1", 9101)


def test_the_command_line_goes_before_the_environment() -> None:
    environ = {
        "DAGSTER_EXPORTER_INTERVAL": "7",
        "DAGSTER_EXPORTER_LISTEN": "[::]:80",
        "DAGSTER_EXPORTER_VERIFY": "false",
    }
    settings = read_settings(["--interval", "3"], environ)
    assert settings.interval == 3
    assert settings.listen == ("::", 80)
    assert settings.verify is False


def test_headers_from_a_variable_and_a_file(tmp_path: Path) -> None:
    file = tmp_path / "headers"
    file.write_text(f"Authorization: {SECRET}\n\n")
    environ = {"DAGSTER_EXPORTER_HEADERS": "X-Team: survey\nAuthorization: old"}
    settings = read_settings(["--headers-file", str(file)], environ)
    assert settings.headers == {"X-Team": "survey", "Authorization": SECRET}
    assert "hush" not in repr(settings)


@pytest.mark.parametrize(
    ("flag", "value", "sentence"),
    [
        ("--endpoint", "localhost:3000", "--endpoint must be like http://"),
        ("--endpoint", "ftp://host/graphql", "must be like http://"),
        ("--endpoint", "http://host:port/", "is no address"),
        ("--endpoint", "http://me:hush@host/", "must not hold a user"),
        ("--endpoint", "http://host/?token=hush", "must not hold a user"),
        ("--endpoint", "http://host/graphql@me:hush", "must not hold a user"),
        ("--endpoint", "http://\u00fcmlaut/graphql", "must be plain ASCII"),
        ("--endpoint", "http://host/a b", "must be plain ASCII without blanks"),
        ("--interval", "0", "must be a number from 0.1 to 86400"),
        ("--interval", "nan", "must be a number"),
        ("--timeout", "soon", "must be a number"),
        ("--page-size", "1001", "must be a whole number from 1 to 1000"),
        ("--page-size", "2.5", "must be a whole number"),
        ("--look-back", "-1", "must be a number from 0"),
        ("--safety-margin", "0", "must be a number from 1"),
        ("--max-body", "1", "must be a whole number from 1024"),
        ("--listen", "9101", "must be like 127.0.0.1:9101"),
        ("--listen", "127.0.0.1:99999", "must be like 127.0.0.1:9101"),
        ("--headers-file", "/nowhere", "names no file"),
        ("--ca-file", "/nowhere", "names no file"),
        ("--verify", "no", "must be true or false"),
        ("--state-file", "/nowhere/state", "must name a file in a folder"),
    ],
)
def test_what_cannot_be_meant(flag: str, value: str, sentence: str) -> None:
    option = next(one for one in OPTIONS if one.flag == flag)
    for arguments, environ, name in (
        ([flag, value], {}, flag),
        ([], {option.variable: value}, option.variable),
    ):
        with pytest.raises(SettingsError) as caught:
            read_settings(arguments, environ)
        text = str(caught.value)
        assert text.startswith(name)
        assert sentence.removeprefix("--endpoint ") in text
        assert text.endswith(".")
        assert "hush" not in text


def test_a_certificate_that_is_none(tmp_path: Path) -> None:
    file = tmp_path / "ca.pem"
    file.write_text("not a certificate")
    with pytest.raises(SettingsError, match="holds no certificate"):
        read_settings(["--ca-file", str(file)], {})


@pytest.mark.parametrize(
    "line",
    ["hush-hush", "Authorization hush: x", "A: hush\x00", "A: hüsh", "Ä: hush"],
)
def test_a_header_that_is_none_is_not_repeated(line: str) -> None:
    with pytest.raises(SettingsError) as caught:
        read_settings([], {"DAGSTER_EXPORTER_HEADERS": f"A: b\n{line}"})
    assert "line 2 of DAGSTER_EXPORTER_HEADERS" in str(caught.value)
    assert "sh" not in str(caught.value)


@pytest.mark.parametrize(
    "arguments",
    [
        ["--colour", "red"],
        ["--interval"],
        ["--inter", "5"],
        ["http://me:hush@host/graphql"],
        ["--endpont=http://me:hush@host/"],
        ["--headers", "Authorization: hush"],
    ],
)
def test_unknown_options(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert error.count("\n") == 1
    assert "hush" not in error


def test_help_names_every_option_and_variable() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "dagster_exporter", "--help"],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0
    words = done.stdout.replace("[", " ").replace(";", " ").replace("]", " ").split()
    for option in OPTIONS:
        assert option.flag in words
        assert option.variable in words
    assert "DAGSTER_EXPORTER_HEADERS" in words
