"""What the annotations say: files with dimensions, variables and attributes, and accesses to them; checked.

Dimensions stand in the language's own order: the last one varies fastest in C and C++, the first one in Fortran.
Indices begin at 0 in C and C++, at 1 in Fortran.
"""

import difflib
import re
from dataclasses import dataclass, field

from penstock.generate.grammar import Piece, clause, statements
from penstock.generate.source import annotations

LEVELS = ("mpi-io", "pnetcdf", "hdf5", "netcdf4")
MODES = ("create", "create_new", "read", "update")
FORMATS = ("cdf1", "cdf2", "cdf5")
METHODS = ("two-phase", "datatype", "sieving")
TYPES = ("byte", "short", "int", "int64", "float", "double", "ubyte", "ushort", "uint", "uint64")
# The classic formats know no others.
CLASSIC = ("byte", "short", "int", "float", "double")
# PnetCDF and the classic formats allow more; code for more would not be read by anybody.
MOST_DIMENSIONS = 32


@dataclass
class Dimension:
    """A dimension of a file; `size` is None where it is unlimited."""

    name: str
    size: Piece | None


@dataclass
class Variable:
    """An array in a file."""

    name: str
    type: str
    dimensions: list
    file: object

    @property
    def record(self):
        """Whether one of its dimensions is unlimited."""
        return any(d.size is None for d in self.dimensions)


@dataclass
class Attribute:
    """An attribute of a variable, or of the file where `owner` is None."""

    name: str
    owner: Variable | None
    type: str
    value: Piece
    length: Piece | None


@dataclass
class File:
    """A file of the program, and the place of the code that opens it."""

    label: str
    path: Piece
    mode: str
    offset: int
    format: str = "cdf5"
    communicator: str | None = None
    hints: list = field(default_factory=list)
    dimensions: dict = field(default_factory=dict)
    variables: dict = field(default_factory=dict)
    attributes: list = field(default_factory=list)
    last: object = None  # the annotation in whose place the file is opened
    accesses: list = field(default_factory=list)

    @property
    def fresh(self):
        """Whether the program makes it."""
        return self.mode.startswith("create")


@dataclass
class Extent:
    """One dimension of memory: of the variable's dimension `of`, or of none (one index of it is accessed)."""

    of: int | None
    size: Piece
    guard: Piece | None  # elements before the first one; with `of` None the index, from 0 or 1


@dataclass
class Access:
    """One access to one variable."""

    variable: Variable
    write: bool
    start: list | None
    count: list | None
    stride: list | None
    buffer: Piece
    memory: list | None  # None: dense, in the order of the variable
    collective: bool
    method: str | None
    offset: int


@dataclass
class Together:
    """The accesses of one block; they go to the library together."""

    annotation: object
    file: File
    accesses: list


@dataclass
class Program:
    """All of a template."""

    source: object
    files: list
    blocks: list  # Together
    closes: list  # (annotation, file)
    use: object
    annotations: list


def literal(piece):
    """The value of an expression that is a plain integer; else None."""
    text = piece.text.strip("() ") if piece is not None else ""
    return int(text) if re.fullmatch(r"[+-]?\s*\d+", text) else None


def same(a, b):
    """Whether two expressions are the same text."""
    squeeze = lambda piece: re.sub(r"\s+", "", piece.text)
    return squeeze(a) == squeeze(b)


def choice(source, item, names, what):
    """The item as one of `names`."""
    if item.text not in names:
        near = difflib.get_close_matches(item.text, names, 1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise source.error(item.offset, f"{item.text!r} is no {what}; expected {', '.join(names)}{hint}")
    return item.text


class Analyzer:
    """Builds a Program of the annotations, and refuses what cannot be meant."""

    def __init__(self, source, level, path):
        self.source, self.level, self.path = source, level, path
        self.base = 1 if source.language == "fortran" else 0
        self.files, self.blocks, self.closes, self.use = [], [], [], None

    def program(self):
        """The whole template."""
        found = annotations(self.source)
        for one in found:
            getattr(self, one.kind)(one)
        for one in [one for one in found if one.kind == "access"]:
            self.accesses(one)
        if found and not self.use:
            place = (
                "after `program`, `module` or `subroutine`, before `implicit none`"
                if self.base
                else "after your #include lines, outside functions"
            )
            raise self.source.error(found[0].offset, f"no #use_io before this; put it {place}")
        for file in self.files:
            if file.last is None:
                raise self.source.error(file.offset, f"{file.label} has no #begin_variables")
            if not any(file is closed for _, closed in self.closes):
                raise self.source.error(
                    file.offset, f"{file.label} is never closed; expected #close_file {file.label};"
                )
        return Program(self.source, self.files, self.blocks, self.closes, self.use, found)

    def use_io(self, one):
        """Where declarations go."""
        if self.use:
            raise self.source.error(one.offset, "a second #use_io; expected one in a template")
        self.use = one

    def close_file(self, one):
        """`#close_file NAME;`"""
        text = self.source.text[one.body : one.body_end]
        name = text.strip().removesuffix(";").strip()
        at = one.body + len(text) - len(text.lstrip())
        if not text.strip().endswith(";"):
            raise self.source.error(one.body + len(text.rstrip()) - 1, "expected ';' at the end of #close_file NAME;")
        file = next((file for file in self.files if file.label == name), None)
        if not file:
            labels = ", ".join(file.label for file in self.files) or "a #begin_file before it"
            raise self.source.error(at, f"no file {name!r}; expected {labels}")
        self.closes.append((one, file))

    def file(self, one):
        """`NAME: "path", mode, hint(key, value), comm(c), format(f);`"""
        said = statements(self.source, one.body, one.body_end)
        if len(said) != 1:
            raise self.source.error(one.body, f"#begin_file holds {len(said)} files; expected one")
        said = said[0]
        if any(file.label == said.name.text for file in self.files):
            raise self.source.error(said.name.offset, f"a second file {said.name.text}")
        if "." in said.name.text:
            raise self.source.error(said.name.offset, "expected a name without a dot")
        if len(said.items) < 2:
            raise self.source.error(said.items[-1].offset, f"expected `path, mode`; mode is one of {', '.join(MODES)}")
        mode = choice(self.source, said.items[1], MODES, "mode")
        file = File(said.name.text, said.items[0], mode, said.name.offset)
        for item in said.items[2:]:
            name, given = clause(said.source, item)
            if name == "hint" and given and len(given) == 2:
                file.hints.append(tuple(given))
            elif name == "comm" and given and len(given) == 1:
                file.communicator = given[0].text
            elif name == "format" and given and len(given) == 1:
                if self.level == "pnetcdf":
                    file.format = choice(self.source, given[0], FORMATS, "format")
            else:
                raise self.source.error(
                    item.offset, f"{item.text!r}: expected hint(key, value), comm(communicator) or format(cdf5)"
                )
        self.files.append(file)

    def current(self, one):
        """The file that a definition belongs to: the last one that began."""
        if not self.files:
            if self.path is None:
                raise self.source.error(
                    one.offset + len(one.indent), "expected #begin_file before this, or --file PATH"
                )
            quote = "'" if self.base else '"'
            self.files.append(File("file", Piece(quote + self.path + quote, one.offset), "create", one.offset))
        return self.files[-1]

    def names(self, one, known):
        """Statements with names that are new."""
        for said in statements(self.source, one.body, one.body_end):
            if "." in said.name.text:
                raise self.source.error(said.name.offset, "expected a name without a dot")
            if known is not None and said.name.text in known:
                raise self.source.error(said.name.offset, f"{said.name.text} is declared twice")
            yield said

    def dimensions(self, one):
        """`name: size;` or `name: unlimited;`"""
        file = self.current(one)
        for said in self.names(one, file.dimensions):
            if len(said.items) != 1:
                raise self.source.error(said.items[1].offset, "expected ';' after the size")
            size = said.items[0]
            value = literal(size)
            if value is not None and value < 1:
                raise self.source.error(
                    size.offset, f"size {value} of {said.name.text}; expected 1 or more, or unlimited"
                )
            unlimited = size.text == "unlimited"
            if unlimited and any(d.size is None for d in file.dimensions.values()) and self.level != "hdf5":
                raise self.source.error(size.offset, "a second unlimited dimension; expected at most one in a file")
            file.dimensions[said.name.text] = Dimension(said.name.text, None if unlimited else size)

    def variables(self, one):
        """`name: type, number of dimensions, dimension, ...;`"""
        file = self.current(one)
        for said in self.names(one, file.variables):
            kind = choice(self.source, said.items[0], TYPES, "type")
            if self.base and kind.startswith("u"):
                raise self.source.error(said.items[0].offset, f"Fortran has no {kind}; expected {', '.join(TYPES[:6])}")
            if self.level == "pnetcdf" and file.format != "cdf5" and kind not in CLASSIC:
                raise self.source.error(
                    said.items[0].offset, f"{file.format} has no {kind}; expected format(cdf5), or {', '.join(CLASSIC)}"
                )
            ndims = literal(said.items[1]) if len(said.items) > 1 else None
            if ndims is None or not 1 <= ndims <= MOST_DIMENSIONS:
                at = said.items[1].offset if len(said.items) > 1 else said.items[0].offset
                raise self.source.error(
                    at, f"expected `type, number of dimensions (1 to {MOST_DIMENSIONS}), dimension, ...`"
                )
            if len(said.items) - 2 != ndims:
                raise self.source.error(
                    said.items[1].offset, f"{ndims} dimensions are said, {len(said.items) - 2} are named"
                )
            of = []
            for item in said.items[2:]:
                if item.text not in file.dimensions:
                    known = ", ".join(file.dimensions) or "a #begin_dimensions before it"
                    raise self.source.error(item.offset, f"dimension {item.text!r} is not declared; expected {known}")
                of.append(file.dimensions[item.text])
            slowest = of[-1] if self.base else of[0]
            for item, dimension in zip(said.items[2:], of, strict=True):
                if dimension.size is None and dimension is not slowest:
                    where = "last" if self.base else "first"
                    raise self.source.error(item.offset, f"an unlimited dimension has to be the {where} one")
                if sum(d is dimension for d in of) > 1:
                    raise self.source.error(item.offset, f"dimension {item.text} is named twice")
            file.variables[said.name.text] = Variable(said.name.text, kind, of, file)
        file.last = one

    def attributes(self, one):
        """`name: variable or global, type, value[, length];`"""
        file = self.current(one)
        known = set()
        for said in self.names(one, None):
            if not 3 <= len(said.items) <= 4:
                raise self.source.error(
                    said.name.offset,
                    "expected `name: variable or global, type, value, length;` with the length optional",
                )
            owner, kind, value = said.items[:3]
            if owner.text != "global" and owner.text not in file.variables:
                raise self.source.error(
                    owner.offset,
                    f"variable {owner.text!r} is not declared; expected global, {', '.join(file.variables)}",
                )
            if (owner.text, said.name.text) in known:
                raise self.source.error(said.name.offset, f"{owner.text} has {said.name.text} already")
            known.add((owner.text, said.name.text))
            choice(self.source, kind, ("text", *TYPES), "type of an attribute")
            if self.base and kind.text.startswith("u"):
                raise self.source.error(kind.offset, f"Fortran has no {kind.text}")
            if self.level == "pnetcdf" and file.format != "cdf5" and kind.text not in ("text", *CLASSIC):
                raise self.source.error(kind.offset, f"{file.format} has no {kind.text}; expected format(cdf5)")
            if not file.fresh:
                raise self.source.error(
                    said.name.offset,
                    f"{file.label} is opened by {file.mode}; attributes are written where a file is created",
                )
            length = said.items[3] if len(said.items) == 4 else None
            if length is not None and (literal(length) or 1) < 1:
                raise self.source.error(length.offset, f"length {length.text}; expected 1 or more")
            if kind.text == "text" and length is not None:
                raise self.source.error(length.offset, "the length of a text is its own; expected ';'")
            file.attributes.append(Attribute(said.name.text, file.variables.get(owner.text), kind.text, value, length))
        file.last = one

    def access(self, one):
        """Looked at when all variables are known."""

    def accesses(self, one):
        """`variable: write or read, start(...), count(...), stride(...), memory(...), collective, method(...);`"""
        said = statements(self.source, one.body, one.body_end)
        if not said:
            raise self.source.error(one.body, "expected an access: `variable: write, memory(buffer);`")
        all_of = [self.one_access(each) for each in said]
        first = all_of[0]
        for k, access in enumerate(all_of):
            for attribute, what in (
                ("write", "both reads and writes"),
                ("collective", "both collective and independent ones"),
            ):
                if getattr(access, attribute) != getattr(first, attribute):
                    raise self.source.error(access.offset, f"one block has {what}; expected two blocks")
            if access.variable.file is not first.variable.file:
                raise self.source.error(access.offset, "one block has accesses to two files; expected two blocks")
            if any(other.variable is access.variable for other in all_of[:k]):
                raise self.source.error(
                    access.offset, f"{access.variable.name} twice in one block; expected two blocks"
                )
            several = access.count is None or literal(access.count[-1 if self.base else 0]) != 1
            if self.level == "mpi-io" and len(all_of) > 1 and access.variable.record and several:
                raise self.source.error(
                    access.offset, "with other variables expected one record: a count of 1 in the unlimited dimension"
                )
        file = first.variable.file
        file.accesses += all_of
        self.blocks.append(Together(one, file, all_of))

    def variable(self, name):
        """The variable of a name, or of FILE.NAME."""
        label, _, plain = name.text.rpartition(".")
        found = [f.variables[plain] for f in self.files if plain in f.variables and label in ("", f.label)]
        if not found:
            known = ", ".join(v for f in self.files for v in f.variables) or "#begin_variables before it"
            raise self.source.error(name.offset, f"variable {name.text!r} is not declared; expected {known}")
        if len(found) > 1:
            raise self.source.error(
                name.offset,
                f"several files have {plain}; expected {' or '.join(v.file.label + '.' + plain for v in found)}",
            )
        return found[0]

    def one_access(self, said):
        """One statement of an access block."""
        variable = self.variable(said.name)
        direction = choice(self.source, said.items[0], ("write", "read"), "direction")
        if variable.file.mode == "read" and direction == "write":
            raise self.source.error(
                said.items[0].offset, f"{variable.file.label} is opened to read; expected mode update or create"
            )
        access = Access(variable, direction == "write", None, None, None, None, None, True, None, said.name.offset)
        given_names = set()
        for item in said.items[1:]:
            name, given = clause(said.source, item)
            if name in given_names:
                raise self.source.error(item.offset, f"{name} is given twice")
            given_names.add(name)
            if name in ("start", "count", "stride") and given:
                setattr(access, name, self.vector(variable, name, item, given))
            elif name == "memory" and given:
                access.buffer = given[0]
                access.memory = self.memory(variable, given[1:]) if len(given) > 1 else None
            elif name == "method" and given and len(given) == 1:
                access.method = choice(self.source, given[0], METHODS, "method")
            elif name in ("collective", "independent") and given is None:
                access.collective = name == "collective"
            else:
                raise self.source.error(
                    item.offset,
                    f"{item.text!r}: expected start(...), count(...), stride(...), memory(buffer, ...), collective, "
                    "independent or method(...)",
                )
        if {"collective", "independent"} <= given_names:
            raise self.source.error(said.name.offset, "both collective and independent; expected one of them")
        if access.buffer is None:
            raise self.source.error(said.items[-1].offset, "expected memory(buffer): where the elements are")
        if access.count is None and variable.record:
            raise self.source.error(
                said.name.offset, f"{variable.name} has an unlimited dimension; expected count(...)"
            )
        if access.method == "two-phase" and not access.collective:
            raise self.source.error(said.name.offset, "two-phase needs all ranks; expected collective")
        self.fits(access)
        return access

    def vector(self, variable, name, item, given):
        """An expression for each dimension."""
        if len(given) != len(variable.dimensions):
            named = ", ".join(d.name for d in variable.dimensions)
            raise self.source.error(
                item.offset, f"{name} has {len(given)} numbers; expected {len(variable.dimensions)}: {named}"
            )
        least = {"start": self.base, "count": 0, "stride": 1}[name]
        for one in given:
            value = literal(one)
            if value is not None and value < least:
                raise self.source.error(one.offset, f"{name} {value}; expected {least} or more")
        return given

    def memory(self, variable, given):
        """Extents of memory: `[dimension:] size [guard width]`, or `size at index`."""
        names = [d.name for d in variable.dimensions]
        extents, named = [], 0
        for item in given:
            text, offset, of = item.text, item.offset, None
            label = re.match(r"(\w+)\s*:(?!:)", text)
            if label and label[1] in names:
                of, named = names.index(label[1]), named + 1
                text, offset = text[label.end() :].lstrip(), offset + len(text) - len(text[label.end() :].lstrip())
            elif label and "?" not in text[: label.end()]:
                raise self.source.error(
                    offset, f"{variable.name} has no dimension {label[1]!r}; expected {', '.join(names)}"
                )
            word = re.search(r"\s(guard|at)\s+(?=\S)", text)
            size = Piece(text[: word.start()].strip() if word else text, offset)
            guard = Piece(text[word.end() :], offset + word.end()) if word else None
            fixed = bool(word) and word[1] == "at"
            if fixed and of is not None:
                raise self.source.error(offset, f"{names[of]} with an index; expected a guard, or no dimension")
            for what, one, least in (("size", size, 1), (word[1] if word else "", guard, self.base if fixed else 0)):
                value = literal(one)
                if value is not None and value < least:
                    raise self.source.error(one.offset, f"{what} {value}; expected {least} or more")
            extents.append((Extent(of, size, guard), fixed, offset))
        plain = [extent for extent, fixed, _ in extents if not fixed]
        if named and named != len(plain):
            raise self.source.error(
                extents[0][2], "some extents name their dimension and others do not; expected all or none"
            )
        if len(plain) != len(names):
            raise self.source.error(
                given[0].offset, f"memory has {len(plain)} extents; expected {len(names)}: {', '.join(names)}"
            )
        if not named:
            for k, extent in enumerate(plain):
                extent.of = k
        if len({extent.of for extent in plain}) != len(names):
            raise self.source.error(given[0].offset, f"a dimension twice; expected each of {', '.join(names)} once")
        return [extent for extent, _, _ in extents]

    def fits(self, access):
        """What plain numbers say already about the sizes."""
        for k, dimension in enumerate(access.variable.dimensions):
            size = literal(dimension.size)
            start = literal(access.start[k]) - self.base if access.start and literal(access.start[k]) is not None else 0
            known_start = not access.start or literal(access.start[k]) is not None
            count = literal(access.count[k]) if access.count else size
            stride = literal(access.stride[k]) if access.stride else 1
            if None not in (size, count, stride) and known_start and count and start + (count - 1) * stride >= size:
                at = (access.count or access.start or [None] * 99)[k] or Piece("", access.offset)
                raise self.source.error(
                    at.offset,
                    f"{dimension.name} has {size} elements; start, count and stride reach {start + (count - 1) * stride + 1}",
                )
            for extent in access.memory or []:
                room, guard = literal(extent.size), literal(extent.guard) if extent.guard else 0
                if extent.of == k and None not in (room, guard, count) and guard + count > room:
                    raise self.source.error(
                        extent.size.offset,
                        f"memory of {dimension.name} has {room} elements; guard and count take {guard + count}",
                    )
        for extent in access.memory or []:
            room, index = literal(extent.size), literal(extent.guard)
            if extent.of is None and None not in (room, index) and index - self.base >= room:
                raise self.source.error(extent.size.offset, f"index {index} of {room} elements")
