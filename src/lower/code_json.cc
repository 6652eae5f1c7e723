// Code as JSON, for people: one line per instruction.
#include "base/json.h"
#include "lower/code.h"

namespace hetccl::lower {
namespace {

std::string text_of(const Operand& operand) {
  constexpr const char* kNames[] = {"input",   "output", "scratch", "identity",
                                    "staging", "ring",   "host"};
  const bool by_message = operand.memory == Memory::Staging || operand.memory == Memory::Ring;
  const plan::Region& region = operand.region;
  const std::string place = by_message ? std::to_string(operand.message) : plan::blocks_of(region);
  const std::string text = format("%s%s[%s]", region.encoded ? "encoded " : "",
                                  kNames[static_cast<size_t>(operand.memory)], place.c_str());
  if (by_message || (region.begin.num == 0 && region.end.num == region.end.den)) return text;
  return text + " " + plan::text_of(region.begin) + ".." + plan::text_of(region.end);
}

std::string text_of(const Code& code, SyncId sync) {
  if (sync == kStarted) return "started";
  if (sync == kFinished) return "finished";
  return format("%s %u (step %u)", code.syncs[sync].event ? "event" : "flag", unsigned{sync},
                unsigned{code.syncs[sync].step});
}

Json shards_of(const Instruction& one) {
  std::vector<Json> shards;
  for (const Shard& shard : one.shards) {
    shards.push_back(
        {{"root", shard.root}, {"send", text_of(shard.send)}, {"recv", text_of(shard.recv)}});
    if (shard.receiver >= 0) shards.back().set("receiver", shard.receiver);
  }
  return shards;
}

Json transfers_of(const Instruction& one) {
  std::vector<Json> transfers;
  for (const Transfer& transfer : one.transfers) {
    transfers.push_back(
        {{transfer.send ? "to" : "from", transfer.peer}, {"data", text_of(transfer.operand)}});
  }
  return transfers;
}

void add_operands(const Code& code, const Instruction& one, Json& json) {
  using Operands = OpcodeInfo::Operands;
  const Operands operands = info_of(one.op).operands;
  if (operands == Operands::Sync) json.set("sync", text_of(code, one.sync));
  if (operands == Operands::Sync && one.back > 0) json.set("slices_before", one.back);
  if (operands == Operands::Message) json.set("message", one.message);
  if (operands == Operands::Shards) json.set("shards", shards_of(one));
  if (operands == Operands::Transfers) json.set("transfers", transfers_of(one));
  std::vector<Json> srcs;
  for (const Operand& src : one.srcs) srcs.push_back(text_of(src));
  if (!srcs.empty()) json.set("srcs", std::move(srcs));
  if (operands == Operands::SrcDst || operands == Operands::Dst) json.set("dst", text_of(one.dst));
  if (one.done != kNoSync && !is_stream(one.queue)) json.set("done", text_of(code, one.done));
  if (one.average) json.set("average", true);
  if (one.whole) json.set("whole", true);
  if (one.scale) json.set("scale", true);
}

}  // namespace

std::string to_json(const Code& code) {
  const Json head = {{"slots", code.n_slots},
                     {"scratch_blocks", code.scratch_blocks},
                     {"staged_blocks", code.staged_blocks},
                     {"buffers", code.rotates ? "by turns" : "its own"}};
  std::string text = head.dump();
  text.back() = ',';
  text += " \"code\": [";
  for (uint32_t i = 0; i < code.list.size(); ++i) {
    const Instruction& one = code.list[i];
    const char* section = i < code.body ? "prologue" : i < code.epilogue ? "body" : "epilogue";
    Json json = {{"op", info_of(one.op).name},
                 {"section", section},
                 {"queue", name_of(code, one.queue)},
                 {"lag", one.lag}};
    add_operands(code, one, json);
    text += (i == 0 ? "\n  " : ",\n  ") + json.dump();
  }
  return text + "]}";
}

}  // namespace hetccl::lower
