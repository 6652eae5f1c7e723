// Calls that only the vendor's library can serve. Arguments and results are 64-bit words, whatever
// their types; a struct of up to 16 bytes is two words.
#include <climits>

#include "nccl/dispatch.h"

using namespace hetccl::nccl;

namespace {

using Word = uintptr_t;
struct Answer {
  Word first, second;
};

constexpr int kCode = INT_MIN;  // used in symbols.def

// Replaces `words[comm_at]` by the vendor's communicator.
template <typename... Words>
Answer forward(Symbol symbol, int comm_at, int refused, Words... words) noexcept {
  Answer answer{};
  const ncclResult_t code = guarded([&]() -> ncclResult_t {
    Word all[] = {words..., 0};
    Handle* handle = nullptr;
    if (comm_at >= 0) {
      Word& comm = all[comm_at];
      handle = handle_of(reinterpret_cast<ncclComm_t>(comm));
      if (handle != nullptr) {
        const HandleState state = handle->state.load(std::memory_order_acquire);
        if (state == HandleState::Mixed) return refuse_mixed(*handle, symbol);
        if (state != HandleState::Vendor) return refuse_call(*handle, symbol);
        comm = reinterpret_cast<Word>(handle->vendor.load());
      }
    }
    if (vendor() == nullptr || vendor()->find(symbol) == nullptr)
      return refuse_without_vendor(symbol);
    if (comm_at >= 0) {
      if (const auto begun = Group::of_this_thread().enter_vendor(); begun != ncclSuccess)
        return begun;
    }
    answer = [&]<size_t... I>(std::index_sequence<I...>) {
      return call_vendor<Answer(Words...)>(*vendor(), symbol, all[I]...);
    }(std::make_index_sequence<sizeof...(Words)>());
    return ncclSuccess;
  });
  if (code == ncclSuccess) return answer;
  Group::of_this_thread().note_refusal(code);
  return {static_cast<Word>(refused == kCode ? code : refused), 0};
}

}  // namespace

#define HETCCL_WORDS_0
#define HETCCL_WORDS_1 Word a
#define HETCCL_WORDS_2 HETCCL_WORDS_1, Word b
#define HETCCL_WORDS_3 HETCCL_WORDS_2, Word c
#define HETCCL_WORDS_4 HETCCL_WORDS_3, Word d
#define HETCCL_WORDS_5 HETCCL_WORDS_4, Word e
#define HETCCL_WORDS_6 HETCCL_WORDS_5, Word f
#define HETCCL_WORDS_7 HETCCL_WORDS_6, Word g
#define HETCCL_WORDS_8 HETCCL_WORDS_7, Word h
#define HETCCL_WORDS_9 HETCCL_WORDS_8, Word i
#define HETCCL_WORDS_10 HETCCL_WORDS_9, Word j
#define HETCCL_WORDS_11 HETCCL_WORDS_10, Word k
#define HETCCL_WORDS_12 HETCCL_WORDS_11, Word l
#define HETCCL_WORDS_13 HETCCL_WORDS_12, Word m
#define HETCCL_WORDS_14 HETCCL_WORDS_13, Word n
#define HETCCL_NAMES_0
#define HETCCL_NAMES_1 , a
#define HETCCL_NAMES_2 HETCCL_NAMES_1, b
#define HETCCL_NAMES_3 HETCCL_NAMES_2, c
#define HETCCL_NAMES_4 HETCCL_NAMES_3, d
#define HETCCL_NAMES_5 HETCCL_NAMES_4, e
#define HETCCL_NAMES_6 HETCCL_NAMES_5, f
#define HETCCL_NAMES_7 HETCCL_NAMES_6, g
#define HETCCL_NAMES_8 HETCCL_NAMES_7, h
#define HETCCL_NAMES_9 HETCCL_NAMES_8, i
#define HETCCL_NAMES_10 HETCCL_NAMES_9, j
#define HETCCL_NAMES_11 HETCCL_NAMES_10, k
#define HETCCL_NAMES_12 HETCCL_NAMES_11, l
#define HETCCL_NAMES_13 HETCCL_NAMES_12, m
#define HETCCL_NAMES_14 HETCCL_NAMES_13, n

#define OWN(name)
#define VENDOR(name, words, comm, refused)                            \
  HETCCL_NCCL_EXPORT Answer name(HETCCL_WORDS_##words) {              \
    return forward(Symbol::name, comm, refused HETCCL_NAMES_##words); \
  }                                                                   \
  HETCCL_NCCL_PROFILED(name)
#include "nccl/symbols.def"
