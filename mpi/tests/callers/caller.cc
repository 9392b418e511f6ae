// C++ calling the C interface, as C++ programs do since MPI 3.
#include <mpi.h>

#include <cstdio>
#include <numeric>
#include <stdexcept>
#include <string>
#include <vector>

static void check(bool good, const char *what) {
    if (!good)
        throw std::runtime_error(what);
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    int rank;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    try {
        std::string name = std::string(argv[1]) + "/caller";
        MPI_File file;
        check(MPI_File_open(MPI_COMM_WORLD, name.c_str(), MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &file) ==
                  MPI_SUCCESS,
              "open");
        std::vector<double> out(1000), in(1000);
        std::iota(out.begin(), out.end(), rank * 1e6);
        MPI_Status status;
        check(MPI_File_write_at_all(file, MPI_Offset(rank) * 8000, out.data(), 1000, MPI_DOUBLE, &status) ==
                  MPI_SUCCESS,
              "write");
        check(MPI_File_read_at_all(file, MPI_Offset(rank) * 8000, in.data(), 1000, MPI_DOUBLE, &status) == MPI_SUCCESS,
              "read");
        check(in == out, "data");
        check(MPI_File_close(&file) == MPI_SUCCESS, "close");
    } catch (const std::exception &e) {
        std::fprintf(stderr, "rank %d: failed: %s\n", rank, e.what());
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    if (rank == 0)
        std::puts("ok caller");
    MPI_Finalize();
}
