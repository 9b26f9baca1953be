// Checkpoints that all processes write, read by other meshes and by one process, and errors of damaged ones.
#include <fermata/fermata.h>
#include <fermata/mesh.h>
#include <fermata/modules.h>
#include <fermata/safetensors.h>
#include <fermata/training_file.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <mutex>

#include "tests/sharding/sharded_values.h"

namespace fermata {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

struct Grid {
  int rows, columns;
  int processes() const { return rows * columns; }
};

bool is_same(const Tensor& a, const Tensor& b) {
  return a.dtype() == b.dtype() && a.shape() == b.shape() && test::numbers_in(a) == test::numbers_in(b);
}

template <class E> std::string message_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const E& error) { return error.what(); }
  return "no error";
}

constexpr Grid kGrids[] = {{1, 1}, {2, 1}, {1, 2}, {2, 2}, {4, 1}, {3, 2}};

class Checkpoints : public ::testing::TestWithParam<Mode> {
 protected:
  Checkpoints() : folder_(fs::temp_directory_path() / ("fermata_checkpoints_" + std::to_string(::getpid()))) {
    fs::remove_all(folder_);
    fs::create_directory(folder_);
  }
  ~Checkpoints() override { fs::remove_all(folder_); }

  static void on_mesh(Grid grid, const std::function<void(const Mesh&)>& fn) {
    distributed::simulate(grid.processes(), [&](int) {
      const ModeGuard mode(GetParam());
      manual_seed(1);
      fn(Mesh({{"data", grid.rows}, {"model", grid.columns}}));
    });
  }
  std::vector<fs::path> files() const {
    std::vector<fs::path> all;
    for (const auto& entry : fs::directory_iterator(folder_)) all.push_back(entry.path());
    std::ranges::sort(all);
    return all;
  }
  const fs::path folder_;
  const std::string path_ = (folder_ / "run.safetensors.index.json").string();
};
INSTANTIATE_TEST_SUITE_P(Modes, Checkpoints, ::testing::Values(Mode::eager, Mode::compiled),
                         [](const auto& info) { return info.param == Mode::eager ? "eager" : "compiled"; });

const std::vector<AxisSplits>& ways() {
  static const std::vector<AxisSplits> all{{"data"}, {{}, "model"}, {"data", "model"}, {{{"data", "model"}}}, {}};
  return all;
}
constexpr DType kDTypes[] = {DType::f32, DType::f64, DType::f16, DType::bf16, DType::i8,      DType::i32,
                             DType::i64, DType::u8,  DType::u16, DType::c64,  DType::boolean, DType::f8e4m3fn};

/// Every dtype, in every way; and what cannot be sharded.
NamedTensors values(const Mesh* mesh) {
  NamedTensors all;
  std::int64_t seed = 0;
  for (const DType dtype : kDTypes)
    for (const AxisSplits& way : ways()) {
      const Tensor x = astype((reshape(arange(12 * 6), {12, 6}) + seed++) % 7, dtype);
      all.emplace(std::string(name(dtype)) + " " + std::to_string(seed),
                  mesh == nullptr ? x : shard(x.sync(), *mesh, way));
    }
  all.emplace("scalar", full({}, 3.5));
  all.emplace("empty", zeros({0, 12}));
  all.emplace("a#block 0:1 of 2", full({2}, 5));
  all.emplace("four axes", reshape(arange(12 * 2 * 6 * 3), {12, 2, 6, 3}));
  if (mesh != nullptr) all["four axes"] = shard(all["four axes"].sync(), *mesh, {"data", {}, "model"});
  return all;
}

TEST_P(Checkpoints, OfAnyMeshAreReadByAnyOther) {
  const NamedTensors expected = values(nullptr);
  for (const Grid& writer : kGrids) {
    on_mesh(writer, [&](const Mesh& mesh) { save_safetensors(path_, values(&mesh), {{"step", "7"}}); });
    const SafetensorsFile file(path_);
    EXPECT_EQ(file.names().size(), expected.size());
    EXPECT_EQ(file.metadata(), (Metadata{{"step", "7"}}));
    for (const auto& [name, x] : expected) EXPECT_TRUE(is_same(file.tensor(name), x)) << name;
    for (const Grid& reader : kGrids)
      on_mesh(reader, [&](const Mesh& mesh) {
        const SafetensorsFile own(path_);
        for (const auto& [name, like] : values(&mesh)) {
          const Tensor x = own.tensor_like(name, like);
          EXPECT_TRUE(is_same(unshard(x), expected.at(name))) << name;
        }
      });
  }
}

struct Perceptron {
  nn::Linear up{8, 24}, down{24, 4};
  Tensor forward(const Tensor& x) const { return down(tanh(up(x))); }
};

/// Losses of steps from where a file says, or from the beginning; saved after `save_at` steps.
std::vector<float> train(const Mesh& mesh, const std::string& from, const std::string& to, int save_at, int last) {
  Perceptron net;
  shard_(net.up.weight, mesh, {"model"});
  shard_(net.down.weight, mesh, {{}, "model"});
  optim::Adam adam(net, {.learning_rate = 0.01});
  for (const Tensor& t : adam.state())
    if (t.shape().rank() == 2 && !is_sharded(t.sync())) shard_(t, mesh, {{}, "data"});
  int step = 0;
  if (!from.empty()) step = static_cast<int>(load_training(from, net, adam).step);
  std::vector<float> losses;
  for (; step < last; ++step) {
    const Tensor x =
        shard((reshape(arange(12 * 8), {12, 8}) * (step + 3) % 11 / 11.0).astype(DType::f32).sync(), mesh, {"data"});
    const Tensor loss = mean(square(net.forward(x) - 0.5f));
    loss.backward();
    adam.step();
    adam.zero_grad();
    losses.push_back(loss.item<float>());
    if (!to.empty() && step + 1 == save_at) save_training(to, net, adam, {.step = save_at});
  }
  return losses;
}

TEST_P(Checkpoints, OfATrainingRunGoOnOnAnotherMesh) {
  std::mutex mutex;
  for (const Grid& writer : {Grid{1, 1}, Grid{2, 2}}) {
    std::vector<float> losses;
    on_mesh(writer, [&](const Mesh& mesh) {
      const std::vector<float> own = train(mesh, "", path_, 3, 6);
      const std::lock_guard lock(mutex);
      losses = own;
    });
    for (const Grid& reader : kGrids)
      on_mesh(reader, [&](const Mesh& mesh) {
        const std::vector<float> own = train(mesh, path_, "", 0, 6);
        const std::lock_guard lock(mutex);
        ASSERT_EQ(own.size(), 3u);
        for (std::size_t i = 0; i < 3; ++i)
          EXPECT_NEAR(own[i], losses[i + 3], reader.rows == writer.rows && reader.columns == writer.columns ? 0 : 1e-6);
      });
  }
}

TEST_P(Checkpoints, ReplaceThoseBefore) {
  for (int n = 1; n <= 2; ++n)
    on_mesh({2, 1}, [&](const Mesh& mesh) {
      save_safetensors(path_, {{"x", shard(full({4}, n).sync(), mesh, {"data"})}});
    });
  EXPECT_EQ(files().size(), 3u);
  EXPECT_TRUE(is_same(load_safetensors(path_).at("x"), full({4}, 2)));
}

TEST_P(Checkpoints, ThatCannotBeWrittenLeaveWhatWasThere) {
  fs::create_directory(path_);  // whose name the index cannot have
  on_mesh({2, 1}, [&](const Mesh& mesh) {
    EXPECT_THAT(message_of<FileError>([&] {
                  save_safetensors(path_, {{"x", shard(ones({4}).sync(), mesh, {"data"})}});
                }),
                HasSubstr(mesh.rank() == 0 ? "cannot be written" : "rank 0 cannot write its part"));
  });
  EXPECT_EQ(files().size(), 1u);
}

TEST_P(Checkpoints, ThatAreDamagedAreErrors) {
  const auto save = [&](const std::string& path) {
    on_mesh({2, 2}, [&](const Mesh& mesh) {
      save_safetensors(path, {{"x", shard(arange(16).sync(), mesh, {{{"data", "model"}}})}});
    });
  };
  const auto error = [&] { return message_of<FileError>([&] { SafetensorsFile file(path_); }); };
  const auto text_of = [](const fs::path& file) {
    std::ifstream stream(file);
    return std::string(std::istreambuf_iterator<char>(stream), {});
  };
  save(path_);
  const std::string index = text_of(path_);
  const std::vector<fs::path> blocks = files();  // the index is last
  ASSERT_EQ(blocks.size(), 5u);
  fs::rename(blocks[1], folder_ / "aside");
  EXPECT_THAT(error(), HasSubstr("-00002-of-00004.safetensors: cannot be opened"));
  fs::rename(folder_ / "aside", blocks[1]);
  EXPECT_EQ(error(), "no error");

  std::string without = index;
  const std::size_t line = without.find("\n    \"x#block 4:8");
  without.erase(line, without.find(',', without.find(" of 16", line)) + 1 - line);
  std::ofstream(path_) << without;
  EXPECT_THAT(error(), HasSubstr("tensor 'x' lacks the blocks of elements 4 to 8 of axis 0"));
  std::string odd = index;
  odd.replace(odd.find("4:8 of 16"), 9, "4:88 of 1");
  std::ofstream(path_) << odd;
  EXPECT_THAT(error(), ::testing::AnyOf(HasSubstr("is not a valid block name"), HasSubstr("is not in")));
  std::ofstream(path_) << index;

  fs::create_directory(folder_ / "other");
  save((folder_ / "other" / "run.safetensors.index.json").string());
  for (const auto& entry : fs::directory_iterator(folder_ / "other"))
    if (entry.path().string().find("-00002-of-") != std::string::npos)
      fs::copy_file(entry.path(), blocks[1], fs::copy_options::overwrite_existing);
  EXPECT_THAT(error(), HasSubstr("which belongs to another save"));

  fs::resize_file(blocks[2], fs::file_size(blocks[2]) - 4);
  fs::remove(blocks[1]);
  std::ofstream(path_) << index;
  EXPECT_THAT(error(), HasSubstr("-00002-of-00004"));
}

}  // namespace
}  // namespace fermata
