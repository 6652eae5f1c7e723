#include "net/resolve.h"

#include <doctest/doctest.h>

namespace hetccl::net {
namespace {

TEST_CASE("places are resolved, with their port") {
  CHECK(list_of(resolve("127.0.0.1:4711").value()) == "127.0.0.1:4711");
  CHECK(list_of(resolve("[::1]:80").value()) == "[::1]:80");
  CHECK(are_loopback(resolve("localhost:1").value()));
}

TEST_CASE("what is no place is refused with a reason") {
  for (const char* place : {"", ":", "127.0.0.1", "127.0.0.1:", ":80", "127.0.0.1:0",
                            "127.0.0.1:65536", "127.0.0.1:8x", "[]:80"}) {
    CAPTURE(place);
    CHECK(resolve(place).status().code() == ErrorCode::InvalidArgument);
  }
  CHECK(resolve("no.such.host.invalid:80").status().message().find("is not known") !=
        std::string::npos);
  CHECK_FALSE(resolve(std::string(100'000, 'x') + ":80").ok());
}

}  // namespace
}  // namespace hetccl::net
