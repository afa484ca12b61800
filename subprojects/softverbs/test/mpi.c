/* SPDX-License-Identifier: Apache-2.0 */
/* For programs.sh: performs typical operations of MPI programs between two or more ranks. Prints
 * "done" if all results are correct. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { largest = 1 << 20, rounds = 3 };

static int rank;
static int size;

static void expect(int holds, const char* what) {
  if (holds) return;
  fprintf(stderr, "rank %d: %s\n", rank, what);
  MPI_Abort(MPI_COMM_WORLD, 1);
}

static void messages(void) {
  const int next = (rank + 1) % size;
  const int before = (rank + size - 1) % size;
  unsigned char* out = malloc(largest);
  unsigned char* in = malloc(largest);
  expect(out != NULL && in != NULL, "no memory");
  for (int length = 0; length <= largest; length = length == 0 ? 1 : length * 8) {
    memset(out, rank + 1, (size_t)length);
    memset(in, 0, largest);
    MPI_Status status;
    int received = -1;
    MPI_Sendrecv(out, length, MPI_BYTE, next, length, in, largest, MPI_BYTE, before, length,
                 MPI_COMM_WORLD, &status);
    MPI_Get_count(&status, MPI_BYTE, &received);
    expect(received == length, "a message has the wrong length");
    for (int at = 0; at < length; ++at) expect(in[at] == before + 1, "a message has wrong bytes");
  }
  free(out);
  free(in);
}

static void collectives(void) {
  enum { numbers = 10000 };
  double* mine = malloc(numbers * sizeof(*mine));
  double* sum = malloc(numbers * sizeof(*sum));
  expect(mine != NULL && sum != NULL, "no memory");
  for (int at = 0; at < numbers; ++at) mine[at] = rank + at;
  MPI_Allreduce(mine, sum, numbers, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
  for (int at = 0; at < numbers; ++at)
    expect(sum[at] == (double)at * size + size * (size - 1) / 2.0, "a sum is wrong");
  MPI_Barrier(MPI_COMM_WORLD);
  free(mine);
  free(sum);
}

static void one_sided(void) {
  enum { numbers = 1000 };
  long* shown = NULL;
  MPI_Win window;
  MPI_Win_allocate(numbers * (MPI_Aint)sizeof(*shown), sizeof(*shown), MPI_INFO_NULL,
                   MPI_COMM_WORLD, &shown, &window);
  for (int at = 0; at < numbers; ++at) shown[at] = 0;
  const int next = (rank + 1) % size;
  long own[numbers];
  long seen[numbers];
  for (int at = 0; at < numbers; ++at) own[at] = 1000L * rank + at;
  MPI_Win_fence(0, window);
  MPI_Put(own, numbers, MPI_LONG, next, 0, numbers, MPI_LONG, window);
  MPI_Win_fence(0, window);
  const int before = (rank + size - 1) % size;
  for (int at = 0; at < numbers; ++at)
    expect(shown[at] == 1000L * before + at, "data of a put is wrong");
  MPI_Get(seen, numbers, MPI_LONG, next, 0, numbers, MPI_LONG, window);
  MPI_Win_fence(0, window);
  for (int at = 0; at < numbers; ++at) expect(seen[at] == own[at], "data of a get is wrong");
  if (rank == 0) shown[0] = 0;
  MPI_Win_fence(0, window);
  const long one = 1;
  long was = -1;
  MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, window);
  MPI_Fetch_and_op(&one, &was, MPI_LONG, 0, 0, MPI_SUM, window);
  MPI_Win_unlock(0, window);
  expect(was >= 0 && was < size, "a fetched number is wrong");
  MPI_Win_fence(0, window);
  if (rank == 0) expect(shown[0] == size, "a counter is wrong");
  MPI_Win_free(&window);
}

int main(int count, char** arguments) {
  MPI_Init(&count, &arguments);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  for (int round = 0; round < rounds; ++round) {
    messages();
    collectives();
    one_sided();
  }
  if (rank == 0) puts("done");
  MPI_Finalize();
  return 0;
}
