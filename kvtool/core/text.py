"""Names and messages on one line: a name is any bytes, line breaks and terminal escapes among them."""


def printable(text: str) -> str:
    """`text` with what is no visible character escaped as Python writes it, and the backslash too.

    So no two texts look the same. Bytes that are no UTF-8 come as `\\udcff`, a line break as `\\n`.
    """
    if text.isprintable() and "\\" not in text:
        return text
    return "".join(char if char.isprintable() and char != "\\" else repr(char)[1:-1] for char in text)
