// Shows what a communicator did: the dump of its last operations, and the trace of their steps.
#include <unistd.h>

#include <array>

#include "base/json.h"
#include "base/report_file.h"
#include "comm/dispatch.h"

namespace hetccl::comm {
namespace {

// Indexed by Record::State.
constexpr std::array kStates = {"launched", "started", "completed", "failed"};

Json json_of(TimePoint when, const WallClock& wall) {
  if (when == TimePoint{}) return nullptr;
  return wall.microseconds(when);
}

// Serves collectives and messages alike.
Json json_of(const exec::Record& record, const WallClock& wall) {
  const Signature& call = record.signature;
  return {{"bytes", call.count * size_of(call.type)},
          {"completed_us", json_of(record.completed, wall)},
          {"count", call.count},
          {"launched_us", json_of(record.launched, wall)},
          {"slices", record.slices},
          {"started_us", json_of(record.started, wall)},
          {"state", kStates.at(static_cast<size_t>(record.state))},
          {"type", hetccl::name_of(call.type)}};
}

Json json_of_collective(const exec::Record& record, const WallClock& wall) {
  const Signature& call = record.signature;
  Json json = json_of(record, wall);
  json.set("collective", hetccl::name_of(call));
  json.set("op", hetccl::name_of(call.op));
  json.set("root", call.root);
  json.set("sent_bytes", record.moved_bytes);
  json.set("sequence", record.sequence);
  json.set("slice_elements", record.slice_elements);
  return json;
}

Json json_of_message(const exec::Record& record, const WallClock& wall) {
  const int peer = record.signature.root;
  Json json = json_of(record, wall);
  json.set("by", record.by_library ? "library" : "channel");
  json.set("direction", record.sends ? "send" : "recv");
  json.set("moved_bytes", record.moved_bytes);
  json.set("number", record.number);
  json.set("peer", peer == exec::kAnyRank ? Json() : Json(peer));
  json.set("tag", record.tag);
  return json;
}

}  // namespace

std::string Dispatch::dump() {
  const WallClock wall;
  std::vector<Json> operations;
  for (const auto& record : recorder_.records())
    operations.push_back(json_of_collective(record, wall));
  std::vector<Json> messages, transports;
  const auto add = [&](const exec::Record& record) {
    messages.push_back(json_of_message(record, wall));
  };
  const std::vector<exec::Record> last = message_recorder_.records();
  if (known().ok()) {
    transports = fabric_.channels().describe_transports();
    fabric_.exclusively([&] {
      if (executor_ == nullptr) return;
      for (const auto& record : executor_->messages_in_flight())
        if (!last.empty() && record.sequence < last.front().sequence) add(record);
    });
  }
  for (const auto& record : last) add(record);
  Json json = {{"called", recorder_.called()},
               {"ended", recorder_.ended()},
               {"failure", nullptr},
               {"messages", std::move(messages)},
               {"name", context_.options.name},
               {"number", membership_.number()},
               {"operations", std::move(operations)},
               {"pid", getpid()},
               {"rank", rank()},
               {"ranks", n_ranks()},
               {"transports", std::move(transports)},
               {"written_us", wall.microseconds(steady_clock().now())}};
  const Status cause = verdict_.cause();
  if (!cause.ok()) json.set("failure", cause.message());
  return json.dump(1);
}

// Dumps in the background: files may be slow, and the thread that fails a communicator must not
// wait.
void Dispatch::dump_failure() {
  const std::string& pattern = context_.config.dump;
  if (pattern.empty() || recorder_.called() + message_recorder_.called() == 0) return;
  const Status posted =
      chores_.post([this, path = report_path(pattern, {rank(), membership_.number()})] {
        const Status written = write_report(path, dump());
        if (!written.ok()) return context_.log.warn("HETCCL_DUMP: %s", written.message().c_str());
        context_.log.warn("the last operations are in %s", path.c_str());
      });
  if (!posted.ok()) context_.log.warn("HETCCL_DUMP: %s", posted.message().c_str());
}

void Dispatch::write_trace() {
  if (tracer_ == nullptr || executor_ == nullptr) return;
  exec::TraceProcess process;
  process.rank = rank();
  const std::string& host = membership_.info(rank()).host_name;
  process.name = format("rank %d (%s, pid %d)", rank(), host.c_str(), getpid());
  std::string json;
  fabric_.exclusively([&] { json = to_json(*tracer_, process); });
  const Status written =
      write_report(report_path(context_.config.trace, {rank(), membership_.number()}), json);
  if (!written.ok()) context_.log.warn("HETCCL_TRACE: %s", written.message().c_str());
}

}  // namespace hetccl::comm
