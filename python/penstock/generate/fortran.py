"""Code in Fortran (free form, `use mpi_f08`) for MPI-IO, PnetCDF and HDF5.

A module before the template holds ids, sizes and helper procedures; `#use_io` becomes its `use` statement. A file is opened
where its definitions were; each block of accesses becomes one `block`. All generated names begin with `io_`. Sizes are
integer(MPI_OFFSET_KIND), 64 bits. The first dimension varies fastest.
"""

import re
from pathlib import Path

from penstock.generate import method
from penstock.generate.fortran_procedures import HELPERS
from penstock.generate.model import MOST_DIMENSIONS
from penstock.generate.text import BEGIN, END, LIBRARIES, together_text, wrapped

# type: Fortran, MPI, netCDF, function name in PnetCDF, HDF5
TYPES = {
    "byte": ("integer(int8)", "MPI_INTEGER1", "NF90_BYTE", "int1", "h5kind_to_type(int8, H5_INTEGER_KIND)"),
    "short": ("integer(int16)", "MPI_INTEGER2", "NF90_SHORT", "int2", "h5kind_to_type(int16, H5_INTEGER_KIND)"),
    "int": ("integer(int32)", "MPI_INTEGER4", "NF90_INT", "int", "h5kind_to_type(int32, H5_INTEGER_KIND)"),
    "int64": ("integer(int64)", "MPI_INTEGER8", "NF90_INT64", "int8", "h5kind_to_type(int64, H5_INTEGER_KIND)"),
    "float": ("real(real32)", "MPI_REAL4", "NF90_FLOAT", "real", "h5kind_to_type(real32, H5_REAL_KIND)"),
    "double": ("real(real64)", "MPI_REAL8", "NF90_DOUBLE", "double", "h5kind_to_type(real64, H5_REAL_KIND)"),
}
BYTES = {"byte": 1, "short": 2, "int": 4, "int64": 8, "float": 4, "double": 8}
SIZE = "integer(MPI_OFFSET_KIND)"


def is_procedure(kind, fortran):
    """A procedure that takes arrays of one type only: another is an error when the program is compiled."""
    return f"""\
! Compiles with {kind} alone.
subroutine io_is_{kind}(values)
    {fortran}, intent(in) :: values(..)
    if (rank(values) < 0) return
end subroutine io_is_{kind}
"""


def flexible(name):
    """A wrapper of a flexible call of PnetCDF, whose module says nothing of its buffer."""
    stride = ", stride" if "vars" in name else ""
    request = ", request" if name[0] == "i" else ""
    arguments = f"ncid, varid, start, count{stride}, buffer, bufcount, buftype{request}"
    intent = "in" if "put" in name else "inout"
    declared = f"""\
integer, intent(in) :: ncid, varid, buftype
{SIZE}, intent(in) :: start(*), count(*){stride + "(*)" if stride else ""}, bufcount
type(*), dimension(*), intent({intent}) :: buffer
"""
    if request:
        declared += "integer, intent(out) :: request\n"
    inner = "".join(f"            {line}\n" for line in declared.splitlines())
    outer = "".join(f"    {line}\n" for line in declared.splitlines())
    return f"""\
integer function io_{name}({arguments})
{outer}    interface
        integer function nfmpi_{name}({arguments})
            import :: MPI_OFFSET_KIND
{inner}        end function nfmpi_{name}
    end interface
    io_{name} = nfmpi_{name}({arguments})
end function io_{name}
"""


class Code:
    """Writes the code of one template."""

    def __init__(self, program, level):
        self.program, self.level = program, level
        self.needs, self.extra, self.lines = [], {}, []
        self.module = "io_" + (re.sub(r"\W", "_", Path(program.source.name).stem)[:50] or "program")

    # --- pieces -------------------------------------------------------------------------------------------------

    def need(self, name):
        """A helper, after those that it needs."""
        for other in HELPERS[name][0]:
            self.need(other)
        if name not in self.needs:
            self.needs.append(name)
        return name

    def put(self, line="", depth=1):
        """A line within the block."""
        self.lines += wrapped("    " * depth + line, "    " * (depth + 1), " &", "& ")

    def checked(self, check, function, arguments, what, depth=1):
        """A call whose last argument is its error code."""
        self.put(f"call {function}({arguments}, io_code)", depth)
        self.put(f"call {self.need(check)}(io_code, '{function}', {what})", depth)

    def mpi(self, function, arguments, what, depth=1):
        """A checked call to MPI."""
        self.checked("io_mpi", function, arguments, what, depth)

    def h5(self, function, arguments, what, depth=1):
        """A checked call to HDF5; its error code stands where `@` is, or last."""
        if "@" in arguments:
            self.put(f"call {function}({arguments.replace('@', 'io_code')})", depth)
            self.put(f"call {self.need('io_h5')}(io_code, '{function}', {what})", depth)
        else:
            self.checked("io_h5", function, arguments, what, depth)

    def netcdf(self, function, arguments, what, depth=1, shown=None):
        """A checked call to PnetCDF."""
        self.put(f"call {self.need('io_nc')}({function}({arguments}), '{shown or function}', {what})", depth)

    def sizes(self, values):
        """An array of sizes."""
        return f"[{SIZE} :: {', '.join(values)}]"

    def shape(self, variable):
        """Names of the sizes of a variable."""
        return [f"io_{variable.file.label}_n_{d.name}" for d in variable.dimensions]

    def bytes(self, variable):
        """Of an element."""
        return f"{BYTES[variable.type]}_MPI_OFFSET_KIND"

    def start_block(self, title):
        """The first lines of a block in place of an annotation."""
        self.lines = [f"! {BEGIN}: {title}."]

    def end_block(self):
        """All lines of the block."""
        return [*self.lines, f"! {END}"]

    def comment(self, text):
        """A comment, broken where it is long."""
        self.lines += wrapped(f"! {text}", "!   ")

    # --- module ---------------------------------------------------------------------------------------------------

    def before(self):
        """The module."""
        uses = ["use, intrinsic :: iso_fortran_env", "use mpi_f08"]
        uses += {"pnetcdf": ["use pnetcdf, only: NF90_NOERR, nf90mpi_strerror"], "hdf5": ["use hdf5, only: HID_T"]}.get(
            self.level, []
        )
        lines = [f"! {BEGIN}: what it needs, for {LIBRARIES[self.level]}.", f"module {self.module}"]
        lines += ["    " + use for use in uses]
        lines += [
            "    implicit none",
            "    private :: int8, int16, int32, int64, real32, real64, error_unit",
            "    integer :: io_code",
        ]
        kind = {"mpi-io": "type(MPI_File)", "hdf5": "integer(HID_T)"}.get(self.level, "integer")
        for file in self.program.files:
            lines.append(f"    ! {file.label}: the file, the variables, sizes of dimensions (-1: unlimited).")
            lines.append(f"    {kind} :: io_{file.label}")
            variable = SIZE if self.level == "mpi-io" else kind
            lines += [f"    {variable} :: io_{file.label}_{name}" for name in file.variables]
            lines += [f"    {SIZE} :: io_{file.label}_n_{name}" for name in file.dimensions]
            if self.level == "mpi-io":
                lines.append(f"    {SIZE} :: io_{file.label}_record ! bytes of a record")
        lines.append("contains")
        for text in [*(HELPERS[name][1] for name in self.needs), *self.extra.values()]:
            for line in text.splitlines():
                lines += ["    " + line] if line.startswith("!") else wrapped("    " + line, "        ", " &", "& ")
            lines.append("")
        lines += [f"end module {self.module}", f"! {END}"]
        return "\n".join(lines) + "\n"

    def use(self):
        """In place of #use_io."""
        lines = [
            f"! {BEGIN}: what it needs.",
            "use, intrinsic :: iso_fortran_env, only: int8, int16, int32, int64, real32, real64",
            "use mpi_f08",
        ]
        lines += {"pnetcdf": ["use pnetcdf"], "hdf5": ["use hdf5"]}.get(self.level, [])
        return [*lines, f"use {self.module}", f"! {END}"]

    # --- opening --------------------------------------------------------------------------------------------------

    def open(self, file):
        """In place of the last definition of a file."""
        self.start_block(f"{file.label}, {LIBRARIES[self.level]}")
        hints = method.hints(file)
        for why in hints.why:
            self.comment(why + ".")
        path = file.path.text
        self.lines.append("block")
        self.put("type(MPI_Info) :: io_info")
        body = self.lines
        self.lines = []
        self.mpi("MPI_Info_create", "io_info", path)
        for key, value in [(f"'{key}'", f"'{value}'") for key, value in hints.hints] + [
            (k.text, v.text) for k, v in file.hints
        ]:
            self.mpi("MPI_Info_set", f"io_info, {key}, {value}", key)
        for dimension in file.dimensions.values():
            name = f"io_{file.label}_n_{dimension.name}"
            self.put(f"{name} = {'-1' if dimension.size is None else f'int({dimension.size.text}, MPI_OFFSET_KIND)'}")
            if dimension.size is not None:
                self.put(
                    f"if ({name} < 1) call {self.need('io_stop')}('sizes', 'dimension {dimension.name} of {file.label}', 'less than 1')"
                )
        declared = {"mpi-io": self.open_mpi, "pnetcdf": self.open_pnetcdf, "hdf5": self.open_hdf5}[self.level](
            file, path
        )
        self.mpi("MPI_Info_free", "io_info", path)
        rest, self.lines = self.lines, body
        for line in declared:
            self.put(line)
        self.lines += [*rest, "end block"]
        return self.end_block()

    def open_mpi(self, file, path):
        """Variables lie one after the other, then records with a part of each variable that has them."""
        comm = file.communicator or "MPI_COMM_WORLD"
        reads = any(not a.write for a in file.accesses) or file.mode == "update"
        writes = file.mode != "read"
        mode = "MPI_MODE_RDWR" if reads and writes else "MPI_MODE_WRONLY" if writes else "MPI_MODE_RDONLY"
        mode += {"create": " + MPI_MODE_CREATE", "create_new": " + MPI_MODE_CREATE + MPI_MODE_EXCL"}.get(file.mode, "")
        most = max(len(v.dimensions) for v in file.variables.values())
        declared = [f"{SIZE} :: io_bytes, io_fixed, io_part, io_step({most})"]
        ident = f"io_{file.label}"
        self.put("io_bytes = 0")
        records = [v for v in file.variables.values() if v.record]
        for variable in [*[v for v in file.variables.values() if not v.record], *records]:
            if records and variable is records[0]:
                self.put("io_fixed = io_bytes")
            self.put(f"{ident}_{variable.name} = io_bytes")
            n = len(variable.dimensions)
            self.put(
                f"call {self.need('io_steps')}('{variable.name} of {file.label}', {self.sizes(self.shape(variable))}, "
                f"{self.bytes(variable)}, io_step(:{n}), io_part)"
            )
            self.put("io_bytes = io_bytes + io_part")
        if not records:
            self.put("io_fixed = io_bytes")
        self.put(f"{ident}_record = io_bytes - io_fixed")
        self.mpi("MPI_File_open", f"{comm}, {path}, {mode}, io_info, {ident}", path)
        if file.mode == "create":
            self.mpi("MPI_File_set_size", f"{ident}, 0_MPI_OFFSET_KIND", path)
        elif not file.fresh:
            self.mpi("MPI_File_get_size", f"{ident}, io_bytes", path)
            why = "'the file is cut short: the variables take more bytes than it has'"
            self.put(f"if (io_bytes < io_fixed) call {self.need('io_stop')}('MPI_File_get_size', {path}, {why})")
        if file.attributes:
            self.lines += wrapped(
                "    ! MPI-IO stores no attributes: " + ", ".join(a.name for a in file.attributes) + " left out.",
                "    !   ",
            )
        return declared

    def open_pnetcdf(self, file, path):
        """PnetCDF."""
        ident, comm = f"io_{file.label}", (file.communicator or "MPI_COMM_WORLD") + "%MPI_VAL"
        declared = []
        if file.fresh:
            mode = "NF90_NOCLOBBER" if file.mode == "create_new" else "NF90_CLOBBER"
            form = {"cdf1": "", "cdf2": "NF90_64BIT_OFFSET", "cdf5": "NF90_64BIT_DATA"}[file.format]
            mode = f"ior({mode}, {form})" if form else mode
            self.netcdf("nf90mpi_create", f"{comm}, {path}, {mode}, io_info%MPI_VAL, {ident}", path)
            if file.dimensions:
                declared.append("integer :: " + ", ".join(f"io_{name}" for name in file.dimensions))
            for d in file.dimensions.values():
                size = "int(NF90_UNLIMITED, MPI_OFFSET_KIND)" if d.size is None else f"{ident}_n_{d.name}"
                self.netcdf(
                    "nf90mpi_def_dim",
                    f"{ident}, '{d.name}', {size}, io_{d.name}",
                    f"'dimension {d.name} of {file.label}'",
                )
        else:
            mode = "NF90_NOWRITE" if file.mode == "read" else "NF90_WRITE"
            most = max(len(v.dimensions) for v in file.variables.values())
            declared += [f"integer :: io_k, io_n, io_dims({MOST_DIMENSIONS})", f"{SIZE} :: io_length, io_sizes({most})"]
            self.netcdf("nf90mpi_open", f"{comm}, {path}, {mode}, io_info%MPI_VAL, {ident}", path)
        for v in file.variables.values():
            what, name, n = f"'{v.name} of {file.label}'", f"{ident}_{v.name}", len(v.dimensions)
            if file.fresh:
                dims = ", ".join(f"io_{d.name}" for d in v.dimensions)
                self.netcdf("nf90mpi_def_var", f"{ident}, '{v.name}', {TYPES[v.type][2]}, [{dims}], {name}", what)
                continue
            self.netcdf("nfmpi_inq_varid", f"{ident}, '{v.name}', {name}", what)
            self.netcdf("nfmpi_inq_varndims", f"{ident}, {name}, io_n", what)
            self.put(
                f"if (io_n /= {n}) call {self.need('io_stop')}('dimensions', {what}, 'the file has another number of them than {n}')"
            )
            self.netcdf("nfmpi_inq_vardimid", f"{ident}, {name}, io_dims", what)
            self.put(f"io_sizes(:{n}) = {self.sizes(self.shape(v))}")
            self.put(f"do io_k = 1, {n}")
            self.netcdf("nfmpi_inq_dimlen", f"{ident}, io_dims(io_k), io_length", what, 2)
            self.put(f"call {self.need('io_expect')}({what}, io_k, io_length, io_sizes(io_k))", 2)
            self.put("end do")
        for a in file.attributes:
            owner, what = (
                f"{ident}_{a.owner.name}" if a.owner else "NF90_GLOBAL",
                f"'attribute {a.name} of {file.label}'",
            )
            value = a.value.text
            if a.type != "text":
                value = f"[{TYPES[a.type][0]} :: {value}]" if not a.length else f"{value}(:{a.length.text})"
                if not a.length:
                    self.put(f"call {self.is_type(a.type)}({a.value.text})")
            self.netcdf("nf90mpi_put_att", f"{ident}, {owner}, '{a.name}', {value}", what)
        if file.fresh:
            self.netcdf("nf90mpi_enddef", ident, path)
        return declared

    def is_type(self, kind):
        """The procedure that compiles with one type only."""
        self.extra.setdefault(f"io_is_{kind}", is_procedure(kind, TYPES[kind][0]))
        return f"io_is_{kind}"

    def open_hdf5(self, file, path):
        """HDF5: a dataset for each variable."""
        ident, comm = f"io_{file.label}", (file.communicator or "MPI_COMM_WORLD") + "%MPI_VAL"
        most = max(len(v.dimensions) for v in file.variables.values())
        declared = ["integer(HID_T) :: io_access, io_space"]
        self.h5("h5open_f", "@", path)
        self.h5("h5pcreate_f", "H5P_FILE_ACCESS_F, io_access", path)
        self.h5("h5pset_fapl_mpio_f", f"io_access, {comm}, io_info%MPI_VAL", path)
        if file.fresh:
            flag = "H5F_ACC_EXCL_F" if file.mode == "create_new" else "H5F_ACC_TRUNC_F"
            self.h5("h5fcreate_f", f"{path}, {flag}, {ident}, @, access_prp=io_access", path)
        else:
            flag = "H5F_ACC_RDONLY_F" if file.mode == "read" else "H5F_ACC_RDWR_F"
            declared += [
                f"integer(HSIZE_T) :: io_found({most}), io_most({most})",
                f"{SIZE} :: io_sizes({most})",
                "integer :: io_k, io_n",
            ]
            self.h5("h5fopen_f", f"{path}, {flag}, {ident}, @, access_prp=io_access", path)
        self.h5("h5pclose_f", "io_access", path)
        if file.fresh and any(v.record for v in file.variables.values()):
            declared.append("integer(HID_T) :: io_create")
        for v in file.variables.values():
            what, name, n, kind = (
                f"'{v.name} of {file.label}'",
                f"{ident}_{v.name}",
                len(v.dimensions),
                TYPES[v.type][4],
            )
            if not file.fresh:
                self.h5("h5dopen_f", f"{ident}, '{v.name}', {name}", what)
                self.h5("h5dget_space_f", f"{name}, io_space", what)
                self.h5("h5sget_simple_extent_ndims_f", "io_space, io_n", what)
                self.put(
                    f"if (io_n /= {n}) call {self.need('io_stop')}('dimensions', {what}, 'the file has another number of them than {n}')"
                )
                self.h5("h5sget_simple_extent_dims_f", "io_space, io_found, io_most", what)
                self.put(f"io_sizes(:{n}) = {self.sizes(self.shape(v))}")
                self.put(f"do io_k = 1, {n}")
                self.put(
                    f"call {self.need('io_expect')}({what}, io_k, int(io_found(io_k), MPI_OFFSET_KIND), io_sizes(io_k))",
                    2,
                )
                self.put("end do")
                self.h5("h5sclose_f", "io_space", what)
                continue
            sizes = [f"int({one}, HSIZE_T)" for one in self.shape(v)]
            pick = lambda other, sizes=sizes, v=v: ", ".join(
                other if d.size is None else s for d, s in zip(v.dimensions, sizes, strict=True)
            )
            if v.record:
                self.h5(
                    "h5screate_simple_f", f"{n}, [{pick('0_HSIZE_T')}], io_space, @, [{pick('H5S_UNLIMITED_F')}]", what
                )
                self.put("! A chunk is a record.")
                self.h5("h5pcreate_f", "H5P_DATASET_CREATE_F, io_create", what)
                self.h5("h5pset_chunk_f", f"io_create, {n}, [{pick('1_HSIZE_T')}]", what)
                self.h5("h5dcreate_f", f"{ident}, '{v.name}', {kind}, io_space, {name}, @, dcpl_id=io_create", what)
                self.h5("h5pclose_f", "io_create", what)
            else:
                self.h5("h5screate_simple_f", f"{n}, [{', '.join(sizes)}], io_space", what)
                self.h5("h5dcreate_f", f"{ident}, '{v.name}', {kind}, io_space, {name}", what)
            self.h5("h5sclose_f", "io_space", what)
        if file.attributes:
            declared.append("integer(HID_T) :: io_attribute")
        if any(a.type == "text" for a in file.attributes):
            declared.append("integer(HID_T) :: io_type")
        for a in file.attributes:
            owner, what, value = (
                f"{ident}_{a.owner.name}" if a.owner else ident,
                f"'attribute {a.name} of {file.label}'",
                a.value.text,
            )
            if a.type == "text":
                self.h5("h5tcopy_f", "H5T_FORTRAN_S1, io_type", what)
                self.h5("h5tset_size_f", f"io_type, max(1_SIZE_T, len({value}, SIZE_T))", what)
                self.h5("h5screate_f", "H5S_SCALAR_F, io_space", what)
                kind, dims = "io_type", "[1_HSIZE_T]"
            else:
                if a.length:
                    value = f"{value}(:{a.length.text})"
                else:
                    self.put(f"call {self.is_type(a.type)}({value})")
                    value = f"[{TYPES[a.type][0]} :: {value}]"
                dims, kind = f"[size({value}, kind=HSIZE_T)]", TYPES[a.type][4]
                self.h5("h5screate_simple_f", f"1, {dims}, io_space", what)
            self.h5("h5acreate_f", f"{owner}, '{a.name}', {kind}, io_space, io_attribute", what)
            self.h5("h5awrite_f", f"io_attribute, {kind}, {value}, {dims}", what)
            self.h5("h5aclose_f", "io_attribute", what)
            self.h5("h5sclose_f", "io_space", what)
            if a.type == "text":
                self.h5("h5tclose_f", "io_type", what)
        return declared

    # --- accesses -------------------------------------------------------------------------------------------------

    def access(self, block):
        """In place of a block of accesses."""
        self.start_block(together_text(block, self.level))
        for access in block.accesses:
            chosen = method.choose(access)
            self.comment(f"{access.variable.name}: {chosen.method or 'independent'}. {chosen.why}.")
        accesses = block.accesses
        if self.level == "mpi-io":
            order = list(block.file.variables.values())
            accesses = sorted(accesses, key=lambda a: (a.variable.record, order.index(a.variable)))
        tags = [f"_{k}" if len(accesses) > 1 else "" for k in range(1, len(accesses) + 1)]
        pairs = list(zip(accesses, tags, strict=True))
        head, self.lines = [*self.lines, "block"], []
        declared = []
        for access, tag in pairs:
            declared += self.common(access, tag)
        declared += getattr(self, "access_" + self.level.replace("mpi-io", "mpi"))(block, pairs)
        body, self.lines = self.lines, head
        for line in declared:
            self.put(line)
        self.lines += [*body, "end block"]
        return self.end_block()

    def what(self, access):
        """Its variable, for messages."""
        return f"'{access.variable.name} of {access.variable.file.label}'"

    def common(self, access, tag):
        """First element (from 0), count, stride and memory of an access, checked; all levels begin so."""
        v, n, what = access.variable, len(access.variable.dimensions), self.what(access)
        declared = [f"{SIZE} :: io_shape{tag}({n}), io_first{tag}({n}), io_count{tag}({n}), io_stride{tag}({n})"]
        self.put(f"io_shape{tag} = {self.sizes(self.shape(v))}")
        self.put(f"io_first{tag} = {self.sizes([one.text for one in access.start]) + ' - 1' if access.start else '0'}")
        self.put(
            f"io_count{tag} = {self.sizes([one.text for one in access.count]) if access.count else f'io_shape{tag}'}"
        )
        self.put(f"io_stride{tag} = {self.sizes([one.text for one in access.stride]) if access.stride else '1'}")
        self.put(f"call {self.is_type(v.type)}({access.buffer.text})")
        self.put(f"call {self.need('io_fits')}({what}, io_first{tag}, io_count{tag}, io_stride{tag}, io_shape{tag})")
        if not method.dense(access):
            declared += self.gaps(access, tag)
        return declared

    def gaps(self, access, tag):
        """Memory with guard cells or in another order: a datatype that skips what is not accessed."""
        memory, n, what = access.memory, len(access.variable.dimensions), self.what(access)
        m = len(memory)
        declared = [
            f"{SIZE} :: io_size{tag}({m}), io_guard{tag}({m}), io_taken{tag}({m}), io_apart{tag}({m}), io_all{tag}"
        ]
        self.put("! Memory: sizes, elements before the first one, elements taken.")
        self.put(f"io_size{tag} = {self.sizes([e.size.text for e in memory])}")
        guards = ["0" if not e.guard else e.guard.text if e.of is not None else f"({e.guard.text}) - 1" for e in memory]
        self.put(f"io_guard{tag} = {self.sizes(guards)}")
        self.put(
            f"io_taken{tag} = {self.sizes(['1' if e.of is None else f'io_count{tag}({e.of + 1})' for e in memory])}"
        )
        ones = self.sizes(["1"] * m)
        self.put(
            f"call {self.need('io_fits')}('memory of {access.variable.name}', io_guard{tag}, io_taken{tag}, {ones}, io_size{tag})"
        )
        self.put(
            f"call {self.need('io_steps')}({what}, io_size{tag}, {self.bytes(access.variable)}, io_apart{tag}, io_all{tag})"
        )
        if self.level == "hdf5" and self.same_order(access):
            return declared
        places = [next(k for k, e in enumerate(memory) if e.of == d) + 1 for d in range(n)]
        steps = f"[{', '.join(f'io_apart{tag}({k})' for k in places)}]"
        declared.append(f"type(MPI_Datatype) :: io_type{tag}")
        self.put(
            f"call {self.need('io_box')}({what}, io_count{tag}, {steps}, sum(io_guard{tag} * io_apart{tag}), "
            f"{TYPES[access.variable.type][1]}, io_type{tag})"
        )
        return declared

    def same_order(self, access):
        """Whether HDF5 can select the elements in memory: it walks both sides in their own order."""
        order = [e.of for e in access.memory if e.of is not None]
        return order == sorted(order)

    def dense_type(self, access, tag, name):
        """A datatype for memory without gaps: one of it is all elements, however many."""
        n, what = len(access.variable.dimensions), self.what(access)
        self.put(
            f"call {self.need('io_steps')}({what}, io_count{tag}, {self.bytes(access.variable)}, io_dense{tag}, io_total{tag})"
        )
        self.put(
            f"call {self.need('io_box')}({what}, io_count{tag}, io_dense{tag}, 0_MPI_OFFSET_KIND, {TYPES[access.variable.type][1]}, {name}{tag})"
        )
        return [f"type(MPI_Datatype) :: {name}{tag}", f"{SIZE} :: io_dense{tag}({n}), io_total{tag}"]

    def access_mpi(self, block, accesses):
        """MPI-IO: a view of the file and a datatype of memory; of several variables, both joined."""
        ident, declared = f"io_{block.file.label}", []
        for access, tag in accesses:
            v, n, what = access.variable, len(access.variable.dimensions), self.what(access)
            if method.dense(access):
                declared += self.dense_type(access, tag, "io_type")
            declared += [
                f"type(MPI_Datatype) :: io_view{tag}",
                f"{SIZE} :: io_step{tag}({n}), io_bytes{tag}, io_at{tag}, io_elements{tag}",
            ]
            self.put(
                f"call {self.need('io_steps')}({what}, io_shape{tag}, {self.bytes(v)}, io_step{tag}, io_bytes{tag})"
            )
            if v.record:
                self.put(f"io_step{tag}({n}) = {ident}_record")
            self.put(f"io_at{tag} = {ident}_{v.name} + sum(io_first{tag} * io_step{tag})")
            self.put(f"io_elements{tag} = product(io_count{tag})")
            self.put(
                f"call {self.need('io_box')}({what}, io_count{tag}, io_step{tag} * io_stride{tag}, 0_MPI_OFFSET_KIND, {TYPES[v.type][1]}, io_view{tag})"
            )
        call = f"MPI_File_{'write' if block.accesses[0].write else 'read'}_at{'_all' if block.accesses[0].collective else ''}"
        declared.append("type(MPI_Status) :: io_status")
        if len(accesses) == 1:
            access = accesses[0][0]
            what, mpi, at, buffer = self.what(access), TYPES[access.variable.type][1], "io_at", access.buffer.text
        else:
            what, mpi, at, buffer, n = (
                f"'{block.file.label}'",
                "MPI_BYTE",
                "0_MPI_OFFSET_KIND",
                "MPI_BOTTOM",
                len(accesses),
            )
            tags = [tag for _, tag in accesses]
            declared += [
                f"integer(MPI_ADDRESS_KIND) :: io_places({n}), io_addresses({n})",
                f"type(MPI_Datatype) :: io_views({n}), io_types({n}), io_view, io_type",
                f"{SIZE} :: io_some({n}), io_elements",
            ]
            self.put(f"io_some = [{', '.join('io_elements' + tag for tag in tags)}]")
            self.put(f"io_places = [{', '.join('io_at' + tag for tag in tags)}]")
            for k, (access, _) in enumerate(accesses, 1):
                self.mpi("MPI_Get_address", f"{access.buffer.text}, io_addresses({k})", what)
            self.put(f"io_views = [{', '.join('io_view' + tag for tag in tags)}]")
            self.put(f"io_types = [{', '.join('io_type' + tag for tag in tags)}]")
            self.put(f"call {self.need('io_join')}({what}, io_some, io_places, io_views, io_view)")
            self.put(f"call io_join({what}, io_some, io_addresses, io_types, io_type)")
            self.put("io_elements = sum(io_some)")
        self.mpi("MPI_File_set_view", f"{ident}, {at}, {mpi}, io_view, 'native', MPI_INFO_NULL", what)
        several = len(accesses) > 1
        # The compiler does not see that the call reaches the buffers.
        synced = [access for access, _ in accesses] if several else []
        for access in synced:
            self.put(f"call MPI_F_sync_reg({access.buffer.text})")
        self.mpi(call, f"{ident}, 0_MPI_OFFSET_KIND, {buffer}, merge(1, 0, io_elements > 0), io_type, io_status", what)
        for access in synced:
            self.put(f"call MPI_F_sync_reg({access.buffer.text})")
        self.put(f"call {self.need('io_moved')}({what}, '{call}', io_status, io_type, io_elements)")
        self.mpi("MPI_Type_free", "io_view", what)
        self.mpi("MPI_Type_free", "io_type", what)
        return declared

    def access_pnetcdf(self, block, accesses):
        """PnetCDF: memory with gaps by the flexible calls; several variables by nonblocking calls and one flush."""
        ident, several, declared = f"io_{block.file.label}", len(accesses) > 1, []
        collective, way = block.accesses[0].collective, "put" if block.accesses[0].write else "get"
        label = f"'{block.file.label}'"
        if several:
            declared.append(f"integer :: io_request({len(accesses)}), io_status({len(accesses)})")
        if not collective:
            self.netcdf("nfmpi_begin_indep_data", ident, label)
        for k, (access, tag) in enumerate(accesses, 1):
            v, dense = access.variable, method.dense(access)
            name = f"{'i' if several else ''}{way}_{'vars' if access.stride else 'vara'}"
            name += f"_{TYPES[v.type][3]}" if dense else ""
            name += "_all" if collective and not several else ""
            arguments = [ident, f"{ident}_{v.name}", f"io_first{tag} + 1", f"io_count{tag}"]
            arguments += [f"io_stride{tag}"] if access.stride else []
            arguments += [access.buffer.text]
            arguments += (
                []
                if dense
                else [
                    f"merge(1_MPI_OFFSET_KIND, 0_MPI_OFFSET_KIND, product(io_count{tag}) > 0)",
                    f"io_type{tag}%MPI_VAL",
                ]
            )
            arguments += [f"io_request({k})"] if several else []
            if not dense:
                self.extra.setdefault("io_" + name, flexible(name))
            self.netcdf(
                ("nfmpi_" if dense else "io_") + name, ", ".join(arguments), self.what(access), 1, "nfmpi_" + name
            )
        if several:
            self.put(
                "! One flush: the library merges what is outstanding into one collective access."
                if collective
                else "! One flush."
            )
            for access, _ in accesses:
                self.put(f"call MPI_F_sync_reg({access.buffer.text})")
            self.netcdf(
                "nfmpi_wait_all" if collective else "nfmpi_wait",
                f"{ident}, {len(accesses)}, io_request, io_status",
                label,
            )
            for access, _ in accesses:
                self.put(f"call MPI_F_sync_reg({access.buffer.text})")
            for k, (access, _) in enumerate(accesses, 1):
                self.put(f"call {self.need('io_nc')}(io_status({k}), 'nfmpi_wait', {self.what(access)})")
        if not collective:
            self.netcdf("nfmpi_end_indep_data", ident, label)
        for access, tag in accesses:
            if not method.dense(access):
                self.mpi("MPI_Type_free", f"io_type{tag}", self.what(access))
        return declared

    def access_hdf5(self, block, accesses):
        """HDF5: selections in file and memory; memory in another order is collected first."""
        write = block.accesses[0].write
        label, call = f"'{block.file.label}'", "h5dwrite_f" if write else "h5dread_f"
        mode = "H5FD_MPIO_COLLECTIVE_F" if block.accesses[0].collective else "H5FD_MPIO_INDEPENDENT_F"
        most = max(len(a.variable.dimensions) for a, _ in accesses)
        declared = ["integer(HID_T) :: io_transfer, io_space, io_selected"]
        if write and any(a.variable.record for a, _ in accesses):
            declared += [f"integer(HSIZE_T) :: io_extent({most}), io_most({most})", f"{SIZE} :: io_end"]
        self.h5("h5pcreate_f", "H5P_DATASET_XFER_F, io_transfer", label)
        self.h5("h5pset_dxpl_mpio_f", f"io_transfer, {mode}", label)
        for access, tag in accesses:
            declared += self.hdf5_one(block.file, access, tag, call)
        self.h5("h5pclose_f", "io_transfer", label)
        return declared

    def hdf5_one(self, file, access, tag, call):
        """One variable of HDF5."""
        v, n, what, declared = access.variable, len(access.variable.dimensions), self.what(access), []
        dataset, kind, fortran = f"io_{file.label}_{v.name}", TYPES[v.type][4], TYPES[v.type][0]
        hsize = lambda name: f"int({name}{tag}, HSIZE_T)"
        if access.write and v.record:
            self.put("! The dataset grows to what the rank that reaches furthest writes.")
            self.put("io_end = 0")
            self.put(
                f"if (io_count{tag}({n}) > 0) io_end = io_first{tag}({n}) + (io_count{tag}({n}) - 1) * io_stride{tag}({n}) + 1"
            )
            self.mpi(
                "MPI_Allreduce",
                f"MPI_IN_PLACE, io_end, 1, MPI_OFFSET, MPI_MAX, {file.communicator or 'MPI_COMM_WORLD'}",
                what,
            )
            self.h5("h5dget_space_f", f"{dataset}, io_space", what)
            self.h5("h5sget_simple_extent_dims_f", "io_space, io_extent, io_most", what)
            self.h5("h5sclose_f", "io_space", what)
            self.put(f"if (io_end > io_extent({n})) then")
            self.put(f"io_extent({n}) = io_end", 2)
            self.h5("h5dset_extent_f", f"{dataset}, io_extent(:{n})", what, 2)
            self.put("end if")
        self.h5("h5dget_space_f", f"{dataset}, io_space", what)
        self.h5(
            "h5sselect_hyperslab_f",
            f"io_space, H5S_SELECT_SET_F, {hsize('io_first')}, {hsize('io_count')}, @, {hsize('io_stride')}",
            what,
        )
        if method.dense(access):
            self.h5("h5screate_simple_f", f"{n}, {hsize('io_count')}, io_selected", what)
            self.h5(
                call,
                f"{dataset}, {kind}, {access.buffer.text}, {hsize('io_count')}, @, io_selected, io_space, io_transfer",
                what,
            )
        elif self.same_order(access):
            m = len(access.memory)
            self.h5("h5screate_simple_f", f"{m}, {hsize('io_size')}, io_selected", what)
            self.h5(
                "h5sselect_hyperslab_f",
                f"io_selected, H5S_SELECT_SET_F, {hsize('io_guard')}, {hsize('io_taken')}",
                what,
            )
            self.h5(
                call,
                f"{dataset}, {kind}, {access.buffer.text}, {hsize('io_size')}, @, io_selected, io_space, io_transfer",
                what,
            )
        else:
            self.put(
                "! HDF5 walks file and memory each in its own order: the elements are collected in that of the file."
            )
            declared += self.dense_type(access, tag, "io_packed_type")
            declared.append(f"{fortran}, allocatable :: io_packed{tag}(:)")
            self.put(f"allocate (io_packed{tag}(max(1_MPI_OFFSET_KIND, product(io_count{tag}))), stat=io_code)")
            self.put(
                f"if (io_code /= 0) call {self.need('io_stop')}('allocate', {what}, 'no memory to collect the elements in')"
            )
            from_to = [f"{access.buffer.text}, 1, io_type{tag}, 0, 0", f"io_packed{tag}, 1, io_packed_type{tag}, 0, 0"]

            def copy(order):
                self.put(f"if (product(io_count{tag}) > 0) then")
                self.mpi("MPI_Sendrecv", f"{', '.join(order)}, MPI_COMM_SELF, MPI_STATUS_IGNORE", what, 2)
                self.put("end if")

            if access.write:
                copy(from_to)
            self.h5("h5screate_simple_f", f"{n}, {hsize('io_count')}, io_selected", what)
            self.h5(
                call,
                f"{dataset}, {kind}, io_packed{tag}, [product({hsize('io_count')})], @, io_selected, io_space, io_transfer",
                what,
            )
            if not access.write:
                copy(from_to[::-1])
            self.mpi("MPI_Type_free", f"io_packed_type{tag}", what)
            self.mpi("MPI_Type_free", f"io_type{tag}", what)
            self.put(f"deallocate (io_packed{tag})")
        self.h5("h5sclose_f", "io_selected", what)
        self.h5("h5sclose_f", "io_space", what)
        return declared

    # --- closing --------------------------------------------------------------------------------------------------

    def close(self, file):
        """In place of #close_file."""
        ident, what = f"io_{file.label}", f"'{file.label}'"
        self.start_block(f"{file.label} is closed")
        if self.level == "mpi-io":
            self.mpi("MPI_File_close", ident, what, 0)
        elif self.level == "hdf5":
            for name in file.variables:
                self.h5("h5dclose_f", f"{ident}_{name}", f"'{name} of {file.label}'", 0)
            self.h5("h5fclose_f", ident, what, 0)
        else:
            self.netcdf("nf90mpi_close", ident, what, 0)
        return self.end_block()
