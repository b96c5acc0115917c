"""Expressions for the full-text index: any text gives one that SQLite takes, and that finds what it is about."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from subconscious_mcp import full_text
from subconscious_mcp.full_text import MOST_TERMS, grams, grams_query, pairs, remains, words, words_query

ANY_TEXT = st.text(
    st.one_of(
        st.characters(codec=None),
        st.sampled_from("\x00\"'*^:()-+{}[]<>|&.,;/\\_%#@ \n\ud800\udfff\ue000日本한ไ"),
    )
) | st.lists(st.sampled_from(["AND", "OR", "NOT", "NEAR", "NEAR(a b, 2)", "task:", '"', "*", "^a", "rowid", "-"])).map(
    " ".join
)


@pytest.fixture(scope="module")
def index() -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(":memory:")
    connection.execute("CREATE VIRTUAL TABLE words USING fts5(task, tokenize='porter unicode61 remove_diacritics 2')")
    connection.execute("CREATE VIRTUAL TABLE grams USING fts5(task, tokenize='trigram')")
    yield connection
    connection.close()


def check(index: sqlite3.Connection, text: str) -> None:
    for table, query in (("words", words_query(text)), ("grams", grams_query(text))):
        if query:
            index.execute(f"SELECT rowid FROM {table} WHERE {table} MATCH ?", (query,)).fetchall()
    assert len(words(text)) <= MOST_TERMS
    assert len(grams(text)) <= MOST_TERMS
    assert len(pairs(text)) <= MOST_TERMS
    remains(text)


@settings(max_examples=300, deadline=None, derandomize=True, database=None)
@given(text=ANY_TEXT)
@example(text='a" OR task:"b')
@example(text="\x00a\x00")
@example(text="\ud800abc\udfff1")
@example(text="NEAR(a b) AND NOT c*")
def test_any_text_gives_an_expression_that_sqlite_takes(index: sqlite3.Connection, text: str) -> None:
    check(index, text)


@pytest.mark.parametrize(
    "text",
    ["a1-" * 33_000, "日" * 100_000, "日本語" * 33_000, " ".join(f"word{n}" for n in range(20_000)), '"' * 100_000],
    ids=["one token", "one character", "one run", "many words", "quotes"],
)
def test_a_text_of_100000_characters_gives_few_terms(index: sqlite3.Connection, text: str) -> None:
    check(index, text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("How do I rotate the key?", ("rotate", "key")),
        ("what is it", ("what", "is", "it")),
        ("Key key KEY rotate", ("Key", "rotate")),
        ("v2.13 of the api", ("v2", "13", "api")),
        ("don't", ("don", "t")),
        ("x", ("x",)),
        ("", ()),
        (" \x00\ud800 --", ()),
        ("naïve Straße", ("naïve", "Straße")),
    ],
)
def test_words(text: str, expected: tuple[str, ...]) -> None:
    assert words(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("see src/app/config_v2.py, please.", ("src/app/config_v2.py",)),
        ("AnonRateThrottle and plain words", ("AnonRateThrottle",)),
        ("update to 3.14.2.", ("3.14.2",)),
        ("JIRA-1234: closed", ("JIRA-1234",)),
        ("C:\\temp\\x.log", ("C:\\temp\\x.log",)),
        ("a1 b2", ()),
        ("データベースの設定", ("データ", "ータベ", "タベー", "ベース", "ースの", "スの設", "の設定")),
        ("nginxの設定", ("の設定",)),
        ("配置 数据", ()),
        ("plain English words only", ()),
        ("\ue000\ue000\ue0001", ("\ue000\ue000\ue0001",)),
    ],
)
def test_grams(text: str, expected: tuple[str, ...]) -> None:
    assert grams(text) == expected


def test_of_too_many_words_the_longest_are_looked_for() -> None:
    text = " ".join([f"a{n}" for n in range(100)] + ["certificate", "authority"])
    assert {"certificate", "authority"} <= set(words(text))


def test_words_of_two_characters() -> None:
    assert pairs("东京 の 天気 nginx設定") == ("东京", "天気", "設定")


def test_what_remains_of_a_text_is_short_of_what_the_index_leaves_out() -> None:
    assert remains("Configuring the database 日本語 Ab") == ("nfiguri", "taba", "本語")
    assert remains("") == ()
    assert len(remains("日本語です" * 20_000 + " ".join(f"wordword{n}word" for n in range(1000)))) <= 200


def test_quotes_in_a_term_stay_in_it() -> None:
    assert full_text.any_of(['a"b', "OR"]) == '"a""b" OR "OR"'
