/* Coupled cluster, version 1: amplitudes by rows, tuned by hand.
 * Written for Penstock with the structure that the name stands for; the source's program is not public. */
#define N 512
#define T 16
double T2[N][N], V[N][N];

#pragma penstock repeat(2)
void amplitudes(void) {
    #pragma omp parallel for num_threads(T)
    for (int i = 0; i < N; i++)
        for (int j = 0; j < N; j++)
            T2[i][j] = T2[i][j] + V[i][j];
}
