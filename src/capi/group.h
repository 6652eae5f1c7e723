// Runs calls of the C API, one by one or several together.
#pragma once

#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "base/status.h"
#include "comm/communicator.h"
#include "hetccl/hetccl.h"

namespace hetccl::capi {

/// Calls that start together. The group first makes its communicators, all at the same time. Then
/// it checks every call before it starts any, and starts every call before it waits for any,
/// because one thread may call for several ranks. For each communicator and stream, messages start
/// before collectives, since ranks need not agree on the place of messages among collectives.
class Group {
 public:
  /// The calling thread's group between hetcclGroupStart and hetcclGroupEnd.
  static Group& mine() {
    thread_local Group group;
    return group;
  }
  [[nodiscard]] bool is_open() const { return depth_ > 0; }
  void start() { ++depth_; }
  /// Ends the group. Sets `goes_on` if communicators are still being made in the background.
  Status end(bool& goes_on);

  void add(comm::Making making) { makings_.push_back(std::move(making)); }
  /// Ends the group, as `end`, without making anything. Sets `seconds` to the predicted time of the
  /// calls, the longest of all communicators'. In a nested group sets -1 and keeps the calls.
  Status simulate(double& seconds);

  /// Copies the arguments, including block lengths, but not the buffers.
  void add(comm::Communicator& communicator, const comm::CollectiveArguments& arguments,
           hetcclStream_t stream);
  void add(comm::Communicator& communicator, std::span<const exec::Message> messages,
           hetcclStream_t stream);
  struct How {
    const char* refusal = "";  ///< prefix of errors about a call
    int64_t timeout_ms = 0;    ///< deadline of the calls; 0: the communicator's
    /// Receives the tickets of all started calls, messages first. Null: `make` waits for calls
    /// without a stream.
    std::vector<exec::Ticket>* tickets = nullptr;
  };
  Status make(const How& how);
  /// Makes the added communicators, and nothing else. Returns the first error.
  Status make_communicators();

 private:
  // A layout that owns its memory.
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
  // Messages of one communicator on one stream; they start together.
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

/// InvalidUsage if this thread has a group open: `function` cannot be part of one.
Status outside_group(const char* function);

}  // namespace hetccl::capi
