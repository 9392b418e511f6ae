/* Astrophysics: cells by rows, and a table of rays by columns.
 * Written for Penstock with the structure that the name stands for; the source's program is not public. */
#define N 512
#define T 16
double RHO[N][N], VEL[N][N], RAY[N][N];

void hydro(void) {
    #pragma omp parallel for num_threads(T)
    for (int i = 1; i < N; i++)
        for (int j = 0; j < N; j++)
            RHO[i][j] = RHO[i - 1][j] + VEL[i][j];
}

void rays(void) {
    #pragma omp parallel for num_threads(T)
    for (int j = 0; j < N; j += 8)
        for (int i = 0; i < N; i++)
            RAY[i][j] = RAY[i][j] + 1;
}
