"""Compares the words of two tasks: opposites, denials, names, scope, and words in each other's place.

Only words that the other side lacks are compared, so that "start/stop the service" on both sides
raises nothing. What is opposed is looked for first, then what means the same is taken out, then what
belongs to a group of names; what remains and stands between the same neighbours is a substitution.
"""

from __future__ import annotations

from collections import Counter
from functools import lru_cache
from itertools import pairwise

from subconscious_mcp import antonyms, lexicon
from subconscious_mcp.reading import Reading, Token
from subconscious_mcp.stems import akin, stem, words

Found = tuple[str, str, str, float]
"""Kind, the query's value, the stored task's value, strength."""

_MOST = 300
"""Tokens that are compared. Source: a window of the embedder holds fewer."""
_MOST_LEFT = 24
"""Words of one side that are compared with each of the other's: bounds the time."""

_TROUBLE = frozenset(
    stem(word)
    for word in words(
        "fail failure error problem issue wrong broken stuck missing trouble decline denied deny refuse reject "
        "crash unable unavailable still wait waiting pending delayed stop lost lack disappear blocked inactive "
        "unsupported disabled off optional absence absent omit prevent without instead except only impossible "
        "prevent avoid skip ignore exclude lacking empty yet"
    )
)
"""Words that say by themselves what a denial says of others: it does not work, it is broken."""


@lru_cache(maxsize=50_000)
def _relation(one: str, other: str) -> tuple[str, float]:
    """Returns how two different stems relate: `same`, `antonym` with its weight, the kind of a group, or nothing."""
    kind = lexicon.rivals(one, other)
    if kind is None and lexicon.is_ordinal(one) and lexicon.is_ordinal(other):
        return "number", 0.9
    if kind is not None and lexicon.rivals_surely(one, other):
        weight = antonyms.opposed(one, other)
        return ("antonym", weight) if weight else (kind, 0.9)
    weight = antonyms.opposed(one, other)
    if weight == antonyms.FIRM:
        return "antonym", weight
    if kind is None and ("_" in one) != ("_" in other) and (one in other.split("_") or other in one.split("_")):
        return "same", 0.5  # a card, a virtual card
    if lexicon.same(one, other) or antonyms.allied(one, other):
        return "same", 1.0
    if weight:
        return "antonym", weight
    if kind is not None:
        return kind, 0.9
    return ("same", 0.5) if akin(one, other) else ("", 0.0)


class _Side:
    """One text's tokens, and those that the other lacks."""

    def __init__(self, tokens: list[Token]) -> None:
        self.tokens = tokens
        self.left: list[Token] = []
        self.troubled = False
        self.denied = [token for token in tokens if token.negated]
        self.stems = {token.stem for token in tokens}
        self._content = [token for token in tokens if not token.slight and token.stem]
        self._place = {id(token): number for number, token in enumerate(tokens)}
        self._rank = {id(token): number for number, token in enumerate(self._content)}

    def lacking(self, counts: Counter[str]) -> None:
        """Keeps what remains when each of the other's tokens answers one."""
        rest = counts.copy()
        for token in self.tokens:
            if not token.stem or token.value is not None:
                continue
            if rest[token.stem] > 0:
                rest[token.stem] -= 1
            elif len(self.left) < _MOST_LEFT:
                self.left.append(token)

    def leads(self, token: Token) -> bool:
        """Tells whether a token is the first that says something: mostly the verb of a task."""
        return bool(self._content) and self._content[0] is token

    def beside(self, token: Token) -> tuple[set[str], set[str]]:
        """Returns what is said before a token and behind it."""
        place = self._place[id(token)]
        parts = (self.tokens[:place], self.tokens[place + 1 :])
        before, after = ({_name(near) for near in part if near.stem and not near.slight} for part in parts)
        return before, after

    def around(self, token: Token) -> tuple[str, str, str, str]:
        """Returns the words next to a token, and the next that say something."""
        place = self._place[id(token)]
        before = self.tokens[place - 1].stem if place else "^"
        after = self.tokens[place + 1].stem if place + 1 < len(self.tokens) else "$"
        rank = self._rank.get(id(token))
        if rank is None:
            return before, after, "", ""
        content_before = self._content[rank - 1].stem if rank else "^"
        content_after = self._content[rank + 1].stem if rank + 1 < len(self._content) else "$"
        return before, after, content_before, content_after


class Pair:
    """The words of two texts side by side."""

    def __init__(self, mine: Reading, theirs: Reading) -> None:
        query, stored = mine.tokens[:_MOST], theirs.tokens[:_MOST]
        self.query = _Side(query)
        self.stored = _Side(stored)
        query_counts = Counter(token.stem for token in query if token.stem)
        stored_counts = Counter(token.stem for token in stored if token.stem)
        self.query.lacking(stored_counts)
        self.stored.lacking(query_counts)
        self._spell_out(self.query, self.stored)
        self._spell_out(self.stored, self.query)
        self.query.troubled = any(token.stem in _TROUBLE for token in self.query.left)
        self.stored.troubled = any(token.stem in _TROUBLE for token in self.stored.left)
        self.turned = False
        self._slots: dict[tuple[int, int], int] = {}

    @staticmethod
    def _spell_out(side: _Side, other: _Side) -> None:
        """Takes out an acronym that the other side spells out, with its words."""
        for token in [token for token in side.left if token.text.isupper() and 2 <= len(token.text) <= 5]:
            parts = [(part[:1], spelt) for spelt in other.tokens for part in spelt.stem.split("_")]
            place = "".join(initial or " " for initial, _ in parts).find(token.text.lower())
            if place >= 0:
                side.left.remove(token)
                spelt = [spelt for _, spelt in parts[place : place + len(token.text)]]
                other.left = [left for left in other.left if not any(left is one for one in spelt)]

    def contrasts(self) -> list[Found]:
        """Returns how the words of two English texts contrast."""
        return [*self.related(), *self.denials(), *self.substitutions(), *self.additions()]

    def names(self) -> list[Found]:
        """Returns contrasts of known names alone: what can be said in any language."""
        return [found for found in self.related() if found[0] == "name"]

    def slot(self, one: Token, other: Token) -> int:
        """Returns on how many sides, 0 to 2, two tokens have the same neighbours."""
        key = (id(one), id(other))
        if key not in self._slots:
            mine, theirs = self.query.around(one), self.stored.around(other)
            before = _meets(mine[0], theirs[0]) or _meets(mine[2], theirs[2])
            after = _meets(mine[1], theirs[1]) or _meets(mine[3], theirs[3])
            self._slots[key] = before + after
        return self._slots[key]

    def _take(self, one: Token, other: Token) -> None:
        self.query.left.remove(one)
        self.stored.left.remove(other)

    def _pairs(self) -> list[tuple[Token, Token]]:
        return [(one, other) for one in self.query.left for other in self.stored.left]

    def closeness(self) -> int:
        """Returns how many words that say something have no answer on the other side."""
        return sum(not token.slight for side in (self.query, self.stored) for token in side.left)

    def related(self) -> list[Found]:
        """Takes out words that mean the same; returns opposites and members of one group.

        Which of several candidates a word belongs to, its place tells.
        """
        candidates = []
        for one, other in self._pairs():
            relation, weight = _relation(one.stem, other.stem)
            if not relation:
                continue
            slot = self.slot(one, other)
            if (one.slight or other.slight) and not _counts(relation, slot, one, other):
                continue
            rank = slot + (0.5 if relation == "same" else weight / 4)
            candidates.append((-rank, one.place, other.place, one, other, relation, weight, slot))
        found: list[Found] = []
        far = self.closeness() > 4
        for _, _, _, one, other, relation, weight, slot in sorted(candidates, key=lambda candidate: candidate[:3]):
            if one in self.query.left and other in self.stored.left:
                self._take(one, other)
                if relation == "same":
                    found += self._same(one, other, far)
                elif one.negated != other.negated and relation == "antonym":
                    self._forgive(one, other)  # Not disabled, enabled.
                elif relation == "antonym" and self._turned(one, other):
                    self.turned = True
                else:
                    strength = weight * (1.0 if slot or not far else 0.6)
                    found.append((relation, one.text, other.text, round(strength, 2)))
        return found

    def _same(self, one: Token, other: Token, far: bool) -> list[Found]:
        if not (one.negated or other.negated):
            return []
        both = bool(self.query.denied and self.stored.denied)
        self._forgive(one, other)
        if both or far:
            return []
        return [("negation", _denied(one), _denied(other), 0.7)]

    def _forgive(self, one: Token, other: Token) -> None:
        for side, token in ((self.query, one), (self.stored, other)):
            if token in side.denied:
                side.denied.remove(token)

    def _turned(self, one: Token, other: Token) -> bool:
        """Tells whether what two converses relate changes places too: A takes less than B, B more than A."""
        if not antonyms.converse(one.stem, other.stem):
            return False
        before, after = self.query.beside(one)
        other_before, other_after = self.stored.beside(other)
        return bool(before & other_after and after & other_before) and not before & other_before

    def denials(self) -> list[Found]:
        """What one side denies and the other does not."""
        query = [token for token in self.query.denied if not self._denies(self.stored, token)]
        stored = [token for token in self.stored.denied if not self._denies(self.query, token)]
        near = self.closeness()
        if query and stored:
            crossed = [token for token in query if token.stem in self.stored.stems and not token.slight]
            crossing = [token for token in stored if token.stem in self.query.stems and not token.slight]
            if crossed and crossing and near <= 1 and not self._beside(crossed[0], crossing[0]):
                return [("negation", _denied(crossed[0]), _denied(crossing[0]), 0.9)]
        if (query and self.stored.denied) or (stored and self.query.denied):
            return []  # Both deny: another word for it.
        found: list[Found] = []
        for tokens, other in ((query, self.stored), (stored, self.query)):
            if not tokens or other.troubled:
                continue
            token = next((token for token in tokens if token.stem in other.stems), tokens[0])
            shared = token.stem in other.stems
            strength = (0.9 if near <= 2 else 0.6 if near <= 4 else 0.4) if shared else (0.5 if near <= 3 else 0.35)
            sides = (f"not {token.text}", token.text if shared else "")
            found.append(("negation", *(sides if other is self.stored else sides[::-1]), strength))
        return found

    def _beside(self, one: Token, other: Token) -> bool:
        """Tells whether a text has two words side by side: not publicly accessible, not accessible publicly."""
        for side in (self.query, self.stored):
            places = [place for place, token in enumerate(side.tokens) if token.stem in (one.stem, other.stem)]
            if any(second - first == 1 for first, second in pairwise(places)):
                return True
        return False

    @staticmethod
    def _denies(side: _Side, token: Token) -> bool:
        return any(other.stem == token.stem or lexicon.same(other.stem, token.stem) for other in side.denied)

    def substitutions(self) -> list[Found]:
        """Words in each other's place whose relation is unknown."""
        query = [token for token in self.query.left if not token.slight]
        stored = [token for token in self.stored.left if not token.slight]
        most = max(len(query), len(stored))
        ranked = []
        for one in query:
            for other in stored:
                slot = self.slot(one, other)
                proper = one.proper + other.proper
                if slot or proper == 2 or most == 1:
                    ranked.append((-slot, -proper, one.place, other.place, one, other))
        found: list[Found] = []
        for slot, proper, _, _, one, other in sorted(ranked, key=lambda candidate: candidate[:4]):
            if one in self.query.left and other in self.stored.left:
                self._take(one, other)
                # What a task does has many names, what it does it to has few.
                verbs = self.query.leads(one) and self.stored.leads(other)
                strength = (
                    (0.6 if verbs else 1.0) * (0.1 - 0.15 * slot) * (1.0 if most <= 1 else 0.75 if most == 2 else 0.5)
                )
                if proper == -2 or (proper and (lexicon.is_product(one.stem) or lexicon.is_product(other.stem))):
                    found.append(("name", one.text, other.text, round(min(strength + 0.4, 0.8), 2)))
                else:
                    found.append(("substitution", one.text, other.text, round(strength - 0.1 * proper, 2)))
        return found

    def additions(self) -> list[Found]:
        """Names that one side has and the other does not answer."""
        found: list[Found] = []
        for token in self.query.left:
            if _is_name(token):
                found.append(("name", token.text, "", 0.35))
        for token in self.stored.left:
            if _is_name(token):
                found.append(("name", "", token.text, 0.35))
        return found


def _name(token: Token) -> str:
    return token.stem if token.value is None else str(token.value.keys[0])


def _is_name(token: Token) -> bool:
    named = token.proper or lexicon.is_product(token.stem) or lexicon.is_place(token.stem)
    return named and not token.slight


def _denied(token: Token) -> str:
    return f"not {token.text}" if token.negated else token.text


def _counts(relation: str, slot: int, one: Token, other: Token) -> bool:
    """Tells whether a relation holds between small words: opposites in one place, or one denied; no names."""
    if relation == "antonym":
        return slot > 0 or one.negated != other.negated
    return relation == "same" or (slot > 0 and relation != "name")


def _meets(one: str, other: str) -> bool:
    return one == other != "" or lexicon.same(one, other)
