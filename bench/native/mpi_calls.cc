// Calls of one MPI, under its own launcher: timing.h says which.
#include <mpi.h>

#include "timing.h"

namespace {

class MpiRanks {
 public:
  MpiRanks() {
    MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
    MPI_Comm_size(MPI_COMM_WORLD, &size_);
  }
  [[nodiscard]] int rank() const { return rank_; }
  [[nodiscard]] int size() const { return size_; }
  void barrier() { MPI_Barrier(MPI_COMM_WORLD); }
  void all_reduce(const float* in, float* out, size_t count) {
    MPI_Allreduce(in, out, static_cast<int>(count), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  }
  /// With the other one of two ranks.
  void exchange(const float* in, float* out, size_t count) {
    MPI_Sendrecv(in, static_cast<int>(count), MPI_FLOAT, 1 - rank_, 0, out, static_cast<int>(count),
                 MPI_FLOAT, 1 - rank_, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  }
  void slowest(double* values, size_t count) {
    MPI_Allreduce(MPI_IN_PLACE, values, static_cast<int>(count), MPI_DOUBLE, MPI_MAX,
                  MPI_COMM_WORLD);
  }

 private:
  int rank_ = 0, size_ = 1;
};

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  MpiRanks ranks;
  const int status = bench::measure_calls(ranks, argc, argv);
  MPI_Finalize();
  return status;
}
