"""Reads programs: a small subset of C, or TOML.

C: `#define NAME constant`, declarations of arrays, functions of nested `for` loops with assignments. Loops are marked by
`#pragma omp parallel for num_threads(T) schedule(static[, chunk])`; `#pragma penstock repeat(N)` in front of a loop or of
everything repeats it. The declarations and references are parsed by pycparser.
"""

import re
import tomllib
from pathlib import Path

from .errors import LayoutError
from .program import Affine, Array, Loop, Nest, Program, Reference

MOST_BYTES = 1 << 20
SIZES = {
    "char": 1, "short": 2, "int": 4, "long": 8, "float": 4, "double": 8,
    "int8_t": 1, "int16_t": 2, "int32_t": 4, "int64_t": 8, "uint8_t": 1, "uint16_t": 2, "uint32_t": 4, "uint64_t": 8,
}  # fmt: skip
QUALIFIERS = {"unsigned", "signed", "_Complex"}


def read(path):
    """The program in a file whose name ends in .c or .toml."""
    path = Path(path)
    text = read_text(path)
    if path.suffix == ".toml":
        return from_toml(text, str(path))
    if path.suffix == ".c":
        return from_c(text, str(path))
    raise LayoutError(f"{path}: neither C (.c) nor TOML (.toml)", "name the program file accordingly")


def read_text(path):
    """A text file of bounded size."""
    try:
        raw = Path(path).read_bytes()
        if len(raw) > MOST_BYTES:
            raise LayoutError(f"{path}: {len(raw)} bytes; at most {MOST_BYTES} are read", "keep the nests alone")
        return raw.decode()
    except OSError as e:
        raise LayoutError(f"cannot read {path}: {e.strerror}") from e
    except UnicodeDecodeError as e:
        raise LayoutError(f"{path}: byte {e.start} is no UTF-8 text", "save the file as UTF-8") from e


def load_toml(text, name):
    """The tables of a TOML text; says where it is broken."""
    try:
        return tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as e:
        raise LayoutError(f"{name}: {e}") from e


def _parser():
    try:
        import pycparser
    except ImportError as e:
        raise LayoutError(
            "loop nests are parsed by pycparser, which this Python lacks", "pip install 'penstock[layout]' or pycparser"
        ) from e
    return pycparser


def _parse(text, name):
    pycparser = _parser()
    try:
        return pycparser.CParser().parse(text, name)
    except RecursionError as e:
        raise LayoutError(f"{name}: nested too deeply", "split the expressions") from e
    except Exception as e:
        # pycparser raises ParseError, and others for what it did not expect.
        raise LayoutError(f"{name}: not in the C subset: {e}", "see docs/use/layout.md for the subset") from e


def _place(node):
    coord = node.coord
    if coord is None:
        return "?"
    return f"{coord.file}:{coord.line}:{coord.column}" if coord.column else f"{coord.file}:{coord.line}"


class Names:
    """What identifiers mean: constants, and the loops around."""

    def __init__(self, constants=None):
        self.constants = dict(constants or {})
        self.loops = []

    def affine(self, node):
        """An expression as an affine form of the loops."""
        kind = type(node).__name__
        if kind == "Constant" and node.type.replace("unsigned ", "").replace("long ", "").endswith(("int", "long")):
            return Affine(_integer(node))
        if kind == "ID":
            if node.name in self.loops:
                return Affine(0, {node.name: 1})
            if node.name in self.constants:
                return Affine(self.constants[node.name])
            raise LayoutError(
                f"{_place(node)}: {node.name} is neither a constant nor a loop around it",
                f"#define {node.name}, or use a loop's variable",
            )
        if kind == "UnaryOp" and node.op in "+-":
            return self.affine(node.expr).times(-1 if node.op == "-" else 1)
        if kind == "BinaryOp" and node.op in ("+", "-"):
            return self.affine(node.left) + self.affine(node.right).times(-1 if node.op == "-" else 1)
        if kind == "BinaryOp" and node.op in ("*", "/", "%"):
            left, right = self.affine(node.left), self.affine(node.right)
            if node.op == "*" and not right.terms:
                return left.times(right.constant)
            if node.op == "*" and not left.terms:
                return right.times(left.constant)
            if node.op != "*" and not left.terms and not right.terms and right.constant > 0 and left.constant >= 0:
                return Affine(left.constant // right.constant if node.op == "/" else left.constant % right.constant)
            raise LayoutError(
                f"{_place(node)}: `{node.op}` of two expressions with loops: not affine",
                "use sums of loops times constants; split a loop into two in place of / and %",
            )
        what = "a reference within a subscript" if kind == "ArrayRef" else f"{kind} in a subscript or bound"
        raise LayoutError(f"{_place(node)}: {what}: not affine", "use sums of loops times constants")

    def number(self, node, what):
        """An expression that has to be constant."""
        value = self.affine(node)
        if value.terms:
            raise LayoutError(f"{_place(node)}: {what} depends on a loop", "use a constant")
        return value.constant


def _integer(node):
    text = node.value.rstrip("uUlL")
    try:
        return int(text, 8) if re.fullmatch(r"0[0-7]+", text) else int(text, 0)
    except ValueError as e:
        raise LayoutError(f"{_place(node)}: {node.value} is no whole number") from e


def _expression(text, name):
    """The tree of one C expression."""
    tree = _parse(f"void f(void) {{ x = {text}; }}", name)
    items = tree.ext[0].body.block_items if len(tree.ext) == 1 else None
    if not items or len(items) != 1 or type(items[0]).__name__ != "Assignment":
        raise LayoutError(f"{name}: `{text}` is no expression")
    return items[0].rvalue


_DEFINE = re.compile(r"^[ \t]*#[ \t]*define[ \t]+(\w+)(\(?)[ \t]*(.*?)[ \t]*$")


def _without_comments(text):
    keep = lambda m: m.group(0) if m.group(0)[0] in "\"'" else re.sub(r"[^\n]", " ", m.group(0))
    return re.sub(r"/\*.*?\*/|//[^\n]*|\"(?:\\.|[^\"\\\n])*\"", keep, text, flags=re.DOTALL)


def from_c(text, name):
    """A program in the C subset."""
    names = Names()
    lines = _without_comments(text).split("\n")
    for k, line in enumerate(lines):
        if define := _DEFINE.match(line):
            if define.group(2) or not define.group(3):
                raise LayoutError(
                    f"{name}:{k + 1}: #define {define.group(1)} is no plain constant", "use #define NAME number"
                )
            value = _expression(define.group(3), f"{name}:{k + 1}")
            names.constants[define.group(1)] = names.number(value, f"#define {define.group(1)}")
            lines[k] = ""
        elif re.match(r"^\s*#\s*include\b", line):
            lines[k] = ""
        elif re.match(r"^\s*#\s*(?!pragma\b)\w", line):
            raise LayoutError(
                f"{name}:{k + 1}: only #define, #include (ignored) and #pragma are read", "run the preprocessor first"
            )
    tree = _parse("\n".join(lines), name)
    builder = _Builder(names, name)
    for node in tree.ext:
        kind = type(node).__name__
        if kind == "Decl":
            builder.declare(node)
        elif kind == "FuncDef":
            if "threads" not in builder.pending:
                builder.repeat *= builder.pending.pop("repeat", 1)
                builder.pending = {}
            builder.statement(node.body, [])
        elif kind == "Pragma":
            builder.pragma(node)
        else:
            raise LayoutError(f"{_place(node)}: {kind} at file level is outside the C subset", "leave it out")
    return builder.program()


class _Builder:
    """Collects arrays and nests from the tree."""

    def __init__(self, names, name):
        self.names, self.name = names, name
        self.arrays, self.nests, self.repeat = {}, [], 1
        self.pending = {}
        self.scalars = set()

    def program(self):
        if self.pending:
            raise LayoutError(f"{self.pending['place']}: no loop follows this #pragma", "put it in front of a for")
        if not self.nests:
            raise LayoutError(f"{self.name}: no loop nest with references to an array", "add one")
        threads = max(nest.threads for nest in self.nests)
        used = {ref.array.name for nest in self.nests for ref in nest.references}
        arrays = tuple(a for a in self.arrays.values() if a.name in used)
        program = Program(arrays, tuple(self.nests), threads, self.repeat, self.name)
        program.check()
        return program

    def declare(self, node):
        kind, dims = node.type, []
        while type(kind).__name__ == "ArrayDecl":
            if kind.dim is None:
                raise LayoutError(f"{_place(node)}: {node.name} has a dimension without size", "give its size")
            size = self.names.number(kind.dim, "a dimension")
            if size <= 0:
                raise LayoutError(f"{_place(node)}: {node.name} has a dimension of {size}", "give a size above 0")
            dims.append(size)
            kind = kind.type
        if type(kind).__name__ in ("FuncDecl", "Enum"):
            return
        words = getattr(getattr(kind, "type", None), "names", None)
        if words is None and type(getattr(kind, "type", None)).__name__ == "Enum":
            self.enumerate(kind.type)
            return
        if words is None:
            raise LayoutError(f"{_place(node)}: {node.name}: neither a number nor an array of numbers", "leave it out")
        if not dims:
            if "const" in (node.quals or []) and node.init is not None:
                self.names.constants[node.name] = self.names.number(node.init, node.name)
            else:
                self.scalars.add(node.name)
            return
        base = [w for w in words if w not in QUALIFIERS]
        size = SIZES.get(base[0] if base else "int")
        if size is None:
            raise LayoutError(
                f"{_place(node)}: elements of {node.name} have the unknown type {' '.join(words)}",
                f"use one of {', '.join(SIZES)}",
            )
        if node.name in self.arrays:
            raise LayoutError(f"{_place(node)}: {node.name} is declared twice", "give it another name")
        size *= 2 if "_Complex" in words else 1
        array = Array(node.name, tuple(dims), size, _place(node))
        if array.elements * size >= 1 << 62:
            raise LayoutError(
                f"{_place(node)}: {node.name} has {array.elements} elements, more than a file holds", "make it smaller"
            )
        self.arrays[node.name] = array

    def enumerate(self, node):
        value = 0
        for item in node.values.enumerators if node.values else ():
            value = self.names.number(item.value, item.name) if item.value is not None else value
            self.names.constants[item.name] = value
            value += 1

    def pragma(self, node):
        words = node.string
        if re.match(r"penstock\b", words):
            found = re.fullmatch(r"penstock\s+repeat\s*\(\s*(\w+)\s*\)\s*", words)
            if not found:
                raise LayoutError(f"{_place(node)}: #pragma {words}: not known", "use #pragma penstock repeat(N)")
            self.pending["repeat"] = self.positive(found.group(1), node)
            self.pending["place"] = _place(node)
        elif re.match(r"omp\b", words):
            if not re.match(r"omp\s+(parallel\s+)?for\b", words):
                raise LayoutError(f"{_place(node)}: #pragma {words}: not in the subset", "use omp parallel for")
            count = re.search(r"num_threads\s*\(\s*(\w+)\s*\)", words)
            if not count:
                raise LayoutError(f"{_place(node)}: no num_threads(T)", "say how many threads share the loop")
            schedule = re.search(r"schedule\s*\(\s*(\w+)\s*(?:,\s*(\w+)\s*)?\)", words)
            if schedule and schedule.group(1) != "static":
                raise LayoutError(
                    f"{_place(node)}: schedule({schedule.group(1)}) is not known before the program runs",
                    "use schedule(static) or schedule(static, chunk)",
                )
            if re.search(r"\bcollapse\b", words):
                raise LayoutError(f"{_place(node)}: collapse is not in the subset", "mark each of the loops")
            chunk = schedule.group(2) if schedule else None
            self.pending.update(
                threads=self.positive(count.group(1), node), place=_place(node),
                chunk=self.positive(chunk, node) if chunk else 0,
            )  # fmt: skip
        # Others are no concern of the layout.

    def positive(self, word, node):
        value = self.names.constants.get(word)
        if value is None:
            if not word.isdigit():
                raise LayoutError(f"{_place(node)}: {word} is not defined", f"#define {word}")
            value = int(word)
        if not 1 <= value < 1 << 31:
            raise LayoutError(f"{_place(node)}: {value} is no count", "give a number above 0")
        return value

    def statement(self, node, loops, repeat=1):
        kind = type(node).__name__
        if kind == "Compound":
            run = []
            for item in node.block_items or ():
                if type(item).__name__ in ("Assignment", "UnaryOp"):
                    run.append(item)
                    continue
                self.close(run, loops, repeat)
                run = []
                self.statement(item, loops, repeat)
            self.close(run, loops, repeat)
        elif kind == "Pragma":
            self.pragma(node)
        elif kind == "For":
            self.loop(node, loops, repeat)
        elif kind == "Decl":
            self.declare(node)
        elif kind in ("Assignment", "UnaryOp"):
            self.close([node], loops, repeat)
        elif kind in ("EmptyStatement", "Return"):
            pass
        else:
            raise LayoutError(
                f"{_place(node)}: {kind} is outside the C subset", "keep for loops and assignments (docs/use/layout.md)"
            )

    def loop(self, node, loops, repeat):
        place, marks = _place(node), self.pending
        self.pending = {}
        bad = LayoutError(
            f"{place}: not a loop of the form for (i = a; i < b; i += c)", "write it so, with a constant step above 0"
        )
        init, cond, step = node.init, node.cond, node.next
        if type(init).__name__ == "DeclList" and len(init.decls) == 1 and init.decls[0].init is not None:
            var, first = init.decls[0].name, init.decls[0].init
        elif type(init).__name__ == "Assignment" and init.op == "=" and type(init.lvalue).__name__ == "ID":
            var, first = init.lvalue.name, init.rvalue
        else:
            raise bad
        if var in [loop.name for loop in loops] or var in self.names.constants:
            raise LayoutError(f"{place}: {var} is taken already", "give the loop another variable")
        lower = self.names.affine(first)
        if type(cond).__name__ != "BinaryOp" or cond.op not in ("<", "<=") or getattr(cond.left, "name", "") != var:
            raise bad
        upper = self.names.affine(cond.right)
        upper = upper + Affine(1) if cond.op == "<=" else upper
        by = 1
        if type(step).__name__ == "UnaryOp" and step.op in ("++", "p++") and getattr(step.expr, "name", "") == var:
            pass
        elif type(step).__name__ == "Assignment" and step.op == "+=" and getattr(step.lvalue, "name", "") == var:
            by = self.names.number(step.rvalue, "the step")
        else:
            raise bad
        if by < 1:
            raise bad
        loop = Loop(var, lower, upper, by, marks.get("threads", 1), marks.get("chunk", 0), place)
        self.names.loops.append(var)
        self.statement(node.stmt, [*loops, loop], repeat * marks.get("repeat", 1))
        self.names.loops.pop()
        if self.pending:
            raise LayoutError(f"{self.pending['place']}: no loop follows this #pragma", "put it in front of a for")

    def close(self, statements, loops, repeat):
        """Statements in a row at one depth are one nest."""
        references = []
        for node in statements:
            if type(node).__name__ == "Assignment":
                if node.op != "=":
                    self.walk(node.lvalue, references, False)
                self.walk(node.rvalue, references, False)
                self.walk(node.lvalue, references, True)
            else:
                self.walk(node, references, True)
        if not references:
            return
        place = _place(statements[0])
        if not loops:
            raise LayoutError(f"{place}: a reference outside of loops", "put it in a loop")
        self.nests.append(Nest(f"nest {len(self.nests) + 1}", tuple(loops), tuple(references), repeat, place))

    def walk(self, node, references, write):
        """The references in an expression, from left to right."""
        kind = type(node).__name__
        if kind == "ArrayRef":
            references.append(self.reference(node, write))
            return
        if kind == "ID":
            if node.name in self.arrays:
                raise LayoutError(
                    f"{_place(node)}: {node.name} without subscripts",
                    f"give {len(self.arrays[node.name].shape)} subscripts",
                )
            return
        if kind == "FuncCall":
            for argument in node.args.exprs if node.args else ():
                self.walk(argument, references, False)
            return
        if kind in ("StructRef", "Assignment") or (kind == "UnaryOp" and node.op in ("*", "&")):
            raise LayoutError(
                f"{_place(node)}: {kind} in an expression is outside the C subset", "use plain references"
            )
        for _, child in node.children():
            self.walk(child, references, write and kind == "UnaryOp")

    def reference(self, node, write):
        subscripts, base = [], node
        while type(base).__name__ == "ArrayRef":
            subscripts.insert(0, base.subscript)
            base = base.name
        name = getattr(base, "name", None)
        array = self.arrays.get(name) if isinstance(name, str) else None
        if array is None:
            raise LayoutError(f"{_place(node)}: {name} is not declared as an array", f"declare it: double {name}[...];")
        if len(subscripts) != len(array.shape):
            raise LayoutError(
                f"{_place(node)}: {name} has {len(array.shape)} dimensions and {len(subscripts)} subscripts",
                "give one subscript per dimension",
            )
        return Reference(array, tuple(self.names.affine(s) for s in subscripts), write, _place(node))


def known(table, keys, name):
    """Refuses keys of a TOML table that nobody reads."""
    if not isinstance(table, dict):
        raise LayoutError(f"{name}: no table", "see docs/use/layout.md for the form")
    unknown = [key for key in table if key not in keys]
    if unknown:
        raise LayoutError(f"{name}: unknown key {unknown[0]}", f"keys are {', '.join(keys)}")


def tables(top, key, name):
    """A list of tables; empty if the key is missing."""
    found = top.get(key, [])
    if not isinstance(found, list):
        raise LayoutError(f"{name}: {key} is no list of tables", f"write [[{key}]]")
    return found


def whole(table, key, name, default=None, least=1):
    """A whole number of a TOML table, not less than `least`."""
    value = table.get(key, default)
    if value is None:
        raise LayoutError(f"{name}: {key} is missing", f"add {key} = NUMBER")
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value < 1 << 62:
        raise LayoutError(f"{name}: {key} = {value!r}", f"give a whole number, {least} or more")
    return value


def from_toml(text, name):
    """A program described in TOML (docs/use/layout.md)."""
    top = load_toml(text, name)
    known(top, ("constants", "repeat", "array", "nest"), name)
    constants = top.get("constants", {})
    known(constants, tuple(constants), f"{name}: constants")
    for key in constants:
        whole(constants, key, f"{name}: constants", least=-(1 << 62))
    builder = _Builder(Names(constants), name)
    builder.repeat = whole(top, "repeat", name, 1)

    def value(item, where):
        text = str(item) if isinstance(item, int) and not isinstance(item, bool) else item
        if not isinstance(text, str):
            raise LayoutError(f"{where}: {item!r} is neither a number nor an expression")
        return _expression(text, where)

    for k, table in enumerate(tables(top, "array", name)):
        where = f"{name}: array {k + 1}"
        known(table, ("name", "shape", "item"), where)
        shape = table.get("shape")
        if not isinstance(table.get("name"), str) or not table["name"].isidentifier():
            raise LayoutError(f"{where}: no name", 'add name = "A"')
        if not isinstance(shape, list) or not shape:
            raise LayoutError(f"{where}: no shape", 'add shape = [512, "N"]')
        dims = tuple(builder.names.number(value(n, where), "a dimension") for n in shape)
        if min(dims) <= 0:
            raise LayoutError(f"{where}: {table['name']} has a dimension of {min(dims)}", "give a size above 0")
        if table["name"] in builder.arrays:
            raise LayoutError(f"{where}: {table['name']} is described twice", "give it another name")
        array = Array(table["name"], dims, whole(table, "item", where, 8), where)
        if array.elements * array.item >= 1 << 62:
            raise LayoutError(f"{where}: {array.elements} elements, more than a file holds", "make it smaller")
        builder.arrays[table["name"]] = array
    for k, table in enumerate(tables(top, "nest", name)):
        where = f"{name}: nest {k + 1}"
        known(table, ("name", "repeat", "loop", "reads", "writes"), where)
        loops = []
        builder.names.loops = []
        for m, item in enumerate(tables(table, "loop", where)):
            here = f"{where}: loop {m + 1}"
            known(item, ("name", "from", "to", "step", "threads", "chunk"), here)
            if not isinstance(item.get("name"), str) or not item["name"].isidentifier():
                raise LayoutError(f"{here}: no name", 'add name = "i"')
            if item["name"] in builder.names.loops:
                raise LayoutError(f"{here}: {item['name']} is taken already", "give the loop another name")
            if "to" not in item:
                raise LayoutError(f"{here}: no end", 'add to = "N" (not reached)')
            lower = builder.names.affine(value(item.get("from", 0), here))
            upper = builder.names.affine(value(item["to"], here))
            threads = whole(item, "threads", here, 1)
            chunk, step = whole(item, "chunk", here, 0, 0), whole(item, "step", here, 1)
            loops.append(Loop(item["name"], lower, upper, step, threads, chunk, here))
            builder.names.loops.append(item["name"])
        references = []
        for key, write in (("reads", False), ("writes", True)):
            for item in tables(table, key, where):
                node = value(item, f"{where}: {key}")
                if type(node).__name__ != "ArrayRef":
                    raise LayoutError(f"{where}: {item!r} is no reference", f'write {key} = ["A[i][j]"]')
                references.append(builder.reference(node, write))
        if not loops or not references:
            raise LayoutError(f"{where}: no loops or no references", "add [[nest.loop]] and reads or writes")
        title = table.get("name", f"nest {k + 1}")
        builder.nests.append(Nest(str(title), tuple(loops), tuple(references), whole(table, "repeat", where, 1), where))
    return builder.program()
