// See measured_choices.h. Entries are added under a lock and found without one; none is ever removed.
#include "dispatch/measured_choices.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <map>
#include <new>
#include <string_view>

#include "dispatch/measured_choice.h"
#include "ir/fork.h"
#include "ir/keep_forever.h"
#include "ir/op_traits.h"
#include "runtime/background.h"
#include "runtime/calibration_wish.h"
#include "runtime/disk_cache.h"
#include "runtime/processor_model.h"
#include "runtime/thread_pool.h"

namespace fermata {
namespace {

constexpr std::string_view kLabel = "measured choices";
/// The number of kinds of calls that are measured; further kinds use predictions.
constexpr std::size_t kPlaces = 1024, kMostEntries = 768;

// ---- Kinds of calls

/// Exact for sizes that kernels treat individually, then to four binary digits; multiples of 16 fill vectors.
std::int64_t bucket_of(std::int64_t size) {
  constexpr std::int64_t kExact = 32;
  if (size <= kExact) return size;
  const auto dropped = static_cast<int>(std::bit_width(static_cast<std::uint64_t>(size))) - 4;
  return (size >> dropped << dropped) | (size % 16 == 0 ? 0 : 1);
}

/// The part of an operand's layout that affects the cost.
enum Layout : unsigned { kInRows = 1, kInColumns = 2, kRepeats = 4 };
unsigned layout_of(const TensorView& v) {
  unsigned layout = 0;
  if (v.rank > 0 && v.strides[v.rank - 1u] == 1) layout |= kInRows;
  if (v.rank > 1 && v.strides[v.rank - 2u] == 1) layout |= kInColumns;
  for (unsigned i = 0; i < v.rank; ++i)
    if (v.strides[i] == 0 && v.sizes[i] > 1) layout |= kRepeats;
  return layout;
}

/// FNV-1a over words.
class Hash {
 public:
  void add(std::uint64_t word) {
    value_ = (value_ ^ word) * 0x100000001b3;
    value_ ^= value_ >> 29;
  }
  std::uint64_t value() const { return value_ | 1; }

 private:
  std::uint64_t value_ = 0xcbf29ce484222325;
};

std::uint64_t kind_of(const CallArgs& args) {
  Hash hash;
  // Numbers of ops differ between releases, and so do kernels.
  hash.add(static_cast<std::uint64_t>(args.op)), hash.add(static_cast<std::uint64_t>(thread_count()));
  for (const TensorView& v : args.inputs) {
    hash.add(static_cast<std::uint64_t>(v.dtype) << 16 | static_cast<std::uint64_t>(v.rank) << 8 | layout_of(v));
    for (unsigned i = 0; i < v.rank; ++i) hash.add(static_cast<std::uint64_t>(bucket_of(v.sizes[i])));
  }
  for (const std::int64_t a : args.attributes) hash.add(static_cast<std::uint64_t>(a));
  return hash.value();
}

std::string description_of(const CallArgs& args) {
  std::string text(info(args.op).name);
  for (const TensorView& v : args.inputs) {
    Shape sizes;
    for (unsigned i = 0; i < v.rank; ++i) sizes.push_back(bucket_of(v.sizes[i]) & ~std::int64_t{v.sizes[i] > 32});
    const unsigned layout = layout_of(v);
    text += fmt::format(" {}{}{}", name(v.dtype), to_string(sizes),
                        (layout & kInRows) == 0 && (layout & kInColumns) != 0 ? " transposed" : "");
  }
  return text + fmt::format(", {} thread{}", thread_count(), thread_count() == 1 ? "" : "s");
}

// ---- Stored results

/// "0123456789abcdef winner first=ns other=ns | matmul f32[1024, 1024] f32[1024, 1024], 2 threads"
struct Kept {
  std::string winner;
  std::vector<MeasuredTimes::Time> times;  // of the predicted kernel first
  std::string description;
};

std::string to_text(std::uint64_t kind, const Kept& kept) {
  std::string text = fmt::format("{:016x} {}", kind, kept.winner);
  for (const MeasuredTimes::Time& t : kept.times) text += fmt::format(" {}={:.0f}", t.variant, t.ns);
  return text + " | " + kept.description + "\n";
}

std::optional<std::pair<std::uint64_t, Kept>> kept_of_line(std::string_view line) {
  const std::size_t bar = line.find(" | ");
  if (bar == line.npos || bar < 18 || line[16] != ' ') return {};
  Kept kept;
  kept.description = line.substr(bar + 3);
  std::uint64_t kind = 0;
  if (const auto [end, error] = std::from_chars(line.data(), line.data() + 16, kind, 16);
      error != std::errc() || end != line.data() + 16)
    return {};
  line = line.substr(17, bar - 17);
  for (bool is_first = true; !line.empty(); is_first = false) {
    const std::size_t space = std::min(line.find(' '), line.size());
    const std::string_view word = line.substr(0, space);
    line.remove_prefix(std::min(space + 1, line.size()));
    if (is_first) {
      kept.winner = word;
      continue;
    }
    const std::size_t equal = word.find('=');
    double ns = 0;
    if (equal == word.npos || equal == 0) return {};
    const auto [end, error] = std::from_chars(word.data() + equal + 1, word.data() + word.size(), ns);
    if (error != std::errc() || end != word.data() + word.size() || !(ns >= 0) || !(ns < 1e15)) return {};
    kept.times.push_back({std::string(word.substr(0, equal)), ns});
  }
  if (kept.winner.empty() || kept.times.empty()) return {};
  return std::pair{kind, std::move(kept)};
}

using KeptChoices = std::map<std::uint64_t, Kept>;

std::string key() { return fmt::format("{} 1 fermata {} {}", kLabel, FERMATA_VERSION, processor_model()); }

KeptChoices kept_on_disk() {
  KeptChoices found;
  const std::optional<std::string> text = DiskCache::instance().find(key());
  if (!text) return found;
  for (std::string_view rest = *text; !rest.empty();) {
    const std::size_t end = std::min(rest.find('\n'), rest.size());
    auto kept = kept_of_line(rest.substr(0, end));
    if (!kept) {
      DiskCache::instance().discard(key(), "holds no measured choices");
      return {};
    }
    found.insert(std::move(*kept));
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return found;
}

// ---- All kinds of calls

constinit std::atomic<MeasuredChoice::Clock> choice_clock{nullptr};

struct Entry {
  std::uint64_t number;  // the kind of call, and the cell of its kernels
  MeasuredChoice choice;
  Entry(std::uint64_t n, std::vector<MeasuredChoice::Candidate> candidates,
        std::function<void(const MeasuredChoice&)> when_settled)
      : number(n), choice(std::move(candidates), std::move(when_settled), choice_clock.load()) {}
  Entry(std::uint64_t n, std::vector<MeasuredChoice::Candidate> candidates, std::size_t winner)
      : number(n), choice(std::move(candidates), winner) {}
};

struct Choices {
  std::array<std::atomic<Entry*>, kPlaces> places{};
  ForkSafeMutex mutex;  // of what follows
  std::size_t entries = 0;
  std::optional<KeptChoices> kept;  // read when it is first needed
  KeptChoices found;                // by this process, not on disk yet
  bool is_storing = false;
};
Choices& choices() {
  static auto* const all = new Choices;  // outlives every static tensor
  return *all;
}

std::uint64_t number_of(std::uint64_t kind, const BackendCell& cell) {
  return kind ^ static_cast<std::uint64_t>(reinterpret_cast<std::uintptr_t>(&cell)) << 1;
}

/// Null if there is none, with the slot for it. At most three quarters of the slots are used.
Entry* find(std::uint64_t number, std::atomic<Entry*>*& place) {
  Choices& all = choices();
  for (std::size_t i = number >> 7 & (kPlaces - 1);; i = (i + 1) & (kPlaces - 1)) {
    Entry* const entry = all.places[i].load(std::memory_order_acquire);
    place = &all.places[i];
    if (entry == nullptr || entry->number == number) return entry;
  }
}

/// Keeps results that other processes have stored meanwhile.
void store_found() try {
  Choices& all = choices();
  KeptChoices found;
  {
    const std::lock_guard lock(all.mutex);
    found.swap(all.found), all.is_storing = false;
  }
  KeptChoices together = kept_on_disk();
  for (auto& [kind, kept] : found)
    if (together.size() < kMostEntries || together.contains(kind)) together[kind] = std::move(kept);
  std::string text;
  for (const auto& [kind, kept] : together) text += to_text(kind, kept);
  DiskCache::instance().store(key(), kLabel, text);
} catch (const std::bad_alloc&) {}  // nobody waits for it

void keep(std::uint64_t kind, Kept kept) {
  Choices& all = choices();
  {
    const std::lock_guard lock(all.mutex);
    all.found[kind] = kept;
    if (all.kept) (*all.kept)[kind] = std::move(kept);
    if (std::exchange(all.is_storing, true)) return;
  }
  try {
    run_in_background(&store_found);
  } catch (const std::bad_alloc&) {
    const std::lock_guard lock(all.mutex);
    all.is_storing = false;
    throw;
  }
}

/// Whether costs select the kernels of the op.
bool is_compared(const BackendCell& cell) {
  return std::ranges::count_if(cell.variants, [](const KernelVariant& v) {
           return v.form == KernelForm::library && v.cost != nullptr;
         }) > 1;
}

bool can_be_compared(const KernelVariant& v, DType operand, const CallArgs& args) {
  return v.form == KernelForm::library && v.call != nullptr && v.cost != nullptr && !v.is_boxed &&
         v.dtypes.has(operand) && (v.fits == nullptr || v.fits(args));
}

std::vector<MeasuredChoice::Candidate> candidates_of(const BackendCell& cell, const KernelVariant& predicted,
                                                     DType operand, const CallArgs& args) {
  std::vector<MeasuredChoice::Candidate> found{{predicted, predicted.cost(args)}};
  for (const KernelVariant& v : cell.variants)
    if (&v != &predicted && can_be_compared(v, operand, args)) found.emplace_back(v, v.cost(args));
  return found;
}

/// The index of the winner that an earlier process found among the same candidates.
std::optional<std::size_t> winner_of(const Kept& kept, std::vector<MeasuredChoice::Candidate>& candidates) {
  std::optional<std::size_t> winner;
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    if (candidates[i].variant->name == kept.winner) winner = i;
    const auto time = std::ranges::find(kept.times, candidates[i].variant->name, &MeasuredTimes::Time::variant);
    if (time != kept.times.end()) candidates[i].ns = time->ns;
  }
  // A correct prediction does not validate another one.
  const bool was_right = kept.winner == kept.times.front().variant;
  return was_right && winner != 0 ? std::nullopt : winner;
}

Entry* make_entry(std::uint64_t kind, const BackendCell& cell, const KernelVariant& predicted, DType operand,
                  const CallArgs& args) {
  std::vector<MeasuredChoice::Candidate> candidates = candidates_of(cell, predicted, operand, args);
  const std::string description = description_of(args);
  const std::uint64_t number = number_of(kind, cell);
  Choices& all = choices();
  const std::lock_guard lock(all.mutex);
  std::atomic<Entry*>* place = nullptr;
  if (Entry* const known = find(number, place)) return known;
  if (all.entries == kMostEntries) return nullptr;
  if (!all.kept) all.kept = kept_on_disk();
  std::optional<std::size_t> winner;
  if (const auto kept = all.kept->find(kind); kept != all.kept->end()) winner = winner_of(kept->second, candidates);
  if (candidates.size() == 1) winner = 0;
  const auto when_settled = [kind, description](const MeasuredChoice& c) {
    if (std::ranges::none_of(c.candidates(), [](const auto& each) { return each.runs > 0; })) return;
    Kept kept;
    kept.winner = (c.winner() != nullptr ? c.winner() : c.candidates().front().variant)->name;
    for (const MeasuredChoice::Candidate& each : c.candidates())
      if (each.ns > 0) kept.times.push_back({each.variant->name, each.ns});
    kept.description = description;
    keep(kind, std::move(kept));
  };
  Entry* const entry = winner ? keep_forever<Entry>(number, std::move(candidates), *winner)
                              : keep_forever<Entry>(number, std::move(candidates), when_settled);
  place->store(entry, std::memory_order_release);
  ++all.entries;
  return entry;
}

constinit std::atomic<bool> held{false}, replaces{true};

}  // namespace

void set_choice_clock(std::int64_t (*clock)()) { choice_clock.store(clock); }

void hold_choices() { held.store(true, std::memory_order_relaxed); }

bool set_replace_kernels(bool on) { return replaces.exchange(on); }

bool choices_are_held() {
  return calibration_wish() == CalibrationWish::never || held.load(std::memory_order_relaxed) ||
         !replaces.load(std::memory_order_relaxed);
}

ChosenKernel measured_choice(const BackendCell& cell, const KernelVariant& predicted, DType operand,
                             const CallArgs& args) {
  const ChosenKernel as_predicted{predicted.call, nullptr};
  if (choices_are_held() || !can_be_compared(predicted, operand, args)) return as_predicted;
  const std::uint64_t kind = kind_of(args);
  std::atomic<Entry*>* place = nullptr;
  Entry* entry = find(number_of(kind, cell), place);
  if (entry == nullptr) [[unlikely]]
    try {
      entry = make_entry(kind, cell, predicted, operand, args);
    } catch (const std::bad_alloc&) {}  // it is asked for again at the next such call
  if (entry == nullptr) return as_predicted;
  if (!entry->choice.is_settled()) return {predicted.call, &entry->choice};
  return {entry->choice.kernel(predicted.call, args), nullptr};
}

std::optional<MeasuredTimes> measured_times(BackendKey backend, const BackendCell& cell, const CallArgs& args) {
  if (backend != BackendKey::cpu || choices_are_held() || !is_compared(cell)) return {};
  const std::uint64_t kind = kind_of(args);
  std::atomic<Entry*>* place = nullptr;
  if (const Entry* const entry = find(number_of(kind, cell), place)) {
    MeasuredTimes known;
    for (const MeasuredChoice::Candidate& c : entry->choice.candidates())
      if (c.ns > 0) known.times.push_back({c.variant->name, c.ns});
    if (entry->choice.winner() != nullptr) known.winner = entry->choice.winner()->name;
    return known;
  }
  Choices& all = choices();
  const std::lock_guard lock(all.mutex);
  if (!all.kept) all.kept = kept_on_disk();
  const auto kept = all.kept->find(kind);
  if (kept == all.kept->end()) return {};
  const Kept& found = kept->second;
  return MeasuredTimes{found.times, found.winner == found.times.front().variant ? "" : found.winner};
}

std::vector<std::string> replaced_choices() {
  std::vector<std::string> lines;
  if (choices_are_held()) return lines;
  for (const auto& [kind, kept] : kept_on_disk()) {
    if (kept.winner == kept.times.front().variant) continue;
    const auto best = std::ranges::find(kept.times, kept.winner, &MeasuredTimes::Time::variant);
    if (best == kept.times.end()) continue;
    lines.push_back(fmt::format("{}: {} {:.1f} us instead of {} {:.1f} us", kept.description, best->variant,
                                best->ns / 1000, kept.times.front().variant, kept.times.front().ns / 1000));
  }
  std::ranges::sort(lines);
  return lines;
}

void forget_choices() { DiskCache::instance().store(key(), kLabel, ""); }

}  // namespace fermata
