#include "mpi/compositions.h"

#include "mpi/job.h"
#include "mpi/memory.h"

namespace hetccl::mpi {
namespace {

Function allreduce("PMPI_Allreduce"), reduce("PMPI_Reduce"), bcast("PMPI_Bcast"),
    barrier("PMPI_Barrier"), send("PMPI_Send"), receive("PMPI_Recv");
constexpr int kTag = 1;

}  // namespace

Composition::Composition(Word comm, int node, const Library& library) : library_(library) {
  const int rank = library.rank(comm);
  node_ = library.split(comm, node, rank);
  mine_.rank = library.rank(node_);
  const bool first = mine_.rank == 0;
  leaders_ = library.split(comm, first ? 0 : library.abi.undefined, rank);
  if (first) mine_.node = library.rank(leaders_);
  if (!first) leaders_ = 0;
  library.broadcast(&mine_.node, sizeof(mine_.node), 0, node_);
  node_ranks_.resize(static_cast<size_t>(library.size(comm)));
  library.gather_all(&mine_, node_ranks_.data(), sizeof(mine_), comm);
}

Composition::~Composition() {
  if (Job::get() == nullptr) return;  // MPI_Finalize frees the communicators itself, in any order
  library_.free_comm(&node_);
  if (leads()) library_.free_comm(&leaders_);
}

bool Composition::applies(Collective collective) {
  return collective == Collective::Allreduce || collective == Collective::Reduce ||
         collective == Collective::Bcast || collective == Collective::Barrier;
}

int Composition::run(const MpiCall& call) const {
  switch (call.collective) {
    case Collective::Allreduce:
      return run_allreduce(call);
    case Collective::Reduce:
      return run_reduce(call);
    case Collective::Bcast:
      return run_bcast(call);
    default:
      return run_barrier();
  }
}

int Composition::run_allreduce(const MpiCall& call) const {
  const Word count = from_int(call.recv.count), type = call.recv.type;
  const Word from = leads() || !call.send.in_place ? call.send.buffer : call.recv.buffer;
  int code = reduce.call(Words(from, call.recv.buffer, count, type, call.op, 0, node_));
  if (code == 0 && leads()) {
    code = allreduce.call(
        Words(library_.abi.in_place, call.recv.buffer, count, type, call.op, leaders_));
  }
  return code != 0 ? code : bcast.call(Words(call.recv.buffer, count, type, 0, node_));
}

// Reduces within nodes to the leaders, then to the leader of the root's node, then to the root. If
// that leader is the root, it uses the root's buffer.
int Composition::run_reduce(const MpiCall& call) const {
  const Word count = from_int(call.recv.count), type = call.recv.type;
  const NodeRank root = node_ranks_[static_cast<size_t>(call.root)];
  const bool is_root = mine_.node == root.node && mine_.rank == root.rank;
  const auto bytes = call.recv.count * library_.type(type).bytes;
  auto scratch = Scratch::take({}, static_cast<size_t>(bytes));
  if (!scratch.ok()) return library_.abi.err_other;
  const bool in_user = is_root && leads();
  const Word sum = in_user ? call.recv.buffer : from_pointer(scratch->data());
  const Word mine = call.send.in_place && !in_user ? call.recv.buffer : call.send.buffer;
  int code = reduce.call(Words(mine, sum, count, type, call.op, 0, node_));
  if (code == 0 && leads()) {
    const bool at_root = mine_.node == root.node;
    code = reduce.call(Words(at_root ? library_.abi.in_place : sum, at_root ? sum : 0, count, type,
                             call.op, from_int(root.node), leaders_));
  }
  if (code != 0 || mine_.node != root.node || root.rank == 0) return code;
  if (leads()) {
    return send.call(Words(sum, count, type, from_int(root.rank), kTag, node_));
  }
  if (!is_root) return 0;
  return receive.call(
      Words(call.recv.buffer, count, type, 0, kTag, node_, library_.abi.status_ignore));
}

int Composition::run_bcast(const MpiCall& call) const {
  const Word buffer = call.send.buffer, count = from_int(call.send.count), type = call.send.type;
  const NodeRank root = node_ranks_[static_cast<size_t>(call.root)];
  const bool at_root = mine_.node == root.node;
  int code = 0;
  if (at_root) code = bcast.call(Words(buffer, count, type, from_int(root.rank), node_));
  if (code == 0 && leads()) {
    code = bcast.call(Words(buffer, count, type, from_int(root.node), leaders_));
  }
  if (code == 0 && !at_root) code = bcast.call(Words(buffer, count, type, 0, node_));
  return code;
}

int Composition::run_barrier() const {
  int code = barrier.call(Words(node_));
  if (code == 0 && leads()) code = barrier.call(Words(leaders_));
  return code != 0 ? code : barrier.call(Words(node_));
}

}  // namespace hetccl::mpi
