// Results of earlier jobs, for later ones: the contents of HETCCL_TUNE_FILE.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "topology/topology.h"
#include "tune/conductor.h"

namespace hetccl::tune {

/// Identifies everything in a topology and in the settings that changes times. Entries apply to
/// jobs with the same fingerprint: on equal machines, whatever their names.
struct Fingerprint {
  std::string digest;   ///< 16 hexadecimal digits
  std::string summary;  ///< for people: "2 host + 2 host by tcp"
};
/// Returns 16 hexadecimal digits, the digest of a text.
[[nodiscard]] std::string digest_of(std::string_view text);
/// `settings`: those that ranks agree on. `version`: hetccl's.
[[nodiscard]] Fingerprint fingerprint_of(const topology::Topology& topology,
                                         std::string_view settings, int version);

/// Larger measured times, in microseconds, are refused.
inline constexpr double kMostUs = 1e12;

/// Pure: callers read and write the files.
class Knowledge {
 public:
  static constexpr size_t kMostBytes = size_t{4} << 20U;
  static constexpr size_t kMostEntries = 8192;

  /// Returns InvalidArgument if the text is no such file, Unsupported if its format has another
  /// version.
  static Result<Knowledge> parse(std::string_view text);
  [[nodiscard]] std::string dump() const;

  /// Adds entries. Newer ones replace older ones of the same fingerprint and key; beyond
  /// kMostEntries the oldest are dropped. `time`: seconds since the Unix epoch.
  void add(const Fingerprint& fingerprint, const std::vector<Learnt>& learnt, int64_t time);
  /// Sets times after `now`, from another machine's clock, to `now`.
  void correct_times(int64_t now);
  /// Returns the newest first.
  [[nodiscard]] std::vector<Learnt> find(const Fingerprint& fingerprint) const;
  [[nodiscard]] size_t size() const { return entries_.size(); }

 private:
  struct Entry {
    Learnt learnt;
    std::string summary;
    int64_t time = 0;
  };
  using Entries = std::map<std::pair<std::string, Key>, Entry>;
  void drop_oldest();

  Entries entries_;  // by digest and key
};

/// Encodes the entries of one fingerprint as a JSON array, which rank 0 sends to the others, and
/// decodes it. Decoding skips malformed entries.
[[nodiscard]] Json to_json(const std::vector<Learnt>& learnt);
/// Returns the first of `learnt`, as many as fit into `most_bytes` of that form.
[[nodiscard]] std::vector<Learnt> first_that_fit(std::vector<Learnt> learnt, size_t most_bytes);
[[nodiscard]] std::vector<Learnt> learnt_from_json(const Json& json);

}  // namespace hetccl::tune
