/* Sequence search: each worker reads fragments of the database and writes its results one after the other.
 * Written for Penstock with the structure that the name stands for; the source's program is not public. */
#define Q 64
#define N 4096
#define T 16
double DB[Q][N], OUT[Q][N];

void search(void) {
    #pragma omp parallel for num_threads(T)
    for (int q = 0; q < Q; q++)
        for (int k = 0; k < N; k++)
            OUT[q][k] = DB[q][k];
}
