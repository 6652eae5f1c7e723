// A library of hosts (hetccl/adaptor.h) whose ranks write files of FILES_FOLDER and read each
// other's. It breaks the rule that FAULT names, for the tests of adaptors/conformance.cc.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "hetccl/adaptor.h"

namespace {

using Bytes = std::vector<char>;

bool has_fault(const char* name) {
  const char* chosen = std::getenv("FAULT");
  return chosen != nullptr && std::strcmp(chosen, name) == 0;
}

struct Cluster {
  std::string folder;
  int n, rank;
  int calls = 0;
  std::string file(int call, int of) const {
    return folder + "/" + std::to_string(call) + "." + std::to_string(of);
  }
};

struct Request {
  hetcclLibraryWork work;
  std::vector<hetcclLibraryPiece> pieces;
  std::vector<hetcclLibraryMessage> messages;
  int number;
  size_t bytes(size_t count) const { return count * work.element_bytes; }
  bool reduces() const {
    return work.call == hetcclLibraryAllReduce || work.call == hetcclLibraryReduce;
  }
};

void append(Bytes& to, const void* data, size_t bytes) {
  const char* from = static_cast<const char*>(data);
  if (bytes > 0) to.insert(to.end(), from, from + bytes);
}

// Data that a rank sends to the others: each piece's, or each message with its receiver.
Bytes contribution(const Cluster& cluster, const Request& request) {
  Bytes all;
  for (const hetcclLibraryPiece& piece : request.pieces)
    if (request.reduces() || piece.root == cluster.rank)
      append(all, piece.send, request.bytes(piece.count));
  for (const hetcclLibraryMessage& message : request.messages) {
    if (message.sends == 0 || message.count == 0) continue;
    const size_t head[] = {static_cast<size_t>(message.peer), request.bytes(message.count)};
    append(all, head, sizeof head);
    append(all, message.data, head[1]);
  }
  return all;
}

template <typename T>
void combine(const Request& request, const std::vector<const char*>& from, size_t first,
             const hetcclLibraryPiece& piece) {
  const bool multiplies = request.work.op == hetcclProd &&
                          !(has_fault("rooted") && request.work.call == hetcclLibraryReduce);
  for (size_t i = 0; i < piece.count; ++i) {
    T result{}, one{};
    for (size_t r = 0; r < from.size(); ++r) {
      std::memcpy(&one, from[(first + r) % from.size()] + i * sizeof one, sizeof one);
      result = r == 0 ? one : multiplies ? result * one : result + one;
    }
    std::memcpy(static_cast<char*>(piece.recv) + i * sizeof result, &result, sizeof result);
  }
}

void finish_pieces(const Cluster& cluster, const Request& request, const std::vector<Bytes>& in) {
  std::vector<const char*> next;
  for (const Bytes& one : in) next.push_back(one.data());
  const bool is_short = has_fault("broadcast") && request.work.element_bytes == 2;
  for (const hetcclLibraryPiece& piece : request.pieces) {
    const size_t bytes = request.bytes(piece.count), first = has_fault("order") ? cluster.rank : 0;
    const char*& root = next[static_cast<size_t>(piece.root)];
    const bool has = request.work.call == hetcclLibraryReduce
                         ? piece.root == cluster.rank
                         : piece.receiver < 0 || piece.receiver == cluster.rank;
    if (!request.reduces() && has && bytes > 0)
      std::memcpy(piece.recv, root, is_short ? bytes / 2 : bytes);
    if (request.reduces() && has)
      request.work.type == hetcclInt32 ? combine<int32_t>(request, next, first, piece)
                                       : combine<float>(request, next, first, piece);
    if (!request.reduces()) root += bytes;
    for (const char*& one : next) one += request.reduces() ? bytes : 0;
  }
}

// The messages from each rank to this one, in their order.
std::vector<std::vector<Bytes>> sorted(const Cluster& cluster, const std::vector<Bytes>& in) {
  std::vector<std::vector<Bytes>> found(in.size());
  for (size_t r = 0; r < in.size(); ++r) {
    size_t head[2];
    for (size_t at = 0; at < in[r].size(); at += sizeof head + head[1]) {
      std::memcpy(head, &in[r][at], sizeof head);
      const char* data = &in[r][at] + sizeof head;
      if (head[0] == static_cast<size_t>(cluster.rank)) found[r].emplace_back(data, data + head[1]);
    }
    if (has_fault("two messages")) std::reverse(found[r].begin(), found[r].end());
  }
  return found;
}

void finish_messages(const Cluster& cluster, const Request& request, const std::vector<Bytes>& in) {
  std::vector<std::vector<Bytes>> from = sorted(cluster, in);
  const bool is_short = has_fault("exchange") && request.work.element_bytes == 8;
  for (const hetcclLibraryMessage& message : request.messages) {
    if (message.sends == 1 || message.count == 0) continue;
    auto& queue = from[static_cast<size_t>(message.peer)];
    std::memcpy(message.data, queue.front().data(), queue.front().size() / (is_short ? 2 : 1));
    queue.erase(queue.begin());
    for (const hetcclLibraryMessage& other : request.messages)
      if (has_fault("in place") && other.sends == 1 && other.data == message.data)
        std::memset(message.data, 0, request.bytes(message.count));
  }
}

int start(void* communicator, const hetcclLibraryWork* work, void** request) {
  auto& cluster = *static_cast<Cluster*>(communicator);
  const Request made{*work,
                     {work->pieces, work->pieces + work->n_pieces},
                     {work->messages, work->messages + work->n_messages},
                     cluster.calls++};
  const std::string path = cluster.file(made.number, cluster.rank);
  const Bytes own = contribution(cluster, made);
  std::ofstream(path + ".new", std::ios::binary)
      .write(own.data(), static_cast<std::streamsize>(own.size()));
  std::filesystem::rename(path + ".new", path);
  *request = new Request(made);
  return 0;
}

int test(void* communicator, void* request, int* done) {
  const auto& cluster = *static_cast<Cluster*>(communicator);
  const auto* mine = static_cast<Request*>(request);
  std::vector<Bytes> in;
  for (int r = 0; r < cluster.n; ++r)
    if (!std::filesystem::exists(cluster.file(mine->number, r))) return 0;
  for (int r = 0; r < cluster.n; ++r) {
    const std::string path = cluster.file(mine->number, r);
    in.emplace_back(std::filesystem::file_size(path));
    std::ifstream(path, std::ios::binary)
        .read(in.back().data(), static_cast<std::streamsize>(in.back().size()));
  }
  if (mine->work.call != hetcclLibraryBarrier) finish_pieces(cluster, *mine, in);
  if (mine->work.call == hetcclLibraryExchange) finish_messages(cluster, *mine, in);
  delete mine;
  *done = 1;
  return 0;
}

int init(const void* id, int n_ranks, int rank, int64_t, void** communicator) {
  const std::string number(static_cast<const char*>(id));
  auto* cluster = new Cluster{std::getenv("FILES_FOLDER") + ("/" + number), n_ranks, rank};
  std::filesystem::create_directories(cluster->folder);
  *communicator = cluster;
  return 0;
}

int make_id(int, void* id) {
  static char made = '0';
  std::memset(id, 0, HETCCL_ADAPTOR_ID_BYTES);
  *static_cast<char*>(id) = made++;
  return 0;
}

int reduces(hetcclDataType_t type, hetcclRedOp_t op) {
  return (type == hetcclInt32 || type == hetcclFloat32) && (op == hetcclSum || op == hetcclProd);
}

}  // namespace

extern "C" const hetcclAdaptorTable* hetcclAdaptor(uint32_t) {
  static hetcclLibraryAdaptor library{};
  static const hetcclAdaptorTable table{sizeof table, HETCCL_ADAPTOR_ABI, &library, nullptr,
                                        nullptr};
  library.size = sizeof library;
  library.name = "files";
  library.version = "1";
  library.capabilities = HETCCL_LIBRARY_EXCHANGES | HETCCL_LIBRARY_SENDS;
  library.error_text = [](int) -> const char* { return nullptr; };
  library.score = [] { return 2 * HETCCL_OWN_SCORE; };
  library.reduces = reduces;
  library.make_id = make_id;
  library.init = init;
  library.start = start;
  library.test = test;
  library.destroy = [](void* cluster) { delete static_cast<Cluster*>(cluster); };
  if (has_fault("device")) library.device = "threads";
  return &table;
}
