/* Lattice QCD I/O: sites stored by x first, time slices shared out.
 * Written for Penstock with the structure that the name stands for; the source's program is not public. */
#define N 32
#define L 8
#define T 16
double SITE[L][N][N][N], LINK[L][N][N][N];

void slices(void) {
    #pragma omp parallel for num_threads(T)
    for (int t = 0; t < N; t++)
        for (int z = 0; z < N; z++)
            for (int y = 0; y < N; y++)
                for (int x = 0; x < L; x++)
                    SITE[x][y][z][t] = LINK[x][y][z][t];
}
