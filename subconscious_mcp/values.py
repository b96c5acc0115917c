"""The values in a text: numbers with their units, versions, dates, times, identifiers, paths, flags, code, quotes.

`pieces` takes a text apart in one pass. A value has keys: two values are the same if they share
one, so that "2 h" is "120 minutes" and "5/1" is a day of January and one of May.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterator
from functools import cache

from subconscious_mcp.stems import rows, words


class Value:
    """A value in a text.

    Attributes:
        kind: Kind of the contrast to a value that differs.
        text: As it stands there.
        keys: What it may be, as tuples or strings; equal values share one.
        bare: The number alone, where one with a unit and one without may be the same.
        place: Where it begins in the text.
        weak: One that is often left out or said otherwise: a number word, the number in a name.
    """

    __slots__ = ("bare", "keys", "kind", "place", "text", "weak")

    def __init__(
        self,
        kind: str,
        text: str,
        keys: tuple[Hashable, ...],
        place: int,
        *,
        bare: Hashable = None,
        weak: bool = False,
    ) -> None:
        self.kind = kind
        self.text = text
        self.keys = keys
        self.place = place
        self.bare = bare
        self.weak = weak


_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_MONTH = (
    r"(?:jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|sept?(?:ember)?"
    r"|oct(?:ober)?|nov(?:ember)?|dec(?:ember)?)"
)
_EXTENSION = (
    r"(?:py|js|jsx|ts|tsx|mjs|go|rs|rb|java|kt|c|h|cc|cpp|hpp|cs|php|pl|sh|bash|zsh|ps1|bat|sql|html?|css|scss|vue"
    r"|json|jsonl|ya?ml|toml|ini|cfg|conf|env|lock|xml|csv|tsv|md|rst|txt|log|pdf|docx?|xlsx?|pptx?|png|jpe?g|gif|svg"
    r"|webp|mp[34]|wav|zip|gz|tgz|tar|bz2|xz|7z|rar|jar|war|whl|exe|dll|so|deb|rpm|dmg|iso|db|sqlite3?|bak|tmp|pem|crt"
    r"|key|pub|tf|gradle|properties|ipynb|parquet|proto|lua|swift|scala|r)"
)

_QUOTE = r"""(?:"[^"\n]{1,200}"|`[^`\n]{1,200}`|(?<![\w'])'(?=\S)[^'\n]{1,200}'(?!\w))"""

_PIECES = rf"""
[ ]*(?:
(?P<plain>(?!{_MONTH}\b\.?,?\s\d)(?:[A-Za-z]?[a-z]{{1,40}}|[A-Z]{{1,12}}|I|a)(?=[ ,;?!\n]|\.?$|\.\s))
|(?P<url>\b[a-zA-Z][a-zA-Z0-9+.-]{{1,15}}://[^\s"'<>`)\]]{{1,2000}})
|(?P<email>[\w.+-]{{1,64}}@[\w-]{{1,63}}(?:\.[\w-]{{1,63}}){{1,6}})
|(?P<quote>{_QUOTE})
|(?P<uuid>(?<![\w-])[0-9a-fA-F]{{8}}-(?:[0-9a-fA-F]{{4}}-){{3}}[0-9a-fA-F]{{12}}(?![\w-]))
|(?P<isodate>(?<![\w.-])\d{{4}}[-/.]\d{{1,2}}[-/.]\d{{1,2}}(?![\d-]))
|(?P<numdate>(?<![\w./-])\d{{1,2}}(?P<sep>[/.-])\d{{1,2}}(?P=sep)(?:\d{{4}}|\d\d)(?![\w/]|\.\d))
|(?P<ip>(?<![\w.])\d{{1,3}}(?:\.\d{{1,3}}){{3}}(?:/\d{{1,2}})?(?![\w.]\d))
|(?P<clock>(?<![\w:.])\d{{1,2}}:\d\d(?::\d\d)?(?:\s?[aApP]\.?[mM]\b\.?)?(?![\w:])
  |(?<![\w:.])\d{{1,2}}\s?[aApP]\.?[mM]\b\.?|(?<=[T\d])T\d\d:\d\d(?::\d\d)?)
|(?P<ticket>(?<![\w-])[A-Z][A-Z0-9]{{1,9}}-\d{{1,9}}(?:-\d{{1,9}})?(?![\w-]))
|(?P<hash>(?<!\w)(?=\d*[a-f])(?=[a-f]*\d)[0-9a-f]{{7,64}}(?!\w))
|(?P<path>(?<![\w/:)])(?:~|\.{{1,2}})?/[\w.@~+*-]{{1,100}}(?:/[\w.@~+*-]{{0,100}}){{0,30}}
  |(?<!\w)[A-Za-z]:\\[\w.\\-]{{1,200}}
  |(?<![\w./])[\w.@-]{{1,60}}(?:/[\w.@-]{{1,60}}){{0,20}}\.{_EXTENSION}(?![\w.(]))
|(?P<flag>(?<![\w-])--?[A-Za-z][\w-]{{0,60}})
|(?P<version>(?<![\w.])[vV]\.?\d{{1,6}}(?:\.(?:\d{{1,6}}|x)\b){{0,4}}(?:-[a-z]\w{{0,20}}(?:\.\d+)?)?
  |(?<![\w.])\d{{1,6}}\.\d{{1,6}}(?:\.(?:\d{{1,6}}|x)\b){{1,3}}(?:-?(?:alpha|beta|rc|dev|post|a|b)\.?\d{{0,6}})?
  |(?<![\w.])\d{{1,6}}\.x\b)
|(?P<code>[A-Za-z_]\w{{0,100}}(?:(?:\.|::)[A-Za-z_]\w{{0,100}}){{1,10}}(?:\(\))?|[A-Za-z_]\w{{0,100}}\(\)
  |[A-Za-z0-9]{{0,100}}_\w{{1,100}}|[a-z][a-z0-9]{{0,60}}[A-Z]\w{{0,100}}|[A-Z][a-z0-9]{{1,40}}[A-Z]\w{{0,100}})
|(?P<special>[Cc]\+\+|\b[CF]\#|\.NET\b|->|=>|\u2192|&&|[<>]=?|[!=]=)
|(?P<sign>\#\d{{1,9}}\b)
|(?P<monthdate>\b{_MONTH}\.?\s\d{{1,2}}(?:st|nd|rd|th)?\b(?![:.]\d)(?:,?\s\d{{4}}\b)?
  |(?<![\w.])\d{{1,2}}(?:st|nd|rd|th)?\s(?:of\s)?{_MONTH}\b\.?(?:,?\s\d{{4}}\b)?|\b{_MONTH},?\s\d{{4}}\b)
|(?P<named>(?<![^\W_])[^\W\d_]{{1,20}}-?\d+(?:\.\d+){{0,3}}(?![^\W_]|\.\d))
|(?P<number>(?P<cash>[$\u20ac\u00a3\u00a5]\s?)?(?P<minus>(?<![\w)-])-)?
  (?P<digits>\d{{1,3}}(?:[,_']\d{{3}})+(?!\d)|\d{{1,3}}(?:\ \d00)+(?!\d)|\d+)(?P<decimals>\.\d+)?
  (?P<unit>\s?%|\s?\u00b0[CF]?|[hHdmM](?=\d)|[A-Za-z\u00b5]{{1,12}}(?!\w))?)
|(?P<word>[^\W\d_]+(?:'[^\W\d_]+)*(?!\w)|\w+)
|(?P<stop>[.!?;:,()\n]|(?<=\s)-\s)
)
"""


@cache
def _pattern() -> re.Pattern[str]:
    # Months are found in any case: "(?i:" costs more on every word than a second spelling here.
    # Blanks in front belong to a piece: a look at each for every sort of piece would cost as much as a word.
    source = _PIECES.replace(_MONTH, _both_cases(_MONTH))
    return re.compile(source, re.VERBOSE)


def quotes(text: str) -> list[str]:
    """Returns what stands in quotes, with them."""
    return re.findall(_QUOTE, text) if '"' in text or "'" in text or "`" in text else []


def _both_cases(pattern: str) -> str:
    """Lets the first letter of each alternative be a capital one."""
    return re.sub(r"(?<=[(:|])([a-z])(?=[a-z])", lambda found: f"[{found[1].upper()}{found[1]}]", pattern)


def pieces(text: str) -> Iterator[tuple[str, re.Match[str]]]:
    """Yields the pieces of a text in order, each with its sort: `plain` words, `word`, `stop`, `number`, `path`, ...

    A plain word is told first, because nine pieces of ten are one.
    """
    for found in _pattern().finditer(text):
        yield found.lastgroup or "", found


# --- units ----------------------------------------------------------------------------------------

_UNITS = """
time 0.000000001 ns nanosecond nanoseconds
time 0.000001 us µs microsecond microseconds
time 0.001 ms msec msecs millisecond milliseconds millis
time 1 s sec secs second seconds 秒
time 60 min mins minute minutes 分钟 分
time 3600 h hr hrs hour hours 小时 時間
time 86400 d day days 天 日
time 604800 w wk week weeks fortnight
time 2629800 mo month months
time 31557600 y yr yrs year years
bytes 0.125 bit bits
bytes 1 b byte bytes
bytes 1000 kb kib ki kilobyte kilobytes kbyte
bytes 1000000 mb mib mi megabyte megabytes mbyte meg megs
bytes 1000000000 gb gib gi gigabyte gigabytes gbyte gig gigs
bytes 1000000000000 tb tib ti terabyte terabytes
bytes 1000000000000000 pb pib petabyte petabytes
rate 1000 kbps
rate 1000000 mbps
rate 1000000000 gbps
share 1 % percent pct percentage
length 0.001 mm millimeter millimeters millimetre millimetres
length 0.01 cm centimeter centimeters centimetre centimetres
length 0.0254 inch inches
length 0.3048 ft foot feet
length 0.9144 yard yards
length 1 meter meters metre metres
length 1000 km kilometer kilometers kilometre kilometres kms
length 1609.344 mile miles
mass 0.001 mg milligram milligrams
mass 1 g gram grams
mass 28.3495 oz ounce ounces
mass 453.592 lb lbs pound pounds
mass 1000 kg kgs kilo kilos kilogram kilograms
mass 1000000 tonne tonnes ton tons
volume 0.001 ml milliliter milliliters millilitre millilitres
volume 1 l liter liters litre litres
volume 3.785 gallon gallons
frequency 1 hz hertz
frequency 1000 khz
frequency 1000000 mhz
frequency 1000000000 ghz
power 1 watt watts
power 1000 kw kilowatt kilowatts
celsius 1 °c c celsius
fahrenheit 1 °f f fahrenheit
degrees 1 ° degree degrees
pixels 1 px pixel pixels
size 1 em
size 2 rem
usd 1 $ usd dollar dollars bucks
eur 1 € eur euro euros
gbp 1 £ gbp quid
jpy 1 ¥ jpy yen
inr 1 inr rupee rupees rs
chf 1 chf
"""
_SCALES = {"k": 1e3, "thousand": 1e3, "m": 1e6, "mn": 1e6, "mio": 1e6, "million": 1e6, "millions": 1e6, "bn": 1e9}
_SCALES |= {"billion": 1e9, "billions": 1e9, "trillion": 1e12, "lakh": 1e5, "crore": 1e7, "thousands": 1e3}
GLUED = words("b c f g h d w y s l m k mi ti gi ki us min rs mo em rem ft in")
"""Units that are other words, or letters, where they stand apart."""
_APART_TOO = words("s h d min mo ft g l m")


@cache
def _units() -> dict[str, tuple[str, float]]:
    table: dict[str, tuple[str, float]] = {}
    for row in rows(_UNITS):
        dimension, factor, *names = row.split()
        table.update(dict.fromkeys(names, (dimension, float(factor))))
    return table


def is_unit(word: str) -> bool:
    """Tells whether a word behind a number is its unit or scale."""
    word = word.lower()
    if word in GLUED and word not in _APART_TOO:
        return False
    return word in _units() or word in _SCALES


def is_time(word: str) -> bool:
    """Tells whether "a" before the word means one of it: a week, an hour."""
    return len(word) > 3 and word != "second" and _units().get(word, ("", 0))[0] == "time"


def amount(number: float, units: tuple[str, ...], text: str, place: int, weak: bool = False) -> Value:
    """Returns a number with its units and scales, in the order in which they stand."""
    keys: list[Hashable] = []
    scale = 1.0
    dimension: tuple[str, float] | None = None
    bare = number
    for unit in units:
        low = unit.lower()
        if low in _SCALES and dimension is None and (low != "m" or unit == "M"):
            scale *= _SCALES[low]
        elif dimension is None:
            dimension = _units().get(low)
        if low == "m" and len(units) == 1:
            # Minutes, metres, a million, or megabytes: whichever the other side makes of it.
            keys += [("time", _round(number * 60)), ("length", _round(number)), ("", _round(number * 1e6))]
            keys += [("bytes", _round(number * 1e6))]
    if low_unit(units) in ("g", "k") and len(units) == 1:
        keys.append(("bytes", _round(number * (1e9 if low_unit(units) == "g" else 1e3))))
    number *= scale
    if dimension:
        keys.insert(0, (dimension[0], _round(number * dimension[1])))
    elif not keys or scale != 1.0:
        keys.insert(0, ("", _round(number)))
    kind = "date" if not units and 1900 <= number < 2100 and number == int(number) and len(text) == 4 else "number"
    return Value(kind, text, tuple(keys), place, bare=_round(bare if dimension or keys[1:] else number), weak=weak)


def low_unit(units: tuple[str, ...]) -> str:
    """Returns the first unit in lower case, or nothing."""
    return units[0].lower() if units else ""


def _round(number: float) -> float:
    return float(f"{number:.9g}")


def summed(first: Value, second: Value, text: str) -> Value | None:
    """Returns "2 h" and "30 min" as one length of time, or None where they are not."""
    one, other = first.keys[0], second.keys[0]
    if not (isinstance(one, tuple) and isinstance(other, tuple) and one[0] == other[0] == "time" and one[1] > other[1]):
        return None
    return Value("number", text, (("time", _round(one[1] + other[1])),), first.place)


# --- dates and times ------------------------------------------------------------------------------


def date(sort: str, text: str, place: int) -> Value:
    """Returns a date that is written in figures or with the name of its month."""
    year, keys = 0, []
    if sort == "monthdate":
        month = 1 + _MONTHS.index(next(part for part in re.findall(r"[a-z]{3}", text.lower()) if part in _MONTHS))
        figures = [int(figure) for figure in re.findall(r"\d+", text)]
        year = next((figure for figure in figures if figure > 31), 0)
        day = next((figure for figure in figures if figure <= 31), 0)
        keys = [(month, day)]
    else:
        figures = [int(figure) for figure in re.findall(r"\d+", text)]
        if sort == "isodate":
            year, keys = figures[0], [(figures[1], figures[2])]
        else:
            year = figures[2] if figures[2] > 99 else 2000 + figures[2]
            keys = [(figures[1], figures[0])] if "." in text else [(figures[0], figures[1]), (figures[1], figures[0])]
    # A date without a year is the same as one with it: the year is compared only where both have one.
    dated: list[Hashable] = [("date", year, *key) for key in keys]
    return Value("date", text, tuple(dated), place)


def clock(text: str, place: int) -> Value:
    """Returns a time of day."""
    low = text.lower().lstrip("t").replace(".", "")
    figures = [int(figure) for figure in re.findall(r"\d+", low)]
    hour = figures[0]
    if low.endswith("pm") and hour < 12:
        hour += 12
    if low.endswith("am") and hour == 12:
        hour = 0
    parts = (hour, *figures[1:])
    while len(parts) > 1 and parts[-1] == 0:
        parts = parts[:-1]
    return Value("date", text.strip(), (("clock", parts),), place)


# --- versions -------------------------------------------------------------------------------------


def version(text: str, place: int) -> Value:
    """Returns a version; trailing zeros and the letter in front do not count."""
    low = text.lower().lstrip("v").lstrip(".")
    parts = tuple(int(part) if part.isdigit() else part for part in re.findall(r"\d+|[a-z]+", low))
    while len(parts) > 1 and parts[-1] in (0, "x"):
        parts = parts[:-1]
    keys: list[Hashable] = [("version", parts)]
    if len(parts) == 1:
        keys.append(("", float(parts[0]) if isinstance(parts[0], int) else parts[0]))
    return Value("version", text, tuple(keys), place)


def number(found: re.Match[str], unit: str, place: int, named: bool) -> Value:
    """Returns a plain number, or the version that a number with a point is.

    Args:
        found: The match of the sort `number`.
        unit: The word behind, where that is its unit.
        named: A name or "version" stands before it.
    """
    digits = re.sub(r"[,_' ]", "", found["digits"])[:30]
    decimals = (found["decimals"] or "")[:30]
    glued = (found["unit"] or "").strip()
    figure = float((found["minus"] or "") + digits + decimals)
    cash = (found["cash"] or "").strip()
    units = tuple(part for part in (glued, *unit.split(), cash) if part)
    text = found["number"].strip() if not unit else f"{found['number'].strip()} {unit}"
    value = amount(figure, units, text, place)
    if decimals and not units:
        parts = (int(digits), int(decimals[1:]))
        if named or (digits != "0" and decimals.endswith("0") and len(decimals) > 2):
            value.keys = (("version", parts if parts[1] else parts[:1]), *([] if parts[1] else value.keys))
        else:
            value.keys = (*value.keys, ("version", parts if parts[1] else parts[:1]))
    elif named and not units:
        value.keys = (*value.keys, ("version", (int(digits),)))
    if named and not units:
        value.kind = "version"
    return value


# --- number words ---------------------------------------------------------------------------------

_ONES = "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen"
NUMBER_WORDS: dict[str, float] = {
    **{word: float(figure) for figure, word in enumerate((_ONES + " seventeen eighteen nineteen").split())},
    **{
        word: 10.0 * figure
        for figure, word in enumerate(["twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"], 2)
    },
    "hundred": 100.0,
    "dozen": 12.0,
    "thousand": 1e3,
    "million": 1e6,
    "billion": 1e9,
    "twice": 2.0,
    "thrice": 3.0,
}


def spoken(numerals: list[str]) -> float:
    """Returns what number words say that follow one another: two hundred fifty."""
    total = part = 0.0
    for word in numerals:
        figure = NUMBER_WORDS[word]
        if figure == 100 or word == "dozen":
            part = max(part, 1.0) * figure
        elif figure >= 1000:
            total, part = total + max(part, 1.0) * figure, 0.0
        else:
            part += figure
    return total + part


# --- names of places in a system --------------------------------------------------------------------


def path(text: str, place: int) -> Value:
    """Returns a path; what it ends with names it too."""
    parts = text.lower().replace("\\", "/").rstrip("/.").split("/")
    parts = [part for part in parts if part not in ("", ".", "~")]
    return Value("path", text, tuple("/".join(parts[start:]) for start in range(len(parts))) or ("/",), place)


def url(text: str, place: int) -> Value:
    """Returns an address; scheme, `www.` and a last slash do not count."""
    plain = text.lower().rstrip("/.,;:!?").partition("://")[2].removeprefix("www.")
    return Value("identifier", text.rstrip(".,;:!?"), (plain,), place)


def flag(text: str, place: int) -> Value:
    """Returns a flag of a command."""
    return Value("flag", text, (text.lower().strip("-").replace("_", "-"),), place)


def code(text: str, place: int) -> Value:
    """Returns a name in code; the style of its words does not count, nor what it is an attribute of."""
    parts = re.split(r"\.|::", text.removesuffix("()"))
    keys = [re.sub(r"[\W_]", "", "".join(parts[start:])).lower() for start in range(len(parts))]
    return Value("code", text, tuple(keys), place)


# --- comparison -----------------------------------------------------------------------------------


def equal(one: Value, other: Value) -> bool:
    """Tells whether two values are the same, whatever they are called."""
    first, second = one.keys[0], other.keys[0]
    if first == second:
        return True
    if one.kind == other.kind == "date" and len(one.keys) > 1 and len(other.keys) > 1:
        return False  # Two dates in figures: the same order of day and month is meant in both.
    return first in other.keys or second in one.keys


def alike(one: Value, other: Value) -> bool:
    """Tells whether two values that are not equal may be the same, told with less on one side."""
    if one.kind == other.kind == "flag":
        short, long = sorted((str(one.keys[0]), str(other.keys[0])), key=len)
        return len(short) == 1 and len(long) > 1 and long[0] == short
    first, second = one.keys[0], other.keys[0]
    if not (isinstance(first, tuple) and isinstance(second, tuple)):
        return False
    if first[0] == second[0] == "date":
        yearless = 0 in (first[1], second[1])
        return (yearless and first[2:] == second[2:]) or (first[:3] == second[:3] and 0 in (first[3], second[3]))
    if one.bare is None or one.bare != other.bare:
        return False
    return bool((first[0] == "") != (second[0] == ""))  # "a timeout of 30", "30 seconds"
