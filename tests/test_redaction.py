"""Redaction: every secret of the corpus goes, no look-alike is touched, any text is survived."""

from __future__ import annotations

import random
import re
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from redaction_corpus import LOOK_ALIKES, PASSWORDS, SECRETS, TOKENS, Secret

from subconscious_mcp import redaction
from subconscious_mcp.redaction import MARK, redact, redact_counted


@pytest.mark.parametrize("case", SECRETS, ids=lambda case: case.shape)
def test_a_secret_goes_and_its_name_stays(case: Secret) -> None:
    masked = redact(case.text)
    assert case.secret in case.text
    assert case.secret not in masked
    assert MARK in masked
    assert case.kept in masked


@pytest.mark.parametrize("text", LOOK_ALIKES)
def test_a_look_alike_stays(text: str) -> None:
    assert redact(text) == text


def test_the_corpus_is_large_enough() -> None:
    assert len(SECRETS) >= 150
    assert len({case.shape for case in SECRETS}) >= 30
    assert len(LOOK_ALIKES) >= 100


def test_all_secrets_in_one_text_go_and_all_look_alikes_stay() -> None:
    secrets = [case for case in SECRETS if "cut" not in case.shape]
    masked = redact("\n\n".join(case.text for case in secrets))
    assert [case.shape for case in secrets if case.secret in masked] == []
    together = "\n\n".join(LOOK_ALIKES)
    assert redact(together) == together


@pytest.mark.parametrize("case", SECRETS, ids=lambda case: case.shape)
def test_the_mark_is_never_masked_again(case: Secret) -> None:
    masked = redact(case.text)
    assert redact(masked) == masked


def test_the_places_are_counted() -> None:
    assert redact_counted("nothing here") == ("nothing here", 0)
    masked, count = redact_counted("A_TOKEN=abc123\nB_PASSWORD=def456")
    assert masked == f"A_TOKEN={MARK}\nB_PASSWORD={MARK}"
    assert count == 2


_signs = st.sampled_from(
    [
        "password",
        "token",
        "API_KEY",
        "key",
        "secret",
        "Authorization",
        "Cookie",
        "=",
        ":",
        " ",
        "\n",
        '"',
        "'",
        "\\",
        "\\n",
        "`",
        "|",
        ">",
        "<",
        "(",
        ")",
        "[",
        "]",
        "{",
        "}",
        ",",
        ";",
        "&",
        "?",
        "@",
        "/",
        "//",
        "://",
        "-",
        "--",
        "%3D",
        "%22",
        "Bearer ",
        "Basic ",
        "a",
        "Z9",
        "x7Kp2Qw9",
        "-----BEGIN PRIVATE KEY-----",
        "-----END PRIVATE KEY-----",
        MARK,
        "\x1b[1m",
        "name",
        "value",
        "ghp_",
        "sk-",
        "eyJ",
        "curl -u ",
        "mysql -p",
        "machine ",
        "login ",
        "&quot;",
        "密码",
        "：",
        "�",
    ]
)
_texts = st.one_of(st.text(), st.text(st.characters()), st.lists(_signs, max_size=40).map("".join))


@given(_texts)
@settings(max_examples=600, deadline=None)
def test_any_text_is_survived_and_redacting_twice_changes_nothing(text: str) -> None:
    masked, count = redact_counted(text)
    assert redact(masked) == masked
    assert len(masked) <= len(text) + count * len(MARK)


@given(st.text(max_size=60), st.sampled_from(sorted(TOKENS.values())), st.text(max_size=60))
@settings(max_examples=400, deadline=None)
def test_a_token_survives_in_no_surroundings(before: str, token: str, after: str) -> None:
    # A letter or digit that touches a token makes it part of something else.
    before, after = re.sub(r"[\w/+=.~@%$-]$", " ", before), re.sub(r"^[\w/+=.~@%$-]", " ", after)
    assert token not in redact(before + token + after)


@given(
    st.text(max_size=40),
    st.sampled_from(
        ["PASSWORD={}", 'password = "{}"', '{{"api_key": "{}"}}', "X-Api-Key: {}", "secret: {}", "--token={}"]
    ),
    st.sampled_from([password for password in PASSWORDS if password.isalnum()]),
    st.text(max_size=40),
)
@settings(max_examples=400, deadline=None)
def test_a_value_survives_in_no_surroundings(before: str, place: str, value: str, after: str) -> None:
    # On a line of its own: what follows a value on its line may belong to it.
    text = f"{before}\n{place.format(value)}\n{after}"
    assert value not in redact(text)


@pytest.mark.parametrize("sign", ["\ud800", "\udfff", "a\ud83d", "\x00", "\u2028", "\u202e", "İ", "ß"])
def test_odd_characters_beside_a_secret(sign: str) -> None:
    text = f"{sign}API_KEY={PASSWORDS[3]}{sign}\n{sign}"
    assert PASSWORDS[3] not in redact(text)


@pytest.mark.parametrize(
    "unit",
    [
        "a",
        "=",
        ":",
        '"',
        "'",
        "/",
        "\\",
        "\\n",
        "-",
        " ",
        "\n",
        "://a:b",
        "ghp_",
        "sk-ant-",
        "eyJ",
        '="',
        "password=",
        'password="',
        "password=(",
        "password: ",
        "token: ",
        "pwd='",
        "TOKEN=hunary_ke",
        "pi_key:",
        "eyJ-",
        "Authorization: Bear",
        "key: ",
        "-----BEGIN ",
        "-----BEGIN PRIVATE KEY-----",
        "Cookie: a=b;",
        "Authorization: ",
        "curl -u ",
        "%41",
        "name=password value=",
        "machine a login b ",
        "x@y:",
        "MIIaaaIBAA",
        "Private-Lines: 1\n",
        MARK,
    ],
)
def test_the_work_grows_with_the_length_of_a_text_and_no_faster(unit: str) -> None:
    """Counts the lines of Python that run: a text of twice the length may take about twice as many."""
    assert _lines(unit, 4000) <= 2.6 * _lines(unit, 2000) + 2000


@pytest.mark.parametrize("unit", ["password: ", "password is ", "pi_key:", "Authorization: Bear"])
def test_what_a_text_says_again_is_not_decided_again(unit: str) -> None:
    """One occurrence took 110 to 190 lines of Python when each was decided for itself."""
    assert _lines(unit, 4000) <= 62 * 4000 / len(unit) + 2000


@pytest.mark.parametrize(
    "text",
    [
        "Private-Lines: 1\n" + "Ab1" * 40 + ">",
        "-----BEGIN PRIVATE KEY-----" + "Ab: " * 60 + "!",
        "-----BEGIN PRIVATE KEY-----" + " 5\t\t" * 40 + "!",
        'variable "password" {' + "a " * 400 + "}",
        "eyJ-" * 5000,
        "password = '" + "your-" * 60 + "!'",
        "token: " + "a" * 60 + "!",
    ],
)
def test_no_pattern_tries_every_way_to_split_a_text(text: str) -> None:
    """Such a pattern takes longer than anyone waits: there is nothing to measure."""
    masked = redact(text)
    assert redact(masked) == masked


def _lines(unit: str, length: int) -> int:
    text = unit * (length // len(unit))
    redact(text)  # what is compiled once does not count
    count = 0

    def trace(frame: object, event: str, argument: object) -> object:
        nonlocal count
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        redact(text)
    finally:
        sys.settrace(before)
    return count


def test_a_value_of_any_length_goes_whole() -> None:
    value = "".join(random.Random(1).choices("abcdefghijkmnpqrstuvwxyzABCDEFGH0123456789", k=30_000))
    for place in (
        "SECRET_KEY={}",
        "Cookie: a={}",
        "Authorization: Custom {}",
        'secret_key: "{}"',
        "Authorization: Bearer {}",
        "--token {}",
    ):
        assert value[-40:] not in redact(place.format(value))


def test_nothing_heavy_is_loaded() -> None:
    code = (
        "import sys; import subconscious_mcp.redaction;"
        "heavy = {'dataclasses', 'inspect', 'typing', 'json', 'logging', 'pathlib', 'urllib', 'string', 'random'};"
        "print(sorted(heavy & set(sys.modules)))"
    )
    # Without site, because what an environment's .pth files import is none of the module's.
    paths = f"import sys; sys.path[:0] = {sys.path!r}; "
    done = subprocess.run([sys.executable, "-S", "-c", paths + code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_one_mark_everywhere() -> None:
    assert redaction.MARK == "[redacted]"
