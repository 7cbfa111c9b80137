"""Text for people: names on one line, whose bytes may be line breaks and terminal escapes, and counts."""

import re

_ESCAPE = re.compile(r"\\(?:[\\nrt]|x[0-9a-f]{2}|u[0-9a-f]{4}|U[0-9a-f]{8})")


def printable(text: str) -> str:
    """`text` with what is no visible character escaped as Python writes it, and the backslash too.

    So no two texts look the same. Bytes that are no UTF-8 come as `\\udcff`, a line break as `\\n`.
    """
    if text.isprintable() and "\\" not in text:
        return text
    return "".join(char if char.isprintable() and char != "\\" else repr(char)[1:-1] for char in text)


def unescaped(text: str) -> str:
    """The text of which `text` is what `printable` made of it, or repr() within the quotes."""
    return _ESCAPE.sub(lambda match: match[0].encode().decode("unicode_escape"), text)


def counted(number: int, thing: str) -> str:
    """ "1 pack", "2 packs"."""
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"
