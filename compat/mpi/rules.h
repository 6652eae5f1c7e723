// Rules that decide whether hetccl or the MPI serves a call, in the form of MPICH's tuning files. A
// file is a tree of conditions: at each level the first that holds is followed, down to an
// algorithm. All ranks have the same rules and ask the same questions, so they agree without a
// message.
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
  Gamma,   ///< the same, for a communicator on one node
  Alpha,   ///< the MPI within nodes, then between one leader of each node
  Device,  ///< hetccl
  None,    ///< no rule matches
};
std::string_view name_of(Algorithm algorithm);

/// An algorithm and its parameters.
struct Decision {
  Algorithm algorithm = Algorithm::None;
  /// For Algorithm::Device: an all-reduce is cut into `streams` parts, each on its own stream; the
  /// parts are spread over `communicators` communicators of hetccl.
  int streams = 1, communicators = 1;

  [[nodiscard]] bool by_hetccl() const { return algorithm == Algorithm::Device; }
  bool operator==(const Decision&) const = default;
};

/// Properties that stay the same while a communicator lives.
struct Shape {
  int size = 1;
  int nodes = 1;
  bool consecutive = true;  ///< the ranks of each node are consecutive

  [[nodiscard]] bool on_one_node() const { return nodes == 1; }
  /// Whether there are several nodes, and at least one has several ranks.
  [[nodiscard]] bool has_hierarchy() const { return nodes > 1 && nodes < size; }
  bool operator==(const Shape&) const = default;
};

struct Question {
  Collective collective = Collective::Allreduce;
  bool nonblocking = false;
  bool device = false;       ///< at least one rank passes device memory
  bool shares_gpus = false;  ///< ranks share a GPU, as far as known
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
  /// Parses `text`, a file's content; `source` names it in errors. InvalidArgument names the bad
  /// key and the keys around it. At most 4 MiB.
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
    std::vector<Node> children;  // of an inner node
  };
  struct Parser;
  [[nodiscard]] bool holds(const Node& node, const Question& question) const;
  [[nodiscard]] Decision follow(const std::vector<Node>& nodes, const Question& question) const;

  std::vector<Node> roots_;
  uint32_t nonblocking_ = 0;  // bit set: collectives whose nonblocking form has rules of its own
};

}  // namespace hetccl::mpi
