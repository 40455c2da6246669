r"""Writes unicode_14_0.json, the pinned Unicode data of the tokenizer.

google-research/bert uses the running Python's `unicodedata`, so its tokens
change with the Python version. This project's tokens depend on one committed
table, made once with a Python whose Unicode is 14.0.0 (that is, 3.11):

    python3.11 tests/testdata/make_unicode_table.py \
        data/tokenization/unicode_14_0.json

All properties come from Python's own `str` and `unicodedata`, which the
released tokenizer calls. Neither exposes whether a character is cased or
case-ignorable; this follows from the lower case of a capital sigma next to it.
"""

import json
import sys
import unicodedata

CODE_POINTS = [*range(0xD800), *range(0xE000, 0x110000)]
HANGUL_SYLLABLES = range(0xAC00, 0xD7A4)


def runs(members):
    """Folds ascending code points into [first, last] pairs."""
    folded = []
    for code_point in members:
        if not folded or folded[-1][1] != code_point - 1:
            folded.append([code_point, code_point])
        folded[-1][1] = code_point
    return folded


def is_space(char):
    """Returns whether the released tokenizer ends a word at this character."""
    if unicodedata.category(char) == "Cc":
        return char in "\t\n\r"
    return char.isspace()


def is_removed(char):
    """Returns whether the released tokenizer drops this character at once."""
    if char in "\0\ufffd":
        return True
    return unicodedata.category(char) in ("Cc", "Cf") and char not in "\t\n\r"


def is_punctuation(char):
    """Returns whether the released tokenizer makes this character a word."""
    if "!" <= char <= "~" and not char.isalnum():
        return True
    return unicodedata.category(char)[0] == "P"


def is_settled(char):
    """Returns whether this character's category is as old as Unicode 3.2.

    Libraries with other Unicode data agree on these characters.
    """
    category = unicodedata.category(char)
    return category[0] != "C" and (
        category == unicodedata.ucd_3_2_0.category(char)
    )


def sigma_before(text):
    """Returns the lower case of the sigma in "A" + sigma + text."""
    return ("A\u03a3" + text).lower()[1]


def is_case_ignorable(char):
    """Returns whether the rule of the final sigma skips this character."""
    return sigma_before(char + "A") == "\u03c3" != sigma_before(char)


def is_cased(char):
    """Returns whether a sigma before this character is not the final one."""
    return sigma_before(char) == "\u03c3"


def main(path):
    """Writes the table to a path."""
    if unicodedata.unidata_version != "14.0.0":
        sys.exit("This Python's Unicode is not 14.0.0; Python 3.11's is.")
    chars = [chr(code_point) for code_point in CODE_POINTS]

    def runs_where(condition):
        return runs(ord(char) for char in chars if condition(char))

    classes = {}
    for char in chars:
        combining_class = unicodedata.combining(char)
        if combining_class:
            classes.setdefault(combining_class, []).append(ord(char))
    table = {
        "unicode_version": unicodedata.unidata_version,
        "removed": runs_where(is_removed),
        "space": runs_where(is_space),
        "punctuation": runs_where(is_punctuation),
        "nonspacing_mark": runs_where(
            lambda char: unicodedata.category(char) == "Mn"
        ),
        "settled": runs_where(is_settled),
        "cased": runs_where(is_cased),
        "case_ignorable": runs_where(is_case_ignorable),
        "combining_class": {
            str(value): runs(members)
            for value, members in sorted(classes.items())
        },
        "lower": {char: char.lower() for char in chars if char.lower() != char},
        "decomposition": {
            char: unicodedata.normalize("NFD", char)
            for char in chars
            if unicodedata.normalize("NFD", char) != char
            and ord(char) not in HANGUL_SYLLABLES
        },
    }
    with open(path, "w", encoding="ascii") as file:
        file.write("{\n")
        lines = (
            f"{json.dumps(key)}: {json.dumps(value, separators=(',', ':'))}"
            for key, value in table.items()
        )
        file.write(",\n".join(lines))
        file.write("\n}\n")


if __name__ == "__main__":
    main(sys.argv[1])
