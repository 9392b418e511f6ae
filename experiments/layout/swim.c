/* Shallow water (SPEC OMP): three sweeps over 2-D grids in Fortran order, columns shared out.
 * Written for Penstock with the structure that the name stands for; the source's program is not public. */
#define N 512
#define T 16
double U[N][N], V[N][N], Q[N][N], CU[N][N], Z[N][N];

void calc1(void) {
    #pragma omp parallel for num_threads(T)
    for (int j = 1; j < N; j++)
        for (int i = 1; i < N; i++) {
            CU[i][j] = (Q[i][j] + Q[i - 1][j]) * U[i][j];
            Z[i][j] = V[i][j] - V[i][j - 1];
        }
}

void calc2(void) {
    #pragma omp parallel for num_threads(T)
    for (int j = 0; j < N - 1; j++)
        for (int i = 0; i < N - 1; i++) {
            U[i][j] = U[i][j] + Z[i + 1][j] * CU[i][j];
            V[i][j] = V[i][j] - Z[i][j + 1];
        }
}
