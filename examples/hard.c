/* The "hard" pattern of IO500: records of 47,008 bytes, interleaved by rank.
 *
 * Record s of rank r stands at byte (s * ranks + r) * 47008, so that no record is aligned with anything. Each rank
 * writes 512 records through a strided view, all in one collective call or `--per-call` records at a time. It reads
 * them back in the same way.
 *
 * Source: IO500, ior-hard; IOR with transfer = block = 47008 bytes.
 */
#include "common.h"

enum { RECORD = 47008, RECORDS = 512 };

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &world_rank);
    MPI_Comm_size(MPI_COMM_WORLD, &world_size);
    struct options o = parse(argc, argv, "multiplies the number of records");
    static struct times t;

    int records = scaled(RECORDS, o.scale, 1);
    int per_call = o.per_call > 0 && o.per_call < records ? o.per_call : records;
    if ((long long)records * RECORD > INT32_MAX) fail("more than 2^31-1 bytes a rank; use a smaller --scale", MPI_SUCCESS);
    size_t bytes = (size_t)records * RECORD;
    unsigned char *memory = allocate(bytes);

    MPI_Datatype record, view;
    CHECK(MPI_Type_contiguous(RECORD, MPI_BYTE, &record));
    CHECK(MPI_Type_create_resized(record, 0, (MPI_Aint)RECORD * world_size, &view));
    CHECK(MPI_Type_commit(&record));
    CHECK(MPI_Type_commit(&view));
    MPI_Offset first = (MPI_Offset)RECORD * world_rank;

    if (o.write) {
        MPI_File file = open_file(&o, MPI_MODE_CREATE | MPI_MODE_WRONLY);
        CHECK(MPI_File_set_view(file, first, record, view, "native", o.info));
        for (int r = 0; r < o.repetitions; r++) {
            for (int s = 0; s < records; s++)
                fill(memory + (size_t)s * RECORD, ((uint64_t)s * (uint64_t)world_size + (uint64_t)world_rank) * RECORD,
                     RECORD, (uint64_t)r);
            double start = start_clock();
            for (int s = 0; s < records; s += per_call) {
                int n = records - s < per_call ? records - s : per_call;
                unsigned char *from = memory + (size_t)s * RECORD;
                MPI_Status status;
                if (o.independent) CHECK(MPI_File_write_at(file, s, from, n, record, &status));
                else CHECK(MPI_File_write_at_all(file, s, from, n, record, &status));
                expect_bytes(&status, (MPI_Count)n * RECORD);
            }
            if (o.sync) CHECK(MPI_File_sync(file));
            t.write[r] = stop_clock(start);
        }
        CHECK(MPI_File_close(&file));
    }

    uint64_t bad = 0;
    if (o.read) {
        MPI_File file = open_file(&o, MPI_MODE_RDONLY);
        CHECK(MPI_File_set_view(file, first, record, view, "native", o.info));
        for (int r = 0; r < o.repetitions; r++) {
            memset(memory, 0xEE, bytes);
            double start = start_clock();
            for (int s = 0; s < records; s += per_call) {
                int n = records - s < per_call ? records - s : per_call;
                unsigned char *into = memory + (size_t)s * RECORD;
                MPI_Status status;
                if (o.independent) CHECK(MPI_File_read_at(file, s, into, n, record, &status));
                else CHECK(MPI_File_read_at_all(file, s, into, n, record, &status));
                expect_bytes(&status, (MPI_Count)n * RECORD);
            }
            t.read[r] = stop_clock(start);
        }
        CHECK(MPI_File_close(&file));
        if (o.verify)
            for (int s = 0; s < records; s++)
                bad += wrong(memory + (size_t)s * RECORD,
                             ((uint64_t)s * (uint64_t)world_size + (uint64_t)world_rank) * RECORD, RECORD,
                             (uint64_t)o.repetitions - 1);
    }

    int code = report("hard", &o, bytes, bytes, (uint64_t)records, &t, bad);
    MPI_Type_free(&view);
    MPI_Type_free(&record);
    free(memory);
    MPI_Info_free(&o.info);
    MPI_Finalize();
    return code;
}
