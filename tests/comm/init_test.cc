// A failure while a communicator is set up reaches every rank at once, wherever the others wait.
#include <doctest/doctest.h>

#include <functional>
#include <thread>

#include "comm/card.h"
#include "comm/ranks.h"
#include "fake/descriptor_limits.h"
#include "hetccl/hetccl.h"

namespace {

using namespace hetccl;
using namespace hetccl::comm;
using std::chrono::milliseconds;

// Joins as rank 1 and exchanges what a rank does, up to where the others open what they share with
// it: their cluster's library, or a channel. It opens nothing.
class Imposter {
 public:
  Imposter(Runtime& runtime, const bootstrap::UniqueId& id, const std::string& label) {
    bootstrap::JoinOptions options;
    options.rank = 1;
    options.n_ranks = 3;
    options.description = "an imposter";
    session_ = std::move(runtime.service().join(id, options)).value();
    Card card;
    card.version = HETCCL_VERSION_CODE;
    card.agreed = runtime.config().agreed();
    auto* device = runtime.device("").value();
    card.info = probe(1, *device, *runtime.library(*device, fake::kHangMs).value(),
                      runtime.config(), "", label)
                    .value();
    for (const auto& listening : runtime.listening()) {
      card.addresses[listening.transport->name()] = listening.address;
    }
    CHECK(session_->all_gather(encode(card), fake::kHangMs).ok());
    std::vector<uint8_t> cluster_id;
    if (label != "A") {
      const auto made =
          runtime.library(*device, fake::kHangMs).value()->unique_id(1, fake::kHangMs).value();
      cluster_id.assign(std::begin(made.bytes), std::end(made.bytes));
    }
    CHECK(session_->all_gather(cluster_id, fake::kHangMs).ok());
  }
  bootstrap::Session& session() { return *session_; }

 private:
  std::unique_ptr<bootstrap::Session> session_;
};

struct Outcome {
  std::vector<Status> statuses;
  milliseconds took{};  // from when rank 1 went wrong
};

// Ranks 0 and 2 are of cluster "A", rank 1 of `label`; `go_wrong` once the others wait for it.
Outcome open_with(const std::string& label, bool shm,
                  const std::function<void(bootstrap::Session&)>& go_wrong) {
  Config config;
  config.init_timeout_ms = 2 * fake::kHangMs;
  config.liveness_ms = 2 * fake::kHangMs;
  config.transport_shm = shm;
  std::vector<std::unique_ptr<Runtime>> runtimes;
  for (int i = 0; i < 3; ++i) runtimes.push_back(std::move(Runtime::create(config)).value());
  const auto id = runtimes[0]->service().unique_id().value();
  Outcome outcome;
  outcome.statuses.resize(3);
  TimePoint wrong_at{};
  on_all_ranks(3, [&](int rank) {
    const auto r = static_cast<size_t>(rank);
    if (rank == 1) {
      Imposter imposter(*runtimes[r], id, label);
      std::this_thread::sleep_for(fake::patient(milliseconds(200)));
      wrong_at = steady_clock().now();
      return go_wrong(imposter.session());
    }
    CommunicatorOptions options;
    options.rank = rank;
    options.n_ranks = 3;
    options.cluster = "A";
    outcome.statuses[r] = Communicator::create(*runtimes[r], id, options).status();
  });
  outcome.took = std::chrono::duration_cast<milliseconds>(steady_clock().now() - wrong_at);
  return outcome;
}

void check_told(const Outcome& outcome, const std::string& text) {
  for (const size_t rank : {size_t{0}, size_t{2}}) {
    CAPTURE(outcome.statuses[rank].message());
    CHECK(outcome.statuses[rank].code() == ErrorCode::RemoteError);
    CHECK(outcome.statuses[rank].message().find(text) != std::string::npos);
  }
  CHECK(outcome.took < fake::kHang);
}

}  // namespace

TEST_CASE("a rank that fails in the cluster's library or in connecting ends the others' waits") {
  const auto fail = [](bootstrap::Session& session) {
    session.report({ErrorCode::RemoteError, 1, "rank 1: its cable is cut"});
  };
  for (const bool shm : {true, false}) {
    check_told(open_with("A", shm, fail), "rank 1: its cable is cut");
    check_told(open_with("B", shm, fail), "rank 1: its cable is cut");
  }
}

TEST_CASE("a rank that leaves while others set up ends their waits") {
  const auto leave = [](bootstrap::Session& session) { session.leave(0); };
  check_told(open_with("A", true, leave), "rank 1 left while the communicator was being set up");
  check_told(open_with("B", false, leave), "rank 1");
}

namespace {

std::vector<Status> statuses_of(const std::vector<Config>& configs, const std::string& device) {
  const auto n = static_cast<int>(configs.size());
  std::vector<std::unique_ptr<Runtime>> runtimes;
  for (const Config& config : configs)
    runtimes.push_back(std::move(Runtime::create(config)).value());
  const auto id = runtimes[0]->service().unique_id().value();
  std::vector<Status> statuses(configs.size());
  on_all_ranks(n, [&](int rank) {
    const auto r = static_cast<size_t>(rank);
    CommunicatorOptions options;
    options.rank = rank;
    options.n_ranks = n;
    if (rank == 1) options.device = device;
    statuses[r] = Communicator::create(*runtimes[r], id, options).status();
  });
  return statuses;
}

size_t occurrences(const std::string& text, const std::string& part) {
  size_t n = 0;
  for (size_t at = text.find(part); at != text.npos; at = text.find(part, at + 1)) ++n;
  return n;
}

}  // namespace

TEST_CASE("what one rank cannot do is the same error on every rank, and names that rank once") {
  const auto statuses = statuses_of(std::vector<Config>(2), "no such device");
  for (const Status& status : statuses) {
    CAPTURE(status.message());
    CHECK(status.message().starts_with("rank 1: device \"no such device\" is not available;"));
    CHECK(occurrences(status.message(), "rank ") == 1);
  }
}

TEST_CASE("ranks that disagree on a setting are named once, in the same words on every rank") {
  std::vector<Config> configs(2);
  configs[1].slice_bytes = 4096;
  for (const Status& status : statuses_of(configs, "")) {
    CHECK(status.message() ==
          "rank 0 has HETCCL_SLICE_BYTES=0, rank 1 has HETCCL_SLICE_BYTES=4096: set it equally "
          "everywhere");
  }
}

TEST_CASE("a rank that cannot join names itself once") {
  Config config;
  config.init_timeout_ms = 300;
  const auto gone = Runtime::create(config).value()->service().unique_id().value();
  const auto runtime = Runtime::create(config).value();
  CommunicatorOptions options;
  options.rank = 2;
  options.n_ranks = 4;
  const Status status = Communicator::create(*runtime, gone, options).status();
  CAPTURE(status.message());
  CHECK(status.message().starts_with("rank 2 of 4: cannot join: "));
  CHECK(occurrences(status.message(), "rank ") == 1);
}

TEST_CASE("ranks whose connections take more descriptors than the soft limit allows connect") {
  const fake::DescriptorLimits limits;
  limits.soft(128);
  Config config;
  config.transport_shm = false;
  config.tcp_streams = 32;  // to each of four others, at both ends here: 640 connections
  Ranks ranks({"A", "B", "C", "D", "E"}, config, true);
  CHECK(run(ranks, all_reduce(ranks, 1000), false) == "");
}
