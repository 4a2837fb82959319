"""Text as detectors see it: full-width and other digits as ASCII, invisible characters gone, odd spaces plain.

A value written with such characters is the same value to a reader, so it must be the same to a detector. Positions in
the normal form lead back to the text as it was.
"""

import functools
import unicodedata

_INVISIBLE = (
    *(0x00AD, 0x034F, 0x061C, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x180E, 0x3164, 0xFEFF, 0xFFA0),
    *range(0x200B, 0x2010),  # zero-width space and joiners, direction marks
    *range(0x202A, 0x202F),
    *range(0x2060, 0x2070),
    *range(0xFE00, 0xFE10),  # variation selectors
    *range(0xE0000, 0xE0080),  # tags
)
_DASHES = (*range(0x2010, 0x2016), 0x2212, 0xFE58, 0xFE63, 0xFF0D)
_ASCII = bytes(range(128))
_FULL_STOPS = (0x3002, 0xFF0E, 0xFF61, 0x2024)


@functools.cache
def _table() -> dict[int, str]:
    """Every character whose normal form is another one. About 5,000 entries, made once."""
    table = {}
    for code in (*range(0x80, 0xD800), *range(0xF900, 0x10000), *range(0x1D400, 0x1D800), *range(0x1FBF0, 0x1FBFA)):
        character = chr(code)
        folded = unicodedata.normalize("NFKC", character)
        digit = unicodedata.decimal(character, None)
        if digit is not None:
            table[code] = str(digit)
        elif len(folded) == 1 and folded.isascii():
            table[code] = folded
    table.update(dict.fromkeys(range(0xD800, 0xE000), "\ufffd"))  # halves of surrogate pairs
    table.update(dict.fromkeys(_INVISIBLE, ""))
    table.update(dict.fromkeys(_DASHES, "-"))
    table.update(dict.fromkeys(_FULL_STOPS, "."))
    table[0x2019] = "'"
    return table


def prepare_normal_form() -> None:
    """Make the table now: it takes a twentieth of a second, which no stream should wait for."""
    _table()


def normal_form(text: str) -> tuple[str, list[int] | None]:
    """The normal form, and for each of its characters where it stands in `text`; `None` if the lengths are the same."""
    if text.isascii():
        return text, None
    table = _table()
    # Few characters of a text are not ASCII, and few of those have another normal form. (Five times as fast as
    # str.translate, which asks the table for every character.)
    others = text.encode("utf-8", "surrogatepass").translate(None, _ASCII).decode("utf-8", "surrogatepass")
    odd = [character for character in set(others) if ord(character) in table]
    if not odd:
        return text, None
    folded = text
    for character in odd:
        folded = folded.replace(character, table[ord(character)])
    if len(folded) == len(text):
        return folded, None
    offsets = [index for index, character in enumerate(text) if table.get(ord(character)) != ""]
    return folded, offsets
