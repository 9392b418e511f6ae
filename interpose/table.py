"""Makes the wrappers' tables from functions.txt: python3 table.py DIRECTORY

posix.inc, stdio.inc   one macro call for each wrapper: SHAPE(number, result, name, (parameters), (arguments))
libraries.inc          rows of functions that are found in loaded objects, sorted by name
operations.inc         names of the operations that are recorded, by number
"""

import re
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
OPERATIONS = HERE.parent / "crates" / "trace" / "src" / "operations.txt"
LAYERS = ("netcdf", "pnetcdf", "hdf5", "mpiio", "stdio", "posix")
# Of typed functions. `long` is a type of netCDF too.
TYPES = (
    "text",
    "schar",
    "uchar",
    "short",
    "ushort",
    "int",
    "uint",
    "long",
    "float",
    "double",
    "longlong",
    "ulonglong",
    "string",
    "ubyte",
)
PROTOTYPE = re.compile(r"(?P<result>.*?[\s*])(?P<name>\w+)\((?P<parameters>.*)\)$")


def expand(pattern):
    """All names that a pattern with {a,b} stands for."""
    match = re.search(r"\{([^}]*)\}", pattern)
    if not match:
        return [pattern]
    before, after = pattern[: match.start()], pattern[match.end() :]
    return [name for word in match[1].split(",") for name in expand(before + word + after)]


def rows():
    """(layer, shape, prototype or name, operation's name) of each line of the table, patterns expanded."""
    for line in (HERE / "functions.txt").read_text().splitlines():
        if not line or line.startswith("#"):
            continue
        layer, shape, rest = line.split(None, 2)
        rest, _, operation = rest.partition(" = ")
        if layer in ("posix", "stdio"):
            name = PROTOTYPE.match(rest)["name"]
            yield layer, shape, rest, operation or name
            continue
        for pattern in expand(rest):
            typed = [pattern.replace("_TYPE", "")]
            if "_TYPE" in pattern:
                typed += [pattern.replace("_TYPE", f"_{kind}") for kind in TYPES]
            plain = operation or re.sub(r"_(async|c)$", "", typed[0])
            for name in typed:
                yield layer, shape, name, plain
                if layer == "mpiio":
                    yield layer, shape, "P" + name, plain


def numbers():
    """Numbers and kinds of operations by name."""
    lines = (line.split() for line in OPERATIONS.read_text().splitlines())
    return {words[2]: (int(words[0]), words[1]) for words in lines if len(words) == 3 and words[0].isdigit()}


def main(directory):
    known = numbers()
    table = list(rows())
    missing = sorted({operation for _, _, _, operation in table} - set(known))
    if missing:
        raise SystemExit(f"{OPERATIONS} lacks {' '.join(missing)}")
    directory.mkdir(parents=True, exist_ok=True)
    for layer in ("posix", "stdio"):
        lines = []
        for _, shape, prototype, operation in (row for row in table if row[0] == layer):
            match = PROTOTYPE.match(prototype)
            names = [
                re.search(r"(\w+)(\[\])?$", p)[1] for p in match["parameters"].split(", ") if p not in ("void", "...")
            ]
            lines.append(
                f"{shape.upper()}({known[operation][0]}, {match['result'].strip()}, {match['name']}, "
                f"({match['parameters']}), ({', '.join(names)}))\n"
            )
        (directory / f"{layer}.inc").write_text("".join(lines))
    lines = []
    for layer, shape, name, operation in sorted(
        (r for r in table if r[0] not in ("posix", "stdio")), key=lambda r: r[2]
    ):
        shape, *places = shape.split(":")
        one, two = ([*places, "0", "0"])[:2]
        lines.append(
            f'{{"{name}", {known[operation][0]}, {LAYERS.index(layer)}, {layer.upper()}_{shape.upper()}, {one}, {two}}},\n'
        )
    (directory / "libraries.inc").write_text("".join(lines))
    # A mapping that is stored to is an operation of its own.
    operations = {operation for _, _, _, operation in table} | {"mapped-stores"}
    used = sorted((*known[operation], operation) for operation in operations)
    (directory / "operations.inc").write_text("".join(f'{{{n}, "{kind}", "{name}"}},\n' for n, kind, name in used))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
