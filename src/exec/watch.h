// Watches operations in flight: which ones do not complete, on which rank they wait, and since
// when.
#pragma once

#include <optional>
#include <string>

#include "ccl/ccl.h"
#include "exec/departures.h"
#include "exec/end_marks.h"
#include "exec/fault.h"
#include "exec/order.h"
#include "exec/wire.h"

namespace hetccl::exec {

struct WatchOptions {
  ccl::Communicator* ccl = nullptr;
  std::string library;                     ///< of the cluster's library
  EndMarks* marks = nullptr;               ///< may be null
  const Departures* departures = nullptr;  ///< may be null
  /// The time, after a rank's departure, that an operation lacking it may still block others.
  Duration departure_grace{};
};

/// Used by the driving thread.
class Watch {
 public:
  Watch(WatchOptions options, InFlight& collectives, MessageOrders& messages, Wire& wire)
      : options_(std::move(options)), in_flight_(collectives), messages_(messages), wire_(wire) {}

  /// Returns the failure, if any.
  std::optional<Fault> check(TimePoint now);
  /// Returns the failure of the cluster's library, or of the marks that tell the ends of its calls.
  [[nodiscard]] Status library_status() const;
  /// Returns the failure of the library that carries `message`, if it has failed.
  static std::optional<Fault> check_library(const Operation& message);
  /// Replaces `fault` by the departure of a rank, if the oldest collective lacks that rank. The
  /// departure is then the cause: other ranks time out, or break connections, because of it.
  Fault explain(Fault fault);
  /// Describes collectives as Executor::describe_oldest does.
  std::string describe_oldest();

 private:
  // The first marked operation past its deadline: its last observed state, and the time of that.
  struct Overdue {
    uint64_t number = 0;
    bool settled = false;
    TimePoint since{};
  };
  Fault fault_of(const Wire::Broken& broken);
  std::optional<Fault> check_departures(TimePoint now);
  std::optional<Fault> check_deadlines(TimePoint now);
  std::optional<Fault> check_messages(TimePoint now);
  std::optional<Fault> check_any_source(TimePoint now);
  std::optional<Fault> check_message_deadlines(TimePoint now);
  bool is_gone(MessageOrder& order, TimePoint now) const;
  bool may_have_ended(uint64_t number, TimePoint now);
  [[nodiscard]] bool has_begun(uint64_t number);
  [[nodiscard]] std::string place_of(uint64_t number);
  Fault stall(ErrorCode code, const Call& call, const std::string& how, int departed);

  WatchOptions options_;
  InFlight& in_flight_;  // collectives
  MessageOrders& messages_;
  Wire& wire_;
  TimePoint next_deadline_check_{};
  // The oldest operation, if it lacks a rank that has left, and when this was first seen.
  std::optional<Call> abandoned_;
  TimePoint abandoned_since_{};
  std::optional<Overdue> overdue_;
};

}  // namespace hetccl::exec
