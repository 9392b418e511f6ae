"""Code in C and C++ for all levels.

Ids, sizes and helper functions stand where `#use_io` was; a file is opened where its definitions were; each block of
accesses becomes one braced block. All generated names begin with `io_`. Sizes are MPI_Offset (64 bits). A product of sizes
above 2^63 stops the program. One above 2^31 is fine, because counts go into datatypes of one dimension each.
"""

from penstock.generate import method
from penstock.generate.c_functions import HELPERS
from penstock.generate.text import BEGIN, END, LIBRARIES, together_text, wrapped

# type: C, MPI, netCDF, function name in netCDF and PnetCDF, HDF5
TYPES = {
    "byte": ("signed char", "MPI_SIGNED_CHAR", "NC_BYTE", "schar", "H5T_NATIVE_SCHAR"),
    "short": ("short", "MPI_SHORT", "NC_SHORT", "short", "H5T_NATIVE_SHORT"),
    "int": ("int", "MPI_INT", "NC_INT", "int", "H5T_NATIVE_INT"),
    "int64": ("long long", "MPI_LONG_LONG", "NC_INT64", "longlong", "H5T_NATIVE_LLONG"),
    "float": ("float", "MPI_FLOAT", "NC_FLOAT", "float", "H5T_NATIVE_FLOAT"),
    "double": ("double", "MPI_DOUBLE", "NC_DOUBLE", "double", "H5T_NATIVE_DOUBLE"),
    "ubyte": ("unsigned char", "MPI_UNSIGNED_CHAR", "NC_UBYTE", "uchar", "H5T_NATIVE_UCHAR"),
    "ushort": ("unsigned short", "MPI_UNSIGNED_SHORT", "NC_USHORT", "ushort", "H5T_NATIVE_USHORT"),
    "uint": ("unsigned int", "MPI_UNSIGNED", "NC_UINT", "uint", "H5T_NATIVE_UINT"),
    "uint64": ("unsigned long long", "MPI_UNSIGNED_LONG_LONG", "NC_UINT64", "ulonglong", "H5T_NATIVE_ULLONG"),
}
HEADERS = {"mpi-io": [], "pnetcdf": ["pnetcdf.h"], "hdf5": ["hdf5.h"], "netcdf4": ["netcdf.h", "netcdf_par.h"]}


class Code:
    """Writes the code of one template."""

    def __init__(self, program, level):
        self.program, self.level = program, level
        self.cpp = program.source.language == "c++"
        self.needs = []
        self.lines = []
        self.nc = "ncmpi" if level == "pnetcdf" else "nc"

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
        self.lines += wrapped("    " * depth + line, "    " * (depth + 1)) if line else [""]

    def mpi(self, function, arguments, what, depth=1):
        """A checked call to MPI."""
        self.put(f'{self.need("io_mpi")}({function}({arguments}), "{function}", {what});', depth)

    def netcdf(self, function, arguments, what, depth=1):
        """A checked call to netCDF or PnetCDF."""
        name = f"{self.nc}_{function}"
        self.put(f'{self.need("io_nc")}({name}({arguments}), "{name}", {what});', depth)

    def h5(self, function, arguments, what, result="", depth=1):
        """A checked call to HDF5."""
        self.put(f'{result}{self.need("io_h5")}({function}({arguments}), "{function}", {what});', depth)

    def vector(self, name, kind, values, depth=1):
        """A constant array."""
        if kind == "MPI_Offset":
            values = [v if v.isdigit() or v.startswith("io_") else f"(MPI_Offset)({v})" for v in values]
        self.put(f"const {kind} {name}[{len(values)}] = {{{', '.join(values)}}};", depth)

    def start_block(self, title):
        """The first lines of a block in place of an annotation."""
        self.lines = [f"/* {BEGIN}: {title}. */"]

    def end_block(self):
        """All lines of the block."""
        return [*self.lines, f"/* {END} */"]

    def before(self):
        """What stands before the template."""
        return ""

    # --- declarations ---------------------------------------------------------------------------------------------

    def use(self):
        """In place of #use_io; called last, when it is known what is needed."""
        lines = [f"/* {BEGIN}: what it needs, for {LIBRARIES[self.level]}. */"]
        headers = ["limits.h", "mpi.h", "stdio.h", "stdlib.h", "string.h"] + HEADERS[self.level]
        if self.cpp:
            headers.append("type_traits")
        lines += [f"#include <{header}>" for header in headers] + [""]
        kind = {"mpi-io": "MPI_File", "hdf5": "hid_t"}.get(self.level, "int")
        for file in self.program.files:
            said = f"{file.label}: the file, "
            said += (
                "the variables, sizes of dimensions"
                if self.level != "mpi-io"
                else "first bytes of variables, sizes of dimensions"
            )
            lines.append(f"/* {said} (-1: unlimited). */")
            lines.append(f"static {kind} io_{file.label};")
            variable = "MPI_Offset" if self.level == "mpi-io" else kind
            lines += [f"static {variable} io_{file.label}_{name};" for name in file.variables if self.used(file, name)]
            lines += [f"static MPI_Offset io_{file.label}_n_{name};" for name in file.dimensions]
            if self.level == "mpi-io" and any(a.variable.record for a in file.accesses):
                lines.append(f"static MPI_Offset io_{file.label}_record; /* bytes of a record */")
            lines.append("")
        for name in self.needs:
            text = HELPERS[name][1].replace("@strerror@", f"{self.nc}_strerror")
            lines += [*text.splitlines(), ""]
        return [*lines[:-1], f"/* {END} */"]

    def used(self, file, name):
        """Whether a variable's id is used after the file was opened; all of HDF5's are, to close them."""
        return self.level != "mpi-io" or any(a.variable.name == name for a in file.accesses)

    # --- opening --------------------------------------------------------------------------------------------------

    def open(self, file):
        """In place of the last definition of a file."""
        self.start_block(f"{file.label}, {LIBRARIES[self.level]}")
        hints = method.hints(file)
        self.lines += [line for why in hints.why for line in wrapped(f"/* {why}. */", "   ")]
        self.lines.append("{")
        self.put(f"const char *io_path = {file.path.text};")
        self.put("MPI_Info io_info;")
        self.mpi("MPI_Info_create", "&io_info", "io_path")
        for key, value in [(f'"{key}"', f'"{value}"') for key, value in hints.hints] + [
            (k.text, v.text) for k, v in file.hints
        ]:
            self.mpi("MPI_Info_set", f"io_info, {key}, {value}", key)
        for dimension in file.dimensions.values():
            size = "-1" if dimension.size is None else f"(MPI_Offset)({dimension.size.text})"
            name = f"io_{file.label}_n_{dimension.name}"
            self.put(f"{name} = {size};")
            if dimension.size is not None:
                self.put(
                    f'if ({name} < 1) {self.need("io_stop")}("sizes", "dimension {dimension.name} of {file.label}", "less than 1");'
                )
        {"mpi-io": self.open_mpi, "pnetcdf": self.open_netcdf, "netcdf4": self.open_netcdf, "hdf5": self.open_hdf5}[
            self.level
        ](file)
        self.mpi("MPI_Info_free", "&io_info", "io_path")
        self.lines.append("}")
        return self.end_block()

    def shape(self, variable):
        """Names of the sizes of a variable."""
        return [f"io_{variable.file.label}_n_{d.name}" for d in variable.dimensions]

    def open_mpi(self, file):
        """Variables lie one after the other, then records with a part of each variable that has them."""
        comm = file.communicator or "MPI_COMM_WORLD"
        reads = any(not a.write for a in file.accesses) or file.mode == "update"
        writes = file.mode != "read"
        mode = "MPI_MODE_RDWR" if reads and writes else "MPI_MODE_WRONLY" if writes else "MPI_MODE_RDONLY"
        mode += {"create": " | MPI_MODE_CREATE", "create_new": " | MPI_MODE_CREATE | MPI_MODE_EXCL"}.get(file.mode, "")
        self.put("MPI_Offset io_bytes = 0;")
        records = [v for v in file.variables.values() if v.record]
        for variable in [*[v for v in file.variables.values() if not v.record], *records]:
            shape = self.shape(variable)
            if records and variable is records[0]:
                self.put("MPI_Offset io_fixed = io_bytes;")
            if self.used(file, variable.name):
                self.put(f"io_{file.label}_{variable.name} = io_bytes;")
            self.put("{")
            self.vector("io_shape", "MPI_Offset", shape, 2)
            self.put(f"MPI_Offset io_step[{len(shape)}];", 2)
            size = f'{self.need("io_steps")}("{variable.name} of {file.label}", {len(shape)}, io_shape, sizeof({TYPES[variable.type][0]}), io_step)'
            self.put(f"io_bytes += {size};", 2)
            self.put("}")
        if records:
            if any(a.variable.record for a in file.accesses):
                self.put(f"io_{file.label}_record = io_bytes - io_fixed;")
            self.put("io_bytes = io_fixed;")
        self.mpi("MPI_File_open", f"{comm}, io_path, {mode}, io_info, &io_{file.label}", "io_path")
        if file.mode == "create":
            self.mpi("MPI_File_set_size", f"io_{file.label}, 0", "io_path")
        elif not file.fresh:
            self.put("{")
            self.put("MPI_Offset io_size;", 2)
            self.mpi("MPI_File_get_size", f"io_{file.label}, &io_size", "io_path", 2)
            self.put("if (io_size < io_bytes) {", 2)
            self.put("char io_why[120];", 3)
            text = '"%lld bytes, the variables take %lld: the file is cut short"'
            self.put(f"snprintf(io_why, sizeof io_why, {text}, (long long)io_size, (long long)io_bytes);", 3)
            self.put(f'{self.need("io_stop")}("MPI_File_get_size", io_path, io_why);', 3)
            self.put("}", 2)
            self.put("}")
        if file.attributes:
            self.put("/* MPI-IO stores no attributes: " + ", ".join(a.name for a in file.attributes) + " left out. */")
            for attribute in file.attributes:
                self.put(f"(void)({attribute.value.text});")
        if file.fresh:
            self.put("(void)io_bytes;")

    def open_netcdf(self, file):
        """PnetCDF and netCDF-4."""
        ident, comm = f"io_{file.label}", file.communicator or "MPI_COMM_WORLD"
        par = self.level == "netcdf4"
        if not file.fresh:
            mode = "NC_NOWRITE" if file.mode == "read" else "NC_WRITE"
            if par:
                self.netcdf("open_par", f"io_path, {mode}, {comm}, io_info, &{ident}", "io_path")
            else:
                self.netcdf("open", f"{comm}, io_path, {mode}, io_info, &{ident}", "io_path")
        else:
            mode = "NC_NOCLOBBER" if file.mode == "create_new" else "NC_CLOBBER"
            form = (
                "NC_NETCDF4" if par else {"cdf1": "", "cdf2": "NC_64BIT_OFFSET", "cdf5": "NC_64BIT_DATA"}[file.format]
            )
            mode = f"{mode} | {form}" if form else mode
            if par:
                self.netcdf("create_par", f"io_path, {mode}, {comm}, io_info, &{ident}", "io_path")
            else:
                self.netcdf("create", f"{comm}, io_path, {mode}, io_info, &{ident}", "io_path")
            size = "size_t" if par else "MPI_Offset"
            for dimension in file.dimensions.values():
                given = "NC_UNLIMITED" if dimension.size is None else f"({size})io_{file.label}_n_{dimension.name}"
                self.put(f"int io_{dimension.name};")
                self.netcdf(
                    "def_dim",
                    f'{ident}, "{dimension.name}", {given}, &io_{dimension.name}',
                    f'"dimension {dimension.name} of {file.label}"',
                )
        for variable in file.variables.values():
            what, name = f'"{variable.name} of {file.label}"', f"{ident}_{variable.name}"
            n = len(variable.dimensions)
            self.put("{")
            if file.fresh:
                self.vector("io_dims", "int", [f"io_{d.name}" for d in variable.dimensions], 2)
                self.netcdf(
                    "def_var", f'{ident}, "{variable.name}", {TYPES[variable.type][2]}, {n}, io_dims, &{name}', what, 2
                )
            else:
                length = "size_t" if par else "MPI_Offset"
                self.put(f"int io_n, io_dims[{n}];", 2)
                self.put(f"{length} io_length;", 2)
                self.vector("io_shape", "MPI_Offset", self.shape(variable), 2)
                self.netcdf("inq_varid", f'{ident}, "{variable.name}", &{name}', what, 2)
                self.netcdf("inq_varndims", f"{ident}, {name}, &io_n", what, 2)
                self.put(
                    f'if (io_n != {n}) {self.need("io_stop")}("dimensions", {what}, "the file has another number of them than {n}");',
                    2,
                )
                self.netcdf("inq_vardimid", f"{ident}, {name}, io_dims", what, 2)
                self.put(f"for (io_n = 0; io_n < {n}; io_n++) {{", 2)
                self.netcdf("inq_dimlen", f"{ident}, io_dims[io_n], &io_length", what, 3)
                self.put(f"{self.need('io_expect')}({what}, io_n, (MPI_Offset)io_length, io_shape[io_n]);", 3)
                self.put("}", 2)
            self.put("}")
        for attribute in file.attributes:
            owner = f"{ident}_{attribute.owner.name}" if attribute.owner else "NC_GLOBAL"
            what = f'"attribute {attribute.name} of {file.label}"'
            if attribute.type == "text":
                self.netcdf(
                    "put_att_text",
                    f'{ident}, {owner}, "{attribute.name}", strlen({attribute.value.text}), {attribute.value.text}',
                    what,
                )
            else:
                kind = TYPES[attribute.type]
                length = self.length(attribute)
                self.netcdf(
                    f"put_att_{kind[3]}",
                    f'{ident}, {owner}, "{attribute.name}", {kind[2]}, {length}, {attribute.value.text}',
                    what,
                )
        if file.fresh:
            self.netcdf("enddef", ident, "io_path")
        if par:
            for name in sorted({a.variable.name for a in file.accesses}):
                accesses = [a for a in file.accesses if a.variable.name == name]
                if all(a.collective == accesses[0].collective for a in accesses):
                    access = "NC_COLLECTIVE" if accesses[0].collective else "NC_INDEPENDENT"
                    self.netcdf("var_par_access", f"{ident}, {ident}_{name}, {access}", f'"{name} of {file.label}"')

    def length(self, attribute):
        """Elements of an attribute; refuses, at compile time, to take a pointer for an array."""
        value = attribute.value.text
        if attribute.length:
            return attribute.length.text
        why = f'"{attribute.name}: {value} is no array; state the length in the annotation"'
        if self.cpp:
            self.put(f"static_assert(std::is_array<std::remove_reference<decltype(({value}))>::type>::value, {why});")
        else:
            kind = TYPES[attribute.type][0]
            self.put(f"_Static_assert(_Generic(&({value}), {kind} **: 0, const {kind} **: 0, default: 1), {why});")
        return f"sizeof({value}) / sizeof(({value})[0])"

    def open_hdf5(self, file):
        """HDF5: a dataset for each variable."""
        ident, comm = f"io_{file.label}", file.communicator or "MPI_COMM_WORLD"
        self.h5("H5Pcreate", "H5P_FILE_ACCESS", "io_path", "hid_t io_access = ")
        self.h5("H5Pset_fapl_mpio", f"io_access, {comm}, io_info", "io_path")
        if file.fresh:
            flag = "H5F_ACC_EXCL" if file.mode == "create_new" else "H5F_ACC_TRUNC"
            self.h5("H5Fcreate", f"io_path, {flag}, H5P_DEFAULT, io_access", "io_path", f"{ident} = ")
        else:
            flag = "H5F_ACC_RDONLY" if file.mode == "read" else "H5F_ACC_RDWR"
            self.h5("H5Fopen", f"io_path, {flag}, io_access", "io_path", f"{ident} = ")
        self.h5("H5Pclose", "io_access", "io_path")
        for variable in file.variables.values():
            what, name = f'"{variable.name} of {file.label}"', f"{ident}_{variable.name}"
            n, kind = len(variable.dimensions), TYPES[variable.type][4]
            self.put("{")
            if file.fresh:
                sizes = [f"(hsize_t){size}" for size in self.shape(variable)]
                unlimited = [k for k, d in enumerate(variable.dimensions) if d.size is None]
                now = ["0" if k in unlimited else size for k, size in enumerate(sizes)]
                self.vector("io_shape", "hsize_t", now, 2)
                plist = "H5P_DEFAULT"
                if unlimited:
                    most = ["H5S_UNLIMITED" if k in unlimited else size for k, size in enumerate(sizes)]
                    self.vector("io_most", "hsize_t", most, 2)
                    self.put("/* A chunk is a record. */", 2)
                    self.vector(
                        "io_chunk", "hsize_t", ["1" if k in unlimited else size for k, size in enumerate(sizes)], 2
                    )
                    self.h5("H5Pcreate", "H5P_DATASET_CREATE", what, "hid_t io_create = ", 2)
                    self.h5("H5Pset_chunk", f"io_create, {n}, io_chunk", what, "", 2)
                    plist = "io_create"
                self.h5(
                    "H5Screate_simple",
                    f"{n}, io_shape, {'io_most' if unlimited else 'NULL'}",
                    what,
                    "hid_t io_space = ",
                    2,
                )
                self.h5(
                    "H5Dcreate2",
                    f'{ident}, "{variable.name}", {kind}, io_space, H5P_DEFAULT, {plist}, H5P_DEFAULT',
                    what,
                    f"{name} = ",
                    2,
                )
                if unlimited:
                    self.h5("H5Pclose", "io_create", what, "", 2)
            else:
                self.vector("io_shape", "MPI_Offset", self.shape(variable), 2)
                self.put(f"hsize_t io_found[{n}];", 2)
                self.h5("H5Dopen2", f'{ident}, "{variable.name}", H5P_DEFAULT', what, f"{name} = ", 2)
                self.h5("H5Dget_space", name, what, "hid_t io_space = ", 2)
                wrong = f'{self.need("io_stop")}("dimensions", {what}, "the file has another number of them than {n}")'
                self.put(f"if (H5Sget_simple_extent_ndims(io_space) != {n}) {wrong};", 2)
                self.h5("H5Sget_simple_extent_dims", "io_space, io_found, NULL", what, "", 2)
                self.put(
                    f"for (int io_k = 0; io_k < {n}; io_k++) {self.need('io_expect')}({what}, io_k, (MPI_Offset)io_found[io_k], io_shape[io_k]);",
                    2,
                )
            self.h5("H5Sclose", "io_space", what, "", 2)
            self.put("}")
        for attribute in file.attributes:
            owner = f"{ident}_{attribute.owner.name}" if attribute.owner else ident
            what, value = f'"attribute {attribute.name} of {file.label}"', attribute.value.text
            self.put("{")
            if attribute.type == "text":
                self.h5("H5Tcopy", "H5T_C_S1", what, "hid_t io_type = ", 2)
                self.h5("H5Tset_size", f"io_type, strlen({value}) + 1", what, "", 2)
                self.h5("H5Screate", "H5S_SCALAR", what, "hid_t io_space = ", 2)
                kind = "io_type"
            else:
                kind = TYPES[attribute.type][4]
                length = self.length(attribute)
                self.put(f"const {TYPES[attribute.type][0]} *io_values = {value};", 2)
                self.put(f"const hsize_t io_length = {length};", 2)
                self.h5("H5Screate_simple", "1, &io_length, NULL", what, "hid_t io_space = ", 2)
                value = "io_values"
            self.h5(
                "H5Acreate2",
                f'{owner}, "{attribute.name}", {kind}, io_space, H5P_DEFAULT, H5P_DEFAULT',
                what,
                "hid_t io_attribute = ",
                2,
            )
            self.h5("H5Awrite", f"io_attribute, {kind}, {value}", what, "", 2)
            self.h5("H5Aclose", "io_attribute", what, "", 2)
            self.h5("H5Sclose", "io_space", what, "", 2)
            if attribute.type == "text":
                self.h5("H5Tclose", "io_type", what, "", 2)
            self.put("}")

    # --- accesses -------------------------------------------------------------------------------------------------

    def access(self, block):
        """In place of a block of accesses."""
        self.start_block(together_text(block, self.level))
        for access in block.accesses:
            chosen = method.choose(access)
            self.lines += wrapped(
                f"/* {access.variable.name}: {chosen.method or 'independent'}. {chosen.why}. */", "   "
            )
        self.lines.append("{")
        accesses = block.accesses
        if self.level == "mpi-io":
            order = list(block.file.variables.values())
            accesses = sorted(accesses, key=lambda a: (a.variable.record, order.index(a.variable)))
        tags = [f"_{k}" if len(accesses) > 1 else "" for k in range(len(accesses))]
        for access, tag in zip(accesses, tags, strict=True):
            self.common(access, tag)
        getattr(self, "access_" + self.level.replace("mpi-io", "mpi"))(block, list(zip(accesses, tags, strict=True)))
        self.lines.append("}")
        return self.end_block()

    def what(self, access):
        """Its variable, for messages."""
        return f'"{access.variable.name} of {access.variable.file.label}"'

    def common(self, access, tag):
        """Start, count, stride and memory of an access, checked; all levels begin so."""
        variable, n, what = access.variable, len(access.variable.dimensions), self.what(access)
        kind = TYPES[variable.type][0]
        const = "const " if access.write else ""
        self.vector(f"io_shape{tag}", "MPI_Offset", self.shape(variable))
        self.vector(f"io_start{tag}", "MPI_Offset", [one.text for one in access.start] if access.start else ["0"] * n)
        counts = [one.text for one in access.count] if access.count else [f"io_shape{tag}[{k}]" for k in range(n)]
        self.vector(f"io_count{tag}", "MPI_Offset", counts)
        stride = "NULL"
        if access.stride:
            stride = f"io_stride{tag}"
            self.vector(stride, "MPI_Offset", [one.text for one in access.stride])
        self.put(f"{const}{kind} *io_buffer{tag} = {access.buffer.text};")
        self.put(f"{self.need('io_fits')}({what}, {n}, io_start{tag}, io_count{tag}, {stride}, io_shape{tag});")
        if not method.dense(access):
            self.gaps(access, tag)

    def gaps(self, access, tag):
        """Memory with guard cells or in another order: a datatype, and the first element."""
        memory, n, what = access.memory, len(access.variable.dimensions), self.what(access)
        kind, mpi = TYPES[access.variable.type][:2]
        m = len(memory)
        self.put("/* Memory, its first dimension first: sizes, elements before the first one, elements taken. */")
        self.vector(f"io_size{tag}", "MPI_Offset", [e.size.text for e in memory])
        self.vector(f"io_guard{tag}", "MPI_Offset", [e.guard.text if e.guard else "0" for e in memory])
        self.vector(f"io_taken{tag}", "MPI_Offset", ["1" if e.of is None else f"io_count{tag}[{e.of}]" for e in memory])
        self.put(f"MPI_Offset io_apart{tag}[{m}];")
        self.put(
            f'{self.need("io_fits")}("memory of {access.variable.name}", {m}, io_guard{tag}, io_taken{tag}, NULL, io_size{tag});'
        )
        self.put(f"{self.need('io_steps')}({what}, {m}, io_size{tag}, sizeof({kind}), io_apart{tag});")
        if self.level == "hdf5" and self.same_order(access):
            return
        places = [next(k for k, e in enumerate(memory) if e.of == d) for d in range(n)]
        self.vector(f"io_memory_step{tag}", "MPI_Offset", [f"io_apart{tag}[{k}]" for k in places])
        self.put(
            f"MPI_Datatype io_type{tag} = {self.need('io_box')}({what}, {n}, io_count{tag}, io_memory_step{tag}, {mpi});"
        )
        self.put(
            f"io_buffer{tag} += {self.need('io_dot')}({m}, io_guard{tag}, io_apart{tag}) / (MPI_Offset)sizeof({kind});"
        )

    def same_order(self, access):
        """Whether HDF5 can select the elements in memory: it walks both sides in their own order."""
        order = [e.of for e in access.memory if e.of is not None]
        return order == sorted(order)

    def dense_type(self, access, tag):
        """A datatype for memory without gaps, for MPI: one of it is all elements, however many."""
        n, what = len(access.variable.dimensions), self.what(access)
        kind, mpi = TYPES[access.variable.type][:2]
        self.put(f"MPI_Offset io_memory_step{tag}[{n}];")
        self.put(f"{self.need('io_steps')}({what}, {n}, io_count{tag}, sizeof({kind}), io_memory_step{tag});")
        self.put(
            f"MPI_Datatype io_type{tag} = {self.need('io_box')}({what}, {n}, io_count{tag}, io_memory_step{tag}, {mpi});"
        )

    def access_mpi(self, block, accesses):
        """MPI-IO: a view of the file and a datatype of memory; of several variables, both joined."""
        ident = f"io_{block.file.label}"
        for access, tag in accesses:
            variable, n, what = access.variable, len(access.variable.dimensions), self.what(access)
            kind, mpi = TYPES[variable.type][:2]
            if method.dense(access):
                self.dense_type(access, tag)
            self.put(f"MPI_Offset io_step{tag}[{n}];")
            self.put(f"{self.need('io_steps')}({what}, {n}, io_shape{tag}, sizeof({kind}), io_step{tag});")
            if variable.record:
                self.put(f"io_step{tag}[0] = {ident}_record;")
            self.put(
                f"const MPI_Offset io_at{tag} = {ident}_{variable.name} + {self.need('io_dot')}({n}, io_start{tag}, io_step{tag});"
            )
            if access.stride:
                self.put(f"for (int io_k = 0; io_k < {n}; io_k++) io_step{tag}[io_k] *= io_stride{tag}[io_k];")
            self.put(f"const MPI_Offset io_elements{tag} = {self.need('io_product')}({n}, io_count{tag});")
            self.put(
                f"MPI_Datatype io_view{tag} = {self.need('io_box')}({what}, {n}, io_count{tag}, io_step{tag}, {mpi});"
            )
        call = f"MPI_File_{'write' if block.accesses[0].write else 'read'}_at{'_all' if block.accesses[0].collective else ''}"
        self.put("MPI_Status io_status;")
        if len(accesses) == 1:
            access = accesses[0][0]
            what, mpi = self.what(access), TYPES[access.variable.type][1]
            view, at, buffer, elements = "io_view", "io_at", "io_buffer", "io_elements"
        else:
            what, mpi, count = f'"{block.file.label}"', "MPI_BYTE", len(accesses)
            tags = [tag for _, tag in accesses]
            self.vector("io_some", "int", [f"io_elements{tag} > 0" for tag in tags])
            self.vector("io_places", "MPI_Aint", [f"(MPI_Aint)io_at{tag}" for tag in tags])
            self.put(f"MPI_Aint io_addresses[{count}];")
            for k, tag in enumerate(tags):
                self.mpi("MPI_Get_address", f"io_buffer{tag}, &io_addresses[{k}]", what)
            self.put(f"MPI_Datatype io_views[{count}] = {{{', '.join('io_view' + tag for tag in tags)}}};")
            self.put(f"MPI_Datatype io_types[{count}] = {{{', '.join('io_type' + tag for tag in tags)}}};")
            self.put(f"MPI_Datatype io_view = {self.need('io_join')}({what}, {count}, io_some, io_places, io_views);")
            self.put(f"MPI_Datatype io_type = io_join({what}, {count}, io_some, io_addresses, io_types);")
            self.put(f"const MPI_Offset io_elements = {' + '.join('io_elements' + tag for tag in tags)};")
            view, at, buffer, elements = "io_view", "0", "MPI_BOTTOM", "io_elements"
        self.mpi("MPI_File_set_view", f'{ident}, {at}, {mpi}, {view}, "native", MPI_INFO_NULL', what)
        self.mpi(call, f"{ident}, 0, {buffer}, {elements} > 0, io_type, &io_status", what)
        self.put(f'{self.need("io_moved")}({what}, "{call}", &io_status, io_type, {elements});')
        self.mpi("MPI_Type_free", "&io_view", what)
        self.mpi("MPI_Type_free", "&io_type", what)

    def access_pnetcdf(self, block, accesses):
        """PnetCDF: memory with gaps by the flexible calls; several variables by nonblocking calls and one flush."""
        ident, several = f"io_{block.file.label}", len(accesses) > 1
        collective, way = block.accesses[0].collective, "put" if block.accesses[0].write else "get"
        label = f'"{block.file.label}"'
        if several:
            self.put(f"int io_request[{len(accesses)}], io_status[{len(accesses)}];")
        if not collective:
            self.netcdf("begin_indep_data", ident, label)
        for k, (access, tag) in enumerate(accesses):
            variable, n = access.variable, len(access.variable.dimensions)
            dense = method.dense(access)
            name = f"{'i' if several else ''}{way}_{'vars' if access.stride else 'vara'}"
            name += f"_{TYPES[variable.type][3]}" if dense else ""
            name += "_all" if collective and not several else ""
            arguments = [ident, f"{ident}_{variable.name}", f"io_start{tag}", f"io_count{tag}"]
            arguments += [f"io_stride{tag}"] if access.stride else []
            arguments += [f"io_buffer{tag}"]
            arguments += [] if dense else [f"{self.need('io_product')}({n}, io_count{tag}) > 0", f"io_type{tag}"]
            arguments += [f"&io_request[{k}]"] if several else []
            self.netcdf(name, ", ".join(arguments), self.what(access))
        if several:
            self.put(
                "/* One flush: the library merges what is outstanding into one collective access. */"
                if collective
                else "/* One flush. */"
            )
            self.netcdf("wait_all" if collective else "wait", f"{ident}, {len(accesses)}, io_request, io_status", label)
            for k, (access, _) in enumerate(accesses):
                self.put(f'{self.need("io_nc")}(io_status[{k}], "{self.nc}_wait", {self.what(access)});')
        if not collective:
            self.netcdf("end_indep_data", ident, label)
        for access, tag in accesses:
            if not method.dense(access):
                self.mpi("MPI_Type_free", f"&io_type{tag}", self.what(access))

    def packed(self, access, tag, body):
        """Runs `body` with elements collected in memory without gaps: `io_packed`."""
        kind, n, what = TYPES[access.variable.type][0], len(access.variable.dimensions), self.what(access)
        mpi = TYPES[access.variable.type][1]
        self.put(f"const MPI_Offset io_elements{tag} = {self.need('io_product')}({n}, io_count{tag});")
        self.put(
            f"{kind} *io_packed{tag} = ({kind} *){self.need('io_allocate')}({what}, io_elements{tag} * (MPI_Offset)sizeof({kind}));"
        )
        self.put(f"MPI_Offset io_packed_step{tag}[{n}];")
        self.put(f"{self.need('io_steps')}({what}, {n}, io_count{tag}, sizeof({kind}), io_packed_step{tag});")
        self.put(
            f"MPI_Datatype io_packed_type{tag} = {self.need('io_box')}({what}, {n}, io_count{tag}, io_packed_step{tag}, {mpi});"
        )
        if access.write:
            self.put(
                f"if (io_elements{tag} > 0) {self.need('io_memory')}({what}, io_buffer{tag}, io_type{tag}, io_packed{tag}, io_packed_type{tag});"
            )
        body()
        if not access.write:
            self.put(
                f"if (io_elements{tag} > 0) {self.need('io_memory')}({what}, io_packed{tag}, io_packed_type{tag}, io_buffer{tag}, io_type{tag});"
            )
        self.mpi("MPI_Type_free", f"&io_packed_type{tag}", what)
        self.mpi("MPI_Type_free", f"&io_type{tag}", what)
        self.put(f"free(io_packed{tag});")

    def access_netcdf4(self, block, accesses):
        """netCDF-4: one call a variable. It takes memory without gaps only."""
        ident, way = f"io_{block.file.label}", "put" if block.accesses[0].write else "get"
        for access, tag in accesses:
            variable, n, what = access.variable, len(access.variable.dimensions), self.what(access)
            others = [a for a in block.file.accesses if a.variable is variable]
            if any(a.collective != access.collective for a in others):
                mode = "NC_COLLECTIVE" if access.collective else "NC_INDEPENDENT"
                self.netcdf("var_par_access", f"{ident}, {ident}_{variable.name}, {mode}", what)
            self.put(f"size_t io_first{tag}[{n}], io_many{tag}[{n}];")
            self.put(f"for (int io_k = 0; io_k < {n}; io_k++) {{")
            self.put(f"io_first{tag}[io_k] = (size_t)io_start{tag}[io_k];", 2)
            self.put(f"io_many{tag}[io_k] = (size_t)io_count{tag}[io_k];", 2)
            self.put("}")
            stride = ""
            if access.stride:
                self.put(f"ptrdiff_t io_every{tag}[{n}];")
                self.put(
                    f"for (int io_k = 0; io_k < {n}; io_k++) io_every{tag}[io_k] = (ptrdiff_t)io_stride{tag}[io_k];"
                )
                stride = f"io_every{tag}, "
            name = f"{way}_{'vars' if access.stride else 'vara'}_{TYPES[variable.type][3]}"

            def call(buffer, name=name, variable=variable, tag=tag, stride=stride, what=what):
                self.netcdf(
                    name, f"{ident}, {ident}_{variable.name}, io_first{tag}, io_many{tag}, {stride}{buffer}{tag}", what
                )

            if method.dense(access):
                call("io_buffer")
            else:
                self.put("/* netCDF-4 takes memory without gaps: the elements are collected first. */")
                self.packed(access, tag, lambda call=call: call("io_packed"))

    def access_hdf5(self, block, accesses):
        """HDF5: selections in file and memory; memory in another order is collected first."""
        ident, call = f"io_{block.file.label}", "H5Dwrite" if block.accesses[0].write else "H5Dread"
        label = f'"{block.file.label}"'
        mode = "H5FD_MPIO_COLLECTIVE" if block.accesses[0].collective else "H5FD_MPIO_INDEPENDENT"
        self.h5("H5Pcreate", "H5P_DATASET_XFER", label, "hid_t io_transfer = ")
        self.h5("H5Pset_dxpl_mpio", f"io_transfer, {mode}", label)
        for access, tag in accesses:
            self.put("{")
            self.hdf5_one(block.file, access, tag, f"{ident}_{access.variable.name}", call)
            self.put("}")
        self.h5("H5Pclose", "io_transfer", label)

    def hdf5_one(self, file, access, tag, dataset, call):
        """One variable of HDF5."""
        variable, n, what = access.variable, len(access.variable.dimensions), self.what(access)
        kind = TYPES[variable.type][4]
        self.put(f"hsize_t io_first[{n}], io_many[{n}], io_every[{n}];", 2)
        self.put(f"for (int io_k = 0; io_k < {n}; io_k++) {{", 2)
        self.put(f"io_first[io_k] = (hsize_t)io_start{tag}[io_k];", 3)
        self.put(f"io_many[io_k] = (hsize_t)io_count{tag}[io_k];", 3)
        self.put(f"io_every[io_k] = {f'(hsize_t)io_stride{tag}[io_k]' if access.stride else '1'};", 3)
        self.put("}", 2)
        if access.write and variable.record:
            stride = f"(io_count{tag}[0] - 1) * {f'io_stride{tag}[0]' if access.stride else '1'} + 1"
            self.put("/* The dataset grows to what the rank that reaches furthest writes. */", 2)
            self.put(f"hsize_t io_extent[{n}];", 2)
            self.put(f"MPI_Offset io_end = io_count{tag}[0] > 0 ? io_start{tag}[0] + {stride} : 0;", 2)
            self.mpi(
                "MPI_Allreduce",
                f"MPI_IN_PLACE, &io_end, 1, MPI_OFFSET, MPI_MAX, {file.communicator or 'MPI_COMM_WORLD'}",
                what,
                2,
            )
            self.h5("H5Dget_space", dataset, what, "hid_t io_old = ", 2)
            self.h5("H5Sget_simple_extent_dims", "io_old, io_extent, NULL", what, "", 2)
            self.h5("H5Sclose", "io_old", what, "", 2)
            self.put("if ((hsize_t)io_end > io_extent[0]) {", 2)
            self.put("io_extent[0] = (hsize_t)io_end;", 3)
            self.h5("H5Dset_extent", f"{dataset}, io_extent", what, "", 3)
            self.put("}", 2)
        self.h5("H5Dget_space", dataset, what, "hid_t io_space = ", 2)
        self.h5("H5Sselect_hyperslab", "io_space, H5S_SELECT_SET, io_first, io_every, io_many, NULL", what, "", 2)
        if not method.dense(access) and self.same_order(access):
            m = len(access.memory)
            self.put(f"hsize_t io_sizes[{m}], io_before[{m}], io_take[{m}];", 2)
            self.put(f"for (int io_k = 0; io_k < {m}; io_k++) {{", 2)
            for to, name in (("io_sizes", "io_size"), ("io_before", "io_guard"), ("io_take", "io_taken")):
                self.put(f"{to}[io_k] = (hsize_t){name}{tag}[io_k];", 3)
            self.put("}", 2)
            self.h5("H5Screate_simple", f"{m}, io_sizes, NULL", what, "hid_t io_selected = ", 2)
            self.h5("H5Sselect_hyperslab", "io_selected, H5S_SELECT_SET, io_before, NULL, io_take, NULL", what, "", 2)
        else:
            self.h5("H5Screate_simple", f"{n}, io_many, NULL", what, "hid_t io_selected = ", 2)

        def transfer(buffer):
            self.h5(call, f"{dataset}, {kind}, io_selected, io_space, io_transfer, {buffer}{tag}", what, "", 2)

        if method.dense(access) or self.same_order(access):
            transfer("io_buffer")
        else:
            self.put(
                "/* HDF5 walks file and memory each in its own order: the elements are collected in that of the file. */",
                2,
            )
            self.packed(access, tag, lambda: transfer("io_packed"))
        self.h5("H5Sclose", "io_selected", what, "", 2)
        self.h5("H5Sclose", "io_space", what, "", 2)

    # --- closing --------------------------------------------------------------------------------------------------

    def close(self, file):
        """In place of #close_file."""
        ident, what = f"io_{file.label}", f'"{file.label}"'
        self.start_block(f"{file.label} is closed")
        if self.level == "mpi-io":
            self.mpi("MPI_File_close", f"&{ident}", what, 0)
        elif self.level == "hdf5":
            for name in file.variables:
                self.h5("H5Dclose", f"{ident}_{name}", f'"{name} of {file.label}"', "", 0)
            self.h5("H5Fclose", ident, what, "", 0)
        else:
            self.netcdf("close", ident, what, 0)
        return self.end_block()
