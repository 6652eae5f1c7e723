// Diagnosis of communicators: dumps of their last operations, traces of their steps.
#include <doctest/doctest.h>
#include <stdlib.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <set>
#include <thread>

#include "base/json.h"
#include "comm/ranks.h"
#include "fake/thread.h"

namespace {

using namespace hetccl;
using namespace hetccl::comm;
using std::chrono::milliseconds;

// A folder that goes with the test.
class Folder {
 public:
  Folder() {
    char name[] = "/tmp/hetccl-diagnosis-XXXXXX";
    REQUIRE(mkdtemp(name) != nullptr);
    path_ = name;
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  [[nodiscard]] std::string operator/(const std::string& file) const { return path_ + "/" + file; }
  [[nodiscard]] size_t n_files() const {
    const auto files = std::filesystem::directory_iterator(path_);
    return static_cast<size_t>(std::distance(begin(files), end(files)));
  }

 private:
  std::string path_;
};

Json parse(const std::string& text) {
  const Result<Json> json = Json::parse(text, "a report", text.size());
  REQUIRE_MESSAGE(json.ok(), json.status().message());
  return json.value();
}

Json read(const std::string& path) {
  const TimePoint limit = steady_clock().now() + fake::kHang;
  while (!std::filesystem::exists(path) && steady_clock().now() < limit) {
    std::this_thread::sleep_for(milliseconds(10));  // dumps are written in the background
  }
  std::ifstream file(path);
  return parse({std::istreambuf_iterator<char>(file), {}});
}

template <typename Integer = int>
Integer integer(const Json& json) {
  const auto value = json.integer(INT32_MIN, INT32_MAX);
  REQUIRE(value);
  return static_cast<Integer>(*value);
}

double number(const Json& json) {
  REQUIRE(json.number());
  return *json.number();
}

const std::string& text(const Json& json) {
  REQUIRE(json.text() != nullptr);
  return *json.text();
}

void sum_on_all(Ranks& ranks, size_t count, int times) {
  on_all_ranks(ranks, [&](int rank) {
    std::vector<float> data(count, 1);
    for (int i = 0; i < times; ++i) CHECK(sum(*ranks[rank], data).ok());
  });
}

// --- traces ---

struct Span {
  double begin = 0, end = 0;
  std::string name;
  int track = 0;
  uint64_t sequence = 0;
  std::pair<int, uint32_t> step;  // and slice
};

struct Operation {
  double launched = 0, started = 0, completed = 0;
  std::vector<Span> spans;
};

struct Trace {
  std::map<uint64_t, Operation> operations;
  std::map<int, std::vector<Span>> tracks;
  std::map<int, std::string> names;
};

Trace trace_of(const Json& json, int rank) {
  Trace trace;
  REQUIRE(json["traceEvents"].elements() != nullptr);
  for (const Json& event : *json["traceEvents"].elements()) {
    const std::string& phase = text(event["ph"]);
    CHECK(event["pid"] == rank);
    if (phase == "M") {
      if (event["name"] == "thread_name")
        trace.names[integer(event["tid"])] = text(event["args"]["name"]);
    } else if (phase == "b") {
      Operation& operation = trace.operations[integer<uint64_t>(event["args"]["sequence"])];
      operation.launched = number(event["ts"]);
      const Json& started = event["args"]["started"];
      operation.started = started.is_null() ? operation.launched : number(started);
    } else if (phase == "e") {
      const std::string& id = text(event["id"]);
      trace.operations[std::stoull(id.substr(id.find('.') + 1))].completed = number(event["ts"]);
    } else {
      REQUIRE(phase == "X");
      const Json& args = event["args"];
      Span span;
      span.begin = number(event["ts"]);
      span.end = span.begin + number(event["dur"]);
      span.name = text(event["name"]);
      span.track = integer(event["tid"]);
      span.sequence = integer<uint64_t>(args["sequence"]);
      span.step = {integer(args["step"]), integer<uint32_t>(args["slice"])};
      trace.tracks[span.track].push_back(span);
    }
  }
  for (const auto& [track, spans] : trace.tracks) {
    for (const Span& span : spans) trace.operations[span.sequence].spans.push_back(span);
  }
  return trace;
}

constexpr double kRounding = 0.01;  // microseconds

void check_tracks(Trace& trace) {
  for (auto& [track, spans] : trace.tracks) {
    CHECK(trace.names.count(track) == 1);
    for (size_t i = 0; i < spans.size(); ++i) {
      CHECK(spans[i].end >= spans[i].begin - kRounding);
      if (i > 0) CHECK(spans[i].begin >= spans[i - 1].end - kRounding);
    }
  }
}

// The part of the operation, from its start on, in which no track shows anything.
double uncovered(Operation& operation) {
  std::sort(operation.spans.begin(), operation.spans.end(),
            [](const Span& a, const Span& b) { return a.begin < b.begin; });
  double gaps = 0, end = operation.started;
  for (const Span& span : operation.spans) {
    gaps += std::max(0.0, span.begin - end);
    end = std::max(end, span.end);
  }
  gaps += std::max(0.0, operation.completed - end);
  return gaps / std::max(operation.completed - operation.started, 1.0);
}

// Times in which different slices are at work: in the cluster's library, and on the way.
size_t overlaps(const Operation& operation) {
  size_t n = 0;
  for (const Span& a : operation.spans) {
    for (const Span& b : operation.spans) {
      const bool both = a.name.starts_with("ccl_") && (b.name == "send" || b.name == "recv");
      n += both && a.step.second != b.step.second && a.begin < b.end && b.begin < a.end ? 1 : 0;
    }
  }
  return n;
}

void check_operation(const Operation& operation, uint32_t slices) {
  std::set<std::pair<int, uint32_t>> seen;
  std::set<int> steps;
  CHECK(operation.launched <= operation.started + kRounding);
  for (const Span& span : operation.spans) {
    CHECK(span.begin >= operation.launched - kRounding);
    CHECK(span.end <= operation.completed + kRounding);
    if (span.name == "waiting") continue;
    CHECK(seen.insert(span.step).second);  // each step of each slice once
    steps.insert(span.step.first);
  }
  CHECK(!steps.empty());
  CHECK(seen.size() == steps.size() * slices);
}

}  // namespace

TEST_CASE("a dump tells of every operation, and of the failure that ended them") {
  const Folder folder;
  Config config;
  config.dump = folder / "dump.%r.%c.json";
  config.slice_bytes = 4096;
  Ranks ranks({"A", "B"}, config, false);
  sum_on_all(ranks, 5000, 3);
  const Json json = parse(ranks[0]->dispatch().dump());
  CHECK(json["rank"] == 0);
  CHECK(json["ranks"] == 2);
  CHECK(json["called"] == 3);
  CHECK(json["ended"] == 3);
  CHECK(json["failure"].is_null());
  REQUIRE(json["operations"].size() == 3);
  const Json& last = json["operations"][2];
  CHECK(last["sequence"] == 2);
  CHECK(last["collective"] == "all_reduce");
  CHECK(last["type"] == "float32");
  CHECK(last["op"] == "sum");
  CHECK(last["count"] == 5000);
  CHECK(last["bytes"] == 20'000);
  CHECK(last["slices"] == 5);
  CHECK(last["slice_elements"] == 1024);
  CHECK(last["sent_bytes"].number() > 0);
  CHECK(last["state"] == "completed");
  CHECK(number(last["launched_us"]) <= number(last["started_us"]));
  CHECK(number(last["started_us"]) <= number(last["completed_us"]));
  CHECK(folder.n_files() == 0);

  std::vector<Status> statuses(2);
  on_all_ranks(ranks, [&](int rank) {
    std::vector<float> data(rank == 0 ? 1000U : 999U, 1);
    statuses[static_cast<size_t>(rank)] = sum(*ranks[rank], data);
  });
  for (int rank = 0; rank < 2; ++rank) {
    const Json dumped = read(folder / format("dump.%d.0.json", rank));
    CHECK(dumped["failure"] == statuses[static_cast<size_t>(rank)].message());
    CHECK(dumped["operations"].size() == 4);
    CHECK(dumped["operations"][3]["count"] == (rank == 0 ? 1000 : 999));
    CHECK(dumped["operations"][3]["state"] != "completed");
  }
}

TEST_CASE("a dump while a collective hangs shows where it is") {
  Ranks ranks({"A", "B"}, {}, false);
  std::vector<float> data(1000, 1);
  fake::Thread caller([&] { CHECK(sum(*ranks[0], data).ok()); });
  Json operation;
  const TimePoint limit = steady_clock().now() + fake::kHang;
  while (operation["state"] != "started" && steady_clock().now() < limit) {
    std::this_thread::sleep_for(milliseconds(5));
    operation = parse(ranks[0]->dispatch().dump())["operations"][0];
  }
  CHECK(operation["state"] == "started");
  CHECK(operation["completed_us"].is_null());
  std::vector<float> others(1000, 1);
  CHECK(sum(*ranks[1], others).ok());
  caller.join();
}

namespace {

// The best that one rank's operations have shown.
struct Shown {
  double uncovered = 1;
  size_t overlaps = 0;
  [[nodiscard]] bool all(int rank) const { return uncovered < 0.1 && (overlaps > 0 || rank == 2); }
};

void check_trace(Trace& trace, int rank, Shown& shown) {
  check_tracks(trace);
  CHECK(trace.operations.size() == 6);
  for (auto& [sequence, operation] : trace.operations) {
    check_operation(operation, 16);
    shown.uncovered = std::min(shown.uncovered, uncovered(operation));
    shown.overlaps = std::max(shown.overlaps, overlaps(operation));
  }
  std::set<std::string> names;
  for (const auto& [track, spans] : trace.tracks) {
    for (const Span& span : spans) names.insert(span.name);
  }
  CHECK(names.count("waiting") == 1);
  const bool calls = names.count("ccl_reduce") + names.count("ccl_broadcast") == 2;
  CHECK(calls == (rank < 2));  // rank 2 is a cluster of its own
  CHECK(names.count("send") + names.count("recv") == 2);
}

}  // namespace

TEST_CASE("a trace shows every step of every slice, nested in its operation and without gaps") {
  for (const bool shm : {true, false}) {
    Shown shown[3];
    // A trace can lack events if a busy machine delays the engine: then trace another job.
    for (int job = 0; job < 20; ++job) {
      const Folder folder;
      Config config;
      config.trace = folder / "trace.%r.json";
      config.slice_bytes = 1 << 18;
      config.transport_shm = shm;
      {
        Ranks ranks({"A", "A", "B"}, config, false);
        sum_on_all(ranks, 1'000'000, 6);
        CHECK(folder.n_files() == 0);
      }
      for (int rank = 0; rank < 3; ++rank) {
        Trace trace = trace_of(read(folder / format("trace.%d.json", rank)), rank);
        check_trace(trace, rank, shown[rank]);
      }
      if (shown[0].all(0) && shown[1].all(1) && shown[2].all(2)) break;
    }
    for (int rank = 0; rank < 3; ++rank) {
      if (rank < 2) CHECK(shown[rank].overlaps > 0);
      CHECK(shown[rank].uncovered < 0.1);
    }
  }
}

TEST_CASE("a trace of one cluster shows its calls; a pattern that nobody can write is a warning") {
  const Folder folder;
  Config config;
  config.trace = folder / "trace.%r.%c.json";
  {
    Ranks ranks({"A", "A"}, config, true);
    sum_on_all(ranks, 1000, 3);
    ranks.join();
    sum_on_all(ranks, 1000, 1);
  }
  // Numbers count the process's communicators, in the order in which its threads made them.
  CHECK(folder.n_files() == 4);
  size_t operations = 0;
  for (const auto& file : std::filesystem::directory_iterator(folder / "")) {
    const Json json = read(file.path());
    Trace trace = trace_of(json, integer(json["traceEvents"][0]["pid"]));
    check_tracks(trace);
    for (const auto& [sequence, operation] : trace.operations) check_operation(operation, 1);
    operations += trace.operations.size();
  }
  CHECK(operations == 2 * 3 + 2 * 1);

  config.trace = folder / "nowhere/trace";
  config.log_level = "error";
  Ranks ranks({"A"}, config, true);
  sum_on_all(ranks, 10, 1);
}

namespace {

/// The names of a trace's steps, by the track that shows them.
std::map<std::string, std::set<std::string>> steps_by_track(const Json& json) {
  std::map<int, std::string> names;
  std::map<std::string, std::set<std::string>> steps;
  for (const Json& event : *json["traceEvents"].elements()) {
    if (event["name"] == "thread_name") names[integer(event["tid"])] = text(event["args"]["name"]);
    if (event["ph"] == "X" && event["name"] != "waiting")
      steps[names[integer(event["tid"])]].insert(text(event["name"]));
  }
  return steps;
}

}  // namespace

TEST_CASE("a dump tells of messages, those that have ended too") {
  Ranks ranks({"A", "B"}, {}, false);
  std::vector<float> sent(3 << 20, 1), received(3 << 20), more(10);
  const size_t bytes = sent.size() * sizeof(float);
  const exec::Message out{
      .send = true, .peer = 1, .data = sent.data(), .type = DataType::Float32, .count = 3 << 20};
  exec::Message in = out;
  in.send = false, in.peer = 0, in.data = received.data();
  fake::Thread sender([&] { CHECK(ranks[0]->dispatch().call(std::span(&out, 1), nullptr).ok()); });
  CHECK(ranks[1]->dispatch().call(std::span(&in, 1), nullptr).ok());
  sender.join();
  in.data = more.data(), in.count = more.size(), in.tag = 9;
  const auto ticket = ranks[1]->dispatch().start(std::span<const exec::Message>(&in, 1), {});
  REQUIRE(ticket.ok());
  Json messages;
  const TimePoint limit = steady_clock().now() + fake::kHang;
  while (messages.size() < 2 && steady_clock().now() < limit) {
    std::this_thread::sleep_for(milliseconds(1));
    messages = parse(ranks[1]->dispatch().dump())["messages"];
  }
  REQUIRE(messages.size() == 2);
  const Json &first = messages[0], &second = messages[1];
  CHECK(first["direction"] == "recv");
  CHECK(first["peer"] == 0);
  CHECK(first["number"] == 0);
  CHECK(first["by"] == "channel");
  CHECK(first["state"] == "completed");
  CHECK(number(first["bytes"]) == static_cast<double>(bytes));
  CHECK(number(first["moved_bytes"]) == static_cast<double>(bytes));
  CHECK(number(first["launched_us"]) <= number(first["completed_us"]));
  CHECK(second["number"] == 1);
  CHECK(second["tag"] == 9);
  CHECK(second["state"] != "completed");
  CHECK(second["moved_bytes"] == 0);
  CHECK(parse(ranks[0]->dispatch().dump())["messages"][0]["direction"] == "send");
  ranks[1]->abort("enough");
}

TEST_CASE("devices of one host meet in windows, each with all of the other clusters") {
  const Folder folder;
  std::vector<Config> configs(4);
  for (size_t rank = 0; rank < 4; ++rank) {
    configs[rank].cluster = rank < 2 ? "A" : "B";
    configs[rank].trace = folder / "trace.%r.json";
    configs[rank].library_messages = false;
  }
  comm::on_fake_devices(configs, {.max_delay_us = 5}, [&](int rank, auto& device, auto made) {
    constexpr size_t kCount = 1 << 18;
    const auto stream = device.create_stream().value();
    void* const send = device.allocate(4 * kCount).value();
    void* const recv = device.allocate(4 * kCount).value();
    const Signature all{Collective::AllToAll, DataType::Int8, RedOp::Sum, 0, kCount};
    REQUIRE(made->dispatch()
                .start(CollectiveArguments{all, send, recv}, {.stream = stream->native()})
                .ok());
    std::vector<exec::Message> messages;
    for (int peer = 0; peer < 4; ++peer) {
      if (peer == rank) continue;
      messages.push_back({true, peer, send, DataType::Int8, kCount});
      messages.push_back(
          {false, peer, static_cast<char*>(recv) + size_t(peer) * kCount, DataType::Int8, kCount});
    }
    REQUIRE(made->dispatch()
                .start(std::span<const exec::Message>(messages), {.stream = stream->native()})
                .ok());
    REQUIRE(device.synchronize(fake::kHang));
    CHECK(made->finish().ok());
    made.reset();
    device.free(send);
    device.free(recv);
  });
  CHECK(folder.n_files() == 4);
  for (const auto& file : std::filesystem::directory_iterator(folder / "")) {
    const Json json = read(file.path());
    const int rank = integer(json["traceEvents"][0]["pid"]);
    const auto steps = steps_by_track(json);
    for (int peer = 0; peer < 4; ++peer) {
      if (peer == rank) continue;
      const bool crosses = (rank < 2) != (peer < 2);
      const auto shows = [&](const char* track, const char* step) {
        const auto found = steps.find(format("%s rank %d", track, peer));
        return found != steps.end() && found->second.contains(step);
      };
      CAPTURE(rank);
      CAPTURE(peer);
      CHECK(shows("message to", crosses ? "send_header" : "send"));
      CHECK(shows("message from", crosses ? "recv_header" : "recv"));
      CHECK(shows("streams to", "copy"));
      CHECK(shows("streams from", "copy"));
      if (crosses) CHECK(shows("send to", "send_header"));
    }
  }
}
