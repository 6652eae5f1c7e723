#include <cinttypes>

#include "base/report_file.h"
#include "exec/tracer.h"

namespace hetccl::exec {
namespace {

// Replaces characters that JSON cannot hold by '?': names come from the system.
std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    const bool plain = c >= 0x20 && c < 0x7f && c != '"' && c != '\\';
    out += plain ? c : '?';
  }
  return out + "\"";
}

std::string metadata(const char* what, int rank, uint32_t track, const std::string& name) {
  return format(R"({"name":"%s","ph":"M","pid":%d,"tid":%u,"args":{"name":%s}})", what, rank, track,
                quoted(name).c_str());
}

std::string json_of(const TraceSpan& span, int rank, const WallClock& wall) {
  const double begin = wall.microseconds(span.begin);
  return format(R"({"name":"%s","cat":"step","ph":"X","pid":%d,"tid":%u,"ts":%.3f,"dur":%.3f,)"
                R"("args":{"sequence":%)" PRIu64 R"(,"step":%d,"slice":%u}})",
                span.name, rank, span.track, begin, wall.microseconds(span.end) - begin,
                span.sequence, static_cast<int>(span.step), span.slice);
}

// Writes each operation as a pair of asynchronous events, because operations may overlap.
std::string json_of(const TraceOperation& operation, int rank, const WallClock& wall) {
  const auto& message = operation.message;
  const std::string name = message ? describe(*message) : describe(operation.signature);
  const std::string id =
      message ? format("%d.%s.%d", rank, message->send ? "to" : "from", message->peer)
              : std::to_string(rank);
  const std::string head = format(
      R"({"name":%s,"cat":"%s","id":"%s.%)" PRIu64 R"(","pid":%d,"tid":0,)", quoted(name).c_str(),
      message ? "message" : "collective", id.c_str(), operation.sequence, rank);
  const bool known = operation.started != TimePoint{};
  const std::string started =
      known ? format("%.3f", wall.microseconds(operation.started)) : std::string("null");
  return head +
         format(R"("ph":"b","ts":%.3f,"args":{"sequence":%)" PRIu64 R"(,"started":%s}})",
                wall.microseconds(operation.launched), operation.sequence, started.c_str()) +
         ",\n" + head +
         format(R"("ph":"e","ts":%.3f,"args":{}})", wall.microseconds(operation.completed));
}

}  // namespace

std::string to_json(const Tracer& tracer, const TraceProcess& process) {
  const WallClock wall;
  std::string text = "{\"displayTimeUnit\":\"ms\",\"otherData\":{\"forgotten_spans\":" +
                     std::to_string(tracer.forgotten()) + "},\"traceEvents\":[\n";
  text += metadata("process_name", process.rank, 0, process.name);
  for (const auto& [track, name] : tracer.tracks()) {
    text += ",\n" + metadata("thread_name", process.rank, track, name);
  }
  for (const auto& operation : tracer.operations()) {
    text += ",\n" + json_of(operation, process.rank, wall);
  }
  for (const auto& span : tracer.spans()) text += ",\n" + json_of(span, process.rank, wall);
  return text + "\n]}\n";
}

}  // namespace hetccl::exec
