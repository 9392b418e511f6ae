"""The command `penstock generate`."""

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path

from penstock.generate import method
from penstock.generate.c import Code as CCode
from penstock.generate.model import LEVELS, Analyzer
from penstock.generate.source import MOST_BYTES, Source, TemplateError

LANGUAGES = {
    "c": (".c",),
    "c++": (".cpp", ".cc", ".cxx", ".C"),
    "fortran": (".f90", ".F90", ".f95", ".F95", ".f03", ".F03", ".f08", ".F08"),
}
EPILOG = """\
The template is a program without I/O. Annotations say what is in a file and who accesses what:

  #use_io                                   after the #include lines (C, C++) or `program NAME` (Fortran)

  #begin_file
  state: "state.nc", create, hint("cb_nodes", "4");
  #end_file
  #begin_dimensions
  time: unlimited;
  y: NY;
  x: NX;
  #end_dimensions
  #begin_variables
  T: double, 3, time, y, x;
  #end_variables
  #begin_attributes
  units: T, text, "K";
  #end_attributes

  #begin_access
  T: write, start(step, first, 0), count(1, rows, NX), memory(&t[0][0], 1, rows + 2 guard 1, NX), collective;
  #end_access
  #close_file state;

All other lines are copied byte for byte. docs/use/generate.md has the grammar.

Examples:
  penstock generate --level pnetcdf heat.c -o heat_io.c
  penstock generate --level mpi-io heat.f90 -o heat_io.f90 --force     over the file that is there
  penstock generate --level hdf5 heat.cpp --explain                    which method, and why
  penstock generate --from-trace TRACES                                annotations of a program that was traced
"""


def fail(what, code=1):
    """Ends with a message."""
    print(f"penstock generate: {what}", file=sys.stderr)
    sys.exit(code)


def parser():
    """The command line."""
    made = argparse.ArgumentParser(
        prog="penstock generate",
        description="Write a program's parallel I/O from annotations in its source.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    made.add_argument("template", nargs="?", metavar="TEMPLATE", help="the program without I/O")
    made.add_argument("--level", choices=LEVELS, help="the library that does the I/O")
    made.add_argument("-o", "--output", metavar="FILE", help="where the program goes (default: standard output)")
    made.add_argument("--force", action="store_true", help="replace FILE if it exists")
    made.add_argument("--language", choices=LANGUAGES, help="of the template (default: by its name)")
    made.add_argument("--file", metavar="PATH", help="the file that the program makes, where no #begin_file names one")
    made.add_argument("--explain", action="store_true", help="show each access with its method and why; write nothing")
    made.add_argument("--json", action="store_true", help="--explain and --from-trace for programs")
    made.add_argument(
        "--from-trace", metavar="T", nargs="+", help="traces, or a directory of them: propose annotations"
    )
    return made


def language(args):
    """Of the template."""
    suffix = Path(args.template).suffix
    if args.language:
        return args.language
    for name, suffixes in LANGUAGES.items():
        if suffix in suffixes:
            return name
    known = ", ".join(suffix for suffixes in LANGUAGES.values() for suffix in suffixes)
    more = " Fixed form is not read." if suffix.lower() in (".f", ".for", ".ftn") else ""
    return fail(f"{args.template}: which language is {suffix or 'this'}? Expected {known}, or --language.{more}", 2)


def read(args):
    """The template."""
    of = language(args)
    try:
        with open(args.template, "rb") as file:
            content = file.read(MOST_BYTES + 1)
    except OSError as e:
        fail(f"cannot read {args.template}: {e.strerror}")
    if len(content) > MOST_BYTES:
        fail(f"{args.template}: more than {MOST_BYTES >> 20} MiB; a template is a source file")
    return Source(args.template, content.decode("latin-1"), of)


def generated(source, program, level):
    """The whole program as text."""
    if source.language == "fortran":
        from penstock.generate.fortran import Code

        code = Code(program, level)
    else:
        code = CCode(program, level)
    pieces = {}
    for block in program.blocks:
        pieces[block.annotation.offset] = (block.annotation, code.access(block))
    for annotation, file in program.closes:
        pieces[annotation.offset] = (annotation, code.close(file))
    for file in program.files:
        pieces[file.last.offset] = (file.last, code.open(file))
    for one in program.annotations:
        pieces.setdefault(one.offset, (one, []))
    if program.use:
        pieces[program.use.offset] = (program.use, code.use())
    newline = "\r\n" if "\r\n" in source.text else "\n"
    parts, at = [code.before().replace("\n", newline)], 0
    for offset in sorted(pieces):
        one, lines = pieces[offset]
        parts.append(source.text[at:offset])
        parts += [(one.indent + line if line and not line.startswith("#") else line) + newline for line in lines]
        at = one.end
    parts.append(source.text[at:])
    return "".join(parts)


def explain(program, level, as_json):
    """Each access with its method."""
    rows = []
    for block in program.blocks:
        for access in block.accesses:
            chosen = method.choose(access)
            rows.append(
                {
                    "file": block.file.label,
                    "variable": access.variable.name,
                    "access": "write" if access.write else "read",
                    "collective": access.collective,
                    "together": len(block.accesses),
                    "method": chosen.method or "independent",
                    "why": chosen.why,
                }
            )
    files = [{"file": f.label, "hints": dict(method.hints(f).hints)} for f in program.files]
    if as_json:
        print(json.dumps({"level": level, "accesses": rows, "files": files}))
        return
    names = ["file", "variable", "access", "method", "why"]
    widths = [max(len(name), *(len(str(row[name])) for row in rows)) if rows else len(name) for name in names]
    for row in [{name: name for name in names}, *rows]:
        print("  ".join(str(row[name]).ljust(width) for name, width in zip(names, widths, strict=True)).rstrip())
    for file in files:
        print(f"hints of {file['file']}: " + (", ".join(f"{k}={v}" for k, v in file["hints"].items()) or "none"))


def write(path, text, force):
    """The program at its place, whole or not at all; never over a file that is there without being asked."""
    place = Path(path)
    handle, made = None, None
    try:
        handle, made = tempfile.mkstemp(prefix=".penstock-generate-", dir=place.parent)
        with os.fdopen(handle, "wb") as file:
            file.write(text.encode("latin-1"))
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(made, 0o666 & ~mask)
        if force:
            os.replace(made, place)
        else:
            os.link(made, place)
            os.unlink(made)
    except FileExistsError:
        os.unlink(made)
        fail(f"{path} exists; --force replaces it")
    except OSError as e:
        if made and os.path.exists(made):
            os.unlink(made)
        fail(f"cannot write {path}: {e.strerror}")


def main():
    """The command."""
    args = parser().parse_args()
    if args.from_trace:
        from penstock.generate import trace

        if args.template or args.level:
            fail("--from-trace proposes annotations; a template and --level come after that", 2)
        return trace.propose(args.from_trace, args.json, fail)
    if not args.template:
        fail("expected a TEMPLATE or --from-trace; `penstock generate --help` has examples", 2)
    if not args.level:
        fail(f"expected --level: {', '.join(LEVELS)}", 2)
    if args.file and any(mark in args.file for mark in "\"'\\\n\r\0"):
        fail("--file: quotes, backslashes and line ends need a #begin_file in the template", 2)
    source = read(args)
    if source.language == "fortran" and args.level == "netcdf4":
        fail(
            "netcdf4 is generated for C and C++ only; Fortran programs write the same kind of file with --level hdf5", 2
        )
    if (
        args.output
        and os.path.exists(args.output)
        and os.path.exists(args.template)
        and os.path.samefile(args.output, args.template)
    ):
        fail(f"{args.output} is the template itself")
    try:
        program = Analyzer(source, args.level, args.file).program()
        if args.explain:
            return explain(program, args.level, args.json)
        text = generated(source, program, args.level)
    except TemplateError as e:
        print(e.shown, file=sys.stderr)
        sys.exit(1)
    if args.level == "mpi-io":
        for file in program.files:
            for attribute in file.attributes:
                line = source.place(attribute.value.offset)[0]
                print(
                    f"{source.name}:{line}: attribute {attribute.name} is left out: MPI-IO stores none", file=sys.stderr
                )
    if args.output:
        write(args.output, text, args.force)
    else:
        sys.stdout.buffer.write(text.encode("latin-1"))
    return None


if __name__ == "__main__":
    try:
        main()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
