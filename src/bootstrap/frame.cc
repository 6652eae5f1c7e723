#include "bootstrap/frame.h"

#include <algorithm>
#include <string_view>
#include <type_traits>

#include "base/config.h"
#include "base/little_endian.h"
#include "base/printable.h"

namespace hetccl::bootstrap {

namespace {

/// Builds one frame; the header is filled in at the end.
class Writer {
 public:
  template <typename T>
  void integer(T value) {
    bytes_.resize(bytes_.size() + sizeof value);
    put_number(bytes_.data() + bytes_.size() - sizeof value, value);
  }
  void raw(std::span<const uint8_t> bytes) {
    bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
  }
  void text(std::string_view text, size_t limit) {
    text = text.substr(0, limit);
    integer(static_cast<uint32_t>(text.size()));
    bytes_.insert(bytes_.end(), text.begin(), text.end());
  }
  /// `more`: payload bytes that are sent separately.
  Bytes frame(FrameType type, size_t more = 0) && {
    const size_t payload = bytes_.size() - kHeaderBytes + more;
    encode_header({static_cast<uint32_t>(payload), type}, bytes_.data());
    return std::move(bytes_);
  }

 private:
  Bytes bytes_ = Bytes(kHeaderBytes);
};

/// Reads a payload. After a read beyond its end, everything is zero and `complete` is false.
class Reader {
 public:
  explicit Reader(std::span<const uint8_t> payload) : rest_(payload) {}
  template <typename T>
  void integer(T* out) {
    const std::span<const uint8_t> bytes = take(sizeof(T));
    *out = bytes.empty() ? T{} : get_number<T>(bytes.data());
  }
  void text(std::string* out, size_t limit) {
    uint32_t length = 0;
    integer(&length);
    if (length > limit) intact_ = false;
    const std::span<const uint8_t> bytes = take(length);
    *out = printable({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, limit);
  }
  std::span<const uint8_t> rest() { return take(rest_.size()); }
  /// Returns whether exactly the whole payload was read.
  [[nodiscard]] bool complete() const { return intact_ && rest_.empty(); }

 private:
  std::span<const uint8_t> take(size_t bytes) {
    if (!intact_ || bytes > rest_.size()) {
      intact_ = false;
      return {};
    }
    const std::span<const uint8_t> taken = rest_.first(bytes);
    rest_ = rest_.subspan(bytes);
    return taken;
  }
  std::span<const uint8_t> rest_;
  bool intact_ = true;
};

void write(Writer& writer, const Failure& failure) {
  writer.integer(static_cast<uint32_t>(failure.code));
  writer.integer(static_cast<int32_t>(failure.rank));
  writer.text(failure.reason, kMaxReason);
}

// Returns false for an unknown code.
bool read(Reader& reader, Failure* failure) {
  uint32_t code = 0;
  reader.integer(&code);
  reader.integer(&failure->rank);
  reader.text(&failure->reason, kMaxReason);
  failure->code = static_cast<ErrorCode>(code);
  return code > 0 && code <= static_cast<uint32_t>(ErrorCode::Unsupported);
}

template <typename T>
std::optional<T> if_complete(const Reader& reader, T value) {
  if (!reader.complete()) return std::nullopt;
  return value;
}

}  // namespace

void encode_header(const Header& header, uint8_t* out) {
  put_number(out, header.payload_bytes);
  put_number(out + 4, static_cast<uint32_t>(header.type));
}

std::optional<Header> decode_header(const uint8_t* in) {
  const auto payload_bytes = get_number<uint32_t>(in);
  const auto type = get_number<uint32_t>(in + 4);
  const bool known = type >= static_cast<uint32_t>(FrameType::Join) &&
                     type <= static_cast<uint32_t>(FrameType::Heard);
  if (!known || payload_bytes > kMaxPayload) return std::nullopt;
  return Header{payload_bytes, static_cast<FrameType>(type)};
}

Bytes encode(const Join& join) {
  Writer writer;
  writer.integer(join.rank);
  writer.integer(join.n_ranks);
  writer.integer(join.timeout_ms);
  writer.integer(join.remaining_ms);
  writer.integer(join.liveness_ms);
  writer.integer(join.service);
  writer.text(join.description, kMaxDescription);
  return std::move(writer).frame(FrameType::Join);
}

std::optional<Join> decode_join(std::span<const uint8_t> payload) {
  Reader reader(payload);
  Join join;
  reader.integer(&join.rank);
  reader.integer(&join.n_ranks);
  reader.integer(&join.timeout_ms);
  reader.integer(&join.remaining_ms);
  reader.integer(&join.liveness_ms);
  reader.integer(&join.service);
  reader.text(&join.description, kMaxDescription);
  if (join.liveness_ms < kLeastLivenessMs || join.liveness_ms > kDayMs) return std::nullopt;
  return if_complete(reader, std::move(join));
}

Bytes encode(const Welcome& welcome) {
  Writer writer;
  writer.integer(welcome.coordinator_rank);
  writer.text(welcome.coordinator, kMaxDescription);
  return std::move(writer).frame(FrameType::Welcome);
}

std::optional<Welcome> decode_welcome(std::span<const uint8_t> payload) {
  Reader reader(payload);
  Welcome welcome;
  reader.integer(&welcome.coordinator_rank);
  reader.text(&welcome.coordinator, kMaxDescription);
  return if_complete(reader, std::move(welcome));
}

Bytes encode(const Contribution& contribution) {
  Writer writer;
  writer.integer(contribution.sequence);
  writer.integer(contribution.timeout_ms);
  writer.raw(contribution.bytes);
  return std::move(writer).frame(FrameType::Contribution);
}

std::optional<Contribution> decode_contribution(std::span<const uint8_t> payload) {
  Reader reader(payload);
  Contribution contribution;
  reader.integer(&contribution.sequence);
  reader.integer(&contribution.timeout_ms);
  contribution.bytes = reader.rest();
  if (contribution.bytes.size() > kMaxContribution) return std::nullopt;
  return if_complete(reader, contribution);
}

Bytes encode_without_bytes(const Gathered& piece) {
  Writer writer;
  writer.integer(piece.sequence);
  writer.integer(piece.expanded);
  writer.integer(piece.total);
  writer.integer(piece.offset);
  return std::move(writer).frame(FrameType::Gathered, piece.bytes.size());
}

std::optional<Gathered> decode_gathered(std::span<const uint8_t> payload) {
  Reader reader(payload);
  Gathered piece;
  reader.integer(&piece.sequence);
  reader.integer(&piece.expanded);
  reader.integer(&piece.total);
  reader.integer(&piece.offset);
  piece.bytes = reader.rest();
  return if_complete(reader, piece);
}

Bytes encode(FrameType type, const Failure& failure) {
  Writer writer;
  write(writer, failure);
  return std::move(writer).frame(type);
}

std::optional<Failure> decode_failure(std::span<const uint8_t> payload) {
  Reader reader(payload);
  Failure failure;
  if (!read(reader, &failure)) return std::nullopt;
  return if_complete(reader, std::move(failure));
}

Bytes encode(const Stall& stall) {
  Writer writer;
  write(writer, stall.failure);
  writer.integer(stall.sequence);
  writer.text(stall.call, kMaxCall);
  writer.text(stall.detail, kMaxReason);
  return std::move(writer).frame(FrameType::Stalled);
}

std::optional<Stall> decode_stall(std::span<const uint8_t> payload) {
  Reader reader(payload);
  Stall stall;
  if (!read(reader, &stall.failure)) return std::nullopt;
  reader.integer(&stall.sequence);
  reader.text(&stall.call, kMaxCall);
  reader.text(&stall.detail, kMaxReason);
  return if_complete(reader, std::move(stall));
}

Bytes encode(const Position& position) {
  Writer writer;
  writer.integer(position.called);
  writer.integer(position.completed);
  writer.text(position.call, kMaxCall);
  return std::move(writer).frame(FrameType::Whereabouts);
}

std::optional<Position> decode_position(std::span<const uint8_t> payload) {
  Reader reader(payload);
  Position position;
  reader.integer(&position.called);
  reader.integer(&position.completed);
  reader.text(&position.call, kMaxCall);
  return if_complete(reader, std::move(position));
}

Bytes encode(const std::vector<Departure>& departures) {
  Writer writer;
  for (const Departure& departure : departures) {
    writer.integer(departure.rank);
    writer.integer(departure.called);
  }
  return std::move(writer).frame(FrameType::Departed);
}

std::optional<std::vector<Departure>> decode_departures(std::span<const uint8_t> payload) {
  constexpr size_t kBytes = sizeof(int32_t) + sizeof(uint64_t);
  if (payload.size() % kBytes != 0) return std::nullopt;
  Reader reader(payload);
  std::vector<Departure> departures(payload.size() / kBytes);
  for (Departure& departure : departures) {
    reader.integer(&departure.rank);
    reader.integer(&departure.called);
  }
  return if_complete(reader, std::move(departures));
}

Bytes encode(FrameType type, const Note& note) {
  Writer writer;
  writer.integer(note.peer);
  writer.raw(note.bytes);
  return std::move(writer).frame(type);
}

std::optional<Note> decode_note(std::span<const uint8_t> payload) {
  Reader reader(payload);
  Note note;
  reader.integer(&note.peer);
  note.bytes = reader.rest();
  if (note.bytes.size() > kMaxNote) return std::nullopt;
  return if_complete(reader, note);
}

Bytes encode_knock(std::span<const uint8_t> words) {
  Writer writer;
  writer.raw(words);
  return std::move(writer).frame(FrameType::Knock);
}

Bytes encode_number(FrameType type, uint64_t number) {
  Writer writer;
  writer.integer(number);
  return std::move(writer).frame(type);
}

std::optional<uint64_t> decode_number(std::span<const uint8_t> payload) {
  Reader reader(payload);
  uint64_t number = 0;
  reader.integer(&number);
  return if_complete(reader, number);
}

Bytes encode_empty(FrameType type) {
  return Writer().frame(type);
}

Bytes concatenate(const std::vector<Bytes>& parts) {
  size_t total = 0;
  for (const Bytes& part : parts) total += part.size();
  if (total == 0) return {};
  total += parts.size() * sizeof(uint32_t);
  Bytes all(total);
  uint8_t* out = all.data();
  for (const Bytes& part : parts) {
    put_number(out, static_cast<uint32_t>(part.size()));
    out = std::copy(part.begin(), part.end(), out + sizeof(uint32_t));
  }
  return all;
}

std::optional<std::vector<Bytes>> split(std::span<const uint8_t> concatenation, size_t n_parts) {
  if (concatenation.empty()) return std::vector<Bytes>(n_parts);
  const size_t n_bytes = concatenation.size();
  std::vector<Bytes> parts;
  parts.reserve(n_parts);
  while (parts.size() < n_parts) {
    if (concatenation.size() < sizeof(uint32_t)) return std::nullopt;
    const size_t length = get_number<uint32_t>(concatenation.data());
    concatenation = concatenation.subspan(sizeof(uint32_t));
    if (length > concatenation.size()) return std::nullopt;
    parts.emplace_back(concatenation.begin(),
                       concatenation.begin() + static_cast<ptrdiff_t>(length));
    concatenation = concatenation.subspan(length);
  }
  // If there are no parts, or only empty ones, the concatenation is empty.
  if (!concatenation.empty() || n_bytes == n_parts * sizeof(uint32_t)) return std::nullopt;
  return parts;
}

}  // namespace hetccl::bootstrap
