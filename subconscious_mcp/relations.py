"""Compares how two tasks relate what they name: from where to where, what first, who whom, of which how many."""

from __future__ import annotations

from subconscious_mcp import antonyms
from subconscious_mcp.reading import Reading, Token
from subconscious_mcp.stems import phrase_key, stem, words
from subconscious_mcp.wording import Found

_MOST = 120
_LONG = 30
"""Tokens of a text from which on what is linked to what is told in too many ways to be sure."""
_REACH = 3
"""Words that belong to what a preposition leads in."""

Part = dict[str, Token]

_PLACED = ("instead_of", "over", "under", "behind", "above", "below", "on_top_of", "against")
_LED = {
    phrase_key(name): role
    for role, names in {
        "to": "to into onto toward towards",
        "from": "from off",
        "than": "than more_than less_than",
        "with": "with",
        "by": "by",
        **{
            name.replace("_", " "): name for name in words("instead_of over under behind above below on_top_of against")
        },
    }.items()
    for name in names.split()
}
"""Prepositions that say where something goes, or what is before what."""
_EXCHANGED = frozenset(stem(word) for word in words("replace substitute swap exchange"))
"""Verbs of which "with" and "by" tell the new one."""
_INFINITIVE = {
    stem(word) for word in words("use how need want have able possible go try way ways like order help allow let plan")
}
"""Words before the "to" of a verb."""
_BREAKS = frozenset(_LED) | {stem(word) for word in words("and or but when while if before after then at as via using")}


class _Link:
    """A preposition with the words that it leads in and those that stand before it."""

    __slots__ = ("behind", "led", "role")

    def __init__(self, role: str, led: Part, behind: Part) -> None:
        self.role = role
        self.led = led
        self.behind = behind


def directions(query: Reading, stored: Reading, near: int) -> list[Found]:
    """Returns contrasts of direction: A to B, B to A; to A, from A.

    Args:
        near: How many words of the two have no answer: the more, the less it says that two ends changed places.
    """
    mine, theirs = _links(query.tokens[:_MOST]), _links(stored.tokens[:_MOST])
    if max(len(query.tokens), len(stored.tokens)) > _LONG:
        near = _LONG
    for one in mine:
        for other in theirs:
            if one.role == other.role:
                found = _crossed(one, other, 1.0 if near <= 3 else 0.4)
            elif {one.role, other.role} == {"to", "from"} and len(mine) == len(theirs) == 1:
                found = _turned(one, other, 0.8 if near <= 3 else 0.4)
            else:
                continue
            if found:
                return found
    return []


def _crossed(one: _Link, other: _Link, strength: float) -> list[Found]:
    """A to B, B to A."""
    goal = [name for name in one.led if name in other.behind and name not in other.led and name not in one.behind]
    source = [name for name in other.led if name in one.behind and name not in one.led and name not in other.behind]
    if not (goal and source):
        return []
    first, last = one.behind[source[0]].text, one.led[goal[0]].text
    if one.role == "from":
        first, last = last, first
    link = "to" if one.role == "from" else one.role
    return [("direction", f"{first} {link} {last}", f"{last} {link} {first}", strength)]


def _turned(one: _Link, other: _Link, strength: float) -> list[Found]:
    """To the server, from the server."""
    place = next((name for name in one.led if name in other.led), None)
    before = one.behind.keys() & other.behind.keys()
    if place is None or not before or one.behind.keys() & other.led.keys() or other.behind.keys() & one.led.keys():
        return []
    return [("direction", f"{one.role} {one.led[place].text}", f"{other.role} {other.led[place].text}", strength)]


def _links(tokens: list[Token]) -> list[_Link]:
    links: list[_Link] = []
    exchanged = any(token.stem in _EXCHANGED for token in tokens)
    for place, token in enumerate(tokens):
        role = _LED.get(token.stem)
        if role is None or (role in ("with", "by") and not exchanged):
            continue
        if token.stem == "to" and (not place or tokens[place - 1].stem in _INFINITIVE):
            continue
        led = _reach(tokens[place + 1 : place + 8], _BREAKS)
        # "from B to A", "to A from B": the other end may stand before or behind.
        behind = _reach(tokens[max(place - 8, 0) : place][::-1], frozenset())
        counter = {"to": "from", "from": "to"}.get(role)
        for further in range(place + 1, min(place + 8, len(tokens))):
            if counter and _LED.get(tokens[further].stem) == counter:
                behind |= _reach(tokens[further + 1 : further + 8], _BREAKS)
        if led and behind:
            links.append(_Link(role, led, behind))
    return links


def _reach(tokens: list[Token], breaks: frozenset[str]) -> Part:
    """Returns the first words that say something, up to a stop or a break."""
    reached: Part = {}
    for token in tokens:
        if not token.stem or token.stem in breaks or len(reached) == _REACH:
            break
        if not token.slight:
            reached[_name(token)] = token
    return reached


def _name(token: Token) -> str:
    return token.stem if token.value is None else str(token.value.keys[0])


# --- order ------------------------------------------------------------------------------------------


def orders(query: Reading, stored: Reading) -> list[Found]:
    """Returns contrasts of order in time: A before B, B before A."""
    mine, theirs = _sequence(query.tokens[:_MOST]), _sequence(stored.tokens[:_MOST])
    if mine is None or theirs is None:
        return []
    agree = (mine[0].keys() & theirs[0].keys()) | (mine[1].keys() & theirs[1].keys())
    first = mine[0].keys() & theirs[1].keys() - agree
    second = mine[1].keys() & theirs[0].keys() - agree
    if not (first and second):
        return []
    one, other = mine[0][min(first)].text, mine[1][min(second)].text
    return [("order", f"{one} before {other}", f"{other} before {one}", 1.0)]


def told_in_order(query: Reading, stored: Reading) -> bool:
    """Tells whether both texts say what comes first, and agree: "before" and "after" are no opposites there."""
    mine, theirs = _sequence(query.tokens[:_MOST]), _sequence(stored.tokens[:_MOST])
    if mine is None or theirs is None:
        return False
    agree = (mine[0].keys() & theirs[0].keys()) and (mine[1].keys() & theirs[1].keys())
    return bool(agree) or bool(orders(query, stored))


_AFTER = frozenset(stem(word) for word in words("after once"))
_SEQUENCE = _AFTER | {stem("before"), "then"}


def _sequence(tokens: list[Token]) -> tuple[Part, Part] | None:
    """Returns what is told to come first, and what next; None where nothing is."""
    for place, token in enumerate(tokens):
        if token.stem not in _SEQUENCE:
            continue
        before, after = _part(tokens[:place]), _part(tokens[place + 1 :])
        if token.stem != "then" and not before:
            # "After B, A": the clause behind the comma is the main one.
            stop = next((at for at in range(place, len(tokens)) if tokens[at].text == ","), None)
            if stop is None:
                continue
            before, after = _part(tokens[stop:]), _part(tokens[place + 1 : stop])
        if not before or not after:
            continue
        return (after, before) if token.stem in _AFTER else (before, after)
    return None


def _part(tokens: list[Token]) -> Part:
    return {token.stem: token for token in tokens if token.stem and not token.slight and token.value is None}


# --- who whom ---------------------------------------------------------------------------------------

_EVEN = {stem(word) for word in words("and or vs versus with between both nor compare together plus difference")}


def swaps(query: Reading, stored: Reading) -> list[Found]:
    """Returns two words that change places while all others stay: the client calls the server."""
    mine, theirs = _plainly(query), _plainly(stored)
    if len(mine) != len(theirs):
        return []
    moved = [place for place, token in enumerate(theirs) if _name(token) != _name(mine[place])]
    if len(moved) != 2:
        return []
    one, other = mine[moved[0]], mine[moved[1]]
    crossed = _name(one) == _name(theirs[moved[1]]) and _name(other) == _name(theirs[moved[0]])
    little = (one.slight or other.slight) and not antonyms.opposed(one.stem, other.stem)  # the old, the new
    if not crossed or little or _is_even(mine[moved[0] + 1 : moved[1]]):
        return []
    return [("order", f"{one.text} .. {other.text}", f"{other.text} .. {one.text}", 0.8)]


def _plainly(reading: Reading) -> list[Token]:
    return [token for token in reading.tokens[:_MOST] if token.stem and not (token.slight and token.stem in _ARTICLES)]


_ARTICLES = words("a an the please")


def _is_even(between: list[Token]) -> bool:
    """Tells whether two words are only listed, so that their order says nothing."""
    return all(token.stem in _EVEN for token in between)


# --- scope ------------------------------------------------------------------------------------------

_SCOPES = {
    phrase_key(word): scope
    for scope, scope_words in {
        "all": "all every each entire whole everything everyone everybody both anyone anybody",
        "only": "only solely exclusively",
        "except": "except excluding",
        "some": "some few several half most certain",
        "one": "single",
        "at least": "at_least",
        "at most": "at_most",
    }.items()
    for word in scope_words.split()
}
_CLAUSES = words("that i you we it")
_ALONE = {
    "only": 0.4,
    "except": 0.7,
    "than": 0.5,
    "at least": 0.3,
    "at most": 0.3,
    "all": 0.15,
    "one": 0.2,
    "just one": 0.0,
    "some": 0.1,
}
"""Strength of a scope that one side has alone. "All" is often left out; an exception never is."""
_CLASH = {
    frozenset(("all", "only")): 0.8,
    frozenset(("all", "except")): 0.7,
    frozenset(("all", "some")): 0.5,
    frozenset(("all", "one")): 0.8,
    frozenset(("all", "just one")): 0.8,
    frozenset(("all", "than")): 0.8,
    frozenset(("only", "except")): 0.9,
    frozenset(("at least", "at most")): 1.0,
}


_BOUNDS = frozenset(phrase_key(word) for word in words("under over above below beyond"))
"""Words before a number that say what "more than" and "less than" do."""
_MORE_THAN = (phrase_key("more_than"), phrase_key("less_than"))


def scopes(query: Reading, stored: Reading, near: int) -> list[Found]:
    """Returns contrasts of which and how many a task is about."""
    mine, theirs = _scoped(query), _scoped(stored)
    only_mine = {scope: text for scope, text in mine.items() if scope not in theirs}
    only_theirs = {scope: text for scope, text in theirs.items() if scope not in mine}
    for scope, text in sorted(only_mine.items()):
        for other, other_text in sorted(only_theirs.items()):
            strength = _CLASH.get(frozenset((scope, other)))
            if strength:
                return [("scope", text, other_text, strength if near <= 4 else strength / 2)]
    found: list[Found] = [("scope", text, "", _ALONE[scope]) for scope, text in sorted(only_mine.items())]
    found += [("scope", "", text, _ALONE[scope]) for scope, text in sorted(only_theirs.items())]
    return [one for one in found if one[3]]


def _points(before: list[Token]) -> bool:
    """Tells whether a "one" behind these words stands for a thing: this one, which one."""
    return bool(before) and before[-1].text.lower() in _POINTING


_POINTING = words("this that which the each every another other any no only last next first")


def _is_figure(tokens: list[Token]) -> bool:
    return bool(tokens) and tokens[0].value is not None and tokens[0].value.kind == "number"


def _scoped(reading: Reading) -> dict[str, str]:
    scoped: dict[str, str] = {}
    tokens = reading.tokens[:_MOST]
    for place, token in enumerate(tokens):
        scope = _SCOPES.get(token.stem)
        if scope == "except" and token.text.lower() not in ("except", "excluding", "other than"):
            continue  # "Exclude" is a task, not its scope.
        if scope and not (token.negated and scope == "only"):
            if scope == "all" and place + 1 < len(tokens) and tokens[place + 1].stem in _CLAUSES:
                continue  # "All you need".
            scoped.setdefault(scope, token.text)
        elif token.stem == "<numeral>" and token.text.lower() == "one" and not _points(tokens[:place]):
            scoped.setdefault("just one", token.text)
        elif token.stem == "than" and place and tokens[place - 1].text.endswith(("er", "er,")):
            scoped.setdefault("than", f"{tokens[place - 1].text} than")
        elif token.stem in _MORE_THAN or (token.stem in _BOUNDS and _is_figure(tokens[place + 1 : place + 2])):
            scoped.setdefault("than", token.text)
    return scoped
