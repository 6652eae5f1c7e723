// How the calls of the C API are made: one by one, or several together.
#pragma once

#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "base/status.h"
#include "comm/communicator.h"
#include "hetccl/hetccl.h"

namespace hetccl::capi {

/// Calls that are made together. Communicators are made first, all at the same time. Then
/// everything is checked before anything starts, and everything starts before anything is waited
/// for: a thread may call for several ranks. Of each communicator and stream messages are the
/// first, whatever their place among the collectives, on which ranks need not agree.
class Group {
 public:
  /// Those of this thread between hetcclGroupStart and hetcclGroupEnd.
  static Group& mine() {
    thread_local Group group;
    return group;
  }
  [[nodiscard]] bool is_open() const { return depth_ > 0; }
  void start() { ++depth_; }
  /// `goes_on` becomes true where communicators are still being made in the background.
  Status end(bool& goes_on);

  void add(comm::Making making) { makings_.push_back(std::move(making)); }
  /// Ends, as `end`, but makes nothing: `seconds` becomes how long its calls are expected to take,
  /// the longest of all communicators', or -1 in a group within another, which keeps the calls.
  Status simulate(double& seconds);

  /// Copies the arguments, lengths of blocks included, but no buffer.
  void add(comm::Communicator& communicator, const comm::CollectiveArguments& arguments,
           hetcclStream_t stream);
  void add(comm::Communicator& communicator, std::span<const exec::Message> messages,
           hetcclStream_t stream);
  struct How {
    const char* refusal = "";  ///< how the text of what is wrong with a call begins
    int64_t timeout_ms = 0;    ///< the calls' deadline; 0: the communicator's
    /// Gets those of all that were started, messages first. Null: waits for calls without a stream.
    std::vector<exec::Ticket>* tickets = nullptr;
  };
  Status make(const How& how);
  /// Makes the communicators that were added, and nothing else. Their first error.
  Status make_communicators();

 private:
  // A layout with memory of its own.
  struct OwnLayout {
    std::vector<uint64_t> counts, offsets;
    [[nodiscard]] exec::Layout view() const { return {counts, offsets}; }
  };
  struct NotedCollective {
    std::shared_ptr<comm::Communicator> communicator;
    hetcclStream_t stream;
    comm::CollectiveArguments arguments;
    OwnLayout input, output;
    [[nodiscard]] comm::CollectiveArguments call() const {
      comm::CollectiveArguments call = arguments;
      call.input = input.view();
      call.output = output.view();
      return call;
    }
  };
  // Messages of one communicator on one stream: they go at the same time.
  struct NotedMessages {
    std::shared_ptr<comm::Communicator> communicator;
    hetcclStream_t stream;
    std::vector<exec::Message> messages;
    [[nodiscard]] std::span<const exec::Message> call() const { return messages; }
  };

  void drop_calls();
  Result<double> predict() const;
  [[nodiscard]] Status check() const;
  [[nodiscard]] Status run(const How& how) const;

  int depth_ = 0;
  std::vector<comm::Making> makings_;
  std::vector<NotedMessages> messages_;
  std::vector<NotedCollective> collectives_;
};

/// InvalidUsage where this thread has a group open: `function` cannot be part of one.
Status outside_group(const char* function);

}  // namespace hetccl::capi
