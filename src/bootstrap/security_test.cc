// HETCCL_ENCRYPT and HETCCL_SECRET_FILE on the control plane: equal settings work; a difference is
// told to every rank that can be told.
#include <doctest/doctest.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "bootstrap/testing.h"
#include "net/socket.h"

namespace hetccl::bootstrap {
namespace {

using namespace testing;

struct Settings {
  bool encrypt = false;
  std::string secret_file;
};

std::unique_ptr<Service> service_with(const Settings& settings) {
  Config made = config();
  made.encrypt = settings.encrypt;
  made.secret_file = settings.secret_file;
  return Service::create(made, Log{LogLevel::Error}).value();
}

class SecretFiles {
 public:
  SecretFiles() {
    char name[] = "/tmp/hetccl-secrets-XXXXXX";
    REQUIRE(::mkdtemp(name) != nullptr);
    folder_ = name;
  }
  ~SecretFiles() { std::filesystem::remove_all(folder_); }
  std::string operator()(const std::string& content) {
    const std::string path = folder_ + "/" + std::to_string(count_++);
    std::ofstream(path) << content;
    ::chmod(path.c_str(), 0600);
    return path;
  }

 private:
  std::string folder_;
  int count_ = 0;
};

// Returns the errors of ranks 0 and 1 of 3 (rank 2 joins later or never) and of rank 2.
std::vector<Status> join_three(const Settings& most, const Settings& odd, int64_t timeout_ms) {
  const auto one = service_with(most), other = service_with(odd);
  const auto id = one->unique_id();
  REQUIRE(id.ok());
  std::vector<Status> told(3);
  parallel(3, [&](int rank) {
    const auto at = static_cast<size_t>(rank);
    if (rank == 2) std::this_thread::sleep_for(std::chrono::milliseconds(100));
    told[at] = (rank == 2 ? other : one)->join(id.value(), options(rank, 3, timeout_ms)).status();
  });
  return told;
}

TEST_CASE("an encrypted control plane exchanges, and its failures name the culprit") {
  const Settings encrypted{true, ""};
  const auto one = service_with(encrypted), two = service_with(encrypted);
  const auto id = one->unique_id();
  std::vector<FailureBox> boxes(4);
  const Sessions sessions = join_all({one.get(), two.get()}, id.value(), 4, &boxes);
  REQUIRE(complete(sessions));
  std::vector<int> right(4);
  parallel(4, [&](int rank) {
    // Larger than any single read, record or batch.
    std::vector<uint8_t> mine(700'000 + static_cast<size_t>(rank), static_cast<uint8_t>(rank));
    const auto all = sessions[static_cast<size_t>(rank)]->all_gather(mine, kHangMs);
    bool good = all.ok();
    for (size_t from = 0; good && from < 4; ++from)
      good = all.value()[from] == std::vector<uint8_t>(700'000 + from, static_cast<uint8_t>(from));
    right[static_cast<size_t>(rank)] = good;
  });
  CHECK(right == std::vector<int>(4, 1));
  sessions[3]->report({ErrorCode::RemoteError, 2, "rank 2 is odd"});
  for (FailureBox& box : boxes) {
    const auto failure = box.wait();
    REQUIRE(failure.has_value());
    CHECK(failure->reason == "rank 2 is odd");
  }
}

TEST_CASE("a rank with another HETCCL_ENCRYPT is an error on every rank, at once") {
  for (const bool odd : {true, false}) {
    const auto start = steady_clock().now();
    const auto told = join_three({!odd, ""}, {odd, ""}, kHangMs);
    for (const Status& status : told) {
      CAPTURE(status.message());
      CHECK(status.code() == ErrorCode::InvalidUsage);
      CHECK(contains(status.message(), odd ? "HETCCL_ENCRYPT is 1 at rank 2 and 0 at the coord"
                                           : "HETCCL_ENCRYPT is 0 at rank 2 and 1 at the coord"));
    }
    CHECK(steady_clock().now() - start < kHang / 2);
  }
}

TEST_CASE("ranks with the same secret file join, encrypted or not") {
  SecretFiles files;
  for (const bool encrypt : {false, true}) {
    const Settings here{encrypt, files("the same secret on all")};
    const Settings there{encrypt, files("the same secret on all\n")};
    for (const Status& status : join_three(here, there, kHangMs)) CHECK(status.ok());
  }
}

TEST_CASE("a rank with another secret file, or none, is told so; the others when they miss it") {
  SecretFiles files;
  const std::string one = files("this is the secret"), other = files("that is a secret");
  const struct {
    Settings most, odd;
    const char* says;
  } cases[] = {{{false, one}, {false, other}, "content differs between rank 2 and the coordinator"},
               {{true, one}, {true, ""}, "not set at rank 2 and set at the coordinator"},
               {{false, ""}, {false, one}, "set at rank 2 and not set at the coordinator"}};
  for (const auto& test : cases) {
    const auto told = join_three(test.most, test.odd, patient_ms(700));
    CHECK(told[2].code() == ErrorCode::InvalidUsage);
    CHECK(contains(told[2].message(), test.says));
    for (const int rank : {0, 1}) {
      const Status& status = told[static_cast<size_t>(rank)];
      CAPTURE(status.message());
      CHECK(status.code() == ErrorCode::Timeout);
      CHECK(contains(status.message(), "rank 2 of 3 never came"));
      CHECK(contains(status.message(), "who said it was rank 2 was refused: HETCCL_SECRET_FILE"));
      CHECK(contains(status.message(), test.says));
    }
  }
}

TEST_CASE("ranks meet at a known place, by the file's secret alone") {
  SecretFiles files;
  const std::string secret = files("a secret of some bytes"), other = files("another secret, too");
  const uint16_t port = net::listen(config()).value().port;  // free again
  Config at_port = config();
  at_port.secret_file = secret;
  at_port.port_range = std::to_string(port) + "-" + std::to_string(port);
  const auto serves = Service::create(at_port, Log{LogLevel::Error}).value();
  const auto joins = service_with({false, secret}), stranger = service_with({false, other});
  const std::string place = "127.0.0.1:" + std::to_string(port);
  for (const uint64_t number : {0, 1}) {
    const UniqueId id = serves->id_at(place, number).value();
    CHECK(joins->id_at(place, number).value() == id);
    CHECK(joins->id_at(place, number + 2).value() != id);
    REQUIRE(serves->serve(id).ok());
    CHECK_FALSE(stranger->join(id, options(1, 2, 200)).ok());
    CHECK(complete(join_all({serves.get(), joins.get()}, id, 2)));
  }
  CHECK(contains(service()->id_at(place, 0).status().message(), "need HETCCL_SECRET_FILE"));
  CHECK_FALSE(joins->id_at("nowhere", 0).ok());
}

TEST_CASE("the secret of a session depends on the file, and a bad file is an error at once") {
  SecretFiles files;
  const auto with = service_with({false, files("a secret of some bytes")});
  const auto id = with->unique_id();
  const auto session = with->join(id.value(), options(0, 1));
  REQUIRE(session.ok());
  CHECK(session.value()->secret().size() == 32);
  CHECK(std::search(id.value().begin(), id.value().end(), session.value()->secret().begin(),
                    session.value()->secret().end()) == id.value().end());
  Config bad = config();
  bad.secret_file = files("short");
  const auto made = Service::create(bad, Log{LogLevel::Error});
  CHECK(made.status().code() == ErrorCode::InvalidArgument);
  CHECK(contains(made.status().message(), "must hold 16"));
}

}  // namespace
}  // namespace hetccl::bootstrap
