"""Text for people: names on one line, whose bytes may be line breaks and terminal escapes, and counts."""


def printable(text: str) -> str:
    """`text` with what is no visible character escaped as Python writes it, and the backslash too.

    So no two texts look the same. Bytes that are no UTF-8 come as `\\udcff`, a line break as `\\n`.
    """
    if text.isprintable() and "\\" not in text:
        return text
    return "".join(char if char.isprintable() and char != "\\" else repr(char)[1:-1] for char in text)


def counted(number: int, thing: str) -> str:
    """ "1 pack", "2 packs"."""
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"
