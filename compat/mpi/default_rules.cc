#include "mpi/default_rules.h"

namespace hetccl::mpi {

std::string default_rules() {
  return R"({"any": {"algorithm=device": {}}})";
}

}  // namespace hetccl::mpi
