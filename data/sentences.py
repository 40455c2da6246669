"""Splits prose into sentences by rule, for any script with sentence marks.

    "Dr. J. R. Smith paid $3.50. Why? (He was late.) So it goes."
    -> Dr. J. R. Smith paid $3.50. | Why? | (He was late.) | So it goes.

A mark ends a sentence if, after closing quotes and brackets, a space follows,
and then no lower-case letter. The word before a period must not be an
abbreviation, an initial or an ordinal number; after those which may also end a
sentence, the next word must be a typical first word. Full-width and other CJK
marks need no space.
"""

import re

CLOSING = "\"'\u201d\u2019\u00bb\u203a)\\]\u300d\u300f\uff09\u3011\u300b"
OPENING = "\"'\u201c\u2018\u00ab\u2039(\\[\u300c\u300e\uff08\u201e\u00bf\u00a1"
# CJK full stop, full-width ! and ?, half-width CJK full stop, full-width stop.
WIDE = "\u3002\uff01\uff1f\uff61\uff0e"
# . ! ? ellipsis; Arabic ?, Urdu full stop; danda, double danda; Ethiopic,
# Armenian, Khmer and Burmese full stops.
NARROW = ".!?\u2026\u203c\u2047\u061f\u06d4\u0964\u0965\u1362\u0589\u17d4\u104b"
_END = re.compile(
    f"(?:[{WIDE}][{WIDE}{NARROW}]*[{CLOSING}]*"
    f"|(?<![{NARROW}])([{NARROW}]+)[{CLOSING}]*(?:\\[\\w+\\])*(?=\\s))\\s*"
)
_WORD_BEFORE = re.compile(r"[^\s\"'(\[\u201c\u2018\u00ab\u201e\u2014]*$")
LONGEST_WORD = 64  # Far longer than any below.
# Letters of a word that abbreviates before a number: "Abs. 2", "fig. 4".
_SHORT = 4
_WORD_AFTER = re.compile(f"[{OPENING}\\s\u2013\u2014-]*(\\w+)?")

# Never the end of a sentence.
PREFIXES = frozenset(
    """
    mr mrs ms messrs mme mlle dr prof rev fr st ste gen col maj capt cpt lt
    sgt cmdr adm brig gov sen rep hon pres supt insp sir vs v cf viz al ca
    approx e.g i.e no nos nr vol vols pp p fig figs ch chap sec art eq ed eds
    op cit ibid trans vgl bzw z.b z.t u.a d.h sog bspw evtl ggf inkl hr fr
    str geb gest jan feb mar apr jun jul aug sep sept oct nov dec mt ft
    \u0438\u043c \u0443\u043b \u0442.\u0435 \u0442.\u043d \u0441\u043c
    \u0441\u0440 \u0440\u0438\u0441 \u043f\u0440 \u0441\u0432
    \u0430\u043a\u0430\u0434
    \u043f\u0440\u043e\u0444 \u0434\u043e\u0446 \u0433\u043e\u0441\u043f
    """.split()
)
# The end of a sentence only where a typical first word follows.
SUFFIXES = frozenset(
    """
    etc inc ltd co corp jr sr bros esq a.m p.m b.c a.d b.c.e c.e ph.d m.a b.a
    m.d d.c u.s u.k u.n e.u usw jh jhs chr v.chr n.chr min max mio mrd
    \u0433 \u0433\u0433 \u0432 \u0432\u0432 \u0434\u0440 \u0442.\u0434
    \u0442.\u043f
    \u0440\u0443\u0431 \u043c\u043b\u043d \u043c\u043b\u0440\u0434
    \u0442\u044b\u0441 \u0447\u0435\u043b \u043d.\u044d
    """.split()
)
FIRST_WORDS = frozenset(
    """
    the a an this that these those it its he she they we you his her their our
    my in on at by for from with as after before during since until when
    while where although though however but and or so if then there here what
    who why how both some many most all each another one to no not among
    because despite due
    der die das den dem des ein eine einen er sie es wir ihr sein seine im am
    auf bei mit nach vor seit als wenn doch aber und oder auch dies diese
    dieser dieses zu zum zur durch
    \u043e\u043d \u043e\u043d\u0430 \u043e\u043d\u043e \u043e\u043d\u0438 \u0432
    \u0432\u043e \u043d\u0430 \u0441 \u0441\u043e \u043f\u043e \u0438
    \u043d\u043e
    \u0430 \u044d\u0442\u043e \u044d\u0442\u043e\u0442 \u044d\u0442\u0430
    \u043f\u0440\u0438 \u043f\u043e\u0441\u043b\u0435 \u0434\u043b\u044f
    \u0438\u0437
    \u043a\u0430\u043a \u0442\u0430\u043a \u0436\u0435 \u043e\u0442 \u0437\u0430
    """.split()
)


def split(text: str) -> list[str]:
    """Returns the sentences of prose, stripped, without empty ones."""
    result, begin = [], 0
    for match in _END.finditer(text):
        if match.end() == len(text):
            break
        if match[1] is None or _ends(text, begin, match):
            result.append(text[begin : match.end()].strip())
            begin = match.end()
    result.append(text[begin:].strip())
    return [sentence for sentence in result if sentence]


def _ends(text, begin, match) -> bool:
    """Returns whether a mark that needs a space after it ends a sentence."""
    after = _WORD_AFTER.match(text, match.end())
    assert after  # The pattern matches nothing, too.
    following = after[1] or ""
    if following[:1].islower():
        return False
    if match[1] != ".":
        return True
    # The end of the word suffices; a text may have no space at all.
    begin = max(begin, match.start() - LONGEST_WORD)
    last_word = _WORD_BEFORE.search(text, begin, match.start())
    assert last_word  # As above.
    before = last_word[0]
    word = before.lower()
    is_initial = text.startswith(".", after.end()) and len(following) == 1
    is_first = following.lower() in FIRST_WORDS and not is_initial
    if word in PREFIXES:
        return False
    if text[match.end()].isdigit() and word.isalpha():
        is_street = word.endswith("str")  # "Hauptstr. 5"
        return len(word) > _SHORT and not is_street
    if word in SUFFIXES:
        return is_first
    if len(before) == 1 and before.isalpha():  # An initial, "z. B.", "c. 5".
        return is_first and before.isupper()
    if "." in before and len(before.split(".")[-1]) == 1:  # An acronym.
        return is_first
    if before.isdigit() and len(before) <= 2:  # "am 3. Oktober"
        return is_first
    return not text[match.start() - 1].isspace()  # ". . ."
