"""MPI datatypes over a re-laid file: a program reads and writes sections by the array's own subscripts.

MPI wants the displacements of a file view in ascending order. So a section becomes two datatypes. The filetype has the
section's offsets in ascending order, the memory datatype has the elements in the same order. A program that sets this
view and passes (buffer, 1, memtype) finds the elements in its buffer as if the file had C order.
"""

import numpy as np

from .emit import emit
from .errors import LayoutError

#: Elements of one section.
MOST_ELEMENTS = 1 << 27


def blocks(layout, start, count):
    """(places in the file, places in memory, lengths) of a section's contiguous pieces, in elements, ascending in the file."""
    if len(start) != len(layout.shape) or len(count) != len(layout.shape):
        raise LayoutError(f"{layout.array} has {len(layout.shape)} dimensions", "give start and count for each of them")
    for d, (s, c, n) in enumerate(zip(start, count, layout.shape, strict=True)):
        if s < 0 or c < 0 or s + c > n:
            raise LayoutError(f"dimension {d}: {c} from {s} leaves 0 to {n}", "choose a section within the array")
    elements = int(np.prod([int(c) for c in count], dtype=object))
    if elements > MOST_ELEMENTS:
        raise LayoutError(f"a section of {elements} elements; at most {MOST_ELEMENTS}", "read it in parts")
    here = np.arange(elements, dtype=np.int64)
    if not elements:
        return here, here, here
    index = np.unravel_index(here, count)
    place = layout.position([i + s for i, s in zip(index, start, strict=True)])
    memory = np.argsort(place, kind="stable")
    place = place[memory]
    new = np.concatenate([[True], (np.diff(place) != 1) | (np.diff(memory) != 1)])
    firsts = np.flatnonzero(new)
    return place[firsts], memory[firsts], np.diff(np.append(firsts, elements))


def types(layout, start, count, element):
    """Committed (filetype, memtype) of mpi4py for a section; `element` is the MPI datatype of one element."""
    from mpi4py import MPI

    if element.Get_size() != layout.item:
        raise LayoutError(
            f"an MPI datatype of {element.Get_size()} bytes for elements of {layout.item}", "pass its own"
        )
    place, memory, lengths = blocks(layout, start, count)
    made = []
    for displacements in (place, memory):
        displacements = (displacements * layout.item).tolist()
        made.append(MPI.Datatype.Create_hindexed(element, lengths.tolist(), displacements).Commit())
    return tuple(made)


C = """
#include <mpi.h>
#include <stdlib.h>

/* What a section of @A@ is made of: an element's place in the file and in memory. */
typedef struct {
    int64_t file, memory;
} @A@_place;

static int @A@_by_file(const void *a, const void *b) {
    int64_t x = ((const @A@_place *)a)->file, y = ((const @A@_place *)b)->file;
    return (x > y) - (x < y);
}

/* Datatypes of the section of @A@ (@SHAPE@) from start[], count[] elements long: set the filetype as view with the
 * etype `element` (@ITEM@ bytes), and read or write (buffer, 1, *memtype). The buffer holds the section in C order. */
static inline int @A@_view(const int64_t start[@D@], const int64_t count[@D@], MPI_Datatype element,
                           MPI_Datatype *filetype, MPI_Datatype *memtype) {
    static const int64_t shape[@D@] = {@LIST@};
    int64_t n = 1;
    for (int d = 0; d < @D@; d++) {
        if (start[d] < 0 || count[d] < 1 || count[d] > shape[d] - start[d])
            return MPI_ERR_ARG;
        n *= count[d];
    }
    if (n > @MOST@)
        return MPI_ERR_ARG;
    @A@_place *places = malloc((size_t)n * sizeof *places);
    MPI_Aint *file = malloc((size_t)n * sizeof *file), *memory = malloc((size_t)n * sizeof *memory);
    int *length = malloc((size_t)n * sizeof *length);
    int64_t runs = 0;
    int error = places && file && memory && length ? MPI_SUCCESS : MPI_ERR_NO_MEM;
    if (!error) {
        for (int64_t k = 0; k < n; k++) {
            int64_t rest = k, i[@D@];
            for (int d = @D@ - 1; d >= 0; d--) {
                i[d] = start[d] + rest % count[d];
                rest /= count[d];
            }
            places[k] = (@A@_place){@A@_at(@ARGS@), k};
        }
        qsort(places, (size_t)n, sizeof *places, @A@_by_file);
        for (int64_t k = 0; k < n; k++) {
            if (k && places[k].file == places[k - 1].file + 1 && places[k].memory == places[k - 1].memory + 1) {
                length[runs - 1]++;
            } else {
                file[runs] = (MPI_Aint)(places[k].file * @ITEM@);
                memory[runs] = (MPI_Aint)(places[k].memory * @ITEM@);
                length[runs++] = 1;
            }
        }
        error = MPI_Type_create_hindexed((int)runs, length, file, element, filetype);
        if (!error)
            error = MPI_Type_create_hindexed((int)runs, length, memory, element, memtype);
        if (!error)
            error = MPI_Type_commit(filetype);
        if (!error)
            error = MPI_Type_commit(memtype);
    }
    free(places);
    free(file);
    free(memory);
    free(length);
    return error;
}
"""


def emit_view(layouts):
    """A header of C with NAME_at and NAME_view for each array."""
    text = emit(layouts, "c")
    for layout in layouts:
        dims = len(layout.shape)
        values = {
            "A": layout.array, "D": dims, "ITEM": layout.item, "MOST": MOST_ELEMENTS,
            "SHAPE": " x ".join(map(str, layout.shape)), "LIST": ", ".join(map(str, layout.shape)),
            "ARGS": ", ".join(f"i[{d}]" for d in range(dims)),
        }  # fmt: skip
        body = C
        for key, value in values.items():
            body = body.replace(f"@{key}@", str(value))
        text += body
    return text
