// Checkpoints of all ranks. checkpoints.sh runs this with different numbers of ranks on one folder.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "fermata/mesh.h"
#include "fermata/safetensors.h"
#include "runtime/environment.h"
#include "tests/distributed/ranks/simulation.h"

namespace fermata {
namespace {

namespace fs = std::filesystem;
using distributed::world;

class RanksCheckpoint : public ::testing::TestWithParam<Mode> {
 protected:
  ModeGuard mode_{GetParam()};
};
INSTANTIATE_TEST_SUITE_P(Modes, RanksCheckpoint, ::testing::Values(Mode::eager, Mode::compiled),
                         [](const auto& info) { return info.param == Mode::eager ? "eager" : "compiled"; });

NamedTensors values(const Mesh& mesh) {
  const auto x = [](DType dtype) { return reshape(arange(24 * 12), {24, 12}).astype(dtype).sync(); };
  return {{"rows", shard(x(DType::f32), mesh, {"data"})},
          {"columns", shard(x(DType::i64), mesh, {{}, "model"})},
          {"both", shard(x(DType::c64), mesh, {"data", "model"})},
          {"narrow", shard(x(DType::bf16), mesh, {{{"data", "model"}}})},
          {"uneven", shard(reshape(arange(35, DType::f32), {7, 5}).sync(), mesh, {"data", "model"})},
          {"few rows", shard(reshape(arange(6, DType::i32), {3, 2}).sync(), mesh, {"data"})},
          {"whole", x(DType::f64)}};
}

TEST_P(RanksCheckpoint, IsReadByAnyNumberOfRanks) {
  const char* const shared = environment_variable("RANKS_CHECKPOINT_FOLDER");
  const fs::path folder =  // mpirun is the parent of all ranks
      shared != nullptr ? fs::path(shared)
                        : fs::temp_directory_path() / ("fermata_ranks_checkpoint_" + std::to_string(::getppid()));
  fs::create_directories(folder);
  const auto path = [&](std::int64_t ranks) {
    return (folder / (std::to_string(ranks) + ".safetensors.index.json")).string();
  };
  const std::int64_t size = world().size();
  const Mesh tall({{"data", size}, {"model", 1}}), wide({{"data", 1}, {"model", size}});
  save_safetensors(path(size), values(tall));
  int read = 0;
  for (const std::int64_t ranks : {1, 2, 3, 4, 6}) {
    if (!fs::exists(path(ranks))) continue;
    ++read;
    const SafetensorsFile file(path(ranks));
    for (const Mesh& mesh : {tall, wide})
      for (const auto& [name, like] : values(mesh)) {
        const Tensor x = file.tensor_like(name, like);
        EXPECT_TRUE(test::is_same(unshard(x), unshard(like))) << name << " of " << ranks << " ranks";
        EXPECT_TRUE(test::is_same(file.tensor(name), unshard(like))) << name << " of " << ranks << " ranks";
      }
  }
  EXPECT_GE(read, 1);
  distributed::barrier();
  if (shared == nullptr && world().rank() == 0) fs::remove_all(folder);
}

}  // namespace
}  // namespace fermata
