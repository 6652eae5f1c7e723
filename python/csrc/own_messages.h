/// Messages of a rank to itself whose other end has not been called yet. The C API takes both ends
/// in one call; torch's two calls may come in either order.
#pragma once

#include <condition_variable>
#include <list>
#include <memory>
#include <mutex>
#include <optional>

#include "device_streams.h"
#include "tensors.h"
#include "work.h"

namespace hetccl::torch_backend {

/// One end of a message of a rank to itself.
struct OwnMessage {
  bool sends = false;
  int tag = 0;
  at::Tensor tensor;                      ///< where the message is read or written
  Request request;                        ///< without calls
  std::shared_ptr<const Mark> written{};  ///< of a send on a GPU: when `tensor` is; else null
};

/// A receive that was called before its send: work that another work completes.
class OwnReceive final : public HetcclWork {
 public:
  using HetcclWork::HetcclWork;

  /// Starts nothing. `timeout` is how long `wait` waits for the send, unless it is told.
  void launch(std::chrono::milliseconds timeout, bool blocking) override;
  bool wait(std::chrono::milliseconds timeout = kNoTimeout) override;
  void blockCurrentStream() override;

  /// The send has come: both ends are `both`. Once.
  void attach(const c10::intrusive_ptr<HetcclWork>& both);
  /// No send comes any more. Once, and not after `attach`.
  void give_up(const Failure& why);

 private:
  struct Other {
    std::mutex mutex;
    std::condition_variable changed;
    c10::intrusive_ptr<HetcclWork> work;
    std::optional<Failure> failure;
  };
  [[nodiscard]] bool reached() const override;
  [[nodiscard]] std::function<void()> until_reached() const override;
  [[nodiscard]] std::optional<Failure> failure() const override;
  /// The work of both ends; null if there will be none, with the reason in `failure`.
  c10::intrusive_ptr<HetcclWork> await(std::chrono::milliseconds timeout);

  std::chrono::milliseconds timeout_{};
  const std::shared_ptr<Other> other_ = std::make_shared<Other>();
};

/// Thread-safe. Ends meet if their tags are equal, in the order of the calls.
class OwnMessages {
 public:
  struct Receive {
    OwnMessage message;
    c10::intrusive_ptr<OwnReceive> work;
  };

  /// The other end of `message`, if it has come before. Throws ValueError if that has another type
  /// or length, and keeps it.
  std::optional<OwnMessage> take_send(const Where& where, const OwnMessage& receive);
  std::optional<Receive> take_receive(const Where& where, const OwnMessage& send);
  /// Less than 0 if receives wait for sends.
  [[nodiscard]] int64_t count_unmatched_sends(int tag);
  void keep(OwnMessage send);
  /// InvalidUsage at once if `close` was called.
  void keep(Receive receive);
  /// Receives that wait, and those to come, fail.
  void close();

 private:
  std::mutex mutex_;
  bool closed_ = false;
  std::list<OwnMessage> sends_;
  std::list<Receive> receives_;
};

}  // namespace hetccl::torch_backend
