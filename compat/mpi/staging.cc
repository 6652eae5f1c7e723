#include "mpi/staging.h"

#include <sched.h>

#include <cstring>

#include "mpi/gpu.h"

namespace hetccl::mpi {
namespace {

Function test("PMPI_Test"), get_elements("PMPI_Get_elements_x"), cancel_request("PMPI_Cancel"),
    test_cancelled("PMPI_Test_cancelled"), start("PMPI_Start"), request_free("PMPI_Request_free");

// Indices of the buffers' words, from their letters (call.cc).
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

Result<std::shared_ptr<StagedCall>> StagedCall::make(const MpiCall& call, const Library& library) {
  if ((loaded_runtimes() & ~library.takes_device_memory) == 0) return std::shared_ptr<StagedCall>();
  const Sides sides = significant_sides(call, library);
  const bool sends = sides.send && needs_host_copy(call.send.buffer, library);
  const bool receives = sides.recv && needs_host_copy(call.recv.buffer, library);
  if (!sends && !receives) return std::shared_ptr<StagedCall>();
  std::shared_ptr<StagedCall> staged(new StagedCall(call));
  MpiCall& copy = staged->call_;
  Words& words = copy.words;
  const Places places = places_of(call.collective);
  const int n = count_blocks(call, library);
  if (sends) {
    HETCCL_ASSIGN(staged->sent_,
                  HostCopy::make(call.send.buffer, span_of(call, true, n, library), true));
    copy.send.buffer = words.word[places.send] = staged->sent_->buffer();
  }
  if (receives) {
    // Bytes between the blocks must stay as they are, so the copy starts with the buffer's content.
    staged->reads_received_ =
        call.send.in_place || is_uneven(call.collective) || !library.is_contiguous(call.recv.type);
    HETCCL_ASSIGN(staged->received_,
                  HostCopy::make(call.recv.buffer, span_of(call, false, n, library),
                                 staged->reads_received_));
    copy.recv.buffer = words.word[places.recv] = staged->received_->buffer();
  }
  // A broadcast has one buffer for both sides; only one side is significant on a rank.
  if (call.collective == Collective::Bcast) {
    copy.send.buffer = copy.recv.buffer = words.word[places.send];
  }
  if (call.form != Form::Blocking) words.word[words.size - 1] = from_pointer(staged->request());
  return staged;
}

StagedCall::~StagedCall() {
  if (call_.form == Form::Persistent && request_ != 0) {
    request_free.call(Words(from_pointer(&request_)));
  }
}

Status StagedCall::fetch() const {
  if (sent_) {
    HETCCL_TRY(sent_->copy_in());
  }
  return received_ && reads_received_ ? received_->copy_in() : Status();
}

Status StagedCall::deliver() const {
  return received_ ? received_->copy_back() : Status();
}

bool StagedWork::is_done() {
  int flag = 0;
  if (!done_) {
    code_ =
        test.call(Words(from_pointer(request_), from_pointer(&flag), from_pointer(status_.data())));
    done_ = flag != 0 || code_ != 0;
  }
  return done_;
}

void StagedWork::wait_briefly() {
  for (int i = 0; i < 16 && !is_done(); ++i) sched_yield();
}

void StagedWork::cancel() {
  if (call_ == nullptr && !done_) cancel_request.call(Words(from_pointer(request_)));
}

Status StagedWork::finish() {
  if (code_ != 0) return error(ErrorCode::SystemError, "the MPI's error %d", code_);
  if (call_ != nullptr) return call_->deliver();
  return received_copy_ && !received()->cancelled ? received_copy_->copy_back() : Status();
}

std::optional<Received> StagedWork::received() const {
  if (call_ != nullptr) return std::nullopt;
  Received received{};
  std::memcpy(&received.source, status_.data() + library_.abi.status_source, sizeof(int));
  std::memcpy(&received.tag, status_.data() + library_.abi.status_tag, sizeof(int));
  int cancelled = 0;
  test_cancelled.call(Words(from_pointer(status_.data()), from_pointer(&cancelled)));
  received.cancelled = cancelled != 0;
  if (received_copy_ && !received.cancelled) {
    get_elements.call(
        Words(from_pointer(status_.data()), library_.byte(), from_pointer(&received.bytes)));
  }
  return received;
}

Result<std::unique_ptr<Work>> StagedPersistent::begin() {
  HETCCL_TRY(call_->fetch());
  if (const int code = start.call(Words(from_pointer(call_->request())))) {
    return error(ErrorCode::SystemError, "the MPI's error %d", code);
  }
  return std::unique_ptr<Work>(std::make_unique<StagedWork>(library_, call_));
}

}  // namespace hetccl::mpi
