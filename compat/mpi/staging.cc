#include "mpi/staging.h"

#include <sched.h>

#include <cstring>

namespace hetccl::mpi {
namespace {

Function test("PMPI_Test"), get_elements("PMPI_Get_elements_x");

// The words of the buffers, by their letters (call.cc).
struct Places {
  size_t send = Words::kMost, recv = Words::kMost;
};

Places places_of(Collective collective) {
  Places places;
  const std::string_view letters = arguments_of(collective);
  for (size_t i = 0; i < letters.size(); ++i) {
    if (letters[i] == 's' || letters[i] == 'b') places.send = i;
    if (letters[i] == 'r' || letters[i] == 'b') places.recv = i;
  }
  return places;
}

}  // namespace

bool needs_host_copy(Word buffer, const Library& library) {
  return !library.takes_device_memory &&
         memory_of(to_pointer<const void>(buffer)).kind == Memory::Kind::Device;
}

Result<HostCopy> HostCopy::make(Word buffer, Span span, bool in) {
  const Memory memory = memory_of(to_pointer<const void>(buffer));
  HETCCL_ASSIGN(Scratch scratch, Scratch::take({}, span.bytes()));
  if (in) {
    const Word from = buffer + static_cast<Word>(span.begin);
    HETCCL_TRY(copy_memory(scratch.data(), {}, to_pointer<const void>(from), memory, span.bytes()));
  }
  return HostCopy(std::move(scratch), buffer, memory, span);
}

Status HostCopy::copy_back() const {
  const Word to = buffer_ + static_cast<Word>(span_.begin);
  return copy_memory(to_pointer<void>(to), memory_, scratch_.data(), {}, span_.bytes());
}

Result<std::unique_ptr<StagedCall>> StagedCall::make(const Call& call, const Library& library) {
  const Sides sides = significant_sides(call, library);
  const bool sends = sides.send && needs_host_copy(call.send.buffer, library);
  const bool receives = sides.recv && needs_host_copy(call.recv.buffer, library);
  if (!sends && !receives) return std::unique_ptr<StagedCall>();
  std::unique_ptr<StagedCall> staged(new StagedCall(call));
  Call& copy = staged->call_;
  const Places places = places_of(call.collective);
  const int n = library.peers(call.comm);
  if (sends) {
    HETCCL_ASSIGN(HostCopy host,
                  HostCopy::make(call.send.buffer, span_of(call, true, n, library), true));
    copy.send.buffer = copy.words.word[places.send] = host.buffer();
    staged->sent_.push_back(std::move(host));
  }
  if (receives) {
    // What is between the blocks stays as it is.
    const bool in =
        call.send.in_place || is_uneven(call.collective) || !library.is_contiguous(call.recv.type);
    HETCCL_ASSIGN(HostCopy host,
                  HostCopy::make(call.recv.buffer, span_of(call, false, n, library), in));
    copy.recv.buffer = copy.words.word[places.recv] = host.buffer();
    staged->received_.push_back(std::move(host));
  }
  return staged;
}

Status StagedCall::deliver() const {
  for (const HostCopy& copy : received_) HETCCL_TRY(copy.copy_back());
  return {};
}

Result<std::unique_ptr<StagedWork>> StagedWork::begin(std::unique_ptr<StagedCall> staged,
                                                      const Library& library) {
  auto work = std::make_unique<StagedWork>(library, std::nullopt, std::nullopt);
  Words& words = staged->call().words;
  words.word[words.size - 1] = from_pointer(work->request());
  const int code = call_mpi(staged->call());
  if (code != 0) return error(Code::SystemError, "the MPI's error %d", code);
  work->call_ = std::move(staged);
  return work;
}

bool StagedWork::is_done() {
  int flag = 0;
  if (!done_) {
    code_ = test.call(
        Words(from_pointer(&request_), from_pointer(&flag), from_pointer(status_.data())));
    done_ = flag != 0 || code_ != 0;
  }
  return done_;
}

void StagedWork::wait_briefly() {
  for (int i = 0; i < 16 && !is_done(); ++i) sched_yield();
}

Status StagedWork::finish() {
  if (code_ != 0) return error(Code::SystemError, "the MPI's error %d", code_);
  if (call_ != nullptr) return call_->deliver();
  if (!received_copy_) return {};
  return received_copy_->copy_back();
}

std::optional<Received> StagedWork::received() const {
  if (call_ != nullptr) return std::nullopt;
  Received received{};
  std::memcpy(&received.source, status_.data() + library_.abi.status_source, sizeof(int));
  std::memcpy(&received.tag, status_.data() + library_.abi.status_tag, sizeof(int));
  if (received_copy_) {
    get_elements.call(
        Words(from_pointer(status_.data()), library_.byte(), from_pointer(&received.bytes)));
  }
  return received;
}

}  // namespace hetccl::mpi
