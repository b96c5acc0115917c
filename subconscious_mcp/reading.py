"""A task as the comparison reads it: its words as stems, what is denied, and its values.

`read` resolves contractions and fixed phrases ("turn the cache on" is `turn_on cache`), number words, and
units behind their numbers.
"""

from __future__ import annotations

import re
from functools import cache, lru_cache

from subconscious_mcp import antonyms, lexicon, values
from subconscious_mcp.stems import phrase_key, stem, words
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
    """

    __slots__ = ("english", "spoken", "text", "tokens")

    def __init__(self, text: str, tokens: list[Token], spoken: list[str], english: bool) -> None:
        self.text = text
        self.tokens = tokens
        self.spoken = spoken
        self.english = english


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
_NEGATIONS = words("not no")
_AUXILIARIES = words("can could will would do does did is are was were has have had should shall must may might")
_SUBJECTS = words("i you we he she it they there that this")
_DENIED = words("work use need want get know exist good right correct properly correctly on")
"""Small words that can be what a negation denies; it passes over any other."""
_COMPLETE = words("work exist good right correct properly correctly on")
"""Those of them with which a denial is complete."""
_EMPTY_DENIALS = words("sure certain figure only hesitate worry mind matter wait necessarily")
"""What may be denied without another meaning of the task: not sure how, do not hesitate."""

_FIXED = """
after_that add_on add_ons plug_in e_mail stop_word open_source close_to start_up back_end front_end up_to out_of
in_order_to as_well_as read_only write_only read_write on_hold on_time on_call on_top_of on_demand on_board
in_front_of next_to due_to left_over left_out right_now right_away right_click all_right left_click look_up look_for
make_up pick_up set_up set_off go_on carry_on hold_on hang_on turn_into end_up end_point end_user end_to_end
end_of_life back_up back_office first_name last_name first_class last_mile top_up top_level top_secret
high_availability high_level low_level low_code no_code hard_code hard_drive hard_disk light_mode dark_mode
light_weight heavy_duty long_polling short_circuit free_text free_form free_tier full_text full_stack full_screen
full_name half_life open_api open_ai open_id closed_loop live_stream dead_letter dead_lock dry_run hot_fix hot_key
hot_swap cold_call black_box white_space white_label red_hat green_field blue_green blue_print push_notification
pull_up start_page start_date end_date start_time end_time run_book run_time down_time up_time down_stream up_stream
down_payment over_time over_view under_way under_score before_hand after_all after_noon in_memory in_place in_line
in_app out_come off_set off_shore of_course at_all such_as rather_than instead_of other_than apart_from aside_from
no_later_than sign_up as_soon_as as_long_as so_far by_default by_hand for_example per_cent more_than less_than
fewer_than greater_than up_to_date out_of_date not_only no_longer any_longer any_more no_more_than no_less_than
at_least at_most machine_learning
"""
"""Phrases whose words do not mean there what they mean alone."""
_PHRASES_FOR = {
    "add_on": "addon", "plug_in": "plugin", "e_mail": "email", "start_up": "startup", "set_up": "setup",
    "back_up": "backup", "sign_up": "signup", "add_ons": "addon", "read_only": "readonly",
    "light_weight": "lightweight", "run_time": "runtime", "down_stream": "downstream", "up_stream": "upstream",
    "no_longer": "not",
    "any_longer": "", "any_more": "", "no_more_than": "at_most", "no_less_than": "at_least",
    "no_later_than": "by", "in_order_to": "to", "up_to": "at_most", "per_cent": "percent",
    "after_that": "then", "fewer_than": "less_than", "greater_than": "more_than", "over_view": "overview",
    "rather_than": "instead_of", "other_than": "except",
}  # fmt: skip
_PARTICLES = words("on off up down out in back over away")


@cache
def _phrases() -> dict[str, list[tuple[tuple[str, ...], str]]]:
    table: dict[str, list[tuple[tuple[str, ...], str]]] = {}
    names = {phrase_key(name) for name in (*_FIXED.split(), *antonyms.phrases(), *lexicon.phrases())}
    becomes = {phrase_key(name): phrase_key(other) for name, other in _PHRASES_FOR.items()}
    for name in sorted(names, key=lambda name: (-name.count("_"), name)):
        first, *rest = name.split("_")
        table.setdefault(first, []).append((tuple(rest), becomes.get(name, name)))
    return table


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
    tokens = _joined(tokens)
    _drop_pronouns(tokens)
    _deny(tokens)
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
        for number, word in enumerate(resolved):
            if word in _CLOCKS:
                value = Value("date", text, (("clock", (_CLOCKS[word],)),), place)
                self._tokens.append(Token("<date>", text, place, value))
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


_VERSIONED = words("version ver v release rev revision")
_SERIES = words("SHA UTF ISO GPT COVID AES RSA RFC PEP MP H X ES USB HTTP IPV WIN")
_SIGNS = {"->": "to", "=>": "to", "\u2192": "to", "&&": "and", "<": "less_than", ">": "more_than"}
_ORDINALS = ("first", "second", "third", "fourth", "fifth", "sixth")


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


# --- phrases and denials ----------------------------------------------------------------------------


def _joined(tokens: list[Token]) -> list[Token]:
    """Makes one token of each fixed phrase."""
    table = _phrases()
    gone: set[int] = set()
    for number, token in enumerate(tokens):
        if token.stem not in table or number in gone:
            continue
        for rest, name in table[token.stem]:
            places = _follow(tokens, number, rest)
            if places is not None:
                gone.update(places)
                text = " ".join([token.text, *(tokens[place].text for place in places)])
                tokens[number] = Token(name, text, token.place, None, token.proper)
                break
    return [token for number, token in enumerate(tokens) if number not in gone] if gone else tokens


def _follow(tokens: list[Token], number: int, rest: tuple[str, ...]) -> tuple[int, ...] | None:
    """Returns where the rest of a phrase stands: right behind, or a particle behind its object."""
    after = number + 1
    if after + len(rest) <= len(tokens) and all(tokens[after + place].stem == part for place, part in enumerate(rest)):
        return tuple(range(after, after + len(rest)))
    if len(rest) == 1 and rest[0] in _PARTICLES and tokens[number].stem in _SEPARABLE:
        for place in range(number + 2, min(number + 6, len(tokens))):
            if not tokens[place].stem:
                break
            if tokens[place].stem == rest[0] and (
                place + 1 == len(tokens) or tokens[place + 1].slight or not tokens[place + 1].stem
            ):
                return (place,)
    return None


_SEPARABLE = frozenset(
    stem(word)
    for word in words(
        "turn switch power shut log sign roll back bring spin scale tear take put kick pick set fill look wake"
    )
)


_BEFORE_PRONOUN = words("this that which the another any no new each every old other same right wrong first last")


def _drop_pronouns(tokens: list[Token]) -> None:
    """Makes words of each "one" that counts nothing, and takes the numbers of lists out."""
    for number, token in enumerate(tokens):
        if token.value is None:
            if token.stem == "a" and (
                number + 1 == len(tokens) or tokens[number + 1].slight or not tokens[number + 1].stem
            ):
                token.slight = False  # "Branch a with main": a name.
            continue
        after = tokens[number + 1] if number + 1 < len(tokens) else None
        before = tokens[number - 1] if number else None
        if token.stem == "<numeral>" and token.text.lower() == "one":
            counts = after is not None and after.stem and not after.slight and after.value is None
            if not counts or (before is not None and before.stem in _BEFORE_PRONOUN):
                token.value, token.stem, token.slight = None, "one", True
        elif token.text.isdigit() and (before is None or before.text == "\n") and after is not None:
            if after.text not in (".", ")"):
                continue
            token.value, token.stem, token.slight = None, "one", True


def _deny(tokens: list[Token]) -> None:
    """Marks what negations bear on, and takes away those that mean nothing for the task."""
    for number, token in enumerate(tokens):
        if token.stem not in _NEGATIONS:
            continue
        token.stem = "not"
        if _is_empty(tokens, number):
            continue
        for after in tokens[number + 1 : number + 7]:
            if not after.stem:
                break
            if after.stem == "forget":
                after.stem = "remember"  # "Do not forget to".
                break
            if after.slight and after.stem not in _DENIED_STEMS:
                continue
            after.negated = not after.negated
            if not after.slight or after.stem in _COMPLETE_STEMS:
                break


_COMPLETE_STEMS = frozenset(stem(word) for word in _COMPLETE)
_DENIED_STEMS = frozenset(stem(word) for word in _DENIED)
_EMPTY_STEMS = frozenset(stem(word) for word in _EMPTY_DENIALS)


_QUESTIONS = words("how what where why which when who if whether")


def _is_empty(tokens: list[Token], number: int) -> bool:
    before = tokens[number - 1].text.lower() if number else ""
    after = tokens[number + 1] if number + 1 < len(tokens) else None
    if after is None or not after.stem:
        return True  # "or not", "why not", "No, ..."
    if after.stem in _EMPTY_STEMS:
        return True
    if after.stem in ("know", "understand", "remember") and number + 2 < len(tokens):
        return tokens[number + 2].text.lower() in _QUESTIONS  # "I do not know how to mount it".
    if before in ("or", "why", "if", "whether") and tokens[number].text.lower() in ("not", "no"):
        return True
    # "Can't you ...", "Isn't it ...": a question, no denial; "why can't I ..." is one.
    asks = number >= 1 and before.partition("n't")[0] in _AUXILIARIES | {"ca", "wo"} and after.text.lower() in _SUBJECTS
    return asks and (number == 1 or not tokens[number - 2].stem)
