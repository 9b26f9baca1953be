// Traced programs as files: what `fermata run` makes of them, and of the tensors that they name.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fermata/fermata.h"
#include "tests/cli/run_program.h"

namespace fermata {
namespace {

using ::testing::HasSubstr;

TEST(TraceFile, TheExampleRuns) {
  const Scratch scratch;
  const Outcome traced = run_program("examples/export step.ir");
  ASSERT_EQ(traced.status, 0) << traced.err;
  const std::size_t weight = traced.out.find("\nweight ");
  ASSERT_NE(weight, std::string::npos);
  const std::string loss = traced.out.substr(5, weight - 5), text = file_text("step.ir");
  EXPECT_THAT(text, HasSubstr("// %0 = \"step.0.npy\": argument 0\n"));
  EXPECT_THAT(text, HasSubstr(": result 1\n"));
  for (const std::string mode : {"eager", "compiled"}) {
    const Outcome run = run_program("fermata run step.ir --mode " + mode);
    EXPECT_EQ(run.status, 0) << run.err;
    EXPECT_THAT(run.out, HasSubstr(" = " + loss + "\n"));
    const std::string rest = traced.out.substr(weight + 8);  // columns are lined up under another name
    EXPECT_THAT(run.out, HasSubstr(" = " + rest.substr(0, rest.find('\n')) + "\n"));
  }
  EXPECT_EQ(run_program("fermata opt step.ir").status, 0);
}

TEST(TraceFile, ConstantsAndArgumentsAreReadUnlessOthersAreGiven) {
  const Scratch scratch;
  std::filesystem::create_directory("sub");
  const Tensor w = tensor({0.5, 2.0, -1.0}, DType::bf16), x = tensor({1.0f, 2.0f, 3.0f});
  save_trace(trace([&](const Tensor& a) { return a * w; }, x), "sub/p.ir");
  EXPECT_THAT(run_program("fermata run sub/p.ir").out, HasSubstr("tensor([ 0.5,  4.0, -3.0], f32)"));
  save_npy("other.npy", tensor({2.0f, 2.0f, 2.0f}));
  EXPECT_THAT(run_program("fermata run sub/p.ir --input %0=other.npy").out, HasSubstr("tensor([ 1.,  4., -2.], f32)"));
  const Outcome check = run_program("fermata run sub/p.ir --check");
  EXPECT_THAT(check.out, HasSubstr("eager and compiled      equal"));
  std::filesystem::remove("sub/p.1.npy");
  const Outcome missing = run_program("fermata run sub/p.ir");
  EXPECT_EQ(missing.status, 1);
  EXPECT_THAT(missing.err, HasSubstr("sub/p.1.npy"));
}

TEST(TraceFile, AFolderThatIsNotThereIsAnError) {
  const Scratch scratch;
  const Trace t = trace([](const Tensor& a) { return a + 1; }, ones({2}));
  EXPECT_THROW(save_trace(t, "nowhere/p.ir"), FileError);
  save_trace(t, "p.ir");
  EXPECT_EQ(parse_graph(file_text("p.ir")).nodes.size(), 2u);
}

}  // namespace
}  // namespace fermata
