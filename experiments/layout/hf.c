/* Hartree-Fock: each iteration reads the integrals, stored by rows, in columns.
 * Written for Penstock with the structure that the name stands for; the source's program is not public. */
#define N 512
#define T 16
double G[N][N], F[N][N], D[N][N];

#pragma penstock repeat(2)
void fock(void) {
    #pragma omp parallel for num_threads(T)
    for (int q = 0; q < N; q++)
        for (int p = 0; p < N; p++)
            F[p][q] = F[p][q] + G[p][q] * D[p][q];
}
