// All-reduces by hetccl's C API, each complete when its call returns: hetccl_all_reduce BATCHES
// BYTES...
#include "hetccl_ranks.h"

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  bench::HetcclRanks ranks;
  return bench::all_reduces(ranks, std::atoi(argv[1]), argc - 2, argv + 2);
}
