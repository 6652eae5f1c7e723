#include "tune/knowledge_file.h"

#include <doctest/doctest.h>

#include <cstdlib>
#include <filesystem>

#include "base/file.h"

namespace hetccl::tune {
namespace {

const Fingerprint kFingerprint{"0123456789abcdef", "somewhere"};

struct Rig {
  std::string folder = "/tmp/hetccl-knowledge-XXXXXX";
  std::vector<std::string> lines;

  Rig() { REQUIRE(mkdtemp(folder.data()) != nullptr); }
  ~Rig() { std::filesystem::remove_all(folder); }
  [[nodiscard]] std::string path() const { return folder + "/tuning.json"; }
  KnowledgeFile file() {
    return {path(), [this](const std::string& line) { lines.push_back(line); }};
  }
  [[nodiscard]] std::string text(const std::string& of) const {
    return read_file(of, Knowledge::kMostBytes).value();
  }
  static std::vector<Learnt> learnt(uint8_t size_class) {
    Learnt one;
    one.key = {Collective::AllGather, size_class};
    one.setting = vendor_setting({});
    one.us = one.default_us = 10;
    return {one};
  }
};

TEST_CASE("knowledge file: what several add is there, and nothing where there is no file") {
  Rig rig;
  CHECK(rig.file().read().size() == 0);
  rig.file().add(kFingerprint, Rig::learnt(10));
  rig.file().add(kFingerprint, Rig::learnt(11));
  rig.file().add(kFingerprint, {});
  CHECK(rig.file().read().find(kFingerprint).size() == 2);
  KnowledgeFile("", [](const std::string&) { FAIL("there is no file"); }).add(kFingerprint, {});
  CHECK(rig.lines.empty());
}

TEST_CASE("knowledge file: what is no such file is named, kept aside and replaced") {
  Rig rig;
  const std::string somebodys = "root:x:0:0:";
  REQUIRE(replace_file(rig.path(), somebodys).ok());
  CHECK(rig.file().read().size() == 0);
  REQUIRE(rig.lines.size() == 1);
  CHECK(rig.lines[0].find("HETCCL_TUNE_FILE=" + rig.path() + ": ") == 0);
  rig.file().add(kFingerprint, Rig::learnt(10));
  CHECK(rig.text(rig.path() + ".damaged") == somebodys);
  CHECK(rig.file().read().size() == 1);
  CHECK(rig.lines.size() == 2);
}

TEST_CASE("knowledge file: another version's stays, and so does what is no file") {
  Rig rig;
  const std::string newer = R"({"hetccl_tuning": 2, "entries": []})";
  REQUIRE(replace_file(rig.path(), newer).ok());
  rig.file().add(kFingerprint, Rig::learnt(10));
  CHECK(rig.text(rig.path()) == newer);
  REQUIRE(rig.lines.size() == 1);
  CHECK(rig.lines[0].find("not kept") != std::string::npos);
  std::filesystem::remove(rig.path());
  std::filesystem::create_directory(rig.path());
  rig.file().add(kFingerprint, Rig::learnt(10));
  CHECK(rig.file().read().size() == 0);
  CHECK(rig.lines.size() == 3);
}

}  // namespace
}  // namespace hetccl::tune
