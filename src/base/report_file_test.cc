#include "base/report_file.h"

#include <doctest/doctest.h>
#include <sys/stat.h>
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
  CHECK(nowhere.code() == ErrorCode::SystemError);
  CHECK(nowhere.message().find("/none/report: No such file") != std::string::npos);
  CHECK_FALSE(write_report(folder, "x").ok());
  const auto files = std::filesystem::directory_iterator(folder);
  CHECK(std::distance(begin(files), end(files)) == 1);
  std::filesystem::remove_all(folder);
}

TEST_CASE("a report is its owner's alone, and goes through no link and into no FIFO") {
  char folder[] = "/tmp/hetccl-report-XXXXXX";
  REQUIRE(mkdtemp(folder) != nullptr);
  const std::string path = std::string(folder) + "/report",
                    victim = std::string(folder) + "/victim";
  const auto text_of = [](const std::string& name) {
    std::ifstream file(name);
    return std::string((std::istreambuf_iterator<char>(file)), {});
  };
  const mode_t mask = ::umask(0);
  std::ofstream(path) << "an older report, which anybody may read";
  CHECK(write_report(path, "newer").ok());
  ::umask(mask);
  CHECK(text_of(path) == "newer");
  struct stat info{};
  REQUIRE(::stat(path.c_str(), &info) == 0);
  CHECK((info.st_mode & 07777) == 0600);

  std::ofstream(victim) << "untouched";
  // Obstacles that others may put where the report and its draft are expected.
  std::filesystem::remove(path);
  std::filesystem::create_symlink(victim, path + format(".%d.part", getpid()));
  CHECK(write_report(path, "newer").ok());
  CHECK(text_of(victim) == "untouched");
  std::filesystem::remove(path);
  std::filesystem::create_symlink(victim, path);
  const Status refused = write_report(path, "newest");
  CHECK(refused.message().find("report: it is no regular file") != std::string::npos);
  CHECK(text_of(victim) == "untouched");
  CHECK(std::filesystem::is_symlink(path));
  std::filesystem::remove(path);
  REQUIRE(::mkfifo(path.c_str(), 0600) == 0);
  CHECK_FALSE(write_report(path, "newest").ok());
  CHECK(std::filesystem::is_fifo(path));
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
