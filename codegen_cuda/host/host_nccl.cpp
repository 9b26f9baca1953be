// NCCL on the host executor: ranks are processes of one machine that exchange files in a folder, which is the name of
// their group. Each rank writes what it gives and reads what the others gave. Results of calls that have failed are
// zeros.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "codegen_cuda/host/executor.h"
#include "codegen_cuda/host/executor_queue.h"
#include "codegen_cuda/host/memory.h"
#include "runtime/collective_timeout.h"

namespace fermata::gpu {
namespace {

namespace fs = std::filesystem;
using Bytes = std::vector<unsigned char>;

constexpr char kMessage = 'm';

struct HostGroup {
  fs::path folder;
  int rank, ranks;
  std::uint64_t calls = 0;
  std::map<int, std::uint64_t> sent{}, received{};  // messages by peer
  Result state = kSuccess;

  void write(const std::string& name, const Bytes& bytes) const {
    const fs::path under_way = folder / (name + ".new");
    std::ofstream(under_way, std::ios::binary)
        .write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
    fs::rename(under_way, folder / name);
  }
  /// Waits as long as a collective may; a rank that does not come is an error of the group.
  Bytes read(const std::string& name) {
    CollectiveTimeout timeout;
    while (!fs::exists(folder / name)) {
      if (state != kSuccess || timeout.is_over()) return state = kNcclRemoteError, Bytes();
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
    std::ifstream stream(folder / name, std::ios::binary);
    return Bytes(std::istreambuf_iterator<char>(stream), {});
  }
  /// What all ranks give, in their order; empty where one does not come.
  std::vector<Bytes> exchange(const Bytes& own) {
    const auto name = [&](std::uint64_t call, int r) { return std::to_string(call) + "." + std::to_string(r); };
    const std::uint64_t call = calls++;
    write(name(call, rank), own);
    std::vector<Bytes> all;
    for (int r = 0; r < ranks && state == kSuccess; ++r) all.push_back(read(name(call, r)));
    if (call > 0) fs::remove(folder / name(call - 1, rank));  // all have read it: they are here
    const std::string done = std::to_string(calls);
    write(read_by(rank), Bytes(done.begin(), done.end()));
    return state == kSuccess ? all : std::vector<Bytes>();
  }
  /// Whether all ranks have read what others gave, so that the folder is needed no more.
  bool is_done() const {
    for (int r = 0; r < ranks; ++r) {
      std::uint64_t done = 0;
      if (!(std::ifstream(folder / read_by(r)) >> done) || done < calls) return false;
    }
    std::error_code ignored;
    for (const fs::directory_entry& entry : fs::directory_iterator(folder, ignored))
      if (entry.path().filename().string().starts_with(kMessage)) return false;
    return true;
  }

 private:
  static std::string read_by(int r) { return "read." + std::to_string(r); }
};

std::size_t size_of(int type) {
  switch (type) {
    case kNcclInt8:
    case kNcclUint8: return 1;
    case kNcclInt32:
    case kNcclUint32:
    case kNcclFloat32: return 4;
    default: return 8;
  }
}

template <class T> void combine(Bytes& to, const Bytes& with, int reduction) {
  for (std::size_t i = 0; i + sizeof(T) <= to.size(); i += sizeof(T)) {
    T a, b;
    std::memcpy(&a, to.data() + i, sizeof a), std::memcpy(&b, with.data() + i, sizeof b);
    switch (reduction) {
      case kNcclSum: a = static_cast<T>(a + b); break;
      case kNcclProd: a = static_cast<T>(a * b); break;
      case kNcclMax: a = std::max(a, b); break;
      default: a = std::min(a, b);
    }
    std::memcpy(to.data() + i, &a, sizeof a);
  }
}
Bytes reduced(const std::vector<Bytes>& all, int type, int reduction) {
  Bytes sum = all[0];
  for (std::size_t r = 1; r < all.size(); ++r) switch (type) {
      case kNcclInt8: combine<std::int8_t>(sum, all[r], reduction); break;
      case kNcclUint8: combine<std::uint8_t>(sum, all[r], reduction); break;
      case kNcclInt32:  // sums and products wrap
        reduction == kNcclSum || reduction == kNcclProd ? combine<std::uint32_t>(sum, all[r], reduction)
                                                        : combine<std::int32_t>(sum, all[r], reduction);
        break;
      case kNcclUint32: combine<std::uint32_t>(sum, all[r], reduction); break;
      case kNcclInt64:
        reduction == kNcclSum || reduction == kNcclProd ? combine<std::uint64_t>(sum, all[r], reduction)
                                                        : combine<std::int64_t>(sum, all[r], reduction);
        break;
      case kNcclUint64: combine<std::uint64_t>(sum, all[r], reduction); break;
      case kNcclFloat32: combine<float>(sum, all[r], reduction); break;
      default: combine<double>(sum, all[r], reduction);
    }
  return sum;
}

Bytes taken(const void* from, std::size_t bytes) {
  const unsigned char* const at = HostMemory::instance().at(reinterpret_cast<Address>(from), bytes);
  return at == nullptr ? Bytes() : Bytes(at, at + bytes);
}
void put(void* to, std::size_t offset, const Bytes& bytes) {
  const Address address = reinterpret_cast<Address>(to) + offset;
  unsigned char* const at = HostMemory::instance().at(address, bytes.size());
  if (at == nullptr || bytes.empty()) return;
  std::memcpy(at, bytes.data(), bytes.size()), HostMemory::instance().mark_written(address, bytes.size());
}

/// Other ranks may wait for it before this one waits for anything, so it is done at once.
template <class F> Result do_on(Handle stream, F&& work) {
  host_count_nccl_call();
  const Result r = host_enqueue(stream, [work] {
    work();
    return kSuccess;
  });
  host_do_queued();
  return r;
}

HostGroup& group_of(Handle handle) { return *static_cast<HostGroup*>(handle); }

/// The messages of a group_start(), sent and received when it ends.
thread_local std::vector<std::function<void()>> sends, receives;
thread_local Handle stream_of_messages = nullptr;
thread_local int depth = 0;

Result nccl_version(int* version) { return *version = 21400, kSuccess; }
Result nccl_unique_id(NcclId* id) {
  std::string folder = (fs::temp_directory_path() / "fermata_nccl_XXXXXX").string();
  if (folder.size() >= sizeof id->bytes || mkdtemp(folder.data()) == nullptr) return 2;
  std::memcpy(id->bytes, folder.c_str(), folder.size() + 1);
  return kSuccess;
}
Result nccl_start(Handle* group, int ranks, NcclId id, int rank, NcclConfig* config) {
  if (config->magic != 0xcafebeef || config->size != sizeof *config) return 4;
  auto* const made = new HostGroup{id.bytes, rank, ranks};
  *group = made;
  if (rank == 0) {
    static std::vector<HostGroup*>& groups = *new std::vector<HostGroup*>;
    if (groups.empty())
      std::atexit([] {
        // Slower ranks may still be reading: without their files they would wait for ever.
        constexpr int kPatience = 5000;  // milliseconds
        for (const HostGroup* const g : groups) {
          for (int i = 0; i < kPatience && g->state == kSuccess && !g->is_done(); ++i)
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
          std::error_code ignored;
          fs::remove_all(g->folder, ignored);
        }
      });
    groups.push_back(made);
  }
  return made->exchange({}).empty() ? kNcclRemoteError : kSuccess;
}
Result nccl_abort(Handle group) { return group_of(group).state = kNcclRemoteError, kSuccess; }
Result nccl_state(Handle group, Result* state) { return *state = group_of(group).state, kSuccess; }

Result nccl_all_reduce(const void* from, void* to, std::size_t count, int type, int reduction, Handle group,
                       Handle stream) {
  return do_on(stream, [=] {
    const auto all = group_of(group).exchange(taken(from, count * size_of(type)));
    put(to, 0, all.empty() ? Bytes(count * size_of(type)) : reduced(all, type, reduction));
  });
}
Result nccl_reduce(const void* from, void* to, std::size_t count, int type, int reduction, int root, Handle group,
                   Handle stream) {
  return do_on(stream, [=] {
    const auto all = group_of(group).exchange(taken(from, count * size_of(type)));
    if (!all.empty() && group_of(group).rank == root) put(to, 0, reduced(all, type, reduction));
  });
}
Result nccl_all_gather(const void* from, void* to, std::size_t count, int type, Handle group, Handle stream) {
  return do_on(stream, [=] {
    const std::size_t bytes = count * size_of(type);
    const auto all = group_of(group).exchange(taken(from, bytes));
    for (std::size_t r = 0; r < all.size(); ++r) put(to, r * bytes, all[r]);
    if (all.empty()) put(to, 0, Bytes(bytes * static_cast<std::size_t>(group_of(group).ranks)));
  });
}
Result nccl_reduce_scatter(const void* from, void* to, std::size_t count, int type, int reduction, Handle group,
                           Handle stream) {
  return do_on(stream, [=] {
    HostGroup& g = group_of(group);
    const std::size_t bytes = count * size_of(type), ranks = static_cast<std::size_t>(g.ranks);
    const auto all = g.exchange(taken(from, bytes * ranks));
    if (all.empty()) return put(to, 0, Bytes(bytes));
    const Bytes sum = reduced(all, type, reduction);
    const auto begin = sum.begin() + static_cast<std::ptrdiff_t>(bytes) * g.rank;
    put(to, 0, Bytes(begin, begin + static_cast<std::ptrdiff_t>(bytes)));
  });
}
Result nccl_broadcast(const void* from, void* to, std::size_t count, int type, int root, Handle group, Handle stream) {
  return do_on(stream, [=] {
    HostGroup& g = group_of(group);
    const auto all = g.exchange(g.rank == root ? taken(from, count * size_of(type)) : Bytes());
    put(to, 0, all.empty() ? Bytes(count * size_of(type)) : all[static_cast<std::size_t>(root)]);
  });
}

Result nccl_group_start() { return ++depth, kSuccess; }
Result nccl_group_end() {
  if (--depth != 0) return kSuccess;
  // All are sent before one is received.
  return do_on(std::exchange(stream_of_messages, nullptr),
               [out = std::exchange(sends, {}), in = std::exchange(receives, {})] {
                 for (const auto& message : out) message();
                 for (const auto& message : in) message();
               });
}
std::string message_name(int from, int to, std::uint64_t number) {
  return kMessage + std::to_string(from) + "." + std::to_string(to) + "." + std::to_string(number);
}
Result nccl_send(const void* from, std::size_t count, int type, int to, Handle group, Handle stream) {
  sends.push_back([=] {
    HostGroup& g = group_of(group);
    g.write(message_name(g.rank, to, g.sent[to]++), taken(from, count * size_of(type)));
  });
  stream_of_messages = stream;
  return depth > 0 ? kSuccess : (++depth, nccl_group_end());
}
Result nccl_receive(void* to, std::size_t count, int type, int from, Handle group, Handle stream) {
  receives.push_back([=] {
    HostGroup& g = group_of(group);
    const std::string name = message_name(from, g.rank, g.received[from]++);
    const Bytes bytes = g.read(name);
    put(to, 0, bytes.size() == count * size_of(type) ? bytes : Bytes(count * size_of(type)));
    fs::remove(g.folder / name);
  });
  stream_of_messages = stream;
  return depth > 0 ? kSuccess : (++depth, nccl_group_end());
}

}  // namespace

const NcclFunctions& host_nccl() {
  static const NcclFunctions functions = [] {
    NcclFunctions f;
#define FERMATA_NCCL(name, symbol, parameters) f.name = &nccl_##name;
#include "codegen_cuda/api/functions.def"
    return f;
  }();
  return functions;
}

}  // namespace fermata::gpu
