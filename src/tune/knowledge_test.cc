#include "tune/knowledge.h"

#include <doctest/doctest.h>

#include <cmath>
#include <random>

#include "golden/random_topology.h"
#include "tune/correction.h"

namespace hetccl::tune {
namespace {

const Key kKnownKey{Collective::AllReduce, 20, 4, -1};

Learnt learnt(uint8_t size_class, double us) {
  Key key = kKnownKey;
  key.size_class = size_class;
  const Setting setting{"exchange", {.slice_bytes = 65'536, .depth = 3}, {}};
  return {key, setting, uint64_t{1} << size_class, us, 2 * us, 9};
}

TEST_CASE("knowledge: the same layout on other machines of the kind has the same fingerprint") {
  const auto infos = test::layout_topology("AABB").infos();
  const auto fingerprint = [](std::vector<topology::RankInfo> of, const char* settings = "") {
    return fingerprint_of(topology::Topology::build(std::move(of)).value(), settings, 100);
  };
  auto renamed = infos;
  for (auto& info : renamed) {
    info.host = "other " + info.host;
    info.pid += 7;
  }
  CHECK(fingerprint(infos).digest == fingerprint(renamed).digest);
  CHECK(fingerprint(infos).digest.size() == 16);
  CHECK(fingerprint(infos).summary.starts_with("2 "));
  CHECK(fingerprint(infos).digest != fingerprint(infos, "HETCCL_SHM=0\n").digest);
  auto others = infos;
  others[0].model = "another";
  CHECK(fingerprint(infos).digest != fingerprint(others).digest);
  auto job = infos, next_job = infos, next_version = infos;
  for (auto& info : job) info.library_version = "4.1; job 1";
  for (auto& info : next_job) info.library_version = "4.1; job 2";
  for (auto& info : next_version) info.library_version = "4.2; job 1";
  CHECK(fingerprint(job).digest == fingerprint(next_job).digest);
  CHECK(fingerprint(job).digest != fingerprint(next_version).digest);
}

TEST_CASE(
    "knowledge: entries survive the file, newer replace older ones, fingerprints stay apart") {
  const Fingerprint here{"0123456789abcdef", "here"}, there{"fedcba9876543210", "there"};
  Knowledge knowledge;
  knowledge.add(here, {learnt(20, 100), learnt(21, 200)}, 1000);
  knowledge.add(here, {learnt(20, 50)}, 2000);
  knowledge.add(here, {learnt(21, 1)}, 500);
  knowledge.add(there, {learnt(20, 7)}, 1000);
  const auto back = Knowledge::parse(knowledge.dump());
  REQUIRE(back.ok());
  const auto found = back.value().find(here);
  REQUIRE(found.size() == 2);
  CHECK(found[0].us == 50);
  CHECK(found[1].us == 200);
  CHECK(found[0].setting == learnt(20, 1).setting);
  CHECK(found[0].trials == 9);
  CHECK(back.value().find(there).size() == 1);
  CHECK(back.value().find({"0000000000000000", ""}).empty());
}

TEST_CASE("knowledge: what is no such file is refused, and entries of others are left out") {
  CHECK(Knowledge::parse("{}").status().code() == ErrorCode::InvalidArgument);
  CHECK(Knowledge::parse("nonsense").status().code() == ErrorCode::InvalidArgument);
  CHECK(Knowledge::parse(R"({"hetccl_tuning": 9, "entries": []})").status().code() ==
        ErrorCode::Unsupported);
  Knowledge knowledge;
  knowledge.add({"0123456789abcdef", ""}, {learnt(20, 100)}, 1);
  std::string text = knowledge.dump();
  text.replace(text.find("exchange"), 8, "tomorrow");
  const auto other = Knowledge::parse(text);
  REQUIRE(other.ok());
  CHECK(other.value().size() == 0);
}

TEST_CASE("knowledge: broken files harm nothing") {
  Knowledge knowledge;
  knowledge.add({"0123456789abcdef", "x"}, {learnt(20, 100), learnt(3, 5)}, 1);
  const std::string whole = knowledge.dump();
  std::mt19937 random(7);
  for (int i = 0; i < 3000; ++i) {
    std::string text = whole;
    for (size_t n = 1 + random() % 4; n > 0; --n)
      text[random() % text.size()] = static_cast<char>(random());
    const auto parsed = Knowledge::parse(text);
    if (parsed.ok()) static_cast<void>(parsed.value().dump());
  }
}

TEST_CASE("knowledge: of too many entries the oldest are dropped") {
  Knowledge knowledge;
  for (size_t i = 0; i < Knowledge::kMostEntries + 10; ++i)
    knowledge.add({format("%016zx", i), ""}, {learnt(20, 1)}, static_cast<int64_t>(i));
  CHECK(knowledge.size() == Knowledge::kMostEntries);
  CHECK(knowledge.find({format("%016zx", size_t{9}), ""}).empty());
  CHECK(knowledge.find({format("%016zx", size_t{10}), ""}).size() == 1);
}

TEST_CASE("knowledge: the newest comes first, and as much of it as fits") {
  const Fingerprint here{"0123456789abcdef", "here"};
  Knowledge knowledge;
  for (int i = 0; i < 40; ++i)
    knowledge.add(here, {learnt(static_cast<uint8_t>(i), i + 1)}, (i + 20) % 40);
  const auto all = knowledge.find(here);
  REQUIRE(all.size() == 40);
  CHECK(all[0].us == 20);
  CHECK(all[39].us == 21);
  const size_t bytes = to_json(all).dump().size();
  CHECK(first_that_fit(all, bytes + 100).size() == 40);
  const auto half = first_that_fit(all, bytes / 2);
  CHECK(half.size() > 15);
  CHECK(to_json(half).dump().size() <= bytes / 2);
  CHECK(half[0].us == 20);
  CHECK(first_that_fit(all, 2).empty());
}

TEST_CASE("knowledge: an entry of the future gives way to this job's") {
  const Fingerprint here{"0123456789abcdef", "here"};
  Knowledge knowledge;
  knowledge.add(here, {learnt(20, 100)}, INT64_MAX);
  knowledge.correct_times(1000);
  knowledge.add(here, {learnt(20, 50)}, 1000);
  CHECK(knowledge.find(here)[0].us == 50);
}

TEST_CASE("correction: known sizes are met, others lie between; other collectives are left alone") {
  const topology::Topology topology = test::layout_topology("AABB");
  Chooser chooser(topology, {});
  const auto predicted = [&](uint64_t bytes) {
    return 1e6 * chooser.choose({Collective::AllReduce}, bytes, DataType::Int8).seconds;
  };
  // Its calls took `tuned` times the predicted time, calls with the default setting `normal` times.
  const auto known = [&](uint8_t size_class, double tuned, double normal) {
    Learnt one = learnt(size_class, tuned * predicted(uint64_t{1} << size_class));
    one.default_us = normal * predicted(uint64_t{1} << size_class);
    return one;
  };
  const Correction correction(chooser, topology, {known(12, 3, 4), known(20, 1.5, 2)});
  const auto factor = [&](uint8_t size_class, Key key = kKnownKey) {
    key.size_class = size_class;
    return correction.factor(key, uint64_t{1} << size_class);
  };
  CHECK(factor(12) == doctest::Approx(3));
  CHECK(factor(20) == doctest::Approx(1.5));
  CHECK(factor(16) == doctest::Approx(std::sqrt(8)));
  CHECK(factor(4) == doctest::Approx(4));
  CHECK(factor(26) == doctest::Approx(2));
  CHECK(factor(20, {Collective::AllGather}) == 1);
}

}  // namespace
}  // namespace hetccl::tune
