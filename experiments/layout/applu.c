/* SSOR solver (SPEC OMP): lower and upper sweeps along k for shared-out columns.
 * Written for Penstock with the structure that the name stands for; the source's program is not public. */
#define N 64
#define T 16
double U[N][N][N], RSD[N][N][N], A[N][N][N];

void lower(void) {
    #pragma omp parallel for num_threads(T)
    for (int i = 0; i < N; i++)
        for (int j = 0; j < N; j++)
            for (int k = 1; k < N; k++)
                RSD[k][j][i] = RSD[k][j][i] - A[k][j][i] * RSD[k - 1][j][i];
}

void upper(void) {
    #pragma omp parallel for num_threads(T)
    for (int i = 0; i < N; i++)
        for (int j = 0; j < N; j++)
            for (int k = 0; k < N - 1; k++)
                U[k][j][i] = U[k][j][i] + RSD[k + 1][j][i];
}
