"""Index functions: the position of an element in its file, as C or Fortran.

NAME_at(i0, i1, ...) takes subscripts as in the description (from 0, C order) and returns the element's position in the
file, in elements. A program's reference NAME[i0][i1] becomes FILE[NAME_at(i0, i1)].
"""

import re

from .errors import LayoutError
from .form import Cuts

LANGUAGES = ("c", "fortran")


class _C:
    """Statements of C."""

    mod = staticmethod(lambda a, b: f"({a}) % ({b})")
    least = staticmethod(lambda a, b: f"(({a}) < ({b}) ? ({a}) : ({b}))")
    number = staticmethod(str)
    end = ";"
    equal, less = "==", "<"

    def __init__(self):
        self.tables, self.names, self.body = [], [], []

    def table(self, name, values):
        """A constant table; returns how an entry is named."""
        row = ", ".join(map(str, values))
        self.tables.append(f"    static const int64_t {name}[{len(values)}] = {{{row}}};")
        return lambda k: f"{name}[{k}]"

    def line(self, text, depth=1):
        self.body.append("    " * depth + text)

    def set(self, name, value, depth=1):
        if name not in self.names:
            self.names.append(name)
        self.line(f"{name} = {value};", depth)

    def loop(self, name, first, last):
        if name not in self.names:
            self.names.append(name)
        self.line(f"for ({name} = {first}; {name} <= {last}; {name}++)" + " {")

    def when(self, condition, depth=1):
        self.line(f"if ({condition})" + " {", depth)

    def close(self, kind, depth=1):
        self.line("}", depth)

    def text(self, array, dims, note, result):
        arguments = ", ".join(f"int64_t i{d}" for d in range(dims))
        lines = [f"/* {note} */", f"static inline int64_t {array}_at({arguments}) {{"]
        lines += [*self.tables, *([f"    int64_t {', '.join(self.names)};"] if self.names else []), *self.body]
        return "\n".join([*lines, f"    return {result};", "}", ""])


class _Fortran:
    """Statements of Fortran 2008, lines of at most 132 characters."""

    mod = staticmethod(lambda a, b: f"mod({a}, {b})")
    least = staticmethod(lambda a, b: f"min({a}, {b})")
    number = staticmethod(lambda n: f"{n}_int64")
    end = ""
    equal, less = "==", "<"

    def __init__(self):
        self.tables, self.names, self.body = [], [], []

    def table(self, name, values):
        row = [f"{v}_int64" for v in values]
        lines, line = [], ""
        for k, v in enumerate(row):
            word = v + (", " if k + 1 < len(row) else "")
            if len(line) + len(word) > 100:
                lines.append(line.rstrip())
                line = ""
            line += word
        lines.append(line)
        text = " &\n        ".join(lines)
        self.tables.append(f"    integer(int64), parameter :: {name}(0:{len(values) - 1}) = [ &\n        {text}]")
        return lambda k: f"{name}({k})"

    def line(self, text, depth=1):
        text = "    " * depth + text
        while len(text) > 120:
            cut = text.rfind(" ", 0, 120)
            self.body.append(text[:cut] + " &")
            text = "    " * (depth + 2) + text[cut + 1 :]
        self.body.append(text)

    def set(self, name, value, depth=1):
        if name not in self.names:
            self.names.append(name)
        self.line(f"{name} = {value}", depth)

    def loop(self, name, first, last):
        if name not in self.names:
            self.names.append(name)
        self.line(f"do {name} = {first}, {last}")

    def when(self, condition, depth=1):
        self.line(f"if ({condition}) then", depth)

    def close(self, kind, depth=1):
        self.line(f"end {kind}", depth)

    def text(self, array, dims, note, result):
        arguments = ", ".join(f"i{d}" for d in range(dims))
        lines = [
            f"! {note}",
            f"pure function {array}_at({arguments}) result(at)",
            "    use, intrinsic :: iso_fortran_env, only: int64",
            "    implicit none",
            f"    integer(int64), intent(in) :: {arguments}",
            "    integer(int64) :: at",
            *self.tables,
        ]
        if self.names:
            lines.append(f"    integer(int64) :: {', '.join(self.names)}")
        return "\n".join([*lines, *self.body, f"    at = {result}", f"end function {array}_at", ""])


def emit(layouts, language):
    """A header of C, or a file of Fortran functions."""
    if language not in LANGUAGES:
        raise LayoutError(f"no index functions in {language}", f"choose one of {', '.join(LANGUAGES)}")
    functions = [_function(layout, _C() if language == "c" else _Fortran()) for layout in layouts]
    if language == "c":
        head = "/* Made by `penstock layout emit`: positions in re-laid files, in elements. */\n#pragma once\n#include <stdint.h>\n"
    else:
        head = "! Made by `penstock layout emit`: positions in re-laid files, in elements.\n"
    return "\n".join([head, *functions])


def _without_unused(out, result):
    """Drops names and tables that nothing reads: shares' extents, where no later dimension needs them."""
    for name in [n for n in out.names if re.fullmatch(r"m\d+", n)]:
        setting = next(line for line in out.body if line.strip().startswith(f"{name} = "))
        others = [line for line in out.body if line is not setting]
        if not any(re.search(rf"\b{name}\b", line) for line in (*others, result)):
            out.body, out.names = others, [n for n in out.names if n != name]
    read = "\n".join([*out.body, result])
    entry = re.compile(r"(\w+)[\[(](?:0:)?\d+[\])]")
    out.tables = [t for t in out.tables if re.search(rf"\b{entry.search(t).group(1)}\b", read)]


def _function(layout, out):
    n, dims, num = layout.shape, range(len(layout.shape)), out.number
    y = [f"i{d}" for d in dims]
    if layout.shear:
        d, factors = layout.shear
        # Each term is taken into 0..n-1 first, so that nothing is negative.
        terms = [
            out.mod(f"{num(s % n[d])} * {out.mod(y[e], num(n[d]))}", num(n[d])) for e, s in enumerate(factors) if s
        ]
        out.set(f"y{d}", out.mod(" + ".join(terms), num(n[d])))
        y[d] = f"y{d}"
    extent = [num(v) for v in n]
    if layout.splits:
        out.set("share", num(0))
    for split in layout.splits:
        d = split.dim
        if isinstance(split, Cuts):
            cut = out.table(f"cut{d}", split.cuts)
            part = out.table(f"part{d}", split.order)
            out.set(f"k{d}", num(0))
            out.loop("p", num(1), num(split.parts - 1))
            out.when(f"{cut('p')} <= {y[d]}", 2)
            out.set(f"k{d}", "p", 3)
            out.close("if", 2)
            out.close("do")
            out.set(f"m{d}", f"{cut(f'k{d} + 1')} - {cut(f'k{d}')}")
            out.set(f"z{d}", f"{y[d]} - {cut(f'k{d}')}")
            out.set("share", f"share + {part(f'k{d}')} * {num(split.stride)}")
        else:
            c, turn = split.chunk, split.chunk * split.parts
            skip = out.table(f"skip{d}", [int(split.before(p, split.start)) for p in range(split.parts)])
            size = out.table(f"size{d}", [split.length(p) for p in range(split.parts)])
            out.set(f"v{d}", f"{y[d]} + {num(split.start)}")
            out.set(f"k{d}", out.mod(f"v{d} / {num(c)}", num(split.parts)))
            out.set(f"m{d}", size(f"k{d}"))
            inside = out.mod(f"v{d}", num(c))
            out.set(f"z{d}", f"v{d} / {num(turn)} * {num(c)} + {inside} - {skip(f'k{d}')}")
            out.set("share", f"share + k{d} * {num(split.stride)}")
        y[d], extent[d] = f"z{d}", f"m{d}"
    # Order within the share: tiles first, then what stands within a tile.
    whole = [layout.tiles[d] >= n[d] for d in dims]
    inner = list(extent)
    for d in dims:
        if not whole[d]:
            t = num(layout.tiles[d])
            out.set(f"w{d}", out.mod(y[d], t))
            out.set(f"e{d}", out.least(t, f"{extent[d]} - ({y[d]} - w{d})"))
            inner[d] = f"e{d}"
    terms = []
    for j, d in enumerate(layout.outer):
        if not whole[d]:
            factors = [inner[e] for e in layout.outer[:j]] + [extent[e] for e in layout.outer[j + 1 :]]
            terms.append(" * ".join([f"({y[d]} - w{d})", *factors]))
    for j, d in enumerate(layout.inner):
        terms.append(" * ".join([y[d] if whole[d] else f"w{d}", *(inner[e] for e in layout.inner[j + 1 :])]))
    rank = " + ".join(terms)
    note = f"Element of {layout.array}, shape {' x '.join(map(str, n))}, {layout.item} bytes each."
    if layout.shares == 1:
        _without_unused(out, rank)
        return out.text(layout.array, len(n), note, rank)
    out.set("rank", rank)
    depth = len(layout.nodes[0])
    length, chunk = out.table("length", layout.lengths), out.table("chunk", layout.chunk)
    order = out.table("order", layout.rank)
    node = out.table("node", [v for row in layout.nodes for v in row])
    held = out.table("held", [v for row in layout.chunks for v in row])
    out.set("q", f"rank / {chunk('share')}")
    out.set("place", "rank")
    out.loop("p", num(0), num(layout.shares - 1))
    out.set("level", num(0), 2)
    # The first cache that serves both shares.
    for k in range(depth - 1):
        differ = "!=" if isinstance(out, _C) else "/="
        here = " && " if isinstance(out, _C) else " .and. "
        out.when(
            f"level {out.equal} {k}{here}{node(f'p * {depth} + {k}')} {differ} {node(f'share * {depth} + {k}')}", 2
        )
        out.set("level", num(k + 1), 3)
        out.close("if", 2)
    out.set("n", f"q / {held(f'share * {depth} + level')}", 2)
    out.when(f"{order('p')} {out.less} {order('share')}", 2)
    out.set("n", "n + 1", 3)
    out.close("if", 2)
    out.when(f"p {'!=' if isinstance(out, _C) else '/='} share", 2)
    out.set("n", f"n * {held(f'p * {depth} + level')} * {chunk('p')}", 3)
    out.set("place", f"place + {out.least('n', length('p'))}", 3)
    out.close("if", 2)
    out.close("do")
    _without_unused(out, "place")
    return out.text(layout.array, len(n), note, "place")
