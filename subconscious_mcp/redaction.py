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
from bisect import bisect_left, bisect_right
from collections.abc import Iterator

from subconscious_mcp.secret_shapes import Span, key_blocks, shaped_tokens, signed
from subconscious_mcp.secret_values import (
    ARGUMENTS,
    COOKIE,
    FAR,
    GUESSED,
    HASH,
    HEADER,
    LIKELY,
    MARK,
    MAYBE,
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
    has_letter_and_digit,
    is_basic,
    is_masked,
    is_nothing,
    is_path,
    is_prose,
    is_random,
    is_reference,
    is_slug,
    is_spoken,
    matches,
    mixture,
    words,
)

_MAX_ROUNDS = 12
"""Masking may lay open what the first look missed; two rounds are usual."""
_NEAR = 300
"""How far a rule looks around, in characters."""


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
_TYPED = r"[\w.\[\] |&?:<>]{1,60}?[ \t]=[ \t]*(?=[\"'])"
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
    r"|(?<=[\"'])\r?\n\r?\n)"
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
    return before.endswith("${") or (before.endswith(":") and has(r"\barn:\S*:$", before))


def _doubted(grade: str, name: str, sign: str) -> str:
    """Returns a grade for where a name stands beside many other things than its value."""
    if grade in (PAIR, HEADER, COOKIE, RANDOM) or (sign == "" and grade == GUESSED):
        return grade if grade in (HEADER, COOKIE) and sign in (",", "(", "==") else NONE
    if sign == "," and grade == LIKELY and name.lower().endswith("key"):
        return NONE
    if sign == "(" and not name.lower().startswith(("set", "with", "decrypt")):
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
        if text.startswith("</", end) and _tells(text[start:end], place.grade):
            yield start, end
        return
    if place.sign == ":" and (block := compiled(_BLOCK).match(text, start)) is not None:
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
        yield from _parts(text, start, line.match(text, start, start + FAR).end(), place)  # type: ignore[union-attr]
    elif text.startswith("[", start) and (end := text.find("]", start, start + FAR)) >= 0:
        for quoted in compiled(_QUOTED).finditer(text, start, end):
            if is_random(quoted[quoted.lastindex or 0]):
                yield quoted.span(quoted.lastindex or 0)
    else:
        yield from _unquoted(text, start, place)


def _behind_type(text: str, start: int, sign: str) -> int:
    """Returns where a value begins behind its YAML tag, its type, or the end of a line."""
    if sign == ":":
        tag = compiled(r"(?:(?:&|!!)\w+[ \t]+(?!=))+").match(text, start)
        start = tag.end() if tag is not None else start
        typed = compiled(_TYPED).match(text, start)
        if typed is not None:
            return typed.end()
    opening = compiled(_ON_NEXT_LINE).match(text, start) if sign in ("=", ":") else None
    return opening.end() if opening is not None else start


def _quoted(text: str, quoted: re.Match[str], place: _Place) -> Iterator[Span]:
    start, end = quoted.span(quoted.lastindex or 0)
    value = text[start:end]
    if not place.trusted and compiled(_CLOSING).match(value):
        return
    if compiled(r"[fF$]|[rR][fF]").match(quoted[0]) and has(r"\{[^}]*\}", value) and not place.literal:
        return  # a template
    if place.grade in (HEADER, COOKIE):
        yield from _parts(text, start, end, place)
    elif _tells(value, place.grade):
        more = None
        if quoted.end() == end:
            # No quote closes it on its line: its further lines, if they hold nothing but its kind.
            lines = r"(?:\\?\r?\n[ \t]*[A-Za-z0-9+/=_.-]{8,}(?=[\"']|\\?\r?\n|\Z))*(?=[\"'])"
            more = compiled(lines).match(text, end)
        elif place.literal:
            # A shell joins what it quotes to what follows.
            more = compiled(r"(?:\"[^\"\n]*\"|'[^'\n]*'|[A-Za-z0-9_.+=@%-]+)+").match(text, quoted.end())
        yield start, more.end() if more is not None else end


def _tells(value: str, grade: str) -> bool:
    """Returns whether a literal value of a name of this grade is a secret."""
    bare = value.strip(" \t\r\n\"'`")
    if is_nothing(bare):
        return False
    if grade == MAYBE:
        return len(bare) >= 16 and is_random(bare) and not matches(HASH, bare) and mixture(bare) > 0.25
    if grade == GUESSED and len(bare) >= 6 and " " not in bare and has_letter_and_digit(bare):
        return not is_path(bare) and not has(r"^[0-9.]+[a-z]*$", bare)
    if grade in (LIKELY, RANDOM, GUESSED):
        many_uses = grade == RANDOM and (len(bare) < 12 or ("-" in bare and matches(HASH, bare)))
        return is_random(bare) and not many_uses
    if is_prose(bare):
        return False
    if grade == PASSWORD:
        several = has(r"\w[-_. ]\w|[a-z][A-Z]", bare)
        if bare.startswith(("./", "../", "~/")) and is_path(bare):
            return False
        return bare.lower() not in ("password", "passwd", "pwd") and not (several and _is_name(bare))
    return len(bare) >= 3 and not _is_name(bare) and not is_path(bare)


def _is_name(value: str) -> bool:
    """Returns whether a value is the name of a secret, not one."""
    return matches(r"[A-Za-z_ .:-]+", value) and grade_of(value) in (*ARGUMENTS, HEADER)


def _unquoted(text: str, start: int, place: _Place) -> Iterator[Span]:
    if text.startswith(("${{", "{{", "$(", "<%") if place.literal else ("(", "{", "${{", "$(", "<%"), start):
        return
    value = _bare_value(text, start, _IN_SHELL if place.literal else _UNQUOTED)
    end = start + len(value)
    rest = text[end : end + _NEAR].partition("\n")[0].rstrip("\r")
    grade, literal = place.grade, place.literal
    if not value or _is_code(value, rest, literal):
        return
    plain = matches(r"[A-Za-z_][A-Za-z_.\-]*", value) and is_spoken(value)
    if value.isdigit() and grade in (PASSWORD, SURE):
        secret = len(value) >= (4 if grade == PASSWORD else 6)
    elif not _tells(value, grade):
        secret = False
    elif grade in (LIKELY, GUESSED, RANDOM, MAYBE):
        secret = literal or (not plain and matches(r"[\w.+/=~:-]+", value))
    elif literal or not plain:
        secret = literal or value.rstrip("0123456789").lower() not in VARIABLES
    else:
        secret = _is_plain_secret(text[max(0, place.origin - 40) : place.origin], value, rest, place)
        if secret and place.sign == ":" and rest.startswith(" ") and "#" not in rest:
            end += len(rest.rstrip())
    if secret:
        yield start, end


def _is_code(value: str, rest: str, literal: bool) -> bool:
    """Returns whether an unquoted value is code that fetches or holds the secret."""
    if value.startswith((".*", "[^", "\\S", "\\w", "(.*")):
        return True  # a regular expression
    if matches(_DOTTED, value):
        return not literal or value.partition(".")[0].lower() in _ROOTS or "::" in value
    if not literal and rest.startswith((" = ", " || ", " ?? ", " or ")):
        return True
    return compiled(_FETCHED if literal else _CODE).match(value + rest) is not None


def _bare_value(text: str, start: int, kind: str) -> str:
    """Returns the unquoted value at `start`, without the punctuation around it."""
    found = compiled(kind + "{1,128}").match(text, start)
    value = found[0] if found is not None else ""
    if found is not None and len(value) >= 128 and is_random(value[:64]):
        value += compiled(kind + "*").match(text, found.end())[0]  # type: ignore[index]
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


def _is_plain_secret(before: str, value: str, rest: str, place: _Place) -> bool:
    """Decides on a value that might as well be a word or a variable: where it stands tells."""
    if value.lower() in VARIABLES - {"secret"} or "_" in value or matches(r"(?:[A-Z][a-z]+){2,}", value):
        return False
    tight = place.sign == "="
    if place.grade == PASSWORD and tight and has(r"[\s=:;\"']$", before) and compiled(r"[\s\"'&;]|$").match(rest):
        return True
    if not has(r"(?:^|\n)[ \t#>+*-]*(?:export[ \t]+)?$", before):
        return False
    if compiled(r"[ \t]*(?:[#;].*)?$").match(rest):
        return place.grade == PASSWORD or tight or len(value) >= 16
    said = (value + rest).split()
    return place.grade == PASSWORD and len(said) > 2 and all(map(str.isalpha, said)) and not is_prose(value + rest)


def _parts(text: str, start: int, end: int, place: _Place) -> Iterator[Span]:
    """Yields what is secret of the value of an Authorization or a cookie header."""
    if place.grade == COOKIE:
        place.seen = end
        for pair in compiled(r"([^\s=;,\"']{1,100})=([^;\"'\s]+)").finditer(text, start, end):
            if pair[1].lower() not in _ATTRIBUTES and not is_nothing(pair[2]):
                yield pair.span(2)
        return
    line = text[start : min(end, start + 512)]
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
        return
    if "=" in value or not is_prose(value) if scheme is not None else is_random(value.rsplit(None, 1)[-1]):
        yield start + begin, start + len(text[start:end].rstrip())


def _indented(text: str, start: int, origin: int) -> Iterator[Span]:
    """Yields the lines of a YAML block scalar: those that are indented deeper than its name."""
    line = text[max(0, origin - _NEAR) : origin].rpartition("\n")[2]
    # What quotes or numbers every line is no part of it.
    line = compiled(r"[ \t]*(?:[>|#][ \t]?|[0-9]{1,5}[→\t])").sub("", line, count=1)
    depth = min(len(line) - len(line.lstrip(" ")) + 1, 40)
    lines = compiled(
        rf"(?:(?:[>|#]|[ \t]*[0-9]{{1,5}}[→\t])?[ \t]{{{depth},}}[^\s][^\n]*(?:\n|\Z)|[ \t]*\r?\n)+"
    ).match(text, start)
    value = lines[0] if lines is not None else ""
    if not is_nothing(value) and not value.lstrip().startswith("$ANSIBLE_VAULT"):
        yield start + len(value) - len(value.lstrip()), start + len(value.rstrip())


# --- places where only secrets stand ------------------------------------------------------------


def _is_given(value: str) -> bool:
    return not is_nothing(value) and value not in ("PASSWORD", "PASS")


def _is_mixed(value: str) -> bool:
    return (has_letter_and_digit(value) or is_random(value)) and not is_nothing(value)


def _is_argument(value: str) -> bool:
    return not is_nothing(value) and value.lower() not in VARIABLES | PROSE


def _is_bearer(value: str) -> bool:
    bare = value.rstrip(".:,")
    return not is_nothing(bare) and (is_random(bare) or (has_letter_and_digit(bare) and not is_slug(bare)))


_URL_REST = r"([^\s\"'<>`)\],;?]+)"
_PLACES = (
    # A password in a URL, also one that holds a slash or a question mark; a token instead of a user.
    (
        "^://&@",
        r"://[^\s/?#:@\"'<>`]*:((?!\d+[/?#])[^\s/?#\"'<>`]*|(?!\d{1,5}[/?#])[^\s\"'<>@`]{1,128})@(?=[\w\[${.-])",
        _is_given,
    ),
    ("^://&@", r"(?:(?<=http)|(?<=https))://([^\s/?#:@\"'<>`]{16,})@(?=[\w\[${.-])", is_random),
    ("^://", r"://[^\s/?#:@\"'<>`]+:(?!\d+[/?#\s])([^\s/?#@\"'<>`]{4,})(?=\s|\Z)", _is_mixed),
    (r"~@[\w.-]{1,253}:\d\d", r"(?<![\w/.:@-])[\w.-]{1,64}:([^\s:@/\"'<>`]{6,128})@[\w.-]{1,253}:\d{2,5}\b", _is_mixed),
    ("~@[tu][cn][pi]x?\\(", r"(?<![\w/.:@-])[\w.-]{1,64}:([^\s@/\"'<>`]{1,128})@(?:tcp|unix)\(", _is_given),
    ("^jdbc:oracle", r"jdbc:oracle:\w+:[^\s/@]+/(\"[^\"]+\"|[^\s@\"']+)@", _is_given),
    ("^sqlplus", r"sqlplus\s+(?:-\w\s+)?[^\s/@]+/(\"[^\"]+\"|[^\s@\"']+)", _is_given),
    ("^hooks.slack", r"hooks\.slack\.com/\w+/(?:T\w+/B\w+/)?" + _URL_REST, _is_given),
    ("^hooks.zapier", r"hooks\.zapier\.com/hooks/catch/" + _URL_REST, _is_given),
    ("^/hooks/", r"/hooks/([a-z0-9]{26})(?![a-z0-9])", _is_given),
    ("^.com/api/", r"(?<=discord|cordapp)\.com/api/(?:v\d+/)?webhooks/\d*/?" + _URL_REST, _is_given),
    ("^webhook", r"webhook\.office\.com/webhookb2/" + _URL_REST, _is_given),
    ("^outlook.office", r"outlook\.office(?:365)?\.com/webhook/" + _URL_REST, _is_given),
    ("^earer", r"(?<=\b[Bb])earer(?:[ \t]+|\+)([A-Za-z0-9._~+/=:%|-]{6,})", _is_bearer),
    ("^BEARER", r"BEARER[ \t]+([A-Za-z0-9._~+/=:%|-]{6,})", _is_bearer),
    ("^asic", r"(?<=\b[Bb])asic(?:[ \t]+|\+)([A-Za-z0-9+/=_-]{6,})", is_basic),
    ("^uth", r"(?<=[Aa])uth(?:[ \t]*=[ \t]*)?\(\s*([\"'])[^\"'\n]*\1\s*,\s*([\"'])([^\"'\n]+)\2", _is_given),
    # .netrc on one line and on several; .pgpass; what a program reads from standard input.
    (
        "^machine&passw",
        r"machine\s+\S+(?:\s+(?:login|account|user|port)\s+\S+){0,3}\s+(?:password|passwd)\s+(\S+)",
        _is_argument,
    ),
    ("^default&password", r"default\s+login\s+\S+\s+password\s+(\S+)", _is_argument),
    ("^login&password", r"(?<![^\s])login[ \t]+\S+[ \t]*\r?\n[ \t]*password[ \t]+(\S+)[ \t]*(?=\r?\n|\Z)", _is_given),
    (
        r"~:(?:\d{4,5}|\*):",
        r"(?<![^\s\"'=(`])[\w.*\\/-]{1,253}:(?:\d{4,5}|\*):[^\s:\"']{1,63}:[^\s:\"']{1,63}:((?:\\.|[^\s:\\\"'])+)"
        r"(?=[\s\"'`)]|\Z)",
        _is_given,
    ),
    (
        r"~\|[^|\n]{0,99}(?:-S\b|-std|chp|--with-t|--std)",
        r"\b(?:echo|printf)(?:[ \t]+-\w+|[ \t]+[\"']%s(?:\\n)?[\"'])?[ \t]+[\"']?([^\s|;&\"']{1,300})[\"']?[ \t]*\|"
        r"[ \t]*[^|\n]{0,80}?(?:-S\b|--password-stdin|chpasswd|--with-token|--stdin)",
        _is_given,
    ),
    ("<<<", r"(?:-S\b|--password-stdin|--with-token)[^\n]{0,80}?<<<[ \t]*[\"']?([^\s\"']+)", _is_given),
    ("^net user", r"net user \S+ ([^\s/*]\S*)", _is_mixed),
    ("^/p:", r"(?<=[ \t])/p:([^\s=]+)(?!\S)", _is_mixed),
    ("^密", r"密[码碼钥鑰][ \t]*(?:[:：=＝]|是|为)[ \t]*([!-~]{6,})", _is_mixed),
    ("^パスワード", r"パスワード[ \t]*(?:[:：=＝]|は)[ \t]*([!-~]{6,})", _is_mixed),
)
"""Places, each with its sign (see `signed`) and what the value there must be."""


def _places(text: str) -> Iterator[Span]:
    for sign, pattern, holds in _PLACES:
        for found in signed(sign, pattern, text):
            if holds(found[found.lastindex or 0]):
                yield found.span(found.lastindex or 0)


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
        r"variable[ \t]+\"([\w-]+)\"\s*\{(?:[^{}\"]{0,200}(?:\"[^\"\n]*\")?){0,4}?\bdefault\s*=\s*(?=\")",
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
            if value and not named and _tells(value, place.grade):
                yield found.end(), found.end() + len(value)


_TOOLS = (
    "curl",
    "http",
    "mysql",
    "mariadb",
    "sshpass",
    "redis-cli",
    "mongo",
    "twine",
    "ldap",
    "sqlcmd",
    "zip",
    "openssl",
    "smbclient",
    "lftp",
)
_WITH_LOGIN = ("docker", "podman", "nerdctl", "registry", "skopeo", "az", "oc", "argocd")
_LETTERS = {"curl": "uU", "http": "a", "redis-cli": "a", "sqlcmd": "P", "zip": "P", "openssl": ""}
_LETTERS |= {"smbclient": "U", "lftp": "u"}
_BEHIND_USER = {"curl": ":", "http": ":", "smbclient": "%", "lftp": ","}
_SHORT = (
    r"(?<=[ \t])-([A-Za-z])([= \t]*)([\"']?)([^\s\"']+)\3|(?<=[ \t])--(?:proxy-)?user[= ]([\"']?)([^\s\"']+)\5"
    r"|\bpass:([^\s\"']+)"
)


def _commands(text: str) -> Iterator[Span]:
    """Yields the values of short flags that mean a password to a known command only."""
    for tool in _TOOLS + _WITH_LOGIN if " -" in text or "pass:" in text else ():
        done = start = 0
        while (start := text.find(tool, max(start, done))) >= 0:
            origin, start = start, start + len(tool)
            called = compiled(r"[ \t]+login[ \t]" if tool in _WITH_LOGIN else r"\w*[ \t]").match(text, start)
            if called is None or (origin and matches(r"[\w-]", text[origin - 1])):
                continue
            done = text.find("\n", called.end(), called.end() + 4 * _NEAR)
            done = done if done >= 0 else called.end() + 4 * _NEAR
            for flag in compiled(_SHORT).finditer(text, called.end() - 1, done):
                yield from _short_flag(text, flag, tool)


def _short_flag(text: str, flag: re.Match[str], tool: str) -> Iterator[Span]:
    start, end = flag.span(4 if flag[1] else flag.lastindex or 0)
    if flag[1] and flag[1] not in _LETTERS.get(tool, "pw"):
        return
    if flag[2] and tool in ("mysql", "mariadb") and not has_letter_and_digit(flag[4]):
        return  # `-p database`
    if tool in _BEHIND_USER or flag[6]:
        # `user:password`; a user alone is none.
        user, sign, _ = text[start:end].partition(_BEHIND_USER.get(tool, ":"))
        start += len(user) + len(sign)
    if not is_nothing(text[start:end]) and text[start] != "-":
        yield start, end


_RULES = (_assignments, shaped_tokens, key_blocks, _places, _arguments, _commands)
