/* Scalar pentadiagonal solver (NAS): all sweeps along k and j for shared-out columns.
 * Written for Penstock with the structure that the name stands for; the source's program is not public. */
#define N 64
#define T 16
double RHS[N][N][N], LHS[N][N][N];

void y_solve(void) {
    #pragma omp parallel for num_threads(T)
    for (int i = 0; i < N; i++)
        for (int k = 0; k < N; k++)
            for (int j = 2; j < N; j++)
                RHS[k][j][i] = RHS[k][j][i] - LHS[k][j][i] * RHS[k][j - 1][i] - RHS[k][j - 2][i];
}

void z_solve(void) {
    #pragma omp parallel for num_threads(T)
    for (int i = 0; i < N; i++)
        for (int j = 0; j < N; j++)
            for (int k = 2; k < N; k++)
                RHS[k][j][i] = RHS[k][j][i] - LHS[k][j][i] * RHS[k - 1][j][i] - RHS[k - 2][j][i];
}
