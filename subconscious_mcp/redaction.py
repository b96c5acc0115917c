"""Masks secrets in captured text before it is written anywhere.

A few general rules instead of one for each provider: names whose last word is a secret word, with
the value that they are given; passwords in URLs, on command lines and in headers; what providers
gave their tokens to begin with; key blocks; and the bare shape of an AWS secret key. The name
stays, the value goes. What only looks like a secret stays: hashes, ids, code, references,
placeholders.

Every rule is written for plain text. Text inside a string of another language (JSON in a string, an
encoded URL, coloured terminal output) is read a second time without its escapes, and what is found
there is masked in the original. All rules take linear time: how far they look around is bounded.

Patterns are strings here, compiled at their first use and only if their sign is in the text: a hook
has a few milliseconds for all of this.

Best effort, not a guarantee: a secret without a telling shape, name or place is not recognised.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache

from subconscious_mcp.secret_shapes import Span, commands, key_blocks, places, shaped_tokens, signed
from subconscious_mcp.secret_values import (
    ARGUMENTS,
    COOKIE,
    FAR,
    GUESSED,
    HEADER,
    LIKELY,
    MARK,
    MAYBE,
    NEAR,
    NONE,
    PAIR,
    PASSWORD,
    PROSE,
    RANDOM,
    SURE,
    VARIABLES,
    compiled,
    grade_of,
    has,
    is_masked,
    is_nothing,
    is_path,
    is_prose,
    is_random,
    is_reference,
    is_spoken,
    matches,
    tells,
    words,
)

_AHEAD = 2 * 128 + NEAR
"""How far an unquoted value and what follows it are looked at: 128 characters, each maybe behind a backslash."""
_MAX_ROUNDS = 12
"""Masking may lay open what the first look missed; two rounds are usual."""


def redact(text: str) -> str:
    """Returns the text with `[redacted]` in place of each secret.

    Never raises, and `redact(redact(text)) == redact(text)`. The text grows by at most the
    mark's ten characters for each secret.
    """
    return redact_counted(text)[0]


def redact_counted(text: str) -> tuple[str, int]:
    """Returns the redacted text, and how many places were masked."""
    count = 0
    for _ in range(_MAX_ROUNDS):
        spans = _merged(text, _spans(text))
        if not spans:
            break
        count += len(spans)
        pieces: list[str] = []
        position = 0
        for start, end in spans:
            pieces += (text[position:start], MARK)
            position = end
        text = "".join(pieces) + text[position:]
    return text, count


def _merged(text: str, spans: list[Span]) -> list[Span]:
    """Returns the spans in order, those that overlap as one, without what is masked already."""
    merged: list[Span] = []
    for start, end in sorted(_around_marks(text, span) for span in spans):
        if end <= start or is_masked(text[start:end]):
            continue
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged


def _around_marks(text: str, span: Span) -> Span:
    """Returns a span that takes a mark whole if it takes a part of it."""
    start, end = span
    mark = text.find(MARK, max(0, start - len(MARK) + 1), start + len(MARK) - 1)
    start = mark if 0 <= mark < start else start
    mark = text.find(MARK, max(0, end - len(MARK) + 1), end + len(MARK) - 1)
    return start, mark + len(MARK) if 0 <= mark < end else end


def _spans(text: str) -> list[Span]:
    spans = [span for rule in _RULES for span in rule(text)]
    if "\\" in text or "%" in text or "&" in text or "\x1b" in text:
        from bisect import bisect_left, bisect_right

        view, seen, real = _unescaped(text)
        if view != text:
            for start, end in (span for rule in _RULES for span in rule(view)):
                first = bisect_right(seen, start) - 1
                last = max(bisect_left(seen, end) - 1, 0)
                spans.append((real[first] + start - seen[first], real[last] + end - seen[last]))
    return spans


# --- the text without escapes -------------------------------------------------------------------

_ESCAPES = (
    r"(?<!\\)\\+(?:(?:033|e|u001[bB]|x1[bB])\[[0-9;]*m|u00([0-7][0-9a-fA-F])|x([2-7][0-9a-fA-F])|([\"'/nrt`$& ])"
    r"|\r?\n[ \t]*)"
    r"|%(?:25)*([2-7][0-9a-fA-F]|0[aAdD9])|&(quot|amp|apos|#34|#39|#x27|lt|gt);|\x1b\[[0-9;]*[A-Za-z]"
)
_PLAIN = {"n": "\n", "r": "\r", "t": "\t", "quot": '"', "#34": '"', "apos": "'", "#39": "'", "#x27": "'", "amp": "&"}
_PLAIN |= {"lt": "<", "gt": ">"}


def _unescaped(text: str) -> tuple[str, list[int], list[int]]:
    """Returns the text without escapes, and which of its positions lie at which of the text's."""
    pieces: list[str] = []
    seen, real = [0], [0]
    position = length = 0
    for found in compiled(_ESCAPES).finditer(text):
        code = found[1] or found[2] or found[4]
        sign = found[3] or found[5] or ""
        plain = chr(int(code, 16)) if code else _PLAIN.get(sign, sign)
        start, end = found.span()
        pieces += (text[position:start], plain)
        length += start - position + len(plain)
        position = end
        seen.append(length)
        real.append(end)
    pieces.append(text[position:])
    return "".join(pieces), seen, real


# --- names and their values ---------------------------------------------------------------------

_ASSIGNED = (
    r"(?<![A-Za-z0-9_.\-])([A-Za-z0-9_.\-]+)(?![A-Za-z0-9_.\-])([\"'`\[\])*}?!]{0,4})"
    r"(?:[ \t]+(?:As[ \t]+)?[Ss]tring\b)?"
    r"([ \t]{0,30})(?:(?<=[ \t])\[[^\]\n]{0,30}\][ \t]?)?"
    r"(=>|:=|[=!]==?|:-|\?\??=|\|\|=?|\?\?|->|→|:(?!:)|[=：＝|]|(?<=[A-Za-z0-9_])>|(?<=[\"'`]),|is:|(?:is|or)(?=[ \t])"
    r"|(?<=\w)\((?=[\"'])|(?<=[ \t])(?=[\"'][^\s\"']))((?:\*\*)?[ \t]*)"
)
_QUOTED = (
    r"[rbfuLRBFU@$]{0,2}(?:\"\"\"((?:[^\"]|\"(?!\"\"))*)\"\"\"|'''((?:[^']|'(?!''))*)'''"
    r"|\"([^\"\\\n]*(?:(?:\\.|\"\")[^\"\\\n]*)*)(?:\"|(?=\\?(?:\n|\Z)))"
    r"|'([^'\\\n]*(?:(?:\\.|'')[^'\\\n]*)*)(?:'|(?=\\?(?:\n|\Z)))"
    r"|`([^`\n]*)`|[“”]([^“”\n]*)”|‘([^‘’\n]*)’|「([^「」\n]*)」)"
)
_CLOSING = r"\s|[+%,).;&|?:\]}\\]+(?:[\s\"'+,)]|$)"
"""How a string goes on if its quote was none that opens: `"password: " + value`."""
_UNQUOTED = r"(?:\\ |[^\s<>`])"
_IN_SHELL = r"(?:\\ |<(?!/)|[^\s<])"
_STOP = r"[;&,|](?=[;&|]?\s|$|[A-Za-z_][\w .\-]{0,40}[=:])|[\"'](?![A-Za-z0-9])|\\[nrt\"']"
_ON_NEXT_LINE = (
    r"[ \t]*(?:\r?\n|\([ \t]*\r?\n?)(?:[>|#]|[ \t]*[0-9]{1,5}[→\t])?[ \t]*"
    r"(?=[\"'][^\"'\n]+[\"'][ \t]*(?:[,;)}\"'\n\r]|\Z))"
)
_BLOCK = r"(?:![\w!]+[ \t]+)?[|>][+-]?[0-9]?[+-]?[ \t]*(?:#[^\n]*)?\r?\n"
_BLOCK_FIRST, _NEXT_LINE_FIRST = ("!", "|", ">"), (" ", "\t", "\r", "\n", "(")
"""What those begin with."""
_TYPED = (
    r"(?:&(?:'\w+ )?)?[A-Za-z_][\w.:]{0,60}(?:[\[<][^\]>\n\"']{0,40}[\]>])?\??(?:[ \t]*\|[ \t]*\w{1,40}){0,5}"
    r"[ \t]*=[ \t]*(?=[\"'])"
)
_FETCHED = r"[A-Za-z_][\w.]*[(\[].{0,300}[)\]]"
_CODE = (
    rf"{_FETCHED}|[A-Za-z_][\w.:>-]*!?[(\[].{{0,200}}[)\]]|[A-Za-z_][\w.]*[(\[]$|[A-Za-z_]\w*[._]\w+\("
    r"|(?:new|await|not|lambda|async|typeof)\s|[&*]\w+$|[(\[{]|\$[A-Za-z_]\w*(?:\[|->|\()"
)
_DOTTED = r"[A-Za-z_]\w*\??(?:(?:\.|->|::)[A-Za-z_]\w*\??)+"
_ROOTS = words(
    "os self this process settings config cfg conf args env environ ctx context request req options opts params props "
    "state data user secrets app cls obj import response res event session local var module each credentials"
)
_SCHEME = (
    r"(?i)(?:bearer|basic|token|digest|api-?key|negotiate|ntlm|hawk|ssws|bot|oauth|key|sharedkey(?:lite)?|genie-?key"
    r"|splunk|aws4-hmac-sha256)[ \t:=]+"
)
_ATTRIBUTES = words("path domain expires max-age samesite secure httponly priority version")
_HOLDER = (
    r"[\"']?([\w.-]{1,99})[\"']?(?:[\"'\s,/>}]{0,80}\b[vV](?:alue|ALUE)[\"']?[ \t]*[:=][ \t]*|(?<=[\"'])[ \t]*>"
    r"|(?<=[\"'])\r\n\r\n)"
)
"""A name that is itself a value, up to its value: in JSON and YAML, in XML, in a form that is sent."""
_DOUBTFUL = ("|", ",", "==", "===", "!=", "!==", "||", "??", "or", "(", "", "is", "is:", "->", "→")


class _Place:
    """Where a value stands.

    Attributes:
        grade: How sure its name makes that it is a secret.
        origin: Where its name begins.
        sign: What stands between them.
        trusted: Whether a quote there opens a string for sure.
        literal: Whether a bare word there is a value for sure, and not code.
        seen: How far the text needs no second look.
    """

    __slots__ = ("grade", "literal", "origin", "seen", "sign", "trusted")

    def __init__(
        self, grade: str, origin: int = 0, sign: str = "", trusted: bool = False, literal: bool = False
    ) -> None:
        self.grade = grade
        self.origin = origin
        self.sign = sign
        self.trusted = trusted
        self.literal = literal
        self.seen = 0


def _assignments(text: str) -> Iterator[Span]:
    """Yields the values of names whose last word is a secret word."""
    done = 0
    for found in compiled(_ASSIGNED).finditer(text):
        if found.start() < done or not grade_of(found[1]):
            continue
        place, start = _place_of(text, found)
        for span in _value(text, start, place) if place.grade not in (NONE, PAIR) else ():
            done = span[1]
            yield span
        done = max(done, place.seen)


def _place_of(text: str, found: re.Match[str]) -> tuple[_Place, int]:
    """Returns what the place of a value says about it, and where the value begins."""
    name, sign, start = found[1], found[4], found.end()
    grade = grade_of(name)
    place = _Place(grade, found.start(), sign, trusted=has(r"[\"'`]", found[2]))
    before = text[max(0, place.origin - 80) : place.origin]
    if sign == "=" and not found[3] and not found[5]:
        place.literal = before.endswith(("?", "&", ";")) or name == name.upper() or name.startswith("-")
    if grade in (PAIR, MAYBE) and (pair := _paired(text, start)) is not None:
        return pair
    if found[2].count("[") > found[2].count("]"):
        return _Place(NONE), start
    if place.literal and grade in (LIKELY, MAYBE) and name.lower() != "key":
        place.grade = SURE if grade == LIKELY else LIKELY
    elif (
        grade == MAYBE
        and before.endswith((" ", "-"))
        and has(r"(?i)\b(?:api|access|secret|private|auth|client|account)[ -]$", before[-9:])
    ):
        place.grade = LIKELY
    if sign == ":" and not found[5] and _is_in_chain(before):
        place.grade = NONE
    elif sign == ":-":
        place.literal = before.endswith("${")
        start = start if place.literal else found.start(4) + 1
    elif sign == ">":
        tagged = before.endswith(("<", ":")) and grade not in (MAYBE, RANDOM, PAIR)
        place.sign, place.grade = "<", grade if tagged else NONE
    elif sign in _DOUBTFUL:
        # Cells, arguments, comparisons, sentences: only a literal that tells by itself.
        place.grade = _doubted(place.grade, name, sign)
        if sign == "|" and not found[3] and not found[5]:
            place.grade = NONE  # alternatives
        if sign not in ("|", "is", "is:", "->", "→") and compiled(_QUOTED).match(text, start) is None:
            place.grade = NONE
    return place, start


def _is_in_chain(before: str) -> bool:
    """Returns whether a name with a colon is a part of a longer one: `arn:aws:...:secret:name`, `${NAME:?text}`."""
    return before.endswith("${") or (before.endswith(":") and "arn:" in before and has(r"\barn:\S*:$", before))


def _doubted(grade: str, name: str, sign: str) -> str:
    """Returns a grade for where a name stands beside many other things than its value."""
    if grade in (PAIR, HEADER, COOKIE, RANDOM) or (sign == "" and grade == GUESSED):
        return grade if grade in (HEADER, COOKIE) and sign in (",", "(", "==") else NONE
    if sign == "," and grade == LIKELY and name.lower().endswith("key"):
        return NONE
    if sign == "(" and not name.rpartition(".")[2].lower().startswith(("set", "with", "decrypt")):
        return NONE
    if sign == "" and (grade == PASSWORD or (grade == SURE and name == name.upper())):
        return grade
    return GUESSED if grade == PASSWORD else grade if grade in (GUESSED, MAYBE) else LIKELY


def _paired(text: str, start: int) -> tuple[_Place, int] | None:
    """Finds the value of `{"name": "DB_PASSWORD", "value": ...}` and its kin."""
    holder = compiled(_HOLDER).match(text, start)
    grade = grade_of(holder[1]) if holder is not None else NONE
    if holder is None or grade in (NONE, PAIR, MAYBE):
        return None
    sign = "<" if holder[0].endswith(">") else "=" if holder[0].endswith("\n") else ":"
    return _Place(grade, start, sign, trusted=True, literal=sign == "="), holder.end()


def _value(text: str, start: int, place: _Place) -> Iterator[Span]:
    """Yields what is secret of the value at `start`."""
    if place.grade == MAYBE and not compiled(r"\S{16}|[|>\n]").match(text, start):
        return
    if place.sign == "<":
        end = text.find("<", start, start + FAR)
        if text.startswith("</", end) and tells(text[start:end], place.grade):
            yield start, end
        return
    # Of many places most are ruled out by one character: a pattern costs ten times as much to ask.
    first = text[start : start + 1]
    if place.sign == ":" and first in _BLOCK_FIRST and (block := compiled(_BLOCK).match(text, start)) is not None:
        yield from _indented(text, block.end(), place.origin) if place.grade != MAYBE else ()
        return
    start = _behind_type(text, start, place.sign)
    quoted = compiled(_QUOTED).match(text, start)
    if quoted is not None:
        yield from _quoted(text, quoted, place)
    elif place.grade in (HEADER, COOKIE) and text[start - 2 : start] == "= ":
        return  # code
    elif place.grade in (HEADER, COOKIE):
        around = compiled(r"[\"'][^\"'\n]*$").search(text[max(0, place.origin - 40) : place.origin])
        line = compiled(rf"[^\n{around[0][0] if around is not None else ''}]*")
        limit = len(text) if place.grade == COOKIE else start + NEAR
        end = line.match(text, start, limit).end()  # type: ignore[union-attr]
        for begin, last in _parts(text, start, end, place):
            # Only of a secret the whole line is looked at: many lines may be one.
            yield begin, line.match(text, last).end() if last >= limit else last  # type: ignore[union-attr]
    elif text.startswith("[", start) and (end := text.find("]", start, start + FAR)) >= 0:
        for quoted in compiled(_QUOTED).finditer(text, start, end):
            if is_random(quoted[quoted.lastindex or 0]):
                yield quoted.span(quoted.lastindex or 0)
    else:
        yield from _unquoted(text, start, place)


def _behind_type(text: str, start: int, sign: str) -> int:
    """Returns where a value begins behind its YAML tag, its type, or the end of a line."""
    if sign == ":":
        if text.startswith(("&", "!!"), start):
            tag = compiled(r"(?:(?:&|!!)\w+[ \t]+(?!=))+").match(text, start)
            start = tag.end() if tag is not None else start
        # The pattern tries many ways to split a word; without its one plain sign there is none.
        typed = compiled(_TYPED).match(text, start) if text.find("=", start, start + FAR) >= 0 else None
        if typed is not None:
            return typed.end()
    if sign in ("=", ":") and text[start : start + 1] in _NEXT_LINE_FIRST:
        opening = compiled(_ON_NEXT_LINE).match(text, start)
        return opening.end() if opening is not None else start
    return start


def _quoted(text: str, quoted: re.Match[str], place: _Place) -> Iterator[Span]:
    start, end = quoted.span(quoted.lastindex or 0)
    value = text[start:end]
    if not place.trusted and compiled(_CLOSING).match(value):
        return
    if compiled(r"[fF$]|[rR][fF]").match(quoted[0]) and has(r"\{[^}]*\}", value) and not place.literal:
        return  # a template
    if place.grade in (HEADER, COOKIE):
        yield from _parts(text, start, end, place)
    elif tells(value, place.grade):
        more = None
        if quoted.end() == end:
            # No quote closes it on its line: its further lines, if they hold nothing but its kind.
            lines = r"(?:\\?\r?\n[ \t]*[A-Za-z0-9+/=_.-]{8,}(?=[\"']|\\?\r?\n|\Z))*(?=[\"'])"
            more = compiled(lines).match(text, end)
        elif place.literal:
            # A shell joins what it quotes to what follows.
            more = compiled(r"(?:\"[^\"\n]*\"|'[^'\n]*'|[A-Za-z0-9_.+=@%-]+)+").match(text, quoted.end())
        yield start, more.end() if more is not None else end


def _unquoted(text: str, start: int, place: _Place) -> Iterator[Span]:
    before, ahead = text[max(0, place.origin - 40) : place.origin], text[start : start + _AHEAD]
    length, whole = _unquoted_secret(before, ahead, place.grade, place.sign, place.literal)
    if whole:
        # Only of a secret the whole is looked at: many first parts may be one value.
        length = len(_bare_value(text, start, _IN_SHELL if place.literal else _UNQUOTED, ""))
    if length:
        yield start, start + length


# Cached like what it calls: where a text says the same again and again, the answer is the same too, and such
# texts are the ones that take long.
@lru_cache(maxsize=512)
def _unquoted_secret(before: str, ahead: str, grade: str, sign: str, literal: bool) -> tuple[int, bool]:
    """Returns how long an unquoted secret is, 0 if it is none, and whether it may go on.

    Args:
        before: What stands before its name.
        ahead: The text from the value on, `_AHEAD` characters.
    """
    if ahead.startswith(("${{", "{{", "$(", "<%") if literal else ("(", "{", "${{", "$(", "<%")):
        return 0, False
    value = _bare_value(ahead, 0, _IN_SHELL if literal else _UNQUOTED)
    end = len(value)
    rest = ahead[end : end + NEAR].partition("\n")[0].rstrip("\r")
    if not value or _is_code(value, rest, literal):
        return 0, False
    plain = matches(r"[A-Za-z_][A-Za-z_.\-]*", value) and is_spoken(value)
    if value.isdigit() and grade in (PASSWORD, SURE):
        secret = len(value) >= (4 if grade == PASSWORD else 6)
    elif not tells(value, grade):
        secret = False
    elif grade in (LIKELY, GUESSED, RANDOM, MAYBE):
        secret = literal or (not plain and matches(r"[\w.+/=~:-]+", value))
    elif literal or not plain:
        secret = literal or value.rstrip("0123456789").lower() not in VARIABLES
    else:
        secret = _is_plain_secret(before, value, rest, grade, sign)
        if secret and sign == ":" and rest.startswith(" ") and "#" not in rest:
            end += len(rest.rstrip())
    return (end if secret else 0), secret and len(value) >= 100


def _is_code(value: str, rest: str, literal: bool) -> bool:
    """Returns whether an unquoted value is code that fetches or holds the secret."""
    if value.startswith((".*", "[^", "\\S", "\\w", "(.*")):
        return True  # a regular expression
    if matches(_DOTTED, value):
        return not literal or value.partition(".")[0].lower() in _ROOTS or "::" in value
    if not literal and rest.startswith((" = ", " || ", " ?? ", " or ")):
        return True
    return compiled(_FETCHED if literal else _CODE).match(value + rest) is not None


def _bare_value(text: str, start: int, kind: str, limit: str = "128") -> str:
    """Returns the unquoted value at `start`, or its first part, without the punctuation around it."""
    found = compiled(f"{kind}{{1,{limit}}}").match(text, start)
    value = found[0] if found is not None else ""
    stop = compiled(_STOP).search(value, 1)
    value = value[: stop.start()] if stop is not None else value
    if not value.isascii():
        # A value ends at typographic quotes and wide punctuation, one in Latin letters also at Chinese and Japanese.
        latin = value[0].isascii()
        value = next((value[:n] for n, sign in enumerate(value) if _ends_value(sign, latin)), value)
    value = value.rstrip(",;:\"'")
    while value.endswith((")", "]", "}")) and value.count(value[-1]) > value.count("([{"[")]}".index(value[-1])]):
        value = value[:-1].rstrip(",;:\"'")
    return value


def _ends_value(sign: str, latin: bool) -> bool:
    wide = "\u3000" <= sign <= "\u303f" or "\uff00" <= sign <= "\uff0f" or "\uff1a" <= sign <= "\uff1f"
    return "\u2018" <= sign <= "\u201f" or wide or (latin and "\u3040" <= sign <= "\u9fff")


def _is_plain_secret(before: str, value: str, rest: str, grade: str, sign: str) -> bool:
    """Decides on a value that might as well be a word or a variable: where it stands tells."""
    if value.lower() in VARIABLES - {"secret"} or "_" in value or matches(r"(?:[A-Z][a-z]+){2,}", value):
        return False
    tight = sign == "="
    if grade == PASSWORD and tight and has(r"[\s=:;\"']$", before) and compiled(r"[\s\"'&;]|$").match(rest):
        return True
    if not has(r"(?:^|\n)[ \t#>+*-]*(?:export[ \t]+)?$", before):
        return False
    if compiled(r"[ \t]*(?:[#;].*)?$").match(rest):
        return grade == PASSWORD or tight or len(value) >= 16
    said = (value + rest).split()
    return grade == PASSWORD and len(said) > 2 and all(map(str.isalpha, said)) and not is_prose(value + rest)


def _parts(text: str, start: int, end: int, place: _Place) -> Iterator[Span]:
    """Yields what is secret of the value of an Authorization or a cookie header."""
    if place.grade == COOKIE:
        place.seen = end
        for pair in compiled(r"(?<![^\s=;,\"'])([^\s=;,\"']{1,100})=([^;\"'\s]+)").finditer(text, start, end):
            if pair[1].lower() not in _ATTRIBUTES and not is_nothing(pair[2]):
                yield pair.span(2)
        return
    begin = _credentials(text[start : min(end, start + NEAR)])
    if begin is not None:
        yield start + begin, start + len(text[start:end].rstrip())


@lru_cache(maxsize=512)
def _credentials(line: str) -> int | None:
    """Returns where the secret of an Authorization header begins, None where there is none."""
    scheme = compiled(_SCHEME).match(line)
    begin = scheme.end() if scheme is not None else 0
    value = line[begin:].strip()
    if (
        not value
        or is_nothing(value)
        or value.startswith(("${", "$("))
        or is_reference(value.split(None, 1)[0])
        or value.lower() in VARIABLES | PROSE
    ):
        return None
    secret = "=" in value or not is_prose(value) if scheme is not None else is_random(value.rsplit(None, 1)[-1])
    return begin if secret else None


def _indented(text: str, start: int, origin: int) -> Iterator[Span]:
    """Yields the lines of a YAML block scalar: those that are indented deeper than its name."""
    line = text[max(0, origin - NEAR) : origin].rpartition("\n")[2]
    # What quotes or numbers every line is no part of it.
    line = compiled(r"[ \t]*(?:[>|#][ \t]?|[0-9]{1,5}[→\t])").sub("", line, count=1)
    depth = min(len(line) - len(line.lstrip(" ")) + 1, 40)
    lines = compiled(
        rf"(?:(?:[>|#]|[ \t]*[0-9]{{1,5}}[→\t])?[ \t]{{{depth},}}[^\s][^\n]*(?:\n|\Z)|[ \t]*\r?\n)+"
    ).match(text, start)
    value = lines[0] if lines is not None else ""
    if not is_nothing(value) and not value.lstrip().startswith("$ANSIBLE_VAULT"):
        yield start + len(value) - len(value.lstrip()), start + len(value.rstrip())


# --- arguments ---------------------------------------------------------------------------------

_NAMED = (
    ("-", r"-(?<![\w-]-)(-?[A-Za-z][A-Za-z0-9_.-]*)(?:[ \t]*\\\r?\n[ \t]*|[ \t]+)(?=[^\s|&;<>-])"),
    ("^ENV", r"ENV[ \t]+([\w.-]+)[ \t]+(?=[^\s=-])"),
    ("^set", r"(?<!\w)set(?:env|x|[ \t]+-\w+)(?:[ \t]+(?:--?|/)[\w-]+)*[ \t]+([\w.-]+)[ \t]+(?=[^\s=-])"),
    (
        "^config",
        r"(?:(?<=npm )|(?<=git )|(?<=yarn )|(?<=pip )|(?<=aws ))config(?:ure)?[ \t]+"
        r"(?:(?:set|add)[ \t]+|--?[\w-]+[ \t]+)*([\w./:@-]+)[ \t]+(?=[^\s=-])",
    ),
    ("^secret set", r"secret set[ \t]+([\w.-]+)[ \t]+(?:--body|-b)[ \t=]+(?=\S)"),
    ("^requirepass", r"(requirepass)[ \t]+(?=\S)"),
    ("^bindpw", r"(bindpw)[ \t]+(?=\S)"),
    (
        "^variable",  # of Terraform
        r"variable[ \t]+\"([\w-]+)\"\s*\{(?:[^{}\"d]|d(?!efault\b)|\"[^\"\n]*\"){0,400}default\s*=\s*(?=\")",
    ),
    ("^IDENTIFIED", r"(IDENTIFIED)[ \t]+BY(?:[ \t]+PASSWORD)?[ \t]+(?=[\"'])"),
    ("^SecureString", r"(SecureString)(?:[ \t]+-String)?[ \t]+(?=[\"'])"),
)
"""Places of a name with a value behind blanks, each with its sign."""


def _arguments(text: str) -> Iterator[Span]:
    """Yields the values of flags and commands that take a name and a value."""
    for sign, pattern in _NAMED:
        for found in signed(sign, pattern, text):
            grade = PASSWORD if found[1] in ("IDENTIFIED", "SecureString") else grade_of(found[1])
            if grade not in ARGUMENTS or found[1].endswith("keys"):
                continue
            place = _Place(SURE if grade == LIKELY else grade, found.start(), literal=True)
            quoted = compiled(_QUOTED).match(text, found.end())
            if quoted is not None:
                yield from _quoted(text, quoted, place)
                continue
            value = _bare_value(text, found.end(), _IN_SHELL)
            assigned = matches(r"[A-Za-z_]\w*=[^=].*", value)
            named = (
                assigned
                or value.lower() in VARIABLES | PROSE
                or (value.isupper() and grade_of(value))
                or is_path(value)
            )
            if value and not named and tells(value, place.grade):
                value = value if len(value) < 100 else _bare_value(text, found.end(), _IN_SHELL, "")
                yield found.end(), found.end() + len(value)


_RULES = (_assignments, _arguments, shaped_tokens, key_blocks, places, commands)
