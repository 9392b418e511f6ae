/* Multigrid (SPEC OMP): relaxation by planes, with transfers between grids whose columns are shared out.
 * Written for Penstock with the structure that the name stands for; the source's program is not public. */
#define N 64
#define T 16
double U[N][N][N], R[N][N][N], C[N][N][N];

void relax(void) {
    #pragma omp parallel for num_threads(T)
    for (int k = 1; k < N - 1; k++)
        for (int j = 1; j < N - 1; j++)
            for (int i = 1; i < N - 1; i++)
                R[k][j][i] = U[k][j][i] + U[k - 1][j][i] + U[k + 1][j][i];
}

void transfer(void) {
    #pragma omp parallel for num_threads(T)
    for (int i = 0; i < N; i++)
        for (int k = 0; k < N; k++)
            for (int j = 0; j < N; j += 4)
                C[k][j][i] = C[k][j][i] + 1;
}
