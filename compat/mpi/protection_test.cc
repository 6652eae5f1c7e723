#include "mpi/protection.h"

#include <doctest/doctest.h>

namespace hetccl::mpi {
namespace {

Settings encrypting(uint64_t host) {
  return {.host = host, .asks = 1, .encrypts = 1};
}

bool has(const std::string& text, const char* part) {
  return text.find(part) != std::string::npos;
}

TEST_CASE("protection: without security settings every job may run") {
  CHECK(find_refusal({{.host = 1}, {.host = 2}}).empty());
  CHECK(find_refusal({{.host = 1}, {.host = 2, .is_readable = 0}}).empty());
  CHECK(find_refusal({{.host = 1, .asks = 1, .has_secret_file = 1},
                      {.host = 2, .asks = 1, .has_secret_file = 1}})
            .empty());
}

TEST_CASE("protection: encryption across hosts takes a permission and a secret file") {
  CHECK(find_refusal({encrypting(1), encrypting(1)}).empty());
  std::vector<Settings> ranks = {encrypting(1), encrypting(1), encrypting(2)};
  CHECK(has(find_refusal(ranks), "the ranks are on 2 hosts"));
  CHECK(has(find_refusal(ranks), "HETCCL_ALLOW_MPI_CLEARTEXT=1"));
  ranks[0].allows_cleartext = ranks[1].allows_cleartext = 1;
  CHECK(has(find_refusal(ranks), "the ranks are on 2 hosts"));
  ranks[2].allows_cleartext = 1;
  CHECK(has(find_refusal(ranks), "needs HETCCL_SECRET_FILE"));
  for (Settings& rank : ranks) rank.has_secret_file = 1;
  CHECK(find_refusal(ranks).empty());
}

TEST_CASE("protection: one rank without the setting, or with a bad one, ends the job by name") {
  CHECK(has(find_refusal({encrypting(1), {.host = 1}}),
            "HETCCL_ENCRYPT=1 is set on rank 0, but not on rank 1"));
  CHECK(has(find_refusal({{.host = 1}, {.host = 1, .asks = 1, .has_secret_file = 1}}),
            "HETCCL_SECRET_FILE is set on rank 1, but not on rank 0"));
  CHECK(has(find_refusal({encrypting(1), {.host = 1, .is_readable = 0}}),
            "rank 1 cannot read its settings"));
  CHECK(has(find_refusal({{.host = 1, .is_readable = 0, .asks = 1}}),
            "rank 0 cannot read its settings"));
}

TEST_CASE("protection: a job that leaves all calls to the MPI is promised nothing") {
  Settings off = encrypting(1), far = encrypting(2);
  off.serves = far.serves = 0;
  CHECK(find_refusal({off, far}).empty());
  far.serves = 1;
  CHECK(has(find_refusal({off, far}), "2 hosts"));
}

}  // namespace
}  // namespace hetccl::mpi
