// A channel that reads and writes a fake device's memory itself, as RDMA does a GPU's.
#pragma once

#include <memory>
#include <utility>

#include "fake/fake_device.h"
#include "transport/transport.h"

namespace hetccl::fake {

class ReachingChannel final : public transport::Channel {
 public:
  ReachingChannel(std::unique_ptr<transport::Channel> channel, const FakeDevice& device)
      : channel_(std::move(channel)), device_(device) {}

  void post_send(const transport::Parcel& transfer) override {
    channel_->post_send(reached(transfer));
  }
  void post_recv(const transport::Parcel& transfer) override {
    channel_->post_recv(reached(transfer));
  }
  [[nodiscard]] uint64_t sends_completed() const override { return channel_->sends_completed(); }
  [[nodiscard]] uint64_t recvs_completed() const override { return channel_->recvs_completed(); }
  std::optional<transport::MessageInfo> incoming() override { return channel_->incoming(); }
  [[nodiscard]] const Status& status() const override { return channel_->status(); }
  void close() override { channel_->close(); }
  std::span<std::byte> window() override { return channel_->window(); }

 private:
  [[nodiscard]] transport::Parcel reached(transport::Parcel transfer) const {
    transfer.data = device_.reach(transfer.data);
    return transfer;
  }

  std::unique_ptr<transport::Channel> channel_;
  const FakeDevice& device_;
};

}  // namespace hetccl::fake
