/* Lattice QCD (SPEC OMP): products by rows of one operand and columns of another.
 * Written for Penstock with the structure that the name stands for; the source's program is not public. */
#define N 512
#define T 16
double _Complex X[N][N], Y[N][N], G[N][N];

void gammul(void) {
    #pragma omp parallel for num_threads(T)
    for (int i = 0; i < N; i++)
        for (int j = 0; j < N; j++)
            Y[i][j] = X[i][j] + Y[i][j];
}

void muldag(void) {
    #pragma omp parallel for num_threads(T)
    for (int i = 0; i < N; i += 4)
        for (int j = 0; j < N; j++)
            X[i][j] = G[j][i];
}
