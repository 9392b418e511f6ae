"""Parallel I/O written from annotations in a program's source: `penstock generate` (docs/use/generate.md).

    source.py    the template: annotations and all else         grammar.py   annotations as statements and clauses
    model.py     files, dimensions, variables, accesses          method.py    which method suits an access, and why
    c.py         C and C++                                       fortran.py   Fortran
    trace.py     annotations proposed from a trace               __main__.py  the command

Source: IOGenie, in the report on tools for the I/O stack, section 3, figures 11 and 12. Its parts have these names there:
hint parser (source, grammar), hint analyzer (model), I/O optimizer (method), code generator (c, fortran).
"""
