/* Tile reader: a wall of displays, each rank reads the part of the frame that its display shows.
 *
 * Each tile is 1024 x 768 pixels of 3 bytes; neighbours overlap by 270 columns and 128 rows. With 6 ranks
 * (3 x 2 tiles) a frame is 2532 x 1408 pixels, 10.2 MiB. The ranks first write the frames contiguously, each its
 * share. Then each reads its tile of one frame after the other through a two-dimensional subarray view, all at
 * once. One repetition is one frame.
 *
 * Source: A. Ching and others, Evaluating Structured I/O Methods for Parallel File Systems, section V.B.
 */
#include "common.h"

enum { PIXEL = 3, WIDTH = 1024, HEIGHT = 768, OVERLAP_X = 270, OVERLAP_Y = 128 };

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &world_rank);
    MPI_Comm_size(MPI_COMM_WORLD, &world_size);
    struct options o = parse(argc, argv, "multiplies width and height of a tile");
    static struct times t;

    int tiles[2] = {0, 0}; /* across, down */
    MPI_Dims_create(world_size, 2, tiles);
    int width = scaled(WIDTH, o.scale, 4), height = scaled(HEIGHT, o.scale, 4);
    int overlap_x = (int)(OVERLAP_X * o.scale), overlap_y = (int)(OVERLAP_Y * o.scale);
    int frame_x = tiles[0] * width - (tiles[0] - 1) * overlap_x;
    int frame_y = tiles[1] * height - (tiles[1] - 1) * overlap_y;
    uint64_t row = (uint64_t)frame_x * PIXEL, frame = row * (uint64_t)frame_y;
    int left = world_rank % tiles[0] * (width - overlap_x);
    int top = world_rank / tiles[0] * (height - overlap_y);
    size_t tile = (size_t)width * (size_t)height * PIXEL;
    unsigned char *pixels = allocate(tile);
    uint64_t first = frame * (uint64_t)world_rank / (uint64_t)world_size;
    uint64_t share = frame * ((uint64_t)world_rank + 1) / (uint64_t)world_size - first;

    if (o.write) {
        unsigned char *part = allocate(share);
        MPI_File file = open_file(&o, MPI_MODE_CREATE | MPI_MODE_WRONLY);
        for (int r = 0; r < o.repetitions; r++) {
            uint64_t at = (uint64_t)r * frame + first;
            MPI_Status status;
            fill(part, at, share, 1);
            double start = start_clock();
            if (o.independent) CHECK(MPI_File_write_at(file, (MPI_Offset)at, part, (int)share, MPI_BYTE, &status));
            else CHECK(MPI_File_write_at_all(file, (MPI_Offset)at, part, (int)share, MPI_BYTE, &status));
            if (o.sync) CHECK(MPI_File_sync(file));
            t.write[r] = stop_clock(start);
            expect_bytes(&status, (MPI_Count)share);
        }
        CHECK(MPI_File_close(&file));
        free(part);
    }

    uint64_t bad = 0;
    if (o.read) {
        int sizes[2] = {frame_y, frame_x * PIXEL}, sub[2] = {height, width * PIXEL}, starts[2] = {top, left * PIXEL};
        MPI_Datatype view;
        CHECK(MPI_Type_create_subarray(2, sizes, sub, starts, MPI_ORDER_C, MPI_BYTE, &view));
        CHECK(MPI_Type_commit(&view));
        MPI_File file = open_file(&o, MPI_MODE_RDONLY);
        for (int r = 0; r < o.repetitions; r++) {
            MPI_Status status;
            CHECK(MPI_File_set_view(file, (MPI_Offset)((uint64_t)r * frame), MPI_BYTE, view, "native", o.info));
            memset(pixels, 0xEE, tile);
            double start = start_clock();
            if (o.independent) CHECK(MPI_File_read(file, pixels, (int)tile, MPI_BYTE, &status));
            else CHECK(MPI_File_read_all(file, pixels, (int)tile, MPI_BYTE, &status));
            t.read[r] = stop_clock(start);
            expect_bytes(&status, (MPI_Count)tile);
            if (o.verify) {
                size_t line = (size_t)width * PIXEL;
                for (int y = 0; y < height; y++)
                    bad += wrong(pixels + (size_t)y * line,
                                 (uint64_t)r * frame + (uint64_t)(top + y) * row + (uint64_t)left * PIXEL, line, 1);
            }
        }
        CHECK(MPI_File_close(&file));
        MPI_Type_free(&view);
    }

    int code = report("tile", &o, share, tile, (uint64_t)height, &t, bad);
    free(pixels);
    MPI_Info_free(&o.info);
    MPI_Finalize();
    return code;
}
