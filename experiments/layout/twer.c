/* Conflicting requests: the same array by rows and by columns, equally often, in turn.
 * Written for Penstock with the structure that the name stands for; the source's program is not public. */
#define N 256
#define T 16
double A[N][N];

#pragma penstock repeat(2)
void both(void) {
    #pragma omp parallel for num_threads(T)
    for (int i = 0; i < N; i++)
        for (int j = 0; j < N; j++)
            A[i][j] = A[i][j] + 1;
    #pragma omp parallel for num_threads(T)
    for (int j = 0; j < N; j++)
        for (int i = 0; i < N; i++)
            A[i][j] = A[i][j] + 1;
}
