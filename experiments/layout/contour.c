/* Contour displaying: planes of a volume in turn, and one direction across them.
 * Written for Penstock with the structure that the name stands for; the source's program is not public. */
#define N 64
#define T 16
float VOL[N][N][N], ISO[N][N][N], CUT[N][N][N];

void planes(void) {
    #pragma omp parallel for num_threads(T)
    for (int z = 0; z < N - 1; z++)
        for (int y = 0; y < N; y++)
            for (int x = 0; x < N; x++)
                ISO[z][y][x] = VOL[z][y][x] + VOL[z + 1][y][x];
}

void across(void) {
    #pragma omp parallel for num_threads(T)
    for (int x = 0; x < N; x += 2)
        for (int y = 0; y < N; y += 4)
            for (int z = 0; z < N; z++)
                CUT[z][y][x] = CUT[z][y][x] + 1;
}
