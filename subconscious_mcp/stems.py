"""The form of a word in which its inflections and spellings meet.

A stem is a key and never shown: "enabling" and "enabled" become "enabl", "colour" and "color"
become "color". English only; any other word stays, in lower case.
"""

from __future__ import annotations

from functools import lru_cache

_IRREGULAR = {
    form: base
    for base, forms in (
        line.split(":")
        for line in """
add:added adds adding
be:am is are was were been being
begin:began begun beginning
bind:bound
bite:bites biting bitten
break:broke broken
bring:brought
build:built
buy:bought
care:cares cared caring
catch:caught
child:children
choose:chose chosen
come:came
cost:costs
deny:denied denies
die:died dies dying
do:does did done doing
draw:drew drawn
egg:eggs
eat:ate eaten
embed:embedded embedding embeds
evening:evenings
fall:fell fallen
find:finding finds found
forget:forgot forgotten
free:freed freeing frees
freeze:froze frozen
get:got gotten getting gets
give:gave given
go:went gone goes going
grow:grew grown
have:has had having
hear:heard
hide:hid hidden
hold:held
index:indices
inn:inns
keep:kept
know:knew known
lay:laid
lead:led leading
leave:leaving leaves
lend:lent
lie:lying lies lied
movie:movies
cookie:cookies
calorie:calories
selfie:selfies
lose:lost losing loses
make:made making
man:men
matrix:matrices
mean:meant
meet:met
need:needs needed
note:notes noted noting
owe:owed owing owes
pay:paid pays
person:people persons
ping:pinged pinging pings
plane:planes
quit:quits quitting
rebuild:rebuilt
remind:reminded
rise:rose risen
run:ran running runs
say:said
see:saw seen
seed:seeded seeds
seek:sought
sell:sold
send:sent
shrink:shrank shrunk
shut:shutting
sing:sang sung
sit:sat
sleep:slept
speak:spoke spoken
speed:sped speeds
spend:spent
spin:spun
split:splits splitting
spring:springs
stand:stood
steal:stole stolen
string:strings
take:took taken taking
teach:taught
tell:told
theme:themes
think:thought
throw:threw thrown
tie:tying ties tied
undo:undid undone
unbind:unbound
understand:understood
unfreeze:unfroze unfrozen
use:used using uses
vertex:vertices
wake:woke woken
wear:wore worn
win:won winning
woman:women
write:wrote written
wrong:wrongly
yes:yeah yep
""".strip().splitlines()
    )
    for form in forms.split()
}


def words(text: str) -> frozenset[str]:
    """Returns the words of a text; lists of words are easier to read and to change so."""
    return frozenset(text.split())


def rows(text: str) -> list[str]:
    """Returns the rows of a table; a line that begins with blanks goes on with the row above."""
    return text.strip().replace("\n    ", " ").splitlines()


_KEPT = words(
    "off all less https windows aws dns sms css ios macos kubernetes redis class this "
    # Their stems are those of small words and of others: note and not, evening and even, plane and plan.
    "bite canned care egg evening inn mine news note plane quite theme"
)
_NO_ADVERBS = words(
    "family anomaly assembly italy weekly monthly hourly yearly nightly quarterly biweekly butterfly friendly elderly "
    "lonely lovely likely unlikely costly really early"
)
_VOWELS = frozenset("aeiouy")
_ENDINGS = (
    ("isation", "ization"),
    ("ising", "izing"),
    ("ised", "ized"),
    ("ises", "izes"),
    ("ise", "ize"),
    ("yse", "yze"),
    ("ysed", "yzed"),
    ("ysing", "yzing"),
    ("tre", "ter"),
    ("tres", "ters"),
    ("ence", "ense"),
    ("ences", "enses"),
    ("ogue", "og"),
    ("ogues", "ogs"),
    ("aemia", "emia"),
)


@lru_cache(maxsize=20_000)
def stem(word: str) -> str:
    """Returns the stem of a word in lower case."""
    word = _IRREGULAR.get(word, word)
    if word in _KEPT or len(word) > 40:
        return word
    if len(word) > 5:
        word = _american(word)
    if len(word) > 5 and word.endswith("ly") and word not in _NO_ADVERBS and word[-3] != "p":
        word = word[:-3] + "y" if word.endswith("ily") else word[:-2]
    if len(word) > 3:
        word = _uninflected(word)
    if len(word) > 2 and word[-1] == word[-2] and word[-1] not in _VOWELS:
        word = word[:-1]
    if len(word) > 3 and word.endswith("e"):
        word = word[:-1]
    return word


def phrase_key(phrase: str) -> str:
    """Returns the stem of a word, or of each word of a phrase that underscores join."""
    return "_".join(stem(word) for word in phrase.lower().split("_")) if "_" in phrase else stem(phrase.lower())


def _american(word: str) -> str:
    if "our" in word[2:]:
        word = word[:2] + word[2:].replace("our", "or")
    for british, american in _ENDINGS:
        if word.endswith(british):
            return word[: -len(british)] + american
    return word


def _uninflected(word: str) -> str:
    if word.endswith("ies") and len(word) > 4:
        word = word[:-3] + "y"
    elif word.endswith(("sses", "shes", "ches", "xes", "zes")):
        word = word[:-2]
    elif word.endswith("s") and not word.endswith(("ss", "us", "is")):
        word = word[:-1]
    if word.endswith("ing") and len(word) > 5 and not _VOWELS.isdisjoint(word[:-3]):
        return word[:-3]
    if word.endswith("ied") and len(word) > 4:
        return word[:-3] + "y"
    if word.endswith("ed") and len(word) > 4 and word[-3] != "e" and not _VOWELS.isdisjoint(word[:-2]):
        return word[:-2]
    return word


_TAILS = words(
    "d r s e y n m al ed er or es ly ic ion ing ive ity ant ent ial age ful ure ment tion ness able ible ance ence "
    "ency ancy ator ation ition ally ability ization ize izer ical ship less ary ory ist ism ian an ty th t "
    "ily ational ative uration at it in ied ier"
) | {""}


def akin(one: str, other: str) -> bool:
    """Tells whether two stems look like forms of one word: deploy and deployment, a word and its typing error."""
    if _figures(one) != _figures(other):
        return False  # E1042, E1024
    shorter = min(len(one), len(other))
    common = 0
    while common < shorter and one[common] == other[common]:
        common += 1
    rest, other_rest = one[common:], other[common:]
    if common >= 3 and rest in _TAILS and other_rest in _TAILS:
        return True
    return common > 0 and shorter >= 4 and len(one) + len(other) >= 10 and _slip(rest, other_rest)


def _figures(stem: str) -> str:
    return "" if stem.isalpha() else "".join(letter for letter in stem if letter.isdigit())


def _slip(one: str, other: str) -> bool:
    """Tells whether one typing error lies between two rests that begin differently."""
    if one[1:] == other[1:] or one[1:] == other or one == other[1:]:
        return True
    return len(one) >= 2 and len(other) >= 2 and one[:2] == other[1::-1] and one[2:] == other[2:]
