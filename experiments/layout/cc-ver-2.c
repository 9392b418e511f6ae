/* Coupled cluster, version 2: amplitudes by rows, and one contraction by columns.
 * Written for Penstock with the structure that the name stands for; the source's program is not public. */
#define N 512
#define T 16
double T2[N][N], V[N][N], W[N][N];

void amplitudes(void) {
    #pragma omp parallel for num_threads(T)
    for (int i = 0; i < N; i++)
        for (int j = 0; j < N; j++)
            T2[i][j] = T2[i][j] + V[i][j];
}

void contraction(void) {
    #pragma omp parallel for num_threads(T)
    for (int j = 0; j < N; j += 8)
        for (int i = 0; i < N; i++)
            W[i][j] = W[i][j] + 1;
}
