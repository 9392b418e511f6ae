"""What the code of all languages says alike: begin and end, and lines that are not too long."""

BEGIN = "Begin of I/O code by penstock generate"
END = "End of I/O code by penstock generate."
LIBRARIES = {"mpi-io": "MPI-IO", "pnetcdf": "PnetCDF", "hdf5": "HDF5", "netcdf4": "netCDF-4"}
# Columns; gfortran reads 132.
WIDTH = 110


def together_text(block, level):
    """What a block of accesses does, as a title."""
    names = ", ".join(access.variable.name for access in block.accesses)
    way = "write" if block.accesses[0].write else "read"
    how = ""
    if len(block.accesses) > 1:
        how = {
            "mpi-io": "; one call for all of them",
            "pnetcdf": "; nonblocking calls and one flush",
            "hdf5": "; one call each, HDF5 1.10 has none for several",
            "netcdf4": "; one call each, netCDF-4 has none for several",
        }[level]
    return f"{way} {names} of {block.file.label}{how}"


def wrapped(line, indent, more="", again=""):
    """The line, broken after commas and spaces outside strings where it is too long; `more` ends a part that goes on."""
    if len(line) <= WIDTH:
        return [line]
    quote, cut, first = None, None, len(line) - len(line.lstrip()) + 1
    for at, here in enumerate(line[: WIDTH - len(more)]):
        if quote:
            quote = None if here == quote else quote
        elif here in "\"'":
            quote = here
        elif here == " " and at > first:
            cut = at
    if cut is None:
        return [line]
    return [line[:cut] + more, *wrapped(indent + again + line[cut + 1 :], indent, more, again)]
