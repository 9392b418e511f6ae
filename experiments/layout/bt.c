/* Block tridiagonal solver (NAS): sweeps in x and y by planes, the sweep in z by shared-out rows.
 * Written for Penstock with the structure that the name stands for; the source's program is not public. */
#define N 64
#define T 16
double U[N][N][N], LHS[N][N][N], RHS[N][N][N];

void x_solve(void) {
    #pragma omp parallel for num_threads(T)
    for (int k = 0; k < N; k++)
        for (int j = 0; j < N; j++)
            for (int i = 1; i < N; i++)
                RHS[k][j][i] = RHS[k][j][i] - RHS[k][j][i - 1] * U[k][j][i];
}

void y_solve(void) {
    #pragma omp parallel for num_threads(T)
    for (int k = 0; k < N; k++)
        for (int j = 1; j < N; j++)
            for (int i = 0; i < N; i++)
                RHS[k][j][i] = RHS[k][j][i] - RHS[k][j - 1][i] * U[k][j][i];
}

void z_solve(void) {
    #pragma omp parallel for num_threads(T)
    for (int j = 0; j < N; j++)
        for (int i = 0; i < N; i += 8)
            for (int k = 1; k < N; k++)
                LHS[k][j][i] = LHS[k][j][i] - LHS[k - 1][j][i];
}
