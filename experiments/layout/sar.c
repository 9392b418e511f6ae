/* Synthetic aperture radar: range compression by rows, then azimuth compression by columns.
 * Written for Penstock with the structure that the name stands for; the source's program is not public. */
#define N 512
#define T 16
float _Complex RAW[N][N], IMG[N][N];

void range(void) {
    #pragma omp parallel for num_threads(T)
    for (int i = 0; i < N; i += 4)
        for (int j = 0; j < N; j++)
            RAW[i][j] = RAW[i][j] + 1;
}

void azimuth(void) {
    #pragma omp parallel for num_threads(T)
    for (int j = 0; j < N; j++)
        for (int i = 0; i < N; i++)
            IMG[i][j] = RAW[i][j];
}
