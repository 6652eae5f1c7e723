#include "transport/message.h"

#include <bit>
#include <cinttypes>

#include "base/little_endian.h"

namespace hetccl::transport {

namespace {

constexpr uint64_t kMagic = 0x334d6c6363746568;  // "hetcclM3"

// Writes the fields of a header in their order on the wire.
class Writer {
 public:
  explicit Writer(uint8_t* out) : out_(out) {}
  template <typename T>
  void operator()(const T& value) {
    put_number(out_, value);
    out_ += sizeof value;
  }

 private:
  uint8_t* out_;
};

class Reader {
 public:
  explicit Reader(const uint8_t* in) : in_(in) {}
  template <typename T>
  void operator()(T& value) {
    value = get_number<T>(in_);
    in_ += sizeof value;
  }

 private:
  const uint8_t* in_;
};

// 8 + 4 x 8 + 2 x 8 + 2 x 4 + 3 + 4 + 3 x 8 + 1 = 96 bytes.
template <typename Visitor, typename AnyHeader, typename Magic, typename Form>
void visit(Visitor& visitor, AnyHeader& header, Magic& magic, Form& form) {
  visitor(magic);
  visitor(header.number);
  visitor(header.offset);
  visitor(header.bytes);
  visitor(header.total);
  visitor(header.info.communicator);
  visitor(header.info.sequence);
  visitor(header.info.slice);
  visitor(header.info.step);
  visitor(header.info.signature.collective);
  visitor(header.info.signature.type);
  visitor(header.info.signature.op);
  visitor(header.info.signature.root);
  visitor(header.info.signature.count);
  visitor(header.info.beside);
  visitor(header.info.round);
  visitor(form);
}

// Bit 0: uneven. Bits 1 to 3: the encoding's format. Bits 4 to 6: log2 of its block over the
// smallest block. Bit 7: stochastic.
constexpr int kLeastLog = std::countr_zero(Encoding::kLeastBlock);
uint8_t form_of(const Signature& signature) {
  const Encoding& encoding = signature.encoding;
  const unsigned uneven = signature.uneven ? 1 : 0;
  if (encoding.is_none()) return static_cast<uint8_t>(uneven);
  const auto block = static_cast<unsigned>(std::countr_zero(encoding.block) - kLeastLog);
  const unsigned wire = static_cast<unsigned>(encoding.format) << 1U | block << 4U;
  return static_cast<uint8_t>(uneven | wire | (encoding.stochastic ? 1U << 7U : 0U));
}

// Returns false for values that form_of never makes.
bool set_form(Signature& signature, uint8_t form) {
  signature.uneven = (form & 1U) != 0;
  if (form <= 1) return true;
  const unsigned log = (form >> 4U & 7U) + kLeastLog;
  signature.encoding = {static_cast<Format>(form >> 1U & 7U), static_cast<uint16_t>(1U << log),
                        form >> 7U != 0};
  const Encoding& encoding = signature.encoding;
  return encoding.format != Format::None && encoding.format <= Format::E5m2 &&
         encoding.block <= Encoding::kMostBlock;
}

bool is_valid(const Signature& signature) {
  return signature.collective <= Collective::PointToPoint && hetccl::is_valid(signature.type) &&
         hetccl::is_valid(signature.op);
}

const char* type_of(const MessageInfo& info) {
  return name_of(info.signature.type).data();  // it views a literal
}

Status differ(std::string what) {
  return {ErrorCode::InvalidUsage, std::move(what)};
}

}  // namespace

void encode(const Header& header, uint8_t out[kHeaderBytes]) {
  Writer writer(out);
  const uint8_t form = form_of(header.info.signature);
  visit(writer, header, kMagic, form);
}

Result<Header> decode(const uint8_t in[kHeaderBytes]) {
  Header header;
  uint64_t magic = 0;
  uint8_t form = 0;
  Reader reader(in);
  visit(reader, header, magic, form);
  const bool known = set_form(header.info.signature, form);
  if (magic != kMagic || !known || !is_valid(header.info.signature))
    return error(ErrorCode::RemoteError, "what arrived is not a message of this version of hetccl");
  if (header.offset > header.total || header.bytes > header.total - header.offset ||
      (header.bytes == 0 && header.total != 0))
    return error(ErrorCode::RemoteError,
                 "a message of %" PRIu64 " bytes cannot have a piece of %" PRIu64 " at %" PRIu64,
                 header.total, header.bytes, header.offset);
  return header;
}

Status check(const Header& header, const Parcel& posted, int peer) {
  const MessageInfo& theirs = header.info;
  const MessageInfo& ours = posted.info;
  if (theirs.communicator == ours.communicator && theirs.sequence == ours.sequence &&
      theirs.slice == ours.slice && theirs.step == ours.step && header.total == posted.bytes &&
      theirs.beside == ours.beside && theirs.round == ours.round &&
      theirs.signature == ours.signature) [[likely]]
    return {};
  const std::string their_call = describe(theirs.signature);
  const std::string our_call = describe(ours.signature);
  if (theirs.communicator != ours.communicator)
    return differ(format(
        "rank %d called %s on another communicator (%016" PRIx64 "), this rank %s on %016" PRIx64
        "; all ranks must use their communicators in one order",
        peer, their_call.c_str(), theirs.communicator, our_call.c_str(), ours.communicator));
  if (ours.signature.collective == Collective::PointToPoint)
    return differ(format("rank %d sends %" PRIu64 " %s, tag %u, where this rank receives %" PRIu64
                         " %s, tag %u; messages from one rank to another meet in the order of the "
                         "calls, and both ends pass the same",
                         peer, theirs.signature.count, type_of(theirs), theirs.step,
                         ours.signature.count, type_of(ours), ours.step));
  if (theirs.signature != ours.signature || theirs.sequence != ours.sequence)
    return differ(format(
        "rank %d called %s as collective %" PRIu64 ", this rank called %s as collective %" PRIu64
        "; all ranks must make the same calls in the same order",
        peer, their_call.c_str(), theirs.sequence, our_call.c_str(), ours.sequence));
  if (theirs.round != ours.round)
    return differ(format("rank %d runs %s as collective %" PRIu64
                         " with the setting of tuning round %" PRIu64
                         ", this rank with that of round %" PRIu64
                         "; all ranks must pass the same to hetcclCommSetTuning between the same "
                         "calls",
                         peer, our_call.c_str(), ours.sequence, theirs.round, ours.round));
  return differ(
      format("in %s, rank %d sent slice %u, step %u, %" PRIu64
             " bytes; this rank expected slice %u, step %u, %" PRIu64 " bytes; do all ranks run "
             "the same hetccl with the same HETCCL_* settings?",
             our_call.c_str(), peer, theirs.slice, theirs.step, header.total + theirs.beside,
             ours.slice, ours.step, posted.bytes + ours.beside));
}

}  // namespace hetccl::transport
