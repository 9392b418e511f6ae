"""The template: annotations, and text that is copied byte for byte.

An annotation stands on lines of its own, outside comments: `#use_io`, `#close_file NAME;`, or a block from `#begin_X` to
`#end_X`. Other lines are never parsed, so a template may hold any preprocessor directives.
"""

import difflib
import re
from dataclasses import dataclass

BLOCKS = ("file", "dimensions", "variables", "attributes", "access")
SINGLE = ("use_io", "close_file")
NAMES = [*SINGLE, *(f"{edge}_{kind}" for kind in BLOCKS for edge in ("begin", "end"))]
# What a C compiler and its relatives know; anything else that looks like one of ours is a slip of the pen.
DIRECTIVES = {
    "define",
    "undef",
    "include",
    "include_next",
    "import",
    "if",
    "ifdef",
    "ifndef",
    "elif",
    "elifdef",
    "elifndef",
    "else",
    "endif",
    "line",
    "error",
    "warning",
    "pragma",
    "ident",
    "sccs",
    "assert",
    "unassert",
    "embed",
}
# Larger templates are refused: nobody writes them, and positions are looked up line by line.
MOST_BYTES = 16 << 20

LINE = re.compile(r"[ \t]*#[ \t]*([A-Za-z_]\w*)(.*)", re.DOTALL)


class TemplateError(Exception):
    """What is wrong, where in the template, and what was expected there."""

    def __init__(self, source, offset, what):
        line, column, text = source.place(offset)
        super().__init__(f"{source.name}:{line}:{column}: {what}")
        self.shown = f"{self}\n  {text}\n  {' ' * (column - 1)}^"


@dataclass
class Source:
    """The template's text; bytes are kept as Latin-1 characters, one for one."""

    name: str
    text: str
    language: str

    def place(self, offset):
        """Line and column from 1, and the line, of a character."""
        before = self.text.rfind("\n", 0, offset) + 1
        end = self.text.find("\n", offset)
        shown = self.text[before : end if end >= 0 else None].rstrip("\r").expandtabs(1)
        return self.text.count("\n", 0, offset) + 1, offset - before + 1, shown

    def error(self, offset, what):
        """An error at a character, to be raised."""
        return TemplateError(self, offset, what)


@dataclass
class Annotation:
    """One annotation: what stands between begin and end (or after a single one), and where."""

    kind: str
    offset: int  # of its first line in the text
    end: int  # behind its last line
    body: int  # offset of what is to be parsed
    body_end: int
    indent: str


def comment_lines(text):
    """Offsets of lines that begin inside a comment or raw string of C or C++."""
    inside, state, at, size = set(), None, 0, len(text)
    while at < size:
        here = text[at]
        if here == "\n":
            if state in ("//", '"', "'") and text[max(0, at - 2) : at].rstrip("\r")[-1:] != "\\":
                state = None
            at += 1
            if state is not None:
                inside.add(at)
        elif state is None:
            raw = re.compile(r'R"([^()\\\s]{0,16})\(').match(text, at) if here == "R" else None
            if raw:
                close = text.find(f"){raw[1]}" + '"', raw.end())
                close = size if close < 0 else close
                inside.update(k + 1 for k in range(at, close) if text[k] == "\n")
                at = close + 2 + len(raw[1])
            elif text.startswith(("/*", "//"), at):
                state, at = text[at : at + 2], at + 2
            else:
                # A quote between digits separates them (C++14, C23).
                quote = here == '"' or (here == "'" and not (at and text[at - 1].isalnum()))
                state, at = here if quote else None, at + 1
        elif state == "/*" and text.startswith("*/", at):
            state, at = None, at + 2
        elif state in ('"', "'") and here == "\\":
            at += 2 if text[at + 1 : at + 2] != "\n" else 1
        else:
            if state in ('"', "'") and here == state:
                state = None
            at += 1
    return inside


def annotations(source):
    """All annotations in their order; a TemplateError for one that is unknown, unbalanced or out of place."""
    text = source.text
    inside = comment_lines(text) if source.language != "fortran" else set()
    found, begun, at = [], None, 0
    while at < len(text):
        end = text.find("\n", at)
        end = len(text) if end < 0 else end + 1
        match = LINE.match(text[at:end]) if at not in inside else None
        name = match[1] if match else None
        hash_at = at + text[at:end].index("#") if match else at
        if name is None or (name not in NAMES and not suspicious(name, begun is not None)):
            at = end
            continue
        if name not in NAMES:
            near = difflib.get_close_matches(name, NAMES, 1, 0.5)
            hint = f"; did you mean #{near[0]}?" if near else ""
            raise source.error(hash_at, f"unknown annotation #{name}{hint} Expected one of #{', #'.join(NAMES)}")
        after = at + match.start(2)
        if name.startswith("begin_"):
            if begun:
                line = source.place(begun.offset)[0]
                raise source.error(
                    hash_at, f"#{name} inside #begin_{begun.kind} of line {line}; expected #end_{begun.kind}"
                )
            nothing_behind(source, after, end, name)
            indent = text[at:hash_at]
            begun = Annotation(name.removeprefix("begin_"), at, 0, end, 0, indent)
        elif name.startswith("end_"):
            if not begun or begun.kind != name.removeprefix("end_"):
                wanted = f"expected #end_{begun.kind}" if begun else f"there is no #begin_{name[4:]} before it"
                raise source.error(hash_at, f"#{name}: {wanted}")
            nothing_behind(source, after, end, name)
            begun.body_end, begun.end = at, end
            found.append(begun)
            begun = None
        else:
            if begun:
                raise source.error(hash_at, f"#{name} inside #begin_{begun.kind}; expected #end_{begun.kind}")
            if name == "use_io":
                nothing_behind(source, after, end, name)
            found.append(Annotation(name, at, end, after, end, text[at:hash_at]))
        at = end
    if begun:
        where = begun.offset + len(begun.indent)
        raise source.error(where, f"#begin_{begun.kind} never ends; expected #end_{begun.kind}")
    return found


def suspicious(name, within):
    """Whether a directive that nobody knows was meant for us."""
    if name in DIRECTIVES:
        return False
    return within or name.startswith(("begin_", "end_")) or bool(difflib.get_close_matches(name, NAMES, 1, 0.8))


def nothing_behind(source, after, end, name):
    """An annotation that takes nothing on its line has nothing there."""
    rest = source.text[after:end]
    if rest.strip():
        where = after + len(rest) - len(rest.lstrip())
        raise source.error(where, f"expected nothing after #{name}, found {rest.strip()!r}")
