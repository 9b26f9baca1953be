// Collectives of several ranks beside the calls of MPI that they are made of:
//
//   mpirun -n 2 build/release/bin/fermata_collectives
//
// Prints a row for each size: MPI's blocking call, its non-blocking call that is tested until it has ended, and ours,
// as eager calls and as steps of a cached plan. Times are the least of several rounds, on the first rank.
#include <mpi.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <limits>
#include <vector>

#include "fermata/fermata.h"

namespace {

namespace fm = fermata;
using fm::distributed::world;

template <class F> double microseconds(int calls, F&& call) {
  double least = std::numeric_limits<double>::infinity();
  for (int round = 0; round < 7; ++round) {
    MPI_Barrier(MPI_COMM_WORLD);
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < calls; ++i) call();
    const std::chrono::duration<double, std::micro> time = std::chrono::steady_clock::now() - begin;
    least = std::min(least, time.count() / calls);
  }
  return least;
}

void row(std::int64_t elements) {
  const int calls = static_cast<int>(std::clamp<std::int64_t>(1'000'000 / (elements + 500), 3, 2000));
  const auto count = static_cast<int>(elements);
  const fm::Tensor x = fm::full({elements}, 1, fm::DType::f32).sync();
  std::vector<float> from(static_cast<std::size_t>(elements), 1.0f), to(from.size());
  const double blocking =
      microseconds(calls, [&] { MPI_Allreduce(from.data(), to.data(), count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD); });
  const double tested = microseconds(calls, [&] {
    MPI_Request request;
    MPI_Iallreduce(from.data(), to.data(), count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD, &request);
    for (int ended = 0; ended == 0;) MPI_Test(&request, &ended, MPI_STATUS_IGNORE);
  });
  double ours[2];
  for (const fm::Mode mode : {fm::Mode::eager, fm::Mode::compiled}) {
    const fm::ModeGuard guard(mode);
    ours[mode == fm::Mode::compiled] = microseconds(calls, [&] { fm::distributed::all_reduce(x).sync(); });
  }
  if (world().rank() == 0)
    std::printf("%12lld %12.2f %12.2f %12.2f %12.2f\n", static_cast<long long>(elements * 4), blocking, tested, ours[0],
                ours[1]);
}

}  // namespace

int main() {
  if (world().size() == 1) {
    std::printf("start it with mpirun -n 2\n");
    return 1;
  }
  if (world().rank() == 0)
    std::printf("%12s %12s %12s %12s %12s   microseconds, %d ranks\n", "bytes", "MPI", "MPI, tested", "eager", "plan",
                static_cast<int>(world().size()));
  for (const std::int64_t elements : {1, 64, 1024, 16384, 262144, 1 << 24}) row(elements);
}
