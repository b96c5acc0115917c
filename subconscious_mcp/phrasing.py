"""Fixed phrases, and what negations bear on.

"Turn the cache on" becomes one token, so that its "on" is not taken for the state; a negation leaves its mark on
the word that it denies, or goes where it denies nothing: "I'm not sure how to", "can't you", "or not".
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from subconscious_mcp import antonyms, lexicon
from subconscious_mcp.stems import phrase_key, stem, words

if TYPE_CHECKING:
    from subconscious_mcp.reading import Token

_NEGATIONS = words("not no")
_AUXILIARIES = words("can could will would do does did is are was were has have had should shall must may might")
_SUBJECTS = words("i you we he she it they there that this")
_DENIED = words(
    "work use need want get know exist good right correct properly correctly on show let give take keep put make tell"
)
"""Small words that can be what a negation denies; it passes over any other."""
_COMPLETE = words("work exist good right correct properly correctly on show let give take keep put make tell")
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
def _phrases() -> dict[str, dict[str, list[tuple[tuple[str, ...], str]]]]:
    """Returns phrases by their first and second word: what follows those, and what they become."""
    table: dict[str, dict[str, list[tuple[tuple[str, ...], str]]]] = {}
    names = {phrase_key(name) for name in (*_FIXED.split(), *antonyms.phrases(), *lexicon.phrases())}
    becomes = {phrase_key(name): phrase_key(other) for name, other in _PHRASES_FOR.items()}
    for name in sorted(names, key=lambda name: (-name.count("_"), name)):
        first, second, *rest = name.split("_")
        table.setdefault(first, {}).setdefault(second, []).append((tuple(rest), becomes.get(name, name)))
    return table


def joined(tokens: list[Token]) -> list[Token]:
    """Makes one token of each fixed phrase."""
    table = _phrases()
    gone: set[int] = set()
    for number, token in enumerate(tokens):
        begun = table.get(token.stem)
        if begun is None or number in gone:
            continue
        name, places = _adjacent(tokens, number, begun)
        if not places and token.stem in _SEPARABLE:
            name, places = _parted(tokens, number, begun)
        if places:
            gone.update(places if name else (number, *places))
            text = " ".join([token.text, *(tokens[place].text for place in places)])
            token.stem, token.text, token.slight = name, text, name in lexicon.slight()
    return [token for number, token in enumerate(tokens) if number not in gone] if gone else tokens


_Begun = dict[str, list[tuple[tuple[str, ...], str]]]


def _adjacent(tokens: list[Token], number: int, begun: _Begun) -> tuple[str, tuple[int, ...]]:
    """Returns a phrase whose words stand side by side, and where they are; no places where there is none."""
    if number + 1 < len(tokens):
        for rest, name in begun.get(tokens[number + 1].stem, ()):
            end = number + 2 + len(rest)
            if rest == tuple(token.stem for token in tokens[number + 2 : end]):
                return name, tuple(range(number + 1, end))
    return "", ()


def _parted(tokens: list[Token], number: int, begun: _Begun) -> tuple[str, tuple[int, ...]]:
    """Returns a verb with its particle behind its object: turn the cache on."""
    for place in range(number + 2, min(number + 6, len(tokens))):
        particle = tokens[place].stem
        if not particle:
            break
        if particle in _PARTICLES and particle in begun:
            after = tokens[place + 1] if place + 1 < len(tokens) else None
            if after is None or after.slight or not after.stem:
                return next((name for rest, name in begun[particle] if not rest), ""), (place,)
    return "", ()


_SEPARABLE = frozenset(
    stem(word)
    for word in words(
        "turn switch power shut log sign roll back bring spin scale tear take put kick pick set fill look wake"
    )
)


_BEFORE_PRONOUN = words("this that which the another any no new each every old other same right wrong first last")


def drop_pronouns(tokens: list[Token]) -> None:
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


def deny(tokens: list[Token]) -> None:
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
