"""A task as the comparison reads it: its words as stems, what is denied, and its values.

`read` resolves contractions and fixed phrases ("turn the cache on" is `turn_on cache`), number words, and
units behind their numbers.
"""

from __future__ import annotations

import re
from functools import cache, lru_cache

from subconscious_mcp import lexicon, values
from subconscious_mcp.phrasing import deny, drop_pronouns, joined
from subconscious_mcp.stems import stem, words
from subconscious_mcp.values import Value


class Token:
    """A word, a value, or a stop.

    Attributes:
        stem: Key of the word; `<number>` and the like for a value; empty for a stop.
        text: As it stands there.
        place: Where it begins.
        negated: An odd number of negations bear on it.
        proper: It is written as a name where other words are not.
        value: The value that it is, or None.
    """

    __slots__ = ("negated", "place", "proper", "slight", "stem", "text", "value")

    def __init__(self, stem: str, text: str, place: int, value: Value | None = None, proper: bool = False) -> None:
        self.stem = stem
        self.text = text
        self.place = place
        self.negated = False
        self.proper = proper
        self.value = value
        # "A" in "from A to B" is a name.
        self.slight = value is None and stem in lexicon.slight() and not (text == "A" and place > 0)

    def __repr__(self) -> str:
        return f"{'not ' if self.negated else ''}{self.stem or '.'}"


class Reading:
    """A text taken apart.

    Attributes:
        tokens: Words, values and stops in order.
        spoken: The words as they stand, in lower case, contractions resolved: for the form of the question.
        english: Its words can be compared; elsewhere only its values are.
        asked: What it asks for, once `asking` has found out.
    """

    __slots__ = ("asked", "english", "spoken", "text", "tokens")

    def __init__(self, text: str, tokens: list[Token], spoken: list[str], english: bool) -> None:
        self.text = text
        self.tokens = tokens
        self.spoken = spoken
        self.english = english
        self.asked: str | None = None


_STRANGE = str.maketrans(
    {
        **dict.fromkeys("\u2018\u2019\u201a\u201b\u02bc\uff07", "'"),
        **dict.fromkeys("\u201c\u201d\u201e\u201f\u00ab\u00bb\u300c\u300d\u300e\u300f", '"'),
        **dict.fromkeys("\u2010\u2011\u2012\u2013\u2014\u2212", "-"),
    }
)
_EAST = r"(?<=[\u2e80-\ud7ff\uf900-\ufaff])(?=[!-~])|(?<=[!-~])(?=[\u2e80-\ud7ff\uf900-\ufaff])"


def plain(text: str) -> str:
    """Returns the text with one spelling of each sign, digit and blank."""
    if text.isascii():
        return text
    import unicodedata

    text = re.sub(r"(?<=\d)[\u00a0\u2009\u202f](?=\d{3})", "_", text.translate(_STRANGE))
    text = unicodedata.normalize("NFKC", text)
    return re.sub(_EAST, " ", text)


# --- what words become ----------------------------------------------------------------------------

_CONTRACTED = {
    "can't": "can not", "cannot": "can not", "won't": "will not", "shan't": "shall not", "let's": "let",
    "cant": "can not", "wont": "will not", "dont": "do not", "doesnt": "does not", "didnt": "did not",
    "isnt": "is not", "arent": "are not", "wasnt": "was not", "werent": "were not", "hasnt": "has not",
    "havent": "have not", "hadnt": "had not", "couldnt": "could not", "wouldnt": "would not",
    "shouldnt": "should not", "aint": "is not", "gonna": "going to", "wanna": "want to", "gotta": "have to",
    "non": "not", "unable": "not able", "impossible": "not possible", "nothing": "not anything",
    "nobody": "not anybody", "nowhere": "not anywhere",
    "neither": "not either", "nor": "not", "none": "not any", "never": "not ever",
    "without": "with not", "w/o": "with not", "prior": "before", "whats": "what", "hows": "how", "im": "i",
    "upto": "up to",
}  # fmt: skip
_FOREIGN = words(
    "der das und ich nicht ist ein eine wie mit für auf zu den dem von sie wir kann man sich auch bei nach oder "
    "wenn les des est une dans pour avec pas que qui je vous nous mon ne sur du et la le el los las del por para "
    "con una mi cómo como qué puedo está il che di per non sono come posso della un het een niet van voor op naar "
    "jak nie się czy na não uma os dos em og det som ikke att och på är inte en quel quelle comment pourquoi "
    "warum wo wer meine mein lo"
)
"""Small words of other languages; none of English."""


def read(text: str, masked: frozenset[str] = frozenset()) -> Reading:
    """Takes a text apart.

    Args:
        text: As `plain` returns it.
        masked: Quotes that count as one value each; any other is read like the text around it.
    """
    tokens: list[Token] = []
    _Reader(tokens, masked).read(text, 0)
    spoken = [token.text.lower() if token.value is None else token.stem for token in tokens[:80] if token.stem]
    english = _is_english(tokens)
    tokens = joined(tokens)
    drop_pronouns(tokens)
    deny(tokens)
    return Reading(text, [token for token in tokens if token.stem != "not"], spoken, english)


def _is_english(tokens: list[Token]) -> bool:
    strange = foreign = native = count = 0
    for token in tokens:
        if token.value is None and token.stem:
            low = token.text.lower()
            count += 1
            strange += not low.isascii()
            foreign += low in _FOREIGN
            native += token.slight and low not in _FOREIGN
    return strange * 5 <= count and (foreign < 2 or native > foreign) and (foreign == 0 or native > 0 or count > 6)


_CLOCKS = {"midnight": 0, "noon": 12, "midday": 12}


class _Reader:
    """Makes tokens of pieces."""

    def __init__(self, tokens: list[Token], masked: frozenset[str]) -> None:
        self._tokens = tokens
        self._masked = masked

    def read(self, text: str, offset: int) -> None:
        taken = -1
        tokens = self._tokens
        common = _common()
        for sort, found in values.pieces(text):
            start, piece = found.start(sort), found[sort]
            if start < taken:
                continue  # the unit of the number before
            if piece in common:
                tokens.append(Token(stem(piece), piece, start + offset))
            elif sort in ("plain", "word"):
                self._word(piece, start + offset)
            elif sort == "stop":
                tokens.append(Token("", piece, start + offset))
            elif sort == "number":
                taken = self._number(text, found, offset)
            elif sort == "quote":
                self._quote(piece, start + offset)
            else:
                self._value(sort, piece, start + offset)

    def _word(self, text: str, place: int) -> None:
        low = text.lower()
        if low == text and not _is_special(low):
            self._tokens.append(Token(stem(low), text, place))
            return
        # None and NULL are values.
        resolved = _resolved(low) if text != "None" or self._begins() else (low,)
        proper = text[0].isupper() and low != "i"
        if proper and text.islower() is False and self._begins():
            proper = len(text) > 1 and text[1:2].isupper()
        if text == "Go" and not self._begins():
            resolved = ("golang",)
        elif text == "US":
            resolved = ("usa",)  # not "us"
        for number, word in enumerate(resolved):
            if word in _CLOCKS:
                value = Value("date", text, (("clock", (_CLOCKS[word],)),), place)
                self._tokens.append(Token("<date>", text, place, value))
            elif word == "second" and not self._counted():
                self._tokens.append(Token("2nd", text, place))
            elif word in values.NUMBER_WORDS:
                self._numeral(word, text, place)
            elif values.is_time(word) and self._tokens and self._tokens[-1].text.lower() in ("a", "an"):
                value = values.amount(1.0, (word,), f"{self._tokens[-1].text} {text}", place, weak=True)
                self._tokens[-1] = Token("<number>", value.text, place, value)
            elif (word in ("percent", "pct", "seconds") and self._tokens and self._tokens[-1].stem == "<number>") or (
                values.is_unit(word) and self._tokens and self._tokens[-1].stem == "<numeral>"
            ):
                self._with_unit(self._tokens[-1], word)
            else:
                self._tokens.append(Token(stem(word), text if number == 0 else word, place, None, proper))

    def _counted(self) -> bool:
        """Tells whether a "second" here is one of time."""
        last = self._tokens[-1] if self._tokens else None
        return last is not None and (last.value is not None or last.text.lower() in ("a", "per", "every", "each"))

    def _begins(self) -> bool:
        return not self._tokens or (self._tokens[-1].stem == "" and self._tokens[-1].text in ".!?:\n")

    def _numeral(self, word: str, text: str, place: int) -> None:
        last = self._tokens[-1] if self._tokens else None
        if last is not None and last.stem == "<numeral>":
            heard = [part for part in re.split(r"[\s-]", last.text.lower()) if part != "and"]
            last.text = f"{last.text} {text}"
            last.value = values.amount(values.spoken([*heard, word]), (), last.text, last.place, weak=True)
        elif last is not None and last.stem == "<number>" and word in ("hundred", "thousand", "million", "billion"):
            self._with_unit(last, word)
        else:
            value = values.amount(values.spoken([word]), (), text, place, weak=True)
            value.kind = "number"
            self._tokens.append(Token("<numeral>", text, place, value))

    def _with_unit(self, token: Token, unit: str) -> None:
        if token.value is not None:
            figure = token.value.bare if isinstance(token.value.bare, float) else 0.0
            token.text = f"{token.text} {unit}"
            token.value = values.amount(figure, (unit,), token.text, token.place, weak=False)
            token.stem = "<number>"

    def _number(self, text: str, found: re.Match[str], offset: int) -> int:
        start, end = found.span("number")
        piece = found["number"]
        glued = (found["unit"] or "").strip()
        if not glued and text[start - 1 : start] == "%":
            glued = "%"
        if re.fullmatch("st|nd|rd|th", glued, re.IGNORECASE):
            self._tokens.append(Token(_ordinal(found["digits"]), piece, start + offset))
            return end
        if glued and not (values.is_unit(glued) or glued.lower() in values.GLUED or glued == "x"):
            # 2fa, 3d, 4xx: a name.
            self._tokens.append(Token(stem(piece.lower()), piece, start + offset, None, True))
            return end
        unit = ""
        behind = _behind(text, end)
        if behind is not None and values.is_unit(behind[0]) and (not glued or glued.lower() in ("k", "m")):
            unit, end = behind[0], behind.end()
            if unit.lower() in ("thousand", "million", "billion", "lakh", "crore", "k", "m"):
                further = _behind(text, end)
                if further is not None and values.is_unit(further[0]):
                    unit, end = f"{unit} {further[0]}", further.end()
        value = values.number(
            found, " ".join((unit, "%" * (glued == "%" and not found["unit"]))).strip(), start + offset, self._named()
        )
        last = self._tokens[-1] if self._tokens else None
        both = None
        if last is not None and last.value is not None and last.stem == "<number>":
            both = values.summed(last.value, value, f"{last.text} {value.text}")
        if both is not None and last is not None:
            last.value, last.text = both, both.text
        else:
            self._tokens.append(Token("<number>", value.text, start + offset, value))
        return end

    def _named(self) -> bool:
        """Tells whether what stands before makes a number a version."""
        if not self._tokens:
            return False
        last = self._tokens[-1]
        return last.value is None and (last.stem in _VERSIONED or bool(lexicon.is_product(last.stem)))

    def _quote(self, text: str, place: int) -> None:
        inside = text[1:-1]
        if quoted(text) in self._masked:
            self._tokens.append(Token("<quote>", text, place, Value("quoted", text, (quoted(text),), place)))
        else:
            self.read(inside, place + 1)

    def _value(self, sort: str, text: str, place: int) -> None:
        value: Value | None = None
        if sort == "named" or (sort == "ticket" and text.partition("-")[0] in _SERIES):
            self._name_with_number(text, place)
        elif sort == "code":
            self._code(text, place)
        elif sort == "special":
            self._tokens.append(Token(_SIGNS.get(text, text.lower()), text, place, None, text[0].isalpha()))
        elif sort == "path" and re.fullmatch(r"[A-Za-z]+\.js", text):
            self._tokens.append(Token(stem(text.lower().replace(".", "")), text, place, None, True))
        elif sort in ("isodate", "numdate", "monthdate"):
            value = values.date(sort, text, place)
        elif sort == "clock":
            value = values.clock(text, place)
        elif sort == "version":
            value = values.version(text, place)
        elif sort in ("path", "flag", "url"):
            value = {"path": values.path, "flag": values.flag, "url": values.url}[sort](text, place)
        elif sort == "sign":
            value = Value("identifier", text, (text, ("", float(text[1:]))), place)
        else:
            value = Value("identifier", text, (text.lower(),), place)
        if value is not None:
            self._tokens.append(Token(f"<{value.kind}>", text, place, value))

    def _name_with_number(self, text: str, place: int) -> None:
        letters, figures = re.match(r"([^\W\d_]+)-?(.*)", text).groups()  # type: ignore[union-attr]
        if len(letters) < 3:
            self._tokens.append(Token(f"{letters}{figures}".lower(), text, place, None, True))
            return
        self._tokens.append(Token(stem(letters.lower()), letters, place, None, True))
        value = values.version(figures, place)
        value.text, value.weak = text, True
        value.kind = "version" if "." in figures or lexicon.is_product(stem(letters.lower())) else "number"
        self._tokens.append(Token(f"<{value.kind}>", text, place, value))

    def _code(self, text: str, place: int) -> None:
        low = text.lower()
        if re.fullmatch(r"[\d_]+", text):
            value = values.amount(float(text.replace("_", "")[:30] or 0), (), text, place)
            self._tokens.append(Token("<number>", text, place, value))
        elif low in ("e.g", "i.e", "a.k.a", "u.s", "u.k", "u.s.a"):
            self._tokens.append(Token(low.replace(".", ""), text, place))
        elif re.fullmatch(_SHORTENED, text):
            self._tokens.append(Token(stem(low.replace(".", "")), text, place))
        elif stem(low) in lexicon.product_names():
            self._tokens.append(Token(stem(low), text, place, None, True))
        elif re.fullmatch(r"[a-z]+\.[A-Z][a-z]+", text):
            first, second = text.split(".")  # the end of a sentence without a blank
            self._word(first, place)
            self._tokens.append(Token("", ".", place))
            self._word(second, place)
        else:
            value = values.code(text, place)
            self._tokens.append(Token("<code>", text, place, value))


_SHORTENED = r"(?:[A-Z][a-z]?\.){1,3}[A-Z][a-z]{0,4}"
"""Degrees and titles with points: M.Sc, Ph.D, B.Tech."""
_VERSIONED = words("version ver v release rev revision")
_SERIES = words("SHA UTF ISO GPT COVID AES RSA RFC PEP MP H X ES USB HTTP IPV WIN")
_SIGNS = {"->": "to", "=>": "to", "\u2192": "to", "&&": "and", "<": "less_than", ">": "more_than"}
_ORDINALS = ("first", "2nd", "third", "fourth", "fifth", "sixth")


def _ordinal(digits: str) -> str:
    figure = int(digits[:9]) if digits.isdigit() else 0
    return stem(_ORDINALS[figure - 1]) if 1 <= figure <= len(_ORDINALS) else f"{figure}th"


def _behind(text: str, end: int) -> re.Match[str] | None:
    return re.compile(r"(?<=[ -])[^\W\d_]{1,12}(?!\w)").match(text, end + 1) if text[end : end + 1] in " -" else None


@cache
def _common() -> frozenset[str]:
    """Returns the words that need no second look."""
    return frozenset(word for word in lexicon.slight_words() if not _is_special(word))


@lru_cache(maxsize=20_000)
def _is_special(word: str) -> bool:
    return (
        "'" in word
        or word in _CLOCKS
        or word in _CONTRACTED
        or word in values.NUMBER_WORDS
        or values.is_unit(word)
        or values.is_time(word)
    )


@lru_cache(maxsize=4096)
def _resolved(word: str) -> tuple[str, ...]:
    if word in _CONTRACTED:
        return tuple(_CONTRACTED[word].split())
    if "'" not in word:
        return (word,)
    if word.endswith("n't"):
        return (word[:-3], "not")
    return (word.partition("'")[0],)


def quoted(text: str) -> str:
    """Returns the key of a quote."""
    return " ".join(text[1:-1].lower().split()).strip(" .,;:!?")
