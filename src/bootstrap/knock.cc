#include "bootstrap/knock.h"

#include <algorithm>
#include <chrono>
#include <future>
#include <memory>
#include <string>
#include <utility>

#include "bootstrap/connection.h"

namespace hetccl::bootstrap {

namespace {

constexpr std::chrono::milliseconds kLookTime{20};

// Lives on the control thread, which alone uses the connection.
class Visit final : public Connection::Owner {
 public:
  explicit Visit(std::promise<Status>& answer) : answer_(answer) {}

  Status begin(Loop& loop, net::Wire wire, Bytes knock) {
    HETCCL_ASSIGN(connection_, Connection::open(loop, std::move(wire), this, kMaxJoinPayload * 4));
    connection_->send(std::move(knock));
    return {};
  }
  void end() {
    if (connection_) connection_->abandon(this);
    connection_.reset();
  }

  void on_frame(const Header& header, std::span<const uint8_t> payload) override {
    const auto failure =
        header.type == FrameType::Failed ? decode_failure(payload) : std::optional<Failure>();
    if (header.type == FrameType::Heard) {
      report_answer({});
    } else if (failure) {
      report_answer({failure->code, failure->reason});
    } else {
      report_answer(error(ErrorCode::RemoteError, "it is not a door of hetccl"));
    }
  }
  void on_closed(const std::string& why) override {
    report_answer(error(ErrorCode::RemoteError, "it closed without an answer: %s", why.c_str()));
  }

 private:
  void report_answer(Status answer) {
    if (!std::exchange(told_, true)) answer_.set_value(std::move(answer));
  }

  std::promise<Status>& answer_;
  std::shared_ptr<Connection> connection_;
  bool told_ = false;
};

}  // namespace

Status send_knock(Loop& loop, net::Wire wire, Bytes knock, TimePoint deadline,
                  const Cancel* cancel) {
  std::promise<Status> answer;
  std::future<Status> answered = answer.get_future();
  Visit visit(answer);
  Status begun = error(ErrorCode::Aborted, "the control plane has shut down");
  loop.run([&] { begun = visit.begin(loop, std::move(wire), std::move(knock)); });
  HETCCL_TRY(begun);
  const auto is_cancelled = [&] { return cancel != nullptr && cancel->is_set(); };
  bool in_time = false;
  while (!in_time && !is_cancelled() && steady_clock().now() < deadline) {
    const TimePoint look = std::min(deadline, steady_clock().now() + kLookTime);
    in_time = answered.wait_until(look) == std::future_status::ready;
  }
  loop.run([&] { visit.end(); });
  if (!in_time && is_cancelled()) return cancel->reason();
  return in_time ? answered.get() : error(ErrorCode::Timeout, "the door does not answer in time");
}

}  // namespace hetccl::bootstrap
