/* Forest model: stands (columns) through years (rows).
 * Written for Penstock with the structure that the name stands for; the source's program is not public. */
#define N 512
#define T 16
double STAND[N][N], GROWTH[N][N];

void years(void) {
    #pragma omp parallel for num_threads(T)
    for (int s = 0; s < N; s++)
        for (int y = 1; y < N; y++)
            STAND[y][s] = STAND[y - 1][s] + GROWTH[y][s];
}
