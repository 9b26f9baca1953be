// See shared_area.h. Each rank creates its region as an anonymous file; the others open it through /proc. So killed
// ranks leave nothing behind, and the size of /dev/shm does not matter.
#include "frontend/distributed/mpi/shared_area.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <new>
#include <random>
#include <string>

#include "frontend/distributed/mpi/mpi_calls.h"

namespace fermata::distributed {
namespace {

/// How other ranks find the region of a rank.
struct Address {
  std::int64_t process, file;
  std::uint64_t cookie;
};

void* map(int file, std::size_t bytes) {
  void* const memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  return memory == MAP_FAILED ? nullptr : memory;
}

}  // namespace

std::unique_ptr<SharedArea> SharedArea::make(MPI_Comm comm, bool is_wanted, std::source_location where) {
  static_assert(sizeof(Post) == 256 && std::atomic<std::uint64_t>::is_always_lock_free);
  int rank = 0, size = 0;
  require_success(MPI_Comm_rank(comm, &rank), "MPI_Comm_rank", where);
  require_success(MPI_Comm_size(comm, &size), "MPI_Comm_size", where);
  std::unique_ptr<SharedArea> area(new SharedArea);
  area->own_ = static_cast<std::size_t>(rank);
  area->parts_.assign(static_cast<std::size_t>(size), nullptr);
  const int file = is_wanted ? memfd_create("fermata ranks", MFD_CLOEXEC) : -1;
  Address own{getpid(), file, (std::uint64_t{std::random_device{}()} << 32) | std::random_device{}()};
  if (file >= 0 && ftruncate(file, kPartBytes) == 0)
    if (void* const memory = map(file, kPartBytes)) {
      Part* const part = ::new (memory) Part;  // pages of the file are zeros
      part->cookie = own.cookie;
      area->parts_[area->own_] = part;
    }
  std::vector<Address> all(static_cast<std::size_t>(size));
  require_success(MPI_Allgather(&own, sizeof own, MPI_BYTE, all.data(), sizeof own, MPI_BYTE, comm), "MPI_Allgather",
                  where);
  for (std::size_t r = 0; r < all.size(); ++r) {
    if (r == area->own_) continue;
    const std::string path = fmt::format("/proc/{}/fd/{}", all[r].process, all[r].file);
    // Where processes are numbered otherwise there, this is any file of any process. To open a device or a pipe may
    // already change something, so only a regular file of this size is; another one of them has another cookie.
    struct stat status;
    if (stat(path.c_str(), &status) != 0 || !S_ISREG(status.st_mode) ||
        status.st_size != static_cast<off_t>(kPartBytes))
      continue;
    const int theirs = open(path.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (theirs < 0) continue;
    // In another PID namespace the path may name another file: it is shorter or has another cookie.
    if (fstat(theirs, &status) == 0 && status.st_size == static_cast<off_t>(kPartBytes))
      if (void* const memory = map(theirs, kPartBytes)) {
        Part* const part = std::launder(static_cast<Part*>(memory));
        if (part->cookie == all[r].cookie)
          area->parts_[r] = part;
        else
          munmap(memory, kPartBytes);
      }
    close(theirs);
  }
  int has_all = std::ranges::find(area->parts_, nullptr) == area->parts_.end(), have_all = 0;
  require_success(MPI_Allreduce(&has_all, &have_all, 1, MPI_INT, MPI_MIN, comm), "MPI_Allreduce", where);
  if (file >= 0) close(file);  // all have opened it
  return have_all != 0 ? std::move(area) : nullptr;
}

SharedArea::~SharedArea() {
  for (Part* const part : parts_)
    if (part != nullptr) munmap(part, kPartBytes);
}

bool SharedArea::are_all_done(std::uint64_t round) {
  if (done_by_all_ >= round) return true;
  std::uint64_t least = ~std::uint64_t{0};
  for (const Part* const part : parts_) least = std::min(least, part->done.load(std::memory_order_acquire));
  done_by_all_ = least;
  return done_by_all_ >= round;
}

std::byte* SharedArea::begin_post(std::uint64_t round, std::size_t bytes) {
  if (round > kPosts && !are_all_done(round - kPosts)) return nullptr;
  Post& post = post_of(own_, round);
  if (bytes <= kInlineBytes) {
    post.offset = kInline;
    return post.elements;
  }
  if (!blocks_.empty()) {
    are_all_done(round - 1);
    std::erase_if(blocks_, [&](const Block& b) { return b.round <= done_by_all_; });
  }
  constexpr std::size_t kPage = 4096;
  const std::size_t wanted = (bytes + kPage - 1) / kPage * kPage;
  std::size_t begin = 0;
  auto next = blocks_.begin();
  for (; next != blocks_.end() && next->begin - begin < wanted; ++next) begin = next->end;
  if (next == blocks_.end() && kHeapBytes - begin < wanted) return nullptr;
  blocks_.insert(next, {begin, begin + wanted, round});
  post.offset = begin;
  return heap_of(own_) + begin;
}

void SharedArea::publish(std::uint64_t round, std::uint64_t signature, std::int64_t count) {
  Post& post = post_of(own_, round);
  post.signature = signature, post.count = count;
  post.round.store(round, std::memory_order_release);
}

void SharedArea::set_done(std::uint64_t round) { parts_[own_]->done.store(round, std::memory_order_release); }

}  // namespace fermata::distributed
