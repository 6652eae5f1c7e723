#include "mpi/default_rules.h"

namespace hetccl::mpi {

// Device memory between nodes: hetccl serves the calls in which it was faster than the MPI's way
// through host memory, both over TCP (docs/mpi.md). Host memory on one node: those in which it was
// faster between two ranks (docs/benchmarks.md). Open MPI and Intel MPI copy once, from one process
// to the other; hetccl's shared memory copies twice. MPI_Barrier stays with the MPI: programs
// expect one-sided operations to have arrived after it (docs/design/0010).
std::string default_rules() {
  return R"({
    "collective=barrier": {"algorithm=mpi": {}},
    "buffer=device": {
      "gpu=shared": {"algorithm=mpi": {}},
      "comm_size=node_comm_size": {"algorithm=device": {}},
      "collective=allreduce": {
        "avg_msg_size<262144": {"algorithm=mpi": {}}, "any": {"algorithm=device": {}}},
      "any": {"avg_msg_size<65536": {"algorithm=mpi": {}}, "any": {"algorithm=device": {}}}
    },
    "comm_size=node_comm_size": {
      "mpi=mpich": {
        "collective=allreduce": {
          "avg_msg_size<1024": {"algorithm=mpi": {}}, "any": {"algorithm=device": {}}},
        "collective=reduce": {
          "avg_msg_size<16384": {"algorithm=mpi": {}}, "any": {"algorithm=device": {}}},
        "collective=bcast": {
          "avg_msg_size<65536": {"algorithm=mpi": {}}, "any": {"algorithm=device": {}}},
        "collective=reduce_scatter": {
          "avg_msg_size<16384": {"algorithm=mpi": {}}, "any": {"algorithm=device": {}}},
        "collective=reduce_scatter_block": {
          "avg_msg_size<16384": {"algorithm=mpi": {}}, "any": {"algorithm=device": {}}},
        "any": {"algorithm=mpi": {}}
      },
      "mpi=openmpi": {
        "collective=allreduce": {
          "avg_msg_size<4096": {"algorithm=mpi": {}}, "any": {"algorithm=device": {}}},
        "collective=reduce_scatter": {
          "avg_msg_size<16384": {"algorithm=mpi": {}}, "any": {"algorithm=device": {}}},
        "collective=reduce_scatter_block": {
          "avg_msg_size<16384": {"algorithm=mpi": {}}, "any": {"algorithm=device": {}}},
        "any": {"algorithm=mpi": {}}
      },
      "any": {
        "collective=allreduce": {
          "avg_msg_size<4194304": {"algorithm=mpi": {}}, "any": {"algorithm=device": {}}},
        "any": {"algorithm=mpi": {}}
      }
    },
    "any": {
      "avg_msg_size<65536": {"algorithm=mpi": {}},
      "collective=allreduce": {"algorithm=device": {}},
      "collective=reduce": {"algorithm=device": {}},
      "collective=bcast": {"algorithm=device": {}},
      "collective=allgather": {"algorithm=device": {}},
      "collective=reduce_scatter": {"algorithm=device": {}},
      "collective=reduce_scatter_block": {"algorithm=device": {}},
      "any": {"algorithm=mpi": {}}
    }
  })";
}

}  // namespace hetccl::mpi
