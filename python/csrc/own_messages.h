/// Messages of a rank to itself whose other end has not been called yet. The C API needs both ends
/// in one call; torch calls them one by one, in either order.
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

/// One end of a message from a rank to itself.
struct OwnMessage {
  bool sends = false;
  int tag = 0;
  at::Tensor tensor;                      ///< the message's source or destination
  Request request;                        ///< has no calls yet
  std::shared_ptr<const Mark> written{};  ///< send on a GPU: the point at which `tensor` is
                                          ///< written; else null
};

/// A receive called before its send: other work completes it.
class OwnReceive final : public HetcclWork {
 public:
  using HetcclWork::HetcclWork;

  /// Starts nothing. `timeout` is the default for the time that `wait` waits for the send.
  void launch(std::chrono::milliseconds timeout, bool blocking) override;
  bool wait(std::chrono::milliseconds timeout = kNoTimeout) override;
  void blockCurrentStream() override;

  /// Called once when the send has come: `both` is the work of both ends.
  void attach(const c10::intrusive_ptr<HetcclWork>& both);
  /// Called once if no send will come; not after `attach`.
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

/// Thread-safe. Ends with equal tags match in call order.
class OwnMessages {
 public:
  struct Receive {
    OwnMessage message;
    c10::intrusive_ptr<OwnReceive> work;
  };

  /// Takes the earlier other end of `message`, if there is one. Throws ValueError, and keeps that
  /// end, if its type or length differs.
  std::optional<OwnMessage> take_send(const Where& where, const OwnMessage& receive);
  std::optional<Receive> take_receive(const Where& where, const OwnMessage& send);
  /// Negative if receives are waiting for sends.
  [[nodiscard]] int64_t count_unmatched_sends(int tag);
  void keep(OwnMessage send);
  /// After `close`, fails the receive at once with InvalidUsage.
  void keep(Receive receive);
  /// Fails all receives, waiting and future ones.
  void close();

 private:
  std::mutex mutex_;
  bool closed_ = false;
  std::list<OwnMessage> sends_;
  std::list<Receive> receives_;
};

}  // namespace hetccl::torch_backend
