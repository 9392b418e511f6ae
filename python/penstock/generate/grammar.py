"""Statements of annotations: `name: item, item, ...;`, where an item is an expression or a clause with parentheses.

Expressions are the template's own language. They are copied, not understood: commas and semicolons within parentheses,
brackets, braces or quotes belong to them.
"""

import re
from dataclasses import dataclass

PAIRS = {"(": ")", "[": "]", "{": "}"}


@dataclass
class Piece:
    """Text with its place in the template; spaces around it are left out."""

    text: str
    offset: int

    def __bool__(self):
        return bool(self.text)


@dataclass
class Statement:
    """`name: items;`"""

    name: Piece
    items: list
    source: object  # without comments


def piece(source, start, end):
    """The text of a range without spaces around it; lines become one."""
    raw = source.text[start:end]
    stripped = raw.strip()
    return Piece(stripped.replace("\n", " ").replace("\r", " "), start + len(raw) - len(raw.lstrip()))


def split(source, start, end, separator):
    """Ranges between separators that stand outside parentheses and quotes; the last one may be open."""
    text, stack, at, first = source.text, [], start, start
    ranges, closed = [], True
    while at < end:
        here = text[at]
        if here in "\"'":
            at = quoted(source, at, end)
            continue
        if here in PAIRS:
            stack.append((here, at))
        elif here in PAIRS.values():
            if not stack or PAIRS[stack[-1][0]] != here:
                wanted = f"expected {PAIRS[stack[-1][0]]!r}" if stack else "nothing is open"
                raise source.error(at, f"found {here!r}; {wanted}")
            stack.pop()
        elif here == separator and not stack:
            ranges.append((first, at))
            first = at + 1
        elif here == ";" and stack:
            raise source.error(stack[-1][1], f"{stack[-1][0]!r} is not closed; expected {PAIRS[stack[-1][0]]!r}")
        at += 1
    if stack:
        raise source.error(stack[-1][1], f"{stack[-1][0]!r} is not closed; expected {PAIRS[stack[-1][0]]!r}")
    if text[first:end].strip() or (ranges and separator == ","):
        closed = False
        ranges.append((first, end))
    return ranges, closed


def quoted(source, at, end):
    """Behind a string that begins at `at`."""
    text, quote, k = source.text, source.text[at], at + 1
    while k < end and text[k] != "\n":
        if text[k] == "\\" and source.language != "fortran":
            k += 2
            continue
        if text[k] == quote:
            return k + 1
        k += 1
    raise source.error(at, f"a string is not closed; expected {quote}")


def blank_comments(source, start, end):
    """Ranges of lines that are no comment: `//` or `!` at their beginning."""
    ranges, at = [], start
    while at < end:
        close = source.text.find("\n", at, end)
        close = end if close < 0 else close + 1
        if not source.text[at:close].lstrip().startswith(("//", "!")):
            ranges.append((at, close))
        at = close
    return ranges


def statements(source, start, end):
    """All statements of a block."""
    # Comments become spaces, so that places stay what they are.
    keep, shown = blank_comments(source, start, end), list(" " * (end - start))
    for a, b in keep:
        shown[a - start : b - start] = source.text[a:b]
    clean = type(source)(source.name, source.text[:start] + "".join(shown) + source.text[end:], source.language)
    ranges, closed = split(clean, start, end, ";")
    if not closed:
        a, b = ranges[-1]
        last = a + len(clean.text[a:b].rstrip())
        raise source.error(last - 1, "the statement does not end; expected ';' after it")
    return [statement(clean, a, b) for a, b in ranges]


def statement(source, start, end):
    """One statement."""
    whole = piece(source, start, end)
    if not whole:
        raise source.error(start, "an empty statement; expected `name: ...;`")
    colon = source.text.find(":", start, end)
    name = piece(source, start, colon if colon >= 0 else end)
    if colon < 0:
        raise source.error(whole.offset + len(whole.text), "expected ':' after the name")
    if not all(part.isidentifier() and part.isascii() for part in name.text.split(".", 1)):
        raise source.error(name.offset, f"expected a name before ':', found {name.text!r}")
    value = source.text[colon + 1 : end]
    follower = re.search(r"\S(\s*\n\s*(\w+)\s*:(?!:))", value)
    if follower and "?" not in value and flat(value[: follower.start(1)]):
        raise source.error(colon + 1 + follower.start(), f"expected ';' before {follower[2]!r}")
    return Statement(name, items(source, colon + 1, end), source)


def flat(text):
    """Whether its parentheses are closed."""
    return all(text.count(a) == text.count(b) for a, b in PAIRS.items())


def items(source, start, end):
    """Pieces between commas; none of them empty."""
    ranges, _ = split(source, start, end, ",")
    if not ranges:
        raise source.error(start, "expected something here")
    pieces = [piece(source, a, b) for a, b in ranges]
    for one, (a, _) in zip(pieces, ranges, strict=True):
        if not one:
            raise source.error(a, "expected something here, found nothing")
    return pieces


def clause(source, item):
    """`name(arguments)` or `name`: the name, and its arguments or None."""
    opening = item.text.find("(")
    if opening < 0:
        return item.text, None
    if not item.text.endswith(")"):
        raise source.error(item.offset + len(item.text), "expected ')' and then ',' or ';'")
    name = item.text[:opening].strip()
    first = item.offset + opening + 1
    # The item may span lines; its end in the template is behind the same number of characters.
    return name, items(source, first, item.offset + len(item.text) - 1)
