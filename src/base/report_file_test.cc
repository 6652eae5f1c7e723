#include "base/report_file.h"

#include <doctest/doctest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

namespace hetccl {
namespace {

TEST_CASE("patterns take rank, process and communicator, and nothing else") {
  for (const char* good : {"", "/tmp/x", "%r", "/a/%r.%p.%c.json", "100%%"}) {
    CHECK(is_report_pattern(good));
  }
  for (const char* bad : {"%", "a%", "%x", "%%%", "%R", "% r"}) CHECK_FALSE(is_report_pattern(bad));
  CHECK(report_path("/a/%r-%c%%.json", {3, 12}) == "/a/3-12%.json");
  CHECK(report_path("%p", {}) == std::to_string(getpid()));
}

TEST_CASE("a report appears whole or not at all") {
  char folder[] = "/tmp/hetccl-report-XXXXXX";
  REQUIRE(mkdtemp(folder) != nullptr);
  const std::string path = std::string(folder) + "/report";
  CHECK(write_report(path, "one").ok());
  CHECK(write_report(path, std::string(100'000, 'x')).ok());
  std::ifstream file(path);
  const std::string text((std::istreambuf_iterator<char>(file)), {});
  CHECK(text == std::string(100'000, 'x'));
  const Status nowhere = write_report(std::string(folder) + "/none/report", "x");
  CHECK(nowhere.code() == Code::SystemError);
  CHECK(nowhere.message().find("/none/report: No such file") != std::string::npos);
  CHECK_FALSE(write_report(folder, "x").ok());
  const auto files = std::filesystem::directory_iterator(folder);
  CHECK(std::distance(begin(files), end(files)) == 1);
  std::filesystem::remove_all(folder);
}

TEST_CASE("steady time becomes the wall's") {
  const WallClock wall;
  const auto now = std::chrono::duration<double, std::micro>(
      std::chrono::system_clock::now().time_since_epoch());
  CHECK(std::abs(wall.microseconds(steady_clock().now()) - now.count()) < 1e6);
}

}  // namespace
}  // namespace hetccl
