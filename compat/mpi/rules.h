// Which side serves a call: rules as data, in the form of MPICH's tuning files. A file is a tree of
// conditions; the first that holds at each level is followed, down to an algorithm. Every rank has
// the same rules and asks them the same questions, so all decide alike without a message.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/status.h"
#include "mpi/call.h"

namespace hetccl::mpi {

enum class Algorithm : uint8_t {
  Beta,    ///< the MPI's own function
  Gamma,   ///< the same, of a communicator on one node
  Alpha,   ///< by the MPI within nodes, and between one leader of each
  Device,  ///< hetccl
  None,    ///< no rule holds
};
std::string_view name_of(Algorithm algorithm);

/// An algorithm and its parameters.
struct Decision {
  Algorithm algorithm = Algorithm::None;
  /// Of Algorithm::Device: an all-reduce is cut into so many parts, each on a stream of its own,
  /// and these are shared out among so many communicators of hetccl.
  int streams = 1, communicators = 1;

  [[nodiscard]] bool by_hetccl() const { return algorithm == Algorithm::Device; }
  bool operator==(const Decision&) const = default;
};

/// What does not change while a communicator lives.
struct Shape {
  int size = 1;
  int nodes = 1;
  bool consecutive = true;  ///< the ranks of a node follow each other

  [[nodiscard]] bool on_one_node() const { return nodes == 1; }
  /// Several nodes, and one of them has several ranks.
  [[nodiscard]] bool has_hierarchy() const { return nodes > 1 && nodes < size; }
  bool operator==(const Shape&) const = default;
};

struct Question {
  Collective collective = Collective::Allreduce;
  bool nonblocking = false;
  bool device = false;       ///< a rank passes device memory
  bool shares_gpus = false;  ///< ranks share a GPU, as far as that is known
  bool in_place = false;
  bool multithreaded = false;
  Maker maker = Maker::Other;
  int64_t average_bytes = -1, total_bytes = -1, count = -1;  ///< -1: not known to all ranks
  Shape shape;
  bool operator==(const Question&) const = default;
};

class Rules {
 public:
  static constexpr size_t kMaxBytes = size_t{4} << 20U;

  Rules() = default;
  /// `text` is a file's; `source` names it in errors. InvalidArgument names the key that is wrong,
  /// with the keys around it. At most 4 MiB.
  static Result<Rules> parse(std::string_view text, const std::string& source);

  [[nodiscard]] Decision decide(const Question& question) const;
  [[nodiscard]] bool empty() const { return roots_.empty(); }

 private:
  enum class Test : uint8_t {
    Any,
    Never,
    OfCollective,
    Nonblocking,
    Device,
    SharesGpus,
    InPlace,
    Multithreaded,
    MadeBy,
    SizeAtMost,
    SizePowerOfTwo,
    OnOneNode,
    HasHierarchy,
    Consecutive,
    PerNodeAtMost,
    AverageAtMost,
    TotalAtMost,
    CountAtMost,
    CountBelowPowerOfTwo,
  };
  struct Node {
    Test test = Test::Any;
    int64_t value = 0;
    Decision decision;           // of a leaf
    std::vector<Node> children;  // of others
  };
  struct Parser;
  [[nodiscard]] bool holds(const Node& node, const Question& question) const;
  [[nodiscard]] Decision follow(const std::vector<Node>& nodes, const Question& question) const;

  std::vector<Node> roots_;
  uint32_t nonblocking_ = 0;  // collectives whose nonblocking form has rules of its own, as bits
};

}  // namespace hetccl::mpi
