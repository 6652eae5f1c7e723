// hetccl's C API, each call complete when it returns: timing.h says which calls.
#include "hetccl_ranks.h"

int main(int argc, char** argv) {
  bench::HetcclRanks ranks;
  return bench::measure_calls(ranks, argc, argv);
}
