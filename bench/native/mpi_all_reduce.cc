// All-reduces of one MPI, under its own launcher: mpi_all_reduce BATCHES BYTES...
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
  const int status =
      argc < 3 ? 2 : bench::all_reduces(ranks, std::atoi(argv[1]), argc - 2, argv + 2);
  MPI_Finalize();
  return status;
}
