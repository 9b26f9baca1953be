// See fermata/data_loader.h.
#include "fermata/data_loader.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <cstdio>
#include <deque>
#include <exception>
#include <mutex>
#include <numeric>
#include <random>
#include <system_error>
#include <thread>

#include "fermata/autograd.h"
#include "fermata/creation.h"
#include "fermata/device.h"
#include "fermata/modes.h"
#include "fermata/ops.h"
#include "fermata/random.h"
#include "fermata/sync.h"
#include "fermata/values.h"
#include "frontend/nn/parameter.h"
#include "frontend/ops/calls.h"
#include "frontend/ops/neural/floating_scope.h"
#include "ir/error.h"

namespace fermata {

Progress::Progress(std::string label, std::int64_t total)
    : label_(std::move(label)),
      total_(total),
      on_terminal_(::isatty(STDERR_FILENO) == 1),
      start_(std::chrono::steady_clock::now()),
      shown_(start_) {}

Progress::~Progress() {
  if (on_terminal_ && shown_ != start_) std::fputs("\n", stderr);
}

void Progress::show(std::int64_t done) {
  constexpr std::chrono::milliseconds kPause(100);
  const auto now = std::chrono::steady_clock::now();
  if (!on_terminal_ || (done < total_ && now - shown_ < kPause)) return;
  shown_ = now;
  const double seconds = std::chrono::duration<double>(now - start_).count();
  std::fprintf(stderr, "\r%s\033[K", detail::progress_line(label_, done, total_, seconds).c_str());
  std::fflush(stderr);
}

namespace detail {
namespace {

/// A number that depends on all three and looks like none of them (splitmix64).
std::uint64_t mixed(std::uint64_t seed, std::int64_t epoch, std::int64_t batch) {
  std::uint64_t x = seed;
  for (const std::int64_t part : {epoch, batch}) {
    x += 0x9e3779b97f4a7c15ull * (static_cast<std::uint64_t>(part) + 1);
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
    x ^= x >> 31;
  }
  return x;
}

/// Positions in the order of an epoch: a Fisher-Yates shuffle.
std::vector<std::int64_t> order_of(std::int64_t size, const DataLoaderOptions& options, std::int64_t epoch) {
  std::vector<std::int64_t> order(static_cast<std::size_t>(size));
  std::iota(order.begin(), order.end(), std::int64_t{0});
  if (!options.shuffle) return order;
  std::mt19937_64 words(mixed(options.seed, epoch, -1));
  for (std::size_t i = order.size(); i > 1; --i) {
    const auto product = static_cast<unsigned __int128>(words()) * i;  // the high half is below i
    std::swap(order[i - 1], order[static_cast<std::size_t>(product >> 64)]);
  }
  return order;
}

/// The default generator of this thread for one batch, and afterwards as it was.
class BatchSeed {
 public:
  explicit BatchSeed(std::uint64_t seed) : saved_(default_generator()) { manual_seed(seed); }
  ~BatchSeed() { default_generator() = saved_; }
  BatchSeed(const BatchSeed&) = delete;
  BatchSeed& operator=(const BatchSeed&) = delete;

 private:
  Generator saved_;
};

}  // namespace

std::string progress_line(const std::string& label, std::int64_t done, std::int64_t total, double seconds) {
  std::string line = fmt::format("{}  {}/{}", label, done, total);
  if (done == 0 || !(seconds > 0)) return line;
  const double rate = static_cast<double>(done) / seconds, rest = static_cast<double>(total - done) / rate;
  line += fmt::format("  {:.1f}/s", rate);
  if (done >= total) return line + fmt::format("  {:.1f} s", seconds);
  if (rest < 60) return line + fmt::format("  {:.1f} s left", rest);
  const auto whole = static_cast<std::int64_t>(rest);
  return line + fmt::format("  {}:{:02}:{:02} left", whole / 3600, whole / 60 % 60, whole % 60);
}

struct Epoch::State {
  MakeBatch make;
  DataLoaderOptions options;
  std::vector<std::int64_t> order;
  std::int64_t epoch = 0, batches = 0;
  Mode mode;

  std::int64_t next = 0;  // batch that the loop takes next
  std::mutex lock;
  std::condition_variable changed;
  // Under the lock:
  std::deque<std::any> ready;
  std::exception_ptr failure;
  bool stopped = false;
  std::thread worker;

  std::any make_one(std::int64_t batch) const {
    const BatchSeed seed(mixed(options.seed, epoch, batch));
    const NoGradGuard no_history;
    const auto size = static_cast<std::size_t>(options.batch_size), begin = static_cast<std::size_t>(batch) * size;
    return make(std::span(order).subspan(begin, std::min(size, order.size() - begin)));
  }
  void work(std::int64_t first) {
    set_mode(mode);
    for (std::int64_t batch = first; batch < batches; ++batch) {
      std::any made;
      std::exception_ptr failed;
      try {
        made = make_one(batch);
      } catch (...) { failed = std::current_exception(); }
      std::unique_lock held(lock);
      changed.wait(held, [&] { return stopped || ready.size() < static_cast<std::size_t>(options.prefetch); });
      if (stopped) return;
      if (failed != nullptr)
        failure = failed;
      else
        ready.push_back(std::move(made));
      changed.notify_all();
      if (failed != nullptr) return;
    }
  }
};

Epoch::Epoch(MakeBatch make, std::int64_t size, const DataLoaderOptions& options, DataPosition start)
    : state_(std::make_unique<State>()) {
  State& s = *state_;
  s.make = std::move(make), s.options = options, s.epoch = start.epoch, s.mode = mode();
  s.order = order_of(size, options, start.epoch);
  s.batches = batch_count(size, options);
  s.next = start.batch;
  if (options.prefetch > 0 && s.next < s.batches) try {
      s.worker = std::thread([&s, first = s.next] { s.work(first); });
    } catch (const std::system_error&) {}  // no thread can be started: next() makes the batches
}

Epoch::~Epoch() {
  State& s = *state_;
  if (!s.worker.joinable()) return;
  {
    const std::lock_guard held(s.lock);
    s.stopped = true;
    s.changed.notify_all();
  }
  s.worker.join();
}

std::any Epoch::next() {
  State& s = *state_;
  if (s.next >= s.batches) return {};
  const std::int64_t batch = s.next++;
  if (!s.worker.joinable()) return s.make_one(batch);
  std::unique_lock held(s.lock);
  s.changed.wait(held, [&] { return !s.ready.empty() || s.failure != nullptr; });
  if (s.ready.empty()) {
    s.next = s.batches;
    std::rethrow_exception(s.failure);
  }
  std::any taken = std::move(s.ready.front());
  s.ready.pop_front();
  s.changed.notify_all();
  return taken;
}

void check_loader(std::int64_t, const DataLoaderOptions& options, Location where) {
  nn::require_positive("DataLoader", {{"batch_size", options.batch_size}}, where);
  if (options.prefetch < 0) fail_parameter("DataLoader", "prefetch is negative", where);
}

std::int64_t batch_count(std::int64_t size, const DataLoaderOptions& options) {
  return (options.drop_last ? size : size + options.batch_size - 1) / options.batch_size;
}

Tensor stack_examples(const std::vector<Tensor>& examples) { return stack(examples, 0); }

Tensor take_rows(const Tensor& x, std::span<const std::int64_t> positions) {
  const Location where = Location::current();
  const Tensor index = tensor(positions, static_cast<std::int64_t>(positions.size()), where);
  return take(x, to(index, device(x, where), where), 0, where);
}

std::int64_t common_size(const std::vector<Tensor>& tensors, Location where) {
  for (const Tensor& x : tensors)
    if (x.rank() == 0 || x.size(0) != tensors[0].size(0))
      throw ShapeError(
          1085, format_error(1085, "ShapeError", "TensorDataset: first axes differ", describe(tensors[0], x), where));
  return tensors.empty() ? 0 : tensors[0].size(0);
}

void compute(const std::vector<Tensor>& tensors) { sync(tensors); }

}  // namespace detail
}  // namespace fermata
