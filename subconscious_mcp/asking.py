"""Compares what two tasks want to hear: how, why, when, whether to, or whether it is so."""

from __future__ import annotations

import re

from subconscious_mcp.reading import Reading
from subconscious_mcp.stems import words
from subconscious_mcp.wording import Found

_SUBJECTS = words("i you we he she it they one there that this the a an my our your these those any")
_PEOPLE = words("i you we they any there")
_NEEDED = words("necessary needed required worthwhile advisable recommended")
_CHECKS = tuple(
    f"{check} {word} "
    for check in ("check", "find out", "tell me", "see", "verify", "determine", "test")
    for word in ("if", "whether")
)
_BE = words("is are was were")
_ABLE = words("can could may will would shall might do does")
_DID = words("did has have had")
_ASKS = {"why": "why", "when": "when", "where": "where", "who": "who", "whom": "who", "whose": "who"}
_LEADS = words(
    "tell know me explain understand out see check of about and figure sure wonder wondering find determine show"
)
_MANY = {"many": "how many", "much": "how much", "long": "how long", "often": "how often", "old": "how old"}
_MANY |= {"far": "how far", "big": "how big", "large": "how big", "fast": "how fast", "tall": "how tall"}
_TIMES = words("second minute hour day week month year")
_QUESTION_WORDS = words("how what which")
_OPENINGS = words("hi hello hey please so ok okay and but thanks also")
_AUXILIARIES = words("do does did can could should would will is are was were has have am may might must shall")

_SAID = {
    "what time": "when", "what date": "when", "what day": "when", "how come": "why", "what causes": "why",
    "what caused": "why", "reason for": "why", "reason why": "why", "the reason": "why", "the cause": "why",
    "is there a reason": "why", "is there any reason": "why",
    "what place": "where", "which place": "where", "whereabouts": "where", "what is the price": "how much",
    "what is the cost": "how much", "the number of": "how many", "number of": "how many", "the location of": "where",
    "what makes": "why", "which person": "who",
}  # fmt: skip
_ADVISES = (
    r" (?:(?:should|ought|must) (?:we|i|you|the|our|my|this|it|they|one)"
    r"|(?:do|does) (?:we|i|you|one|it) (?:need|require|have to)"
    r"|is it (?:worth|wise|better|safe|ok|okay|necessary|recommended|advisable|smart|sensible|good|bad|best)"
    r"|(?:does|would) it make sense|(?:would|do) you (?:recommend|advise|suggest)|worth it|an? (?:good|bad) idea"
    r"|(?:good|bad) practice|is there (?:any|a) point|would it be (?:better|wise|safe|worth)|worth \w+ing) "
)
_WAY = re.compile(r"\bwhat (?:should|can|do|must) (?:i|we) do\b|\bwhat steps\b")
_WANTED = tuple(
    f"{opening} " for opening in ("is there a", "is there an", "is there any", "are there any ways", "is it possible")
)
"""Openings of a question for the way to do it: is there a command to."""

_CHANGED = words("increase reduce raise lower limit decrease grow double change set cut boost shrink")
_SAYS = words("i my the we our it there you your he she they this that these those a an <code> <quote>")
_WISHES = tuple(
    f"{who} {wish} "
    for who in ("i", "we", "you")
    for wish in ("want to", "need to", "would like to", "wish to", "have to", "must", "should", "need you to")
)
"""Openings of a task that is put as a statement."""

_REQUESTS = words("can could will would")
_STRONG = frozenset({"why", "when", "where", "who"}) | frozenset(_MANY.values())


def compare(query: Reading, stored: Reading) -> list[Found]:
    """Returns contrasts of modality (should we, do, is it so) and of the question that is asked."""
    one, other = asked(query), asked(stored)
    if one == other:
        return []
    pair = frozenset((one, other))
    if pair & _STRONG:
        return _strong(one, other, pair)
    if "do" in pair and _is_open(query if one == "do" else stored):
        return []
    if "advice" in pair:
        return [("modality", one, other, 0.8 if pair & {"do", "how"} else 0.3)]
    if "whether" in pair:
        return [("modality", one, other, 0.5 if "do" in pair else 0.3)] if pair & {"do", "how"} else []
    if "what" in pair and pair & {"how", "do"}:
        return [("question", one, other, 0.25)]
    return []


def tells_trouble(query: Reading, stored: Reading) -> bool:
    """Tells whether one text says what does not work, or asks why, and the other how to do it."""
    one, other = _troubled(query), _troubled(stored)
    return {one, other} in ({"say", "how"}, {"why", "how"}, {"say", "wanted"})


def _troubled(reading: Reading) -> str:
    """As `form`; a plea for help with what does not work is a statement, "I need to find it" is `wanted`."""
    found = asked(reading)
    if found != "do":
        return found
    opening = reading.spoken[:4]
    if "help" in opening and "not" in reading.spoken:
        return "say"
    return "wanted" if "help" in opening or opening[:2] in (["i", "need"], ["i", "want"]) else "do"


def _strong(one: str, other: str, pair: frozenset[str]) -> list[Found]:
    """Returns the contrast of two forms of which one is a question word."""
    if pair == {"how long", "when"}:
        return [("question", one, other, 0.3)]
    if pair <= _STRONG:
        return [("question", one, other, 0.7)]
    if "why" in pair and pair & {"how", "advice", "whether"}:
        return [("question", one, other, 0.6)]
    return [("question", one, other, 0.4 if "how" in pair else 0.2)] if pair & {"how", "what"} else []


def _is_open(reading: Reading) -> bool:
    """Tells whether what looks like a task is a question of a form that is not known ("on Sundays, is it open?")."""
    polite = reading.spoken[:2] and reading.spoken[0] in _REQUESTS and reading.spoken[1:2] == ["you"]
    return reading.text.rstrip().endswith("?") and not polite


def asked(reading: Reading) -> str:
    """As `form`, looked for once."""
    if reading.asked is None:
        reading.asked = form(reading.spoken)
    return reading.asked


def form(spoken: list[str]) -> str:
    """Returns what a text asks for.

    `do` (a task), `say` (a statement), `whether it can`, `how`, `what`, `advice` (should we), `whether` (is it so),
    `why`, `when`, `where`, `who`, `how many` and its like.
    """
    heard = [word for word in spoken[:60] if word]
    while heard and heard[0] in _OPENINGS:
        heard = heard[1:]
    if not heard:
        return "do"
    if heard[0] == "to":
        # "To rent a van, which papers do I need?": the purpose first.
        place = next((place for place, word in enumerate(heard[:15]) if word in _QUESTION_WORDS), None)
        if place is not None:
            heard = [*heard[place:], *heard[:place]]
    text = " ".join(heard)
    strong = _asked(heard) or _said(text)
    if strong:
        return strong
    if heard[0] not in ("what", "which") and _WAY.search(text):
        return "how"  # "My phone is lost, what should I do?"
    if heard[0] not in ("how", "what", "which") and re.search(_ADVISES, f" {text[:80]} ") and "how" not in heard[:6]:
        return "advice"
    if "how" in heard[:8]:
        return "how"
    if heard[0] in ("what", "which"):
        # "What should I do to ...", "which command do I use to ...": the way to do it.
        way = any(word in ("way", "steps", "command", "procedure", "process", "method", "do") for word in heard[1:6])
        return "how" if way and ("to" in heard or "should" in heard) else "what"
    return _closed(heard, text)


def _closed(heard: list[str], text: str) -> str:
    """Returns what a text asks for that has no question word."""
    opening, after = heard[0], heard[1] if len(heard) > 1 else ""
    if text.startswith(_WANTED) and "to" in heard:
        return "do"
    if opening in _BE and not _NEEDED.isdisjoint(heard[1:10]):
        return "advice"
    # "Have the header stick" is a task, "have we deployed" is a question.
    subjects = _PEOPLE if opening == "have" else _SUBJECTS
    if (opening in _BE and after) or (opening in _DID and (after in subjects or after.startswith("<"))):
        return "whether"
    if opening == "does" or text.startswith(_CHECKS):
        return "whether"
    if opening in _ABLE and after not in ("", "you") and (opening != "do" or after in _SUBJECTS):
        return "whether it can"
    return "say" if opening in _SAYS and not text.startswith(_WISHES) else "do"


def _said(text: str) -> str:
    """Returns what is asked in other words: what time, the reason for."""
    if not text.startswith(
        ("how", "what", "which", "tell", "explain", "show", "give", "the", "number", "reason", "whereabouts", "is")
    ):
        return ""
    if text.startswith("how") and not _CHANGED.isdisjoint(text.split()[:8]):
        return ""  # "How can I raise the number of": not how many.
    return next((asked for said, asked in _SAID.items() if f" {said} " in f" {text[:60]} "), "")


def _asked(heard: list[str]) -> str:
    for place, word in enumerate(heard):
        if word == "how" and place + 1 < len(heard) and heard[place + 1] in _MANY:
            if heard[place + 2 : place + 3] == ["time"]:
                return "how long"
            lasts = heard[place + 2 : place + 3] and heard[place + 2].rstrip("s") in _TIMES
            return "how long" if lasts else _MANY[heard[place + 1]]
        asked = _ASKS.get(word)
        if asked is None:
            continue
        if place == 0 and (word not in ("when", "where") or (len(heard) > 1 and heard[1] in _AUXILIARIES)):
            return asked
        if place and heard[place - 1] in _LEADS and place < 10:
            return asked
    return ""
