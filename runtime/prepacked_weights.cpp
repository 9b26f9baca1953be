// See prepacked_weights.h.
#include "runtime/prepacked_weights.h"

#include <algorithm>
#include <memory>

#include "ir/error.h"
#include "ir/fork.h"
#include "runtime/memory_accounts.h"

namespace fermata {
namespace {

/// Copies of one buffer: it may be read whole or in parts, forwards and in its gradient.
constexpr std::size_t kMostEntries = 8;

struct Register {
  ForkSafeMutex mutex;
  PrepackedWeights* first = nullptr;
};
Register& all_copies() {
  static Register* const all = new Register;  // never destroyed: static tensors outlive it otherwise
  return *all;
}

/// In Storage::packed of a buffer whose elements may change.
PrepackedWeights* of_caller() {
  static std::byte address;
  return reinterpret_cast<PrepackedWeights*>(&address);
}

bool lies_in(const void* from, const Storage& buffer) {
  const auto at = reinterpret_cast<std::uintptr_t>(from), begin = reinterpret_cast<std::uintptr_t>(buffer.data);
  return at >= begin && at < begin + buffer.bytes;
}

/// Room for a copy, counted; given back unless it is taken.
class Room {
 public:
  explicit Room(std::size_t bytes) : bytes_(bytes) {
    MemoryAccounts& a = memory_accounts();
    const std::size_t limit = a.packed_limit.load(std::memory_order_relaxed);
    fits_ = a.packed.fetch_add(bytes, std::memory_order_relaxed) + bytes <= limit;
  }
  ~Room() {
    if (bytes_ != 0) memory_accounts().packed.fetch_sub(bytes_, std::memory_order_relaxed);
  }
  Room(const Room&) = delete;
  bool fits() const { return fits_; }
  void take() { bytes_ = 0; }

 private:
  std::size_t bytes_;
  bool fits_;
};

}  // namespace

PrepackedWeights::PrepackedWeights() {
  Register& all = all_copies();
  const std::lock_guard lock(all.mutex);
  next_ = all.first;
  if (next_ != nullptr) next_->previous_ = this;
  all.first = this;
}

PrepackedWeights::~PrepackedWeights() {
  {
    Register& all = all_copies();
    const std::lock_guard lock(all.mutex);
    (previous_ != nullptr ? previous_->next_ : all.first) = next_;
    if (next_ != nullptr) next_->previous_ = previous_;
  }
  for (const Entry& e : entries_) discharge(e);
}

void PrepackedWeights::discharge(const Entry& e) {
  if (e.copy != nullptr) memory_accounts().packed.fetch_sub(e.bytes, std::memory_order_relaxed);
}

StoragePtr PrepackedWeights::find(Storage* buffer, const PackedKey& key, std::size_t bytes,
                                  FunctionRef<void(std::byte*)> pack) {
  if (buffer == nullptr || !buffer->is_own() || !lies_in(key.from, *buffer)) return nullptr;
  if (bytes > memory_accounts().packed_limit.load(std::memory_order_relaxed)) return nullptr;
  PrepackedWeights* copies = buffer->packed.load(std::memory_order_acquire);
  if (copies == nullptr) {
    auto fresh = std::make_unique<PrepackedWeights>();
    if (buffer->packed.compare_exchange_strong(copies, fresh.get(), std::memory_order_acq_rel))
      copies = fresh.release();
  }
  return copies == of_caller() ? nullptr : copies->find(key, bytes, pack);
}

StoragePtr PrepackedWeights::find(const PackedKey& key, std::size_t bytes, FunctionRef<void(std::byte*)> pack) {
  const std::lock_guard lock(mutex_);  // also while it is packed: who asks meanwhile wants to have it
  const auto known = std::ranges::find(entries_, key, &Entry::key);
  if (known == entries_.end()) {
    if (entries_.size() == kMostEntries) discharge(entries_.front()), entries_.erase(entries_.begin());
    entries_.push_back({key, bytes, nullptr});
    return nullptr;
  }
  std::rotate(known, known + 1, entries_.end());
  Entry& mine = entries_.back();
  if (mine.copy == nullptr) {
    Room room(bytes);
    if (!room.fits()) return nullptr;
    try {
      StoragePtr made(Storage::allocate(bytes));
      pack(static_cast<std::byte*>(made->data));
      mine.copy = std::move(made);
    } catch (const OutOfMemoryError&) {
      return nullptr;  // then it goes without
    }
    room.take();
  }
  mine.copy->retain();
  return StoragePtr(mine.copy.get());
}

std::size_t PrepackedWeights::bytes() { return memory_accounts().packed.load(std::memory_order_relaxed); }

void PrepackedWeights::trim() {
  std::vector<Entry> gone;  // freed when no lock is held
  Register& all = all_copies();
  const std::lock_guard lock(all.mutex);
  for (PrepackedWeights* c = all.first; c != nullptr; c = c->next_) {
    const std::unique_lock mine(c->mutex_, std::try_to_lock);  // its holder may be waiting for this thread
    if (!mine) continue;
    for (Entry& e : c->entries_) discharge(e), gone.push_back({{}, e.bytes, std::move(e.copy)});
  }
}

std::size_t set_packed_limit(std::size_t bytes) {
  const std::size_t before = memory_accounts().packed_limit.exchange(bytes, std::memory_order_relaxed);
  if (PrepackedWeights::bytes() > bytes) PrepackedWeights::trim();
  return before;
}

void Storage::drop_packed(PrepackedWeights* now) {
  PrepackedWeights* const before = packed.exchange(now, std::memory_order_acq_rel);
  if (before != of_caller()) delete before;
}

void Storage::show_to_caller() { drop_packed(of_caller()); }

}  // namespace fermata
