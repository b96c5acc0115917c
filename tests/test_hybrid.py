"""The order of notes: what must hold whatever the numbers are, and each ingredient alone."""

from __future__ import annotations

import math
import random

import pytest

from subconscious_mcp import full_text, hybrid
from subconscious_mcp.hybrid import best_by_words, combine, is_weak, keyword_terms, rank, to_read, weigh

NOW = 2_000_000_000.0


def found_of(similarities, terms=(), holders=(), beside=None, notes=None):
    words = weigh(terms, holders, notes or max(10, len(similarities)))
    return combine(similarities, words, beside if beside is not None else {})


def order(query, found, texts=None, created_at=None, limit=50, **more):
    return rank(query, found, texts or {}, created_at or {}, limit=limit, **more)


def a_case(seed):
    rng = random.Random(seed)
    keys = rng.sample(range(1, 1000), rng.randint(1, 40))
    chain = sorted(keys)
    beside = {
        key: (chain[at - 1] if at else None, chain[at + 1] if at + 1 < len(chain) else None)
        for at, key in enumerate(chain)
        if rng.random() < 0.9
    }
    terms = [f"word{number}" for number in range(rng.randint(0, 6))] + ["word0 word1"] * rng.randint(0, 1)
    holders = [rng.sample(keys, rng.randint(0, len(keys))) for _ in terms]
    similarities = {key: rng.choice((0.0, 0.2, 0.4, 0.4, 0.9)) for key in keys}
    texts = {key: rng.choice(("word0: I went last week.", "Did you?", "", "Yes. (8 May)")) for key in keys}
    return similarities, terms, holders, beside, texts, {key: rng.choice((0.0, NOW)) for key in keys}


@pytest.mark.parametrize("seed", range(60))
def test_parts_sum_to_the_total_and_totals_fall(seed):
    similarities, terms, holders, beside, texts, born = a_case(seed)
    ranked = order("when?", found_of(similarities, terms, holders, beside), texts, born, now=NOW, half_life=86400.0)
    for one in ranked:
        parts = one.parts
        values = (parts.vector, parts.keyword, parts.neighbours, parts.wording, parts.recency)
        assert all(math.isfinite(value) and value >= 0 for value in values)
        assert parts.total == pytest.approx(sum(values))
        assert one.similarity == similarities[one.key]
    totals = [round(one.parts.total, 9) for one in ranked]
    assert totals == sorted(totals, reverse=True)
    assert len({one.key for one in ranked}) == len(ranked)


@pytest.mark.parametrize("seed", range(60))
def test_the_order_of_what_is_given_does_not_matter(seed):
    similarities, terms, holders, beside, texts, born = a_case(seed)
    first = order("when?", found_of(similarities, terms, holders, beside), texts, born)
    rng = random.Random(seed)

    def mixed(mapping):
        return dict(rng.sample(list(mapping.items()), len(mapping)))

    places = rng.sample(range(len(terms)), len(terms))
    again = order(
        "when?",
        found_of(
            mixed(similarities),
            [terms[place] for place in places],
            [rng.sample(holders[place], len(holders[place])) for place in places],
            mixed(beside),
        ),
        mixed(texts),
        mixed(born),
    )
    assert [one.key for one in again] == [one.key for one in first]
    for one, other in zip(first, again, strict=True):
        assert one.parts.total == pytest.approx(other.parts.total)


def test_a_limit_cuts_the_end_only():
    similarities, terms, holders, beside, texts, born = a_case(3)
    similarities[next(iter(similarities))] = 0.9
    found = found_of(similarities, terms, holders, beside)
    whole = order("q", found, texts, born)
    for limit in (0, 1, 2, 1000):
        assert order("q", found, texts, born, limit=limit) == whole[:limit]


def test_nothing_comes_of_nothing():
    found = found_of({})
    assert is_weak(found)
    assert to_read(found) == []
    assert order("anything", found) == []
    assert best_by_words(weigh((), (), 0), 10) == []
    assert keyword_terms("", ()) == ()


def test_a_similarity_that_is_no_number_poisons_nothing():
    ranked = order("q", found_of({1: math.nan, 2: 0.6}))
    assert [one.key for one in ranked] == [2, 1]
    assert all(math.isfinite(one.parts.total) for one in ranked)


def test_equal_ones_are_ordered_by_age_then_key():
    found = found_of({1: 0.5, 2: 0.5, 3: 0.5, 4: 0.5})
    born = {1: NOW, 2: NOW - 5, 3: NOW, 4: NOW - 9}
    assert [one.key for one in order("q", found, created_at=born)] == [3, 1, 2, 4]
    # Age is no more than that: the least lead beats it.
    nearer = found_of({1: 0.5, 2: 0.501})
    assert [one.key for one in order("q", nearer, created_at={1: NOW, 2: 0.0})] == [2, 1]


def test_recent_ones_lead_where_they_are_asked_for():
    found = found_of({1: 0.5, 2: 0.45})
    born = {1: NOW - 100 * 86400, 2: NOW}
    assert [one.key for one in order("q", found, created_at=born)] == [1, 2]
    ranked = order("q", found, created_at=born, now=NOW, half_life=86400.0)
    assert [one.key for one in ranked] == [2, 1]
    assert ranked[0].parts.recency == pytest.approx(hybrid.RECENCY)


def test_nothing_relevant_is_nothing_found():
    below, above = hybrid.LEAST_SIMILARITY - 0.01, hybrid.LEAST_SIMILARITY
    assert order("q", found_of({1: below})) == []
    assert [one.key for one in order("q", found_of({1: above}))] == [1]
    # One of four rare words is found, the others nowhere.
    words = ("kafka", "consumer", "groups", "configure")
    assert order("q", found_of({1: below}, words, ((), (), (), (1,)), notes=1000)) == []
    assert order("q", found_of({1: below}, words, ((1,), (), (1,), (1,)), notes=1000))


def test_an_identifier_is_found_that_no_vector_finds():
    found = found_of({1: 0.34, 2: 0.05}, ("E4032",), ((2,),), notes=1000)
    assert [one.key for one in order("E4032", found)] == [2, 1]


def test_a_term_left_out_counts_for_nothing():
    told = found_of({1: 0.1}, ("rare", "common"), ((1,), None), notes=1000)
    assert not is_weak(told)
    assert told.keyword[0] == found_of({1: 0.1}, ("rare",), ((1,),), notes=1000).keyword[0]


def test_a_rare_word_weighs_more_and_one_of_most_notes_next_to_nothing():
    found = found_of(
        {1: 0.5, 2: 0.5, 3: 0.5}, ("rare", "some", "all"), ((1,), (2, *range(30, 50)), (3, *range(20, 99))), notes=100
    )
    ranked = order("q", found)
    assert [one.key for one in ranked] == [1, 2, 3]
    assert ranked[0].parts.keyword > ranked[1].parts.keyword > 10 * ranked[2].parts.keyword > 0


def test_more_holders_than_notes_is_no_error():
    assert order("q", found_of({1: 0.5}, ("a", "b c"), ((1, 2, 3), (1,)), notes=1))


def test_words_count_for_the_notes_around_them_once_each():
    # 1-2-3-4-5 of one source; the words are in 2 and 3.
    chain = {1: (None, 2), 2: (1, 3), 3: (2, 4), 4: (3, 5), 5: (4, None)}
    found = found_of(dict.fromkeys(chain, 0.4), ("alpha", "beta"), ((2, 3), (2,)), chain, notes=100)
    around = {one.key: one.parts for one in order("q", found)}
    assert around[2].neighbours == pytest.approx(0.0)  # its words are its own, and count once
    assert around[3].neighbours > 0
    assert around[1].neighbours > 0
    assert around[4].neighbours > around[5].neighbours
    # Of another source nothing comes.
    alone = found_of({1: 0.4, 9: 0.4}, ("alpha",), ((1,),), {1: (None, None), 9: (None, None)}, notes=100)
    assert [one.parts.neighbours for one in order("q", alone)] == [0.0, 0.0]


def test_words_of_a_neighbour_count_that_is_not_returned_itself():
    found = found_of({5: 0.4}, ("alpha",), ((4,),), {5: (4, None)}, notes=100)
    (only,) = order("q", found)
    assert only.key == 5
    assert only.parts.neighbours > 0


def test_an_answer_takes_from_its_question():
    beside = {1: (None, 2), 2: (1, None)}
    similarities = {1: 0.6, 2: 0.4}
    asked = order("q", found_of(similarities, beside=beside), {1: "What did you paint?", 2: "A lake."})
    told = order("q", found_of(similarities, beside=beside), {1: "I painted.", 2: "A lake."})
    gained = {one.key: one.parts.neighbours for one in asked}
    assert gained[2] == pytest.approx(hybrid.ANSWER * hybrid.VECTOR * 0.6)
    assert gained[1] == 0
    assert all(one.parts.neighbours == 0 for one in told)


@pytest.mark.parametrize(
    "text",
    ["Caroline: Yes.", "[1:56 pm on 8 May, 2023] Caroline: Yes.", "Caroline (8 May, 2023): Yes.", "caroline: yes"],
)
def test_who_is_asked_for_speaks(text):
    query = "What is Caroline's plan?"
    found = found_of({1: 0.5, 2: 0.52}, full_text.words(query), [()] * len(full_text.words(query)))
    ranked = order(query, found, {1: text, 2: "Melanie: Caroline, wow!"})
    assert [one.key for one in ranked] == [1, 2]
    assert ranked[0].parts.wording == pytest.approx(hybrid.SPEAKER)
    assert ranked[1].parts.wording == 0


def test_a_time_leads_only_where_when_is_asked():
    texts = {1: "We went to the lake.", 2: "We went to the lake last week."}
    found = found_of({1: 0.51, 2: 0.5})
    assert [one.key for one in order("When did they go to the lake?", found, texts)] == [2, 1]
    assert [one.key for one in order("Who went to the lake?", found, texts)] == [1, 2]


@pytest.mark.parametrize("end", ["?", "? (8 May, 2023)", '?"', "? [shares a photo]", "\uff1f"])
def test_a_question_is_known_by_its_end(end):
    assert hybrid._asks("Did you go" + end)
    assert not hybrid._asks("Why? Because" + end.replace("?", ".").replace("\uff1f", "."))


def test_hostile_texts_cost_no_time():
    long = {1: "a" * 200_000, 2: "a " * 100_000, 3: "[" * 100_000, 4: "(a" * 50_000 + "?", 5: "last " * 50_000}
    found = found_of(dict.fromkeys(long, 0.5))
    assert len(order("when did a go", found, long)) == 5


def test_terms_are_the_words_and_what_stands_side_by_side():
    query = "Why did Jon start the dance studio?"
    assert keyword_terms(query, full_text.words(query)) == (
        *full_text.words(query),
        "Jon start",
        "dance studio",
    )
    assert keyword_terms("when?", ("when",)) == ("when",)


def test_the_best_by_words_are_those_of_the_largest_weight_the_newest_first():
    words = weigh(("rare", "common"), ((7,), (1, 2, 3, 4, 7)), 100)
    assert best_by_words(words, 3) == [7, 4, 3]
    assert best_by_words(words, 0) == []


def test_texts_are_read_of_the_best_and_of_those_before_them():
    similarities = {key: key / 1000 for key in range(1, 301)}
    beside = {key: (key - 1 if key > 1 else None, key + 1 if key < 300 else None) for key in similarities}
    assert to_read(found_of(similarities, beside=beside), 3) == [297, 298, 299, 300]
