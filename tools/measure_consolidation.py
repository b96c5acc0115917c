"""Measures at which similarity entries may be merged: false and missed merges on pairs of known meaning.

    python tools/measure_consolidation.py [PARAPHRASES.json]

The own pairs are notes as people tell them. PARAPHRASES.json is a list of objects with `origin` and `similar`, two
wordings of one statement. Of its other pairs, the near ones that would be merged are printed, to be read by a person:
such sets say many things twice.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent))

from subconscious_mcp.config import resolve
from subconscious_mcp.embedding import Embedder
from subconscious_mcp.exact_search import similarities
from subconscious_mcp.near_duplicates import compared
from subconscious_mcp.opening import load_embedder
from subconscious_mcp.records import Entry
from tests import test_confidence, test_contrasts

LEVELS = (0.8, 0.85, 0.88, 0.9, 0.92, 0.94, 0.95, 0.96)
SHOWN = 0.95

DIFFERENT = """
I prefer dark mode | I prefer dark mode in the editor but light mode in the terminal
I prefer dark mode | I prefer light mode
My sister's birthday is on May 3 | My brother's birthday is on May 3
The dentist appointment is on Tuesday at 10 | The dentist appointment is on Tuesday at 11
I am allergic to peanuts | I am allergic to peanuts and shellfish
I am allergic to peanuts | I am not allergic to peanuts
My car's plate is AB-123 | My car's plate is AB-132
The staging database runs on port 5432 | The production database runs on port 5432
We deploy on Fridays | We never deploy on Fridays
Anna leads the design team | Anna left the design team
Anna leads the design team | Clara leads the design team
Anna leads the design team | Anna leads the data team
The wifi password of the office is on the fridge | The wifi password of the cabin is on the fridge
I like my coffee black | I like my coffee with milk
I like coffee in the morning | I like tea in the morning
The flight to Oslo leaves from gate 12 | The flight to Oslo leaves from gate 21
Peter owes me 20 euros | I owe Peter 20 euros
The meeting with Sam moved to Thursday | The meeting with Sam moved from Thursday
Mia's school starts at 8:00 | Mia's school starts at 8:30
Mia is in third grade | Mia is in fourth grade
The backup runs every night | The backup runs every hour
Use tabs for indentation in the frontend repository | Use spaces for indentation in the frontend repository
The API returns XML | The API returns JSON
The API key rotates monthly | The API key rotates weekly
My favourite colour is blue | My favourite colour is green
Book a table for two at Luigi's | Book a table for four at Luigi's
Lunch with Tom was cancelled | Lunch with Tom was confirmed
The project deadline is the end of March | The project deadline is the end of May
Bob prefers email | Bob prefers phone calls
The cat's vaccination is due in June | The dog's vaccination is due in June
The printer on the second floor is broken | The printer on the third floor is broken
The printer on the second floor is broken | The printer on the second floor works again
We chose Postgres for the billing service | We chose MySQL for the billing service
We chose Postgres for the billing service | We chose Postgres for the reporting service
I ran 5 km today | I ran 10 km today
The tests are flaky on Windows | The tests are flaky on macOS
Lena moved to Berlin | Lena moved to Vienna
Lena moved to Berlin | Lena moved away from Berlin
My gym membership ends in August | My library membership ends in August
The heating engineer comes on Monday | The plumber comes on Monday
Add salt before the water boils | Add salt after the water boils
The landlord raised the rent | The landlord lowered the rent
I finished reading Dune | I started reading Dune
Sarah's phone number ends with 42 | Sarah's phone number ends with 24
Use the blue bin for paper | Use the blue bin for plastic
The user wants short answers | The user wants long answers
The user wants short answers | The user wants short answers with code examples
The user works at Acme as an engineer | The user works at Acme as a manager
The user's son is called Max | The user's dog is called Max
The user lives in Lyon | The user used to live in Lyon
The release branch is cut on the 1st | The release branch is cut on the 15th
The report goes to Maria and Jonas | The report goes to Maria
Call mum on Sunday evening | Call mum on Saturday evening
The hotel in Rome is paid | The hotel in Rome is not yet paid
The hotel in Rome is paid | The hotel in Milan is paid
The server room key is with Ivan | The server room key is with Igor
Take the medicine with food | Take the medicine on an empty stomach
Take one pill in the morning | Take one pill in the evening
The window seat is mine on the way there | The window seat is mine on the way back
Feature flags live in LaunchDarkly | Feature flags live in the database
"""
SAME = """
I prefer dark mode | I like dark mode better
I prefer dark mode in my editor | My editor should be in dark mode
My sister's birthday is on May 3 | My sister has her birthday on May 3rd
The dentist appointment is on Tuesday at 10 | Dentist appointment Tuesday 10:00
I am allergic to peanuts | I have a peanut allergy
We never deploy on Fridays | We do not deploy on Fridays
Anna leads the design team | The design team is led by Anna
Anna leads the design team | Anna is the lead of the design team
I like my coffee black | I take my coffee black
Peter owes me 20 euros | Peter owes me 20 €
The meeting with Sam moved to Thursday | The meeting with Sam was moved to Thursday
Mia's school starts at 8:30 | Mia's school begins at 8:30
Mia is in fourth grade | Mia is a fourth grader
The backup runs every night | Backups run nightly
Use tabs for indentation in the frontend repository | In the frontend repository, indent with tabs
The API returns JSON | The API returns JSON.
The API key rotates monthly | The API key is rotated every month
My favourite colour is blue | Blue is my favourite colour
My favourite color is blue | My favourite colour is blue
Lunch with Tom was cancelled | The lunch with Tom got cancelled
The project deadline is the end of March | The deadline of the project is at the end of March
Bob prefers email | Bob prefers e-mail
The printer on the second floor is broken | The second floor's printer is broken
We chose Postgres for the billing service | We decided to use Postgres for the billing service
I ran 5 km today | Today I ran 5 kilometres
Lena moved to Berlin | Lena has moved to Berlin
My gym membership ends in August | My gym membership expires in August
Add salt before the water boils | Before the water boils, add salt
The landlord raised the rent | The landlord increased the rent
I finished reading Dune | I finished Dune
The user wants short answers | The user prefers short answers
The user wants short answers | User wants short answers
The user works at Acme as an engineer | The user is an engineer at Acme
The user lives in Lyon | User lives in Lyon
The user's son is called Max | The user has a son called Max
The release branch is cut on the 1st | The release branch gets cut on the 1st
Call mum on Sunday evening | Call mom on Sunday evening
The hotel in Rome is paid | The hotel in Rome has been paid
The server room key is with Ivan | Ivan has the key to the server room
Take one pill in the morning | Take 1 pill each morning
Feature flags live in LaunchDarkly | Feature flags are kept in LaunchDarkly
Tests run with pytest | Run the tests with pytest
Prefer small commits | Prefers small commits
Always write docstrings in Google style | Write docstrings in Google style always
Remember to water the plants on Saturday | Water the plants on Saturday
"""

Pair = tuple[str, str]
Judged = tuple[float, bool, str, str]


def pairs(text: str) -> list[Pair]:
    """Returns the pairs of a table."""
    rows = (row.split(" | ") for row in text.strip().splitlines())
    return [(one.strip(), other.strip()) for one, other in rows]


def entry(text: str, key: int) -> Entry:
    """Returns a note."""
    return Entry(key, str(key), "note", text, "", float(key), None, ())


def judged(one: str, other: str, similarity: float) -> Judged:
    """Returns a pair's similarity and whether the check lets it be merged; the longer survives, as of notes."""
    first, second = sorted((entry(one, 1), entry(other, 2)), key=lambda e: -len(e.task))
    return similarity, not compared(first, second, similarity)[2], one, other


def measured(embedder: Embedder, some: list[Pair]) -> list[Judged]:
    """Returns what becomes of pairs."""
    ones, others = (embedder.embed([pair[side] for pair in some]) for side in (0, 1))
    return [
        judged(*pair, float(similarities(one, other.reshape(1, -1))[0]))
        for pair, one, other in zip(some, ones, others, strict=True)
    ]


def crossed(embedder: Embedder, some: list[Pair]) -> list[Judged]:
    """Returns what becomes of near pairs that the set does not call the same."""
    texts = list(dict.fromkeys(text for pair in some for text in pair))
    known = {frozenset(pair) for pair in some}
    vectors = embedder.embed(texts)
    found = []
    for number, vector in enumerate(vectors):
        near = similarities(vector, vectors[:number]) if number else np.empty(0)
        for other in np.flatnonzero(near >= min(LEVELS)):
            if frozenset((texts[number], texts[other])) not in known:
                found.append(judged(texts[number], texts[int(other)], float(near[other])))
    return found


def main() -> None:
    """Prints the tables."""
    embedder = load_embedder(resolve().config)
    sets = {
        "own, different": measured(embedder, pairs(DIFFERENT)),
        "own, same": measured(embedder, pairs(SAME)),
        "contrasts, different": measured(
            embedder, [(one, other) for _, one, other in test_contrasts.all_of(test_contrasts.DIFFERENT)]
        ),
        "contrasts, same": measured(
            embedder, [(one, other) for _, one, other in test_contrasts.all_of(test_contrasts.THE_SAME)]
        ),
        "confidence, different": measured(
            embedder, [(one, other) for _, one, other in test_confidence.rows(test_confidence.ANOTHER)]
        ),
    }
    if len(sys.argv) > 1:
        told = [(row["origin"], row["similar"]) for row in json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))]
        sets["paraphrases"] = measured(embedder, told)
        sets["paraphrases, other pairs"] = crossed(embedder, told)
    for level in LEVELS:
        for name, rows in sets.items():
            near = [row for row in rows if row[0] >= level]
            print(
                f"{level:.2f}  {name:25} merged {sum(row[1] for row in near):5} of {len(near):5} near, {len(rows)} all"
            )
    for name in ("own, different", "contrasts, different", "paraphrases, other pairs"):
        for similarity, merges, one, other in sorted(sets.get(name, []), reverse=True):
            if merges and similarity >= (SHOWN if "other" in name else min(LEVELS)):
                print(f"{name}  {similarity:.4f}\n    {one}\n    {other}")


if __name__ == "__main__":
    main()
