// Compares collectives of several ranks with the same calls of MPI:
//
//   mpirun -n 2 --bind-to core build/release/bin/fermata_collectives [LARGEST_BYTES [RANKS]]
//
// RANKS forms groups of so many ranks, which call at the same time, as those along the axes of a mesh do: each call in
// a group of neighbors, and the next one in a group across them. So ranks that share processors take turns.
//
// The first table has a row of all_reduce for each size: MPI's blocking call, its non-blocking call that is tested
// until it has ended, and ours, as eager calls and as steps of a cached plan. The second one has other calls of ours,
// eager; bytes are those of what a rank gives. bench/scale.py reads both. Times are medians of several rounds, on the
// first rank. FERMATA_SHARED_MEMORY=0 shows what ranks on several machines do.
#include <mpi.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <vector>

#include "fermata/fermata.h"

namespace {

namespace fm = fermata;
namespace fd = fermata::distributed;
using fd::world;

/// Of this rank.
struct Group {
  fd::Group ours;
  MPI_Comm theirs;
};
using Groups = std::vector<Group>;

/// `call` is called with each group in turn.
template <class F> double microseconds(int calls, const Groups& groups, F&& call) {
  std::vector<double> times;
  for (int round = 0; round < 9; ++round) {
    MPI_Barrier(MPI_COMM_WORLD);
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < calls; ++i) call(groups[static_cast<std::size_t>(i) % groups.size()]);
    const std::chrono::duration<double, std::micro> time = std::chrono::steady_clock::now() - begin;
    times.push_back(time.count() / calls);
  }
  std::ranges::nth_element(times, times.begin() + 4);
  return times[4];
}

int calls_of(std::int64_t elements) {
  return static_cast<int>(std::clamp<std::int64_t>(2'000'000 / (elements + 1000), 3, 2000));
}

void all_reduce_row(std::int64_t elements, const Groups& groups) {
  const int calls = calls_of(elements), count = static_cast<int>(elements);
  const fm::Tensor x = fm::full({elements}, 1, fm::DType::f32).sync();
  std::vector<float> from(static_cast<std::size_t>(elements), 1.0f), to(from.size());
  const double blocking = microseconds(calls, groups, [&](const Group& group) {
    MPI_Allreduce(from.data(), to.data(), count, MPI_FLOAT, MPI_SUM, group.theirs);
  });
  const double tested = microseconds(calls, groups, [&](const Group& group) {
    MPI_Request request;
    MPI_Iallreduce(from.data(), to.data(), count, MPI_FLOAT, MPI_SUM, group.theirs, &request);
    for (int ended = 0; ended == 0;) MPI_Test(&request, &ended, MPI_STATUS_IGNORE);
  });
  double ours[2];
  for (const fm::Mode mode : {fm::Mode::eager, fm::Mode::compiled}) {
    const fm::ModeGuard guard(mode);
    ours[mode == fm::Mode::compiled] = microseconds(
        calls, groups, [&](const Group& group) { fd::all_reduce(x, fd::Reduction::sum, group.ours).sync(); });
  }
  if (world().rank() == 0)
    std::printf("%12lld %12.2f %12.2f %12.2f %12.2f\n", static_cast<long long>(elements * 4), blocking, tested, ours[0],
                ours[1]);
}

/// Elements are a multiple of the ranks.
void other_row(std::int64_t elements, const Groups& groups) {
  const fm::ModeGuard eager(fm::Mode::eager);
  const fm::Tensor x = fm::full({elements}, 1, fm::DType::f32).sync();
  using Call = std::function<fm::Tensor(const fd::Group&)>;
  const Call rows[] = {[&](const fd::Group& g) { return fd::all_gather(x, 0, g); },
                       [&](const fd::Group& g) { return fd::reduce_scatter(x, 0, fd::Reduction::sum, g); },
                       [&](const fd::Group& g) { return fd::all_to_all(x, 0, 0, g); },
                       [&](const fd::Group& g) { return fd::broadcast(x, 0, g); },
                       [&](const fd::Group& g) { return fd::shift(x, 1, true, g); }};
  if (world().rank() == 0) std::printf("%12lld", static_cast<long long>(elements * 4));
  for (const auto& call : rows) {
    const double us = microseconds(calls_of(elements), groups, [&](const Group& g) { call(g.ours).sync(); });
    if (world().rank() == 0) std::printf(" %14.2f", us);
  }
  if (world().rank() == 0) std::printf("\n");
}

}  // namespace

int main(int argc, char** argv) {
  if (world().size() == 1) {
    std::printf("start it with mpirun -n 2\n");
    return 1;
  }
  const std::int64_t most = argc > 1 ? std::atoll(argv[1]) : std::int64_t{64} << 20;
  const int ranks = argc > 2 ? std::atoi(argv[2]) : static_cast<int>(world().size());
  if (ranks < 1 || world().size() % ranks != 0) {
    std::fprintf(stderr, "%d ranks do not divide %lld\n", ranks, static_cast<long long>(world().size()));
    return 1;
  }
  const std::int64_t number = world().size() / ranks;
  Groups groups;
  for (const std::int64_t color : {world().rank() / ranks, world().rank() % number}) {
    Group& group = groups.emplace_back(world().split(color), MPI_COMM_NULL);
    MPI_Comm_split(MPI_COMM_WORLD, static_cast<int>(color), 0, &group.theirs);
    if (number == 1) break;
  }
  if (world().rank() == 0)
    std::printf("%12s %12s %12s %12s %12s   microseconds, %d ranks\n", "all_reduce", "MPI", "MPI, tested", "eager",
                "plan", ranks);
  for (std::int64_t bytes = 4; bytes <= most; bytes *= 4) all_reduce_row(bytes / 4, groups);
  if (world().rank() == 0)
    std::printf("%12s %14s %14s %14s %14s %14s   microseconds, %d ranks\n", "bytes", "all_gather", "reduce_scatter",
                "all_to_all", "broadcast", "shift", ranks);
  for (std::int64_t bytes = 64; bytes <= most / 4; bytes *= 4)
    other_row((bytes / 4 + ranks - 1) / ranks * ranks, groups);
}
