"""The command: `penstock layout`."""

import argparse
import json
import os
import sys
import time
from pathlib import Path

EXAMPLES = """\
Examples:
  penstock layout plan nest.c --hierarchy caches.toml -o layouts.toml
  penstock layout footprint layouts.toml --hierarchy caches.toml --count
  penstock layout emit layouts.toml --lang c -o at.h          index functions; --lang fortran
  penstock layout view layouts.toml -o view.h                 MPI datatypes over a re-laid file
  penstock layout convert layouts.toml A.bin A.laid           and back with --back
  penstock layout advise traces --shape 4096x4096 --item 8    chunk shapes, striping unit

The forms of nests, hierarchies and layouts are in docs/use/layout.md. NumPy is needed, pycparser for nests; PENSTOCK_PYTHON
names an interpreter that has them."""


def parser():
    """The command line."""
    raw = argparse.RawDescriptionHelpFormatter
    top = argparse.ArgumentParser(
        "penstock layout",
        description="Lay arrays in files so that each thread's elements share few blocks of the storage caches.",
        epilog=EXAMPLES, formatter_class=raw,
    )  # fmt: skip
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def command(name, help, epilog=""):
        made = commands.add_parser(name, help=help, description=help[0].upper() + help[1:] + ".", epilog=epilog,
                                   formatter_class=raw)  # fmt: skip
        made.add_argument("--json", action="store_true", help="for programs")
        return made

    def output(made, what):
        made.add_argument("-o", "--output", metavar="FILE", help=f"where to write {what} [default: standard output]")
        made.add_argument("--force", action="store_true", help="replace FILE if it is there")

    plan = command("plan", "compute the layouts of a program's arrays",
                   "Example:\n  penstock layout plan nest.c --hierarchy caches.toml -o layouts.toml")  # fmt: skip
    plan.add_argument("program", metavar="PROGRAM", help="loop nests: C subset (.c) or TOML (.toml)")
    plan.add_argument("--hierarchy", required=True, metavar="FILE", help="the caches (TOML)")
    plan.add_argument("--as-published", action="store_true",
                      help="order each share by the most significant nest alone, as the source does")  # fmt: skip
    output(plan, "the layouts")

    footprint = command("footprint", "blocks of each cache level that hold a thread's share, before and after",
                        "Example:\n  penstock layout footprint layouts.toml --hierarchy caches.toml --count")  # fmt: skip
    footprint.add_argument("layouts", metavar="LAYOUTS", help="what plan wrote")
    footprint.add_argument("--hierarchy", required=True, metavar="FILE", help="the caches (TOML)")
    footprint.add_argument("--count", action="store_true", help="look at every element too, and compare")

    emit = command("emit", "index functions: the position of an element in its file")
    emit.add_argument("layouts", metavar="LAYOUTS", help="what plan wrote")
    emit.add_argument("--lang", choices=("c", "fortran"), default="c", help="language [default: c]")
    output(emit, "the functions")

    view = command("view", "C functions that make MPI datatypes over a re-laid file",
                   "NAME_view(start, count, element, &filetype, &memtype): set the view to filetype, then read or write\n"
                   "(buffer, 1, memtype); the buffer holds the section in C order.")  # fmt: skip
    view.add_argument("layouts", metavar="LAYOUTS", help="what plan wrote")
    output(view, "the header")

    convert = command("convert", "rewrite a file to a layout, or back; verified byte for byte",
                      "Examples:\n  penstock layout convert layouts.toml A.bin A.laid\n"
                      "  penstock layout convert layouts.toml A.laid A.bin --back\n"
                      "  penstock layout convert layouts.toml A.bin --in-place      the file is whole at any time")  # fmt: skip
    convert.add_argument("layouts", metavar="LAYOUTS", help="what plan wrote")
    convert.add_argument("source", metavar="SOURCE", help="the array's file")
    convert.add_argument("target", metavar="TARGET", nargs="?", help="the new file")
    convert.add_argument("--array", metavar="NAME", help="which of several arrays")
    convert.add_argument("--back", action="store_true", help="from the layout to C order")
    convert.add_argument("--in-place", action="store_true", help="replace SOURCE when the new file is verified")
    convert.add_argument("--force", action="store_true", help="replace TARGET if it is there")

    advise = command("advise", "chunk shapes for HDF5 and Zarr, and a striping unit, from a trace",
                     "Examples:\n  penstock run -n 4 --trace T --method posix -- ./app penstock:/a   then\n"
                     "  penstock layout advise T --shape 4096x4096 --item 8\n"
                     "Trace with --method posix: other methods send one request for many pieces, whose places a trace\n"
                     "does not hold.")  # fmt: skip
    advise.add_argument("trace", metavar="TRACE", help="a trace, its CSV, or the directory of all data servers' traces")
    advise.add_argument("--shape", required=True, metavar="NxM", help="the array's dimensions, slowest first")
    advise.add_argument("--item", required=True, type=int, metavar="BYTES", help="bytes of an element")
    advise.add_argument("--file", type=int, metavar="N", help="the file's number in the trace [default: most bytes]")
    advise.add_argument("--begin", type=int, default=0, metavar="BYTES", help="where the array begins in the file")
    advise.add_argument(
        "--start-server", type=int, metavar="N", help="the file's first data server [default: what fits]"
    )
    advise.add_argument(
        "--op", choices=("read", "write"), help="whose accesses count [default: reads, if there are any]"
    )
    advise.add_argument("--cache", default="1MiB", metavar="SIZE", help="HDF5's chunk cache [default: 1MiB]")
    advise.add_argument("--brute-force", action="store_true", help="price all shapes too (slow), and compare")

    search = command("search", "compare planned layouts with an exhaustive search, on simulated caches")
    search.add_argument("program", metavar="PROGRAM", help="loop nests: C subset (.c) or TOML (.toml)")
    search.add_argument("--hierarchy", required=True, metavar="FILE", help="the caches (TOML)")

    evaluate = command("evaluate", "execution times of programs on simulated caches, before and after",
                       "Example:\n  penstock layout evaluate experiments/layout/*.c --hierarchy experiments/layout/caches.toml")  # fmt: skip
    evaluate.add_argument("programs", metavar="PROGRAM", nargs="+", help="loop nests (.c or .toml)")
    evaluate.add_argument("--hierarchy", required=True, metavar="FILE", help="the caches (TOML)")
    evaluate.add_argument("--compromise", action="store_true",
                          help="orders that suit all nests, as plan makes them; else the source's method")  # fmt: skip
    evaluate.add_argument("--io-share", type=float, metavar="X",
                          help="I/O's share of the time in C order [default: the one that puts swim at 23.5%%]")  # fmt: skip
    return top


def table(header, rows):
    """Columns; numbers to the right."""
    cells = [header, *([str(c) for c in row] for row in rows)]
    widths = [max(len(row[k]) for row in cells) for k in range(len(header))]
    right = [all(row[k].replace(".", "").replace("-", "").isdigit() for row in cells[1:]) for k in range(len(header))]
    for row in cells:
        line = "  ".join(c.rjust(w) if r else c.ljust(w) for c, w, r in zip(row, widths, right, strict=True))
        print(line.rstrip())


def write(args, text):
    """To the output file, which is not replaced unasked; whole or not at all."""
    from .errors import LayoutError

    if not args.output:
        sys.stdout.write(text)
        return
    path = Path(args.output)
    new = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        new.write_text(text)
        if args.force:
            os.replace(new, path)
        else:
            try:
                os.link(new, path)
            finally:
                new.unlink()
    except FileExistsError as e:
        raise LayoutError(f"{path} exists", "choose another name, or allow it with --force") from e
    except OSError as e:
        raise LayoutError(f"cannot write {path}: {e.strerror}") from e


def do_plan(args):
    from . import footprint, form, hierarchy, plan, source

    begin = time.monotonic()
    program = source.read(args.program)
    caches = hierarchy.read(args.hierarchy, program.threads)
    planned = plan.plan(program, caches, not args.as_published)
    seconds = time.monotonic() - begin
    text = form.dump([layout for layout, _ in planned])
    if args.output or not args.json:
        write(args, text)
    if not args.output and not args.json:
        return
    rows = []
    for layout, owners in planned:
        for level in caches.levels:
            most = lambda values: max((v for v in values if v is not None), default=None)
            shares = range(layout.shares)
            before = most(footprint.plain_closed_form(layout, s, level.block) for s in shares)
            after = most(footprint.closed_form(layout, s, level.block) for s in shares)
            rows.append((layout.array, owners.nest.name, layout.shares, ",".join(owners.shared) or "-",
                         round(100 * owners.weight), level.name, "-" if before is None else before, after))  # fmt: skip
    names = ("array", "nest", "shares", "shared by", "owned %", "level", "blocks before", "blocks after")
    if args.json:
        print(json.dumps({"seconds": seconds, "arrays": [dict(zip(names, row, strict=True)) for row in rows]}))
    else:
        table(names, rows)


def do_footprint(args):
    from . import footprint, form, hierarchy

    layouts = form.load(args.layouts)
    caches = hierarchy.read(args.hierarchy)
    rows = [
        (layout.array, level.name, ",".join(map(str, layout.threads[share])), "-" if before is None else before, after)
        for layout in layouts
        for level, share, before, after in footprint.table(layout, caches, args.count)
    ]
    names = ("array", "level", "threads", "blocks before", "blocks after")
    if args.json:
        print(json.dumps({"counted": args.count, "shares": [dict(zip(names, row, strict=True)) for row in rows]}))
    else:
        table(names, rows)


def do_emit(args):
    from . import emit, form

    write(args, emit.emit(form.load(args.layouts), args.lang))


def do_view(args):
    from . import form, view

    write(args, view.emit_view(form.load(args.layouts)))


def do_convert(args):
    from . import convert, form
    from .errors import LayoutError

    if bool(args.target) == args.in_place:
        raise LayoutError("one of TARGET and --in-place is needed", "name the new file, or allow --in-place")
    layout = form.pick(form.load(args.layouts), args.array, args.layouts)
    target = args.source if args.in_place else args.target
    begin = time.monotonic()
    moved = convert.convert(layout, args.source, target, args.back, args.force or args.in_place)
    seconds = time.monotonic() - begin
    if args.json:
        print(
            json.dumps({"array": layout.array, "target": target, "bytes": moved, "seconds": seconds, "verified": True})
        )
    else:
        print(f"{target}: {layout.array} {'in C order' if args.back else 're-laid'}, {moved} bytes, verified")


def do_advise(args):
    from . import advise, hierarchy
    from .errors import LayoutError

    shape, item = advise.dimensions(args.shape), args.item
    if not 1 <= item <= 1 << 16:
        raise LayoutError(f"--item {item}: no size of an element", "give its bytes, 1 to 65536")
    cache = hierarchy.size(args.cache, "--cache")
    calls, op, file = advise.accesses(args.trace, shape, item, args.file, args.begin, args.start_server, args.op)
    rows = []
    for library, room in (("HDF5", cache), ("Zarr", 0)):
        bytes_, chunk = advise.chunk_for(calls, shape, item, room)
        size = item
        for c in chunk:
            size *= c
        row = {"library": library, "chunk": "x".join(map(str, chunk)), "chunk bytes": size, "bytes moved": bytes_,
               "striping unit": advise.unit_for(calls, size)}  # fmt: skip
        if args.brute_force:
            best, found = advise.brute_force(calls[: advise.MOST_CALLS], shape, item, room)
            row |= {"best chunk": "x".join(map(str, found)), "best bytes": best, "ratio": round(best / bytes_, 3)}
        rows.append(row)
    plain = advise.unit_for(calls)
    if args.json:
        print(json.dumps({"file": file, "op": op, "calls": len(calls), "chunks": rows, "plain striping unit": plain}))
        return
    print(f"file {file}: {len(calls)} calls that {op}")
    table(list(rows[0]), [row.values() for row in rows])
    print(f"h5py: chunks=({rows[0]['chunk'].replace('x', ', ')}); without chunks: striping_unit={plain}")


def do_search(args):
    from . import evaluate, hierarchy, search, source

    program = source.read(args.program)
    caches = hierarchy.read(args.hierarchy, program.threads)
    _, planned = evaluate.layouts_of(program, caches)
    ours, best, chosen = search.search(program, caches, planned)
    row = {
        "program": args.program,
        "ours ms": round(ours, 3),
        "best ms": round(best, 3),
        "ratio": round(best / ours, 4),
    }
    if args.json:
        print(json.dumps(row))
        return
    table(list(row), [row.values()])
    for name, layout in chosen.items():
        if layout != planned[name]:
            print(f"{name}: tiles {list(layout.tiles)}, order {list(layout.outer)} is better than the plan")


def do_evaluate(args):
    from . import evaluate, hierarchy, source

    rows = []
    for path in args.programs:
        if sys.stderr.isatty():
            sys.stderr.write(f"\r{Path(path).stem:20}")
        program = source.read(path)
        caches = hierarchy.read(args.hierarchy, program.threads)
        rows.append(evaluate.measure(Path(path).stem, program, caches, args.compromise))
    share = evaluate.gains(rows, args.io_share)
    names = ("program", "I/O before (s)", "after (s)", "gain %", "group", "published")
    cells = [
        (r.name, f"{r.before / 1e3:.1f}", f"{r.after / 1e3:.1f}", f"{r.gain:.1f}", r.group, r.published or "-")
        for r in rows
    ]
    if args.json:
        print(json.dumps({"io_share": share, "programs": [dict(zip(names, row, strict=True)) for row in cells]}))
        return
    if sys.stderr.isatty():
        sys.stderr.write("\r" + " " * 20 + "\r")
    table(names, cells)
    known = [r for r in rows if r.published]
    if known:
        right = sum(r.group == r.published for r in known)
        print(
            f"{right} of {len(known)} programs in the source's group; I/O is {100 * share:.1f}% of the time in C order"
        )


def main(arguments=None):
    """Runs the command; returns its exit code."""
    args = parser().parse_args(arguments)
    try:
        import numpy  # noqa: F401

        from .errors import LayoutError
    except ImportError as e:
        sys.stderr.write(
            f"penstock: {e}\n  next: pip install numpy pycparser, or name an interpreter with PENSTOCK_PYTHON\n"
        )
        return 1
    try:
        globals()[f"do_{args.command}"](args)
    except LayoutError as e:
        sys.stderr.write(f"penstock: {e}\n")
        return 1
    except BrokenPipeError:
        # Whoever read the output has enough.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


if __name__ == "__main__":
    sys.exit(main())
