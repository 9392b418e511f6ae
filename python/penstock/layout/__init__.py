"""File layouts for a hierarchy of storage caches (docs/use/layout.md; source: IT section 4, SC12 and Scientific Programming 21).

The modules:

    program.py    loop nests with affine references       source.py     read from C or TOML
    hierarchy.py  caches and the threads that share them
    partition.py  step 1: which thread owns what          form.py       step 2: the layout in closed form, and its file
    plan.py       both steps for all arrays of a program  compromise.py order that suits all nests (ours)
    footprint.py  blocks per thread and level
    emit.py       index functions in C and Fortran        view.py       MPI datatypes over a re-laid file
    convert.py    files to a layout and back              advise.py     chunk shapes and striping units from a trace
    caches.py     simulated caches and disks              search.py     exhaustive search    evaluate.py  the source's figure
"""
