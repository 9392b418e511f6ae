"""C functions that generated code calls."""

# What generated code calls; each is written only where something needs it. name: (names that it needs, text)
HELPERS = {
    "io_stop": (
        [],
        """\
/* Ends all ranks: one that went on alone would leave the others waiting. */
static void io_stop(const char *call, const char *what, const char *why)
{
    int rank = -1;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    fprintf(stderr, "rank %d: %s: %s: %s\\n", rank, what, call, why);
    MPI_Abort(MPI_COMM_WORLD, 1);
    exit(1);
}
""",
    ),
    "io_mpi": (
        ["io_stop"],
        """\
static void io_mpi(int code, const char *call, const char *what)
{
    char why[MPI_MAX_ERROR_STRING + 1] = "";
    int length = 0;
    if (code == MPI_SUCCESS) return;
    MPI_Error_string(code, why, &length);
    io_stop(call, what, why);
}
""",
    ),
    "io_nc": (
        ["io_stop"],
        """\
static void io_nc(int code, const char *call, const char *what)
{
    if (code != NC_NOERR) io_stop(call, what, @strerror@(code));
}
""",
    ),
    "io_h5": (
        ["io_stop"],
        """\
/* HDF5 has written down its own reasons by then. */
static hid_t io_h5(hid_t result, const char *call, const char *what)
{
    if (result < 0) io_stop(call, what, "failed");
    return result;
}
""",
    ),
    "io_fits": (
        ["io_stop"],
        """\
/* Stops unless start, count and stride (NULL: 1) stay within `shape` (negative: unlimited). */
static void io_fits(const char *what, int n, const MPI_Offset *start, const MPI_Offset *count, const MPI_Offset *stride,
                    const MPI_Offset *shape)
{
    for (int k = 0; k < n; k++) {
        MPI_Offset step = stride ? stride[k] : 1;
        int bad = start[k] < 0 || count[k] < 0 || step < 1;
        if (!bad && shape[k] >= 0)
            bad = start[k] > shape[k] || (count[k] > 0 && (start[k] == shape[k] || count[k] - 1 > (shape[k] - 1 - start[k]) / step));
        if (bad) {
            char why[200];
            snprintf(why, sizeof why, "dimension %d (from 0): start %lld, count %lld, stride %lld; size %lld", k, (long long)start[k],
                     (long long)count[k], (long long)step, (long long)shape[k]);
            io_stop("sizes", what, why);
        }
    }
}
""",
    ),
    "io_steps": (
        ["io_stop"],
        """\
/* Bytes from an index to the next in each dimension of an array of `shape`; returns the bytes of all of it. */
static MPI_Offset io_steps(const char *what, int n, const MPI_Offset *shape, MPI_Offset element, MPI_Offset *step)
{
    MPI_Offset bytes = element;
    for (int k = n - 1; k >= 0; k--) {
        step[k] = bytes;
        if (shape[k] > 0 && bytes > (MPI_Offset)(LLONG_MAX / shape[k])) io_stop("sizes", what, "more than 2^63 bytes");
        bytes *= shape[k] > 0 ? shape[k] : 1;
    }
    return bytes;
}
""",
    ),
    "io_product": (
        [],
        """\
static MPI_Offset io_product(int n, const MPI_Offset *count)
{
    MPI_Offset all = 1;
    for (int k = 0; k < n; k++) all *= count[k];
    return all;
}
""",
    ),
    "io_dot": (
        [],
        """\
static MPI_Offset io_dot(int n, const MPI_Offset *index, const MPI_Offset *step)
{
    MPI_Offset sum = 0;
    for (int k = 0; k < n; k++) sum += index[k] * step[k];
    return sum;
}
""",
    ),
    "io_box": (
        ["io_mpi", "io_stop", "io_product"],
        """\
/* A datatype of count[0] x count[1] x ... elements, `step` bytes apart in each dimension. Of none: one element. */
static MPI_Datatype io_box(const char *what, int n, const MPI_Offset *count, const MPI_Offset *step, MPI_Datatype element)
{
    MPI_Datatype type, outer;
    int some = io_product(n, count) > 0;
    io_mpi(MPI_Type_dup(element, &type), "MPI_Type_dup", what);
    for (int k = n - 1; some && k >= 0; k--) {
        if (count[k] == 1) continue;
        if (count[k] > INT_MAX) io_stop("sizes", what, "a count of more than 2^31 - 1 in one dimension: split that dimension into two");
        io_mpi(MPI_Type_create_hvector((int)count[k], 1, (MPI_Aint)step[k], type, &outer), "MPI_Type_create_hvector", what);
        io_mpi(MPI_Type_free(&type), "MPI_Type_free", what);
        type = outer;
    }
    io_mpi(MPI_Type_commit(&type), "MPI_Type_commit", what);
    return type;
}
""",
    ),
    "io_join": (
        ["io_mpi"],
        """\
/* One datatype of several, each at its place; those that are not `some` are left out. Frees them. */
static MPI_Datatype io_join(const char *what, int n, const int *some, const MPI_Aint *at, MPI_Datatype *types)
{
    MPI_Datatype type;
    int any = 0;
    for (int k = 0; k < n; k++) any |= some[k];
    if (any) io_mpi(MPI_Type_create_struct(n, some, at, types, &type), "MPI_Type_create_struct", what);
    else io_mpi(MPI_Type_dup(MPI_BYTE, &type), "MPI_Type_dup", what);
    io_mpi(MPI_Type_commit(&type), "MPI_Type_commit", what);
    for (int k = 0; k < n; k++) io_mpi(MPI_Type_free(&types[k]), "MPI_Type_free", what);
    return type;
}
""",
    ),
    "io_moved": (
        ["io_mpi", "io_stop"],
        """\
/* A read beyond the end of a file, or a full file system, moves less. */
static void io_moved(const char *what, const char *call, MPI_Status *status, MPI_Datatype type, MPI_Offset elements)
{
    MPI_Count moved = 0;
    char why[120];
    if (elements > 0) io_mpi(MPI_Get_elements_x(status, type, &moved), "MPI_Get_elements_x", what);
    if (moved == elements) return;
    snprintf(why, sizeof why, "%lld of %lld elements moved: the file is shorter, or the file system is full", (long long)moved,
             (long long)elements);
    io_stop(call, what, why);
}
""",
    ),
    "io_memory": (
        ["io_mpi", "io_steps", "io_box"],
        """\
/* Copies elements between memory with gaps and memory without, on this rank. */
static void io_memory(const char *what, const void *from, MPI_Datatype from_type, void *to, MPI_Datatype to_type)
{
    io_mpi(MPI_Sendrecv(from, 1, from_type, 0, 0, to, 1, to_type, 0, 0, MPI_COMM_SELF, MPI_STATUS_IGNORE), "MPI_Sendrecv", what);
}
""",
    ),
    "io_allocate": (
        ["io_stop"],
        """\
static void *io_allocate(const char *what, MPI_Offset bytes)
{
    void *memory = malloc(bytes > 0 ? (size_t)bytes : 1);
    if (!memory) io_stop("malloc", what, "no memory to collect the elements in");
    return memory;
}
""",
    ),
    "io_expect": (
        ["io_stop"],
        """\
/* What a file that exists has has to be what the program declares (negative: unlimited). */
static void io_expect(const char *what, int n, MPI_Offset found, MPI_Offset wanted)
{
    char why[160];
    if (wanted < 0 || found == wanted) return;
    snprintf(why, sizeof why, "dimension %d (from 0) has %lld elements in the file, the program declares %lld", n, (long long)found,
             (long long)wanted);
    io_stop("sizes", what, why);
}
""",
    ),
}
