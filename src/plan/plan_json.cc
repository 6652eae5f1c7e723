// Plans as JSON, for people and golden files: one line per step.
#include "base/json.h"
#include "plan/plan.h"

namespace hetccl::plan {

const char* name_of(StepKind kind) {
  switch (kind) {
    case StepKind::CclReduce:
      return "ccl_reduce";
    case StepKind::CclBroadcast:
      return "ccl_broadcast";
    case StepKind::CclAllReduce:
      return "ccl_all_reduce";
    case StepKind::CclExchange:
      return "ccl_exchange";
    case StepKind::CclBarrier:
      return "ccl_barrier";
    case StepKind::Send:
      return "send";
    case StepKind::Recv:
      return "recv";
    case StepKind::Reduce:
      return "reduce";
    case StepKind::Copy:
      return "copy";
  }
  return "?";
}

std::string text_of(Fraction f) {
  return f.num == 0 ? "0" : f.num == f.den ? "1" : format("%u/%u", f.num, f.den);
}

std::string blocks_of(const Region& region) {
  if (region.blocks == 1) return std::to_string(region.block);
  return format("%u..%u", region.block, region.block + region.blocks - 1);
}

namespace {

/// "output[2] 0..1/2"; no fractions for a whole block; "scratch[0..2]" for three blocks.
std::string text_of(const Region& region) {
  const char* buffer = region.buffer == Buffer::Input     ? "input"
                       : region.buffer == Buffer::Output  ? "output"
                       : region.buffer == Buffer::Scratch ? "scratch"
                                                          : "identity";
  std::string text = format("%s[%s]", buffer, blocks_of(region).c_str());
  if (region.encoded) text = "encoded " + text;
  if (region.begin.num == 0 && region.end.num == region.end.den) return text;
  return text + " " + text_of(region.begin) + ".." + text_of(region.end);
}

bool writes_dst(StepKind kind) {
  return kind == StepKind::CclAllReduce || kind == StepKind::Recv || kind == StepKind::Reduce ||
         kind == StepKind::Copy;
}

Json encode(const Step& step) {
  Json json = {{"kind", name_of(step.kind)}, {"stage", step.stage}};
  if (!step.deps.empty()) json.set("deps", step.deps);
  std::vector<Json> shards, transfers, srcs;
  for (const ShardRegion& shard : step.shards) {
    shards.push_back(
        {{"root", shard.root}, {"send", text_of(shard.send)}, {"recv", text_of(shard.recv)}});
    if (shard.receiver >= 0) shards.back().set("receiver", shard.receiver);
  }
  for (const TransferRegion& transfer : step.transfers) {
    transfers.push_back(
        {{transfer.send ? "to" : "from", transfer.peer}, {"data", text_of(transfer.region)}});
  }
  for (const Region& src : step.srcs) srcs.push_back(text_of(src));
  if (!shards.empty()) json.set("shards", std::move(shards));
  if (!transfers.empty()) json.set("transfers", std::move(transfers));
  if (!srcs.empty()) json.set("srcs", std::move(srcs));
  if (writes_dst(step.kind)) json.set("dst", text_of(step.dst));
  if (step.peer >= 0) {
    json.set("peer", step.peer);
    json.set("message", step.message);
  }
  if (step.average) json.set("average", true);
  if (step.whole) json.set("whole", true);
  if (step.scale) json.set("scale", true);
  return json;
}

}  // namespace

std::string to_json(const RankPlan& plan) {
  const Json head = {{"name", plan.name},
                     {"stages", plan.stages},
                     {"input_blocks", plan.input_blocks},
                     {"output_blocks", plan.output_blocks},
                     {"scratch_blocks", plan.scratch_blocks}};
  std::string text = head.dump();
  text.back() = ',';
  text += " \"steps\": [";
  for (size_t i = 0; i < plan.steps.size(); ++i) {
    text += (i == 0 ? "\n  " : ",\n  ") + encode(plan.steps[i]).dump();
  }
  return text + "]}";
}

}  // namespace hetccl::plan
