/* Files: open, close and everything that is not a data access. */
#include "shim.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Open, close, delete ------------------------------------------------------------------------------------ */

/* Bits that this ABI does not define become one that no access mode has, so that every rank gets the error. */
static int amode_of(int amode) {
    static const struct {
        int theirs, ours;
    } bits[] = {{MPI_MODE_APPEND, PST_MODE_APPEND},
                {MPI_MODE_CREATE, PST_MODE_CREATE},
                {MPI_MODE_DELETE_ON_CLOSE, PST_MODE_DELETE_ON_CLOSE},
                {MPI_MODE_EXCL, PST_MODE_EXCL},
                {MPI_MODE_RDONLY, PST_MODE_RDONLY},
                {MPI_MODE_RDWR, PST_MODE_RDWR},
                {MPI_MODE_SEQUENTIAL, PST_MODE_SEQUENTIAL},
                {MPI_MODE_UNIQUE_OPEN, PST_MODE_UNIQUE_OPEN},
                {MPI_MODE_WRONLY, PST_MODE_WRONLY}};
    int out = 0;
    for (size_t i = 0; i < sizeof bits / sizeof *bits; i++) {
        if (amode & bits[i].theirs)
            out |= bits[i].ours;
        amode &= ~bits[i].theirs;
    }
    return amode ? out | PST_MODE_INVALID : out;
}

static void view_reset(struct file *file) {
    file->etype = MPI_BYTE;
    file->filetype = MPI_BYTE;
    file->datarep = NULL;
    snprintf(file->datarep_name, sizeof file->datarep_name, "native");
}

/* A datatype as MPI_File_get_view hands it out: predefined ones themselves, others a duplicate. */
static MPI_Datatype type_share(MPI_Datatype type) {
    MPI_Datatype out = type;
    if (!type_is_predefined(type))
        REAL(Type_dup)(type, &out);
    return out;
}

static void type_drop(MPI_Datatype *type) {
    if (mpi_usable() && !type_is_predefined(*type))
        REAL(Type_free)(type);
}

static int open_file(MPI_Comm comm, const char *filename, int amode, MPI_Info info, struct file **out) {
    struct file *file = calloc(1, sizeof *file);
    if (!file)
        return describe(PST_ERR_NO_MEM, "MPI_File_open: no memory");
    struct pst_open how = {.name = filename, .amode = amode_of(amode)};
    int error = comm_make(comm, &how.comm);
    if (error) {
        free(file);
        return error;
    }
    int initialized = 0;
    REAL(Initialized)(&initialized);
    if (initialized)
        REAL(Comm_rank)(MPI_COMM_WORLD, &how.world_rank);
    else
        REAL(Comm_rank)(comm, &how.world_rank);
    process_is(how.world_rank);
    process_world();
    pst_info *hints = info_from_mpi(info);
    how.info = hints;
    error = pst_file_open(&how, &file->file);
    pst_info_free(hints);
    if (error) {
        free(file);
        return error;
    }
    REAL(Comm_group)(comm, &file->group);
    file->amode = amode;
    view_reset(file);
    handler_inherit(&file->handler);
    *out = file;
    return PST_OK;
}

int shim_File_open(MPI_Comm comm, const char *filename, int amode, MPI_Info info, MPI_File *fh) {
    if (!filename || !pst_owns(filename))
        return REAL(File_open)(comm, filename, amode, info, fh);
    *fh = MPI_FILE_NULL;
    struct file *file = NULL;
    int error = open_file(comm, filename, amode, info, &file);
    if (!error) {
        error = handle_new(file);
        if (!error)
            *fh = file->handle;
    }
    return finish_null(error);
}

/* Closes and forgets; the error is the caller's to raise, with the handler that the file had. */
static int close_file(struct file *file) {
    int error = pst_file_close(file->file);
    handle_free(file->handle);
    type_drop(&file->etype);
    type_drop(&file->filetype);
    REAL(Group_free)(&file->group);
    return error;
}

int shim_File_close(MPI_File *handle) {
    MPI_File fh = *handle;
    struct file *file = handle_file(fh);
    if (!file)
        return handle_ours(fh) ? closed_handle("MPI_File_close") : REAL(File_close)(handle);
    int code = finish(file, close_file(file));
    handler_drop(&file->handler);
    free(file);
    *handle = MPI_FILE_NULL;
    return code;
}

void files_close_all(void) {
    struct file *file;
    while ((file = handle_first())) {
        close_file(file);
        handler_drop(&file->handler);
        free(file);
    }
}

int shim_File_delete(const char *filename, MPI_Info info) {
    if (!filename || !pst_owns(filename))
        return REAL(File_delete)(filename, info);
    process_world();
    pst_info *hints = info_from_mpi(info);
    int error = pst_file_delete(filename, hints);
    pst_info_free(hints);
    return finish_null(error);
}

/* ---- Sizes and properties ----------------------------------------------------------------------------------- */

int shim_File_set_size(MPI_File fh, MPI_Offset size) {
    FILE_OR_FORWARD(File_set_size, (fh, size));
    return finish(file, pst_file_set_size(file->file, size));
}

int shim_File_preallocate(MPI_File fh, MPI_Offset size) {
    FILE_OR_FORWARD(File_preallocate, (fh, size));
    return finish(file, pst_file_preallocate(file->file, size));
}

int shim_File_get_size(MPI_File fh, MPI_Offset *size) {
    FILE_OR_FORWARD(File_get_size, (fh, size));
    int64_t bytes = 0;
    int error = pst_file_size(file->file, &bytes);
    *size = bytes;
    return finish(file, error);
}

int shim_File_get_group(MPI_File fh, MPI_Group *group) {
    FILE_OR_FORWARD(File_get_group, (fh, group));
    return REAL(Group_excl)(file->group, 0, NULL, group);
}

int shim_File_get_amode(MPI_File fh, int *amode) {
    FILE_OR_FORWARD(File_get_amode, (fh, amode));
    *amode = file->amode;
    return MPI_SUCCESS;
}

int shim_File_set_info(MPI_File fh, MPI_Info info) {
    FILE_OR_FORWARD(File_set_info, (fh, info));
    pst_info *hints = info_from_mpi(info);
    int error = pst_file_set_info(file->file, hints);
    pst_info_free(hints);
    return finish(file, error);
}

int shim_File_get_info(MPI_File fh, MPI_Info *info) {
    FILE_OR_FORWARD(File_get_info, (fh, info));
    pst_info *hints;
    int error = pst_file_info(file->file, &hints);
    if (error)
        return finish(file, error);
    int code = info_to_mpi(hints, info);
    pst_info_free(hints);
    return code;
}

int shim_File_sync(MPI_File fh) {
    FILE_OR_FORWARD(File_sync, (fh));
    return finish(file, pst_file_sync(file->file));
}

int shim_File_set_atomicity(MPI_File fh, int flag) {
    FILE_OR_FORWARD(File_set_atomicity, (fh, flag));
    return finish(file, pst_file_set_atomicity(file->file, flag != 0));
}

int shim_File_get_atomicity(MPI_File fh, int *flag) {
    FILE_OR_FORWARD(File_get_atomicity, (fh, flag));
    return finish(file, pst_file_atomicity(file->file, flag));
}

/* ---- Views -------------------------------------------------------------------------------------------------- */

/* What the library is told of a view. */
struct view {
    const struct datarep *datarep;
    int representation;
    pst_type *etype, *filetype;
};

static int view_decode(const char *name, MPI_Datatype etype, MPI_Datatype filetype, struct view *out) {
    *out = (struct view){.representation = PST_NATIVE};
    if (!name || strlen(name) >= MPI_MAX_DATAREP_STRING)
        return describe(PST_ERR_ARG, "MPI_File_set_view: the name of the data representation is missing or too long");
    if (strcmp(name, "internal") == 0)
        out->representation = PST_INTERNAL;
    else if (strcmp(name, "external32") == 0)
        out->representation = PST_EXTERNAL32;
    else if (strcmp(name, "native") != 0 && !(out->datarep = datarep_find(name)))
        return describe(PST_ERR_UNSUPPORTED_DATAREP, "MPI_File_set_view: data representation `%s` is unknown; use "
                        "native, internal, external32 or one given to MPI_Register_datarep", name);
    int error = type_decode_committed(etype, out->datarep, &out->etype);
    return error ? error : type_decode_committed(filetype, out->datarep, &out->filetype);
}

int shim_File_set_view(MPI_File fh, MPI_Offset disp, MPI_Datatype etype, MPI_Datatype filetype, const char *datarep,
                       MPI_Info info) {
    FILE_OR_FORWARD(File_set_view, (fh, disp, etype, filetype, datarep, info));
    struct view view;
    pst_info *hints = info_from_mpi(info);
    int own = view_decode(datarep, etype, filetype, &view);
    int64_t displacement = disp == MPI_DISPLACEMENT_CURRENT ? PST_DISPLACEMENT_CURRENT : disp;
    /* The call is collective: a rank that cannot take part in earnest makes it fail everywhere. */
    int error = own ? pst_file_set_view(file->file, PST_DISPLACEMENT_INVALID, NULL, NULL, PST_NATIVE, hints)
                    : pst_file_set_view(file->file, displacement, view.etype, view.filetype, view.representation,
                                        hints);
    pst_info_free(hints);
    pst_type_free(view.etype);
    pst_type_free(view.filetype);
    if (own || error)
        return finish(file, own ? own : error);
    type_drop(&file->etype);
    type_drop(&file->filetype);
    file->etype = type_share(etype);
    file->filetype = type_share(filetype);
    file->datarep = view.datarep;
    snprintf(file->datarep_name, sizeof file->datarep_name, "%s", datarep);
    return MPI_SUCCESS;
}

int shim_File_get_view(MPI_File fh, MPI_Offset *disp, MPI_Datatype *etype, MPI_Datatype *filetype, char *datarep) {
    FILE_OR_FORWARD(File_get_view, (fh, disp, etype, filetype, datarep));
    *disp = pst_file_displacement(file->file);
    *etype = type_share(file->etype);
    *filetype = type_share(file->filetype);
    strcpy(datarep, file->datarep_name);
    return MPI_SUCCESS;
}

static int type_extent(struct file *file, MPI_Datatype type, int64_t *extent) {
    pst_type *decoded;
    int error = type_decode(type, file->datarep, &decoded);
    if (error)
        return error;
    if (file->datarep)
        *extent = pst_type_extent(decoded);
    else
        error = pst_file_type_extent(file->file, decoded, extent);
    pst_type_free(decoded);
    return error;
}

int shim_File_get_type_extent(MPI_File fh, MPI_Datatype type, MPI_Aint *extent) {
    FILE_OR_FORWARD(File_get_type_extent, (fh, type, extent));
    int64_t bytes = 0;
    int error = type_extent(file, type, &bytes);
    *extent = (MPI_Aint)bytes;
    return finish(file, error);
}

int shim_File_get_type_extent_c(MPI_File fh, MPI_Datatype type, MPI_Count *extent) {
    FILE_OR_FORWARD(File_get_type_extent_c, (fh, type, extent));
    int64_t bytes = 0;
    int error = type_extent(file, type, &bytes);
    *extent = bytes;
    return finish(file, error);
}

/* ---- Pointers ----------------------------------------------------------------------------------------------- */

static int whence_of(int whence) {
    return whence == MPI_SEEK_SET   ? PST_SEEK_SET
           : whence == MPI_SEEK_CUR ? PST_SEEK_CUR
           : whence == MPI_SEEK_END ? PST_SEEK_END
                                    : -1;
}

int shim_File_seek(MPI_File fh, MPI_Offset offset, int whence) {
    FILE_OR_FORWARD(File_seek, (fh, offset, whence));
    return finish(file, pst_file_seek(file->file, offset, whence_of(whence)));
}

int shim_File_seek_shared(MPI_File fh, MPI_Offset offset, int whence) {
    FILE_OR_FORWARD(File_seek_shared, (fh, offset, whence));
    return finish(file, pst_file_seek_shared(file->file, offset, whence_of(whence)));
}

int shim_File_get_position(MPI_File fh, MPI_Offset *offset) {
    FILE_OR_FORWARD(File_get_position, (fh, offset));
    int64_t etypes = 0;
    int error = pst_file_position(file->file, &etypes);
    *offset = etypes;
    return finish(file, error);
}

int shim_File_get_position_shared(MPI_File fh, MPI_Offset *offset) {
    FILE_OR_FORWARD(File_get_position_shared, (fh, offset));
    int64_t etypes = 0;
    int error = pst_file_position_shared(file->file, &etypes);
    *offset = etypes;
    return finish(file, error);
}

int shim_File_get_byte_offset(MPI_File fh, MPI_Offset offset, MPI_Offset *disp) {
    FILE_OR_FORWARD(File_get_byte_offset, (fh, offset, disp));
    int64_t bytes = 0;
    int error = pst_file_byte_offset(file->file, offset, &bytes);
    *disp = bytes;
    return finish(file, error);
}
