// The command `fermata`: what every subcommand prints, its exit status, and the full text of its errors.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>

#include "dispatch/backend.h"
#include "ir/op.h"
#include "tests/cli/run_program.h"
#include "tests/test_folder.h"

namespace fermata {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class Cli : public ::testing::Test {
 protected:
  static void write(const std::string& name, const std::string& text) { std::ofstream(name) << text; }
  Scratch scratch_;
};

constexpr const char* kProgram =
    "// twice the exponential, added up\n"
    "%0 = input : f32[2, 3]\n"
    "%1 = multiply(%0, 2) : f32[2, 3]\n"
    "%2 = add(%1, 1) : f32[2, 3]\n"
    "%3 = sum(%2) {axes=[1], keepdims=false} : f32[2]\n"
    "return %3, %2\n";

TEST_F(Cli, OpsListsEveryOp) {
  const Outcome all = run_program("fermata ops");
  EXPECT_EQ(all.status, 0) << all.err;
  for (std::size_t i = 0; i < kOpCount; ++i)
    EXPECT_THAT(all.out, HasSubstr("\n" + std::string(name(static_cast<Op>(i))) + " "));
}

/// docs/numerics.md holds what `fermata ops --numerics` prints; FERMATA_BLESS=1 writes it there.
TEST_F(Cli, OpsPrintsTheTablesOfThePageOnNumerics) {
  const Outcome printed = run_program("fermata ops --numerics");
  EXPECT_EQ(printed.status, 0) << printed.err;
  const std::string path = fermata::test_folder() + "/../docs/numerics.md", begin = "<!-- fermata ops --numerics -->\n",
                    end = "<!-- end -->\n";
  std::ostringstream read;
  read << std::ifstream(path).rdbuf();
  std::string page = read.str();
  const std::size_t from = page.find(begin), to = page.find(end);
  ASSERT_TRUE(from != page.npos && to != page.npos) << path;
  if (const char* bless = std::getenv("FERMATA_BLESS"); bless != nullptr && *bless == '1') {
    page.replace(from + begin.size(), to - from - begin.size(), printed.out);
    std::ofstream(path) << page;
  } else {
    EXPECT_EQ(page.substr(from + begin.size(), to - from - begin.size()), printed.out);
  }
}

TEST_F(Cli, OpsShowsTheKernelsOfOne) {
  const Outcome matmul = run_program("fermata ops matmul");
  EXPECT_EQ(matmul.status, 0) << matmul.err;
  EXPECT_THAT(matmul.out, HasSubstr("Matrix product"));
  EXPECT_THAT(matmul.out, HasSubstr("portable"));
  EXPECT_THAT(matmul.out, HasSubstr("Autograd"));
  EXPECT_THAT(run_program("fermata ops gelu").out, HasSubstr("math::gelu(x)"));
}

TEST_F(Cli, OpsShowsWhatDevicesAndDTypesLeadTo) {
  const Outcome matmul = run_program("fermata ops matmul");
  EXPECT_THAT(matmul.out, HasSubstr("operand dtypes"));
  EXPECT_THAT(matmul.out,
              ::testing::ContainsRegex("\n  CPU +[a-z0-9 ]+ +[a-z, ()]*portable \\(library\\) +.*autograd_kernels"));
  EXPECT_THAT(run_program("fermata ops softmax").out, HasSubstr("CompositeImplicit"));
  EXPECT_THAT(run_program("fermata ops fermata::to").out, HasSubstr("CompositeExplicit"));
}

TEST_F(Cli, OpsListsTheOperatorsOfAKey) {
  const Outcome autocast = run_program("fermata ops --key Autocast");
  EXPECT_EQ(autocast.status, 0) << autocast.err;
  EXPECT_THAT(autocast.out, HasSubstr("matmul\n"));
  EXPECT_THAT(autocast.out, Not(HasSubstr("negative\n")));
  const Outcome typo = run_program("fermata ops --key Autocats");
  EXPECT_EQ(typo.status, 1);
  EXPECT_THAT(typo.err, HasSubstr("FM1513 ValueError: there is no dispatch key Autocats\n"));
}

TEST_F(Cli, OpsListsDanglingKernels) {
  EXPECT_EQ(run_program("fermata ops --dangling").out, "every kernel has an operator with a schema\n");
  EXPECT_EQ(run_program("fermata ops --dangling matmul").status, 2);
}

TEST_F(Cli, OpsSuggestsTheNearestName) {
  const Outcome typo = run_program("fermata ops matmull");
  EXPECT_EQ(typo.status, 1);
  EXPECT_EQ(typo.out, "");
  EXPECT_EQ(typo.err, "FM1333 ValueError: no op named matmull\n  hint matmul?\n");
}

TEST_F(Cli, RunComputesAProgramInBothModes) {
  write("p.ir", kProgram);
  write("x.csv", "0,1,2\n-1,-2,-3\n");
  for (const std::string mode : {"eager", "compiled"}) {
    const Outcome run = run_program("fermata run p.ir --input %0=x.csv --mode " + mode);
    EXPECT_EQ(run.status, 0) << run.err;
    EXPECT_THAT(run.out, HasSubstr("%3 = tensor([ 9., -9.], f32)"));
    EXPECT_THAT(run.out, HasSubstr("%2 = tensor([[ 1.,  3.,  5.],\n        [-1., -3., -5.]], f32)"));
  }
}

TEST_F(Cli, RunMakesUpInputsThatDependOnTheSeedOnly) {
  write("p.ir", kProgram);
  const Outcome first = run_program("fermata run p.ir --seed 7"),
                again = run_program("fermata run p.ir --seed 7 --mode eager");
  EXPECT_EQ(first.status, 0) << first.err;
  EXPECT_EQ(first.out, again.out);
  EXPECT_NE(first.out, run_program("fermata run p.ir --seed 8").out);
}

TEST_F(Cli, RunChecksBothModesAgainstDoublePrecision) {
  write("p.ir", kProgram);
  const Outcome check = run_program("fermata run p.ir --check");
  EXPECT_EQ(check.status, 0) << check.err;
  EXPECT_THAT(check.out, HasSubstr("output 0 (%3)\n  eager and reference"));
  EXPECT_THAT(check.out, HasSubstr("eager and compiled      equal"));
}

TEST_F(Cli, RunMakesUpSparsePatternsThatAreValid) {
  write("p.ir",
        "%0 = input : i64[17]\n"
        "%1 = input : f32[12]\n"
        "%2 = input : f32[6, 5]\n"
        "%3 = csr_matmul(%0, %1, %2) {columns=6, transposed=false} : f32[4, 5]\n"
        "%4 = csr_sampled_matmul(%0, %3, %2) : f32[12]\n"
        "%5 = csr_matmul(%0, %4, %3) {columns=6, transposed=true} : f32[6, 5]\n"
        "%6 = input : u8[3, 70]\n"
        "%7 = input : i8[70, 5]\n"
        "%8 = matmul_i32(%6, %7) : i32[3, 5]\n"
        "return %5, %8\n");
  const Outcome check = run_program("fermata run p.ir --check");
  EXPECT_EQ(check.status, 0) << check.out << check.err;
  EXPECT_THAT(check.out, HasSubstr("output 1 (%8)\n  eager and reference     equal"));
}

TEST_F(Cli, RunRefusesInputsThatDoNotFit) {
  write("p.ir", kProgram);
  write("x.csv", "0,1\n");
  EXPECT_EQ(run_program("fermata run p.ir --input %0=x.csv").err,
            "FM1332 ValueError: x.csv holds f32[1, 2], but the program expects f32[2, 3]\n");
  EXPECT_EQ(run_program("fermata run p.ir --input %1=x.csv").err,
            "FM1332 ValueError: --input %1=x.csv: %1 is not an input of the program\n");
  const Outcome form = run_program("fermata run p.ir --input x.csv");
  EXPECT_EQ(form.status, 1);
  EXPECT_EQ(form.err, "FM1332 ValueError: --input x.csv: expected %N=FILE\n  hint for example --input %0=x.npy\n");
}

TEST_F(Cli, ProgramsNameFilesInTheirFolderOnly) {
  std::filesystem::create_directories("folder/below");
  write("outside.csv", "0,1,2\n3,4,5\n");
  write("folder/x.csv", "0,1,2\n3,4,5\n");
  write("folder/below/x.csv", "0,1,2\n3,4,5\n");
  std::filesystem::create_symlink("../outside.csv", "folder/link.csv");
  std::filesystem::create_symlink("below", "folder/also");
  for (const char* const name : {"x.csv", "below/x.csv", "also/x.csv", "below/../x.csv"}) {
    write("folder/p.ir", std::string("// %0 = \"") + name + "\"\n" + kProgram);
    EXPECT_EQ(run_program("fermata run folder/p.ir").status, 0) << name;
  }
  const std::string absolute = std::filesystem::absolute("outside.csv").string();
  for (const std::string& name : {std::string("../outside.csv"), absolute, std::string("/etc/passwd"),
                                  std::string("link.csv"), std::string("below"), std::string("/dev/zero")}) {
    write("folder/p.ir", "// %0 = \"" + name + "\"\n" + kProgram);
    const Outcome refused = run_program("fermata run folder/p.ir");
    EXPECT_EQ(refused.status, 1) << name;
    EXPECT_EQ(refused.err, "FM1332 ValueError: folder/p.ir refers to " + name +
                               ", which is not a file in its folder\n  hint pass it with --input\n");
  }
  EXPECT_EQ(run_program("fermata run folder/p.ir --input %0=outside.csv").status, 0);
  EXPECT_EQ(run_program("fermata run folder/p.ir --input %0=/dev/zero").err,
            "FM1601 FileError: load_csv: /dev/zero: is a device, not a regular file\n");
}

TEST_F(Cli, OptRunsPassesInOrder) {
  write("p.ir",
        "%0 = input : f32[4]\n%1 = exp(%0) : f32[4]\n%2 = cast(%0) : f32[4]\n%3 = tanh(%2) : f32[4]\nreturn %3\n");
  const Outcome simplified = run_program("fermata opt --passes simplify p.ir");
  EXPECT_EQ(simplified.status, 0) << simplified.err;
  EXPECT_EQ(simplified.out, "%0 = input : f32[4]\n%1 = tanh(%0) : f32[4]\nreturn %1\n");
}

TEST_F(Cli, OptNamesThePassesThatThereAre) {
  write("p.ir", kProgram);
  const Outcome wrong = run_program("fermata opt --passes simplify,no_such_pass p.ir");
  EXPECT_EQ(wrong.status, 1);
  EXPECT_EQ(
      wrong.err,
      "FM1321 ValueError: unknown graph pass no_such_pass\n  hint one of: simplify, materialize, bucket_collectives\n");
}

TEST_F(Cli, ExplainShowsProgramAndPlan) {
  write("p.ir", kProgram);
  const Outcome explain = run_program("fermata explain p.ir");
  EXPECT_EQ(explain.status, 0) << explain.err;
  EXPECT_THAT(explain.out, HasSubstr("%2 = add(%1, 1) : f32[2, 3]"));
  EXPECT_THAT(explain.out, HasSubstr("step 0: kernel"));
  EXPECT_THAT(explain.out, Not(HasSubstr("step 1:"))) << "two outputs of one loop are one kernel";
}

TEST_F(Cli, BenchTimesBothModes) {
  write("p.ir", kProgram);
  const Outcome bench = run_program("fermata bench p.ir --threads 1");
  EXPECT_EQ(bench.status, 0) << bench.err;
  EXPECT_THAT(bench.out, HasSubstr("3 ops, 1 thread\n"));
  EXPECT_THAT(bench.out, HasSubstr("multiply"));
  EXPECT_THAT(bench.out, HasSubstr("compiled"));
}

TEST_F(Cli, CacheKeepsMachineCodeBetweenProcesses) {
  write("p.ir", kProgram);
  const std::string settings = "FERMATA_CACHE_DIR=kept FERMATA_COMPILE=immediate ";
  EXPECT_EQ(run_program("fermata cache size", settings).out, "0 kernels, 0 bytes, in kept\n");
  const Outcome first = run_program("fermata run p.ir", settings);
  EXPECT_EQ(first.status, 0) << first.err;
  if (std::string why; !backend(BackendKey::cpu)->can_compile(&why)) GTEST_SKIP() << why;
  EXPECT_THAT(run_program("fermata cache size", settings).out, Not(HasSubstr("0 kernels, ")));
  EXPECT_THAT(run_program("fermata cache list", settings).out, HasSubstr(" row kernel, "));
  const Outcome second = run_program("fermata run p.ir", settings);
  EXPECT_EQ(second.out, first.out);
  EXPECT_EQ(second.err, "");
  // Damage is reported, and the kernel compiled again.
  for (const auto& entry : std::filesystem::directory_iterator("kept")) std::filesystem::resize_file(entry, 200);
  const Outcome third = run_program("fermata run p.ir", settings);
  EXPECT_EQ(third.out, first.out);
  EXPECT_THAT(third.err, HasSubstr(".kernel: it is truncated\n"));
  EXPECT_EQ(run_program("fermata run p.ir", settings).err, "");
  EXPECT_THAT(run_program("fermata cache clear", settings).out, HasSubstr(" files removed from kept\n"));
  EXPECT_EQ(run_program("fermata cache list", settings).out, "");
  // Compiled beforehand, a program finds all of its kernels.
  EXPECT_EQ(run_program("fermata cache warm p.ir p.ir", settings).out,
            "p.ir: steps 1, new kernels 1\np.ir: steps 1, new kernels 0\n");
  // Not what makes up its inputs, though, so that is played op by op.
  EXPECT_EQ(run_program("fermata run p.ir", "FERMATA_CACHE_DIR=kept ").out, first.out);
  EXPECT_THAT(run_program("fermata cache size", settings).out, HasSubstr("1 kernels, "));
  EXPECT_EQ(run_program("fermata cache warm nothing.ir", settings).status, 1);
  EXPECT_EQ(run_program("fermata cache size", "FERMATA_CACHE_DIR= ").out,
            "The disk cache is off: FERMATA_CACHE_DIR is empty, or there is no home folder.\n");
}

TEST_F(Cli, AMissingFileIsAFileError) {
  for (const std::string command : {"run", "explain", "opt", "bench"}) {
    const Outcome missing = run_program("fermata " + command + " nothing.ir");
    EXPECT_EQ(missing.status, 1) << command;
    EXPECT_EQ(missing.out, "") << command;
    EXPECT_EQ(missing.err, "FM1601 FileError: fermata: nothing.ir: cannot be opened (No such file or directory)\n")
        << command;
  }
}

TEST_F(Cli, ABrokenProgramIsAParseErrorWithItsFile) {
  write("broken.ir", "%0 = input : f32[4]\n%1 = exp(%0 : f32[4]\nreturn %1\n");
  const Outcome broken = run_program("fermata explain broken.ir");
  EXPECT_EQ(broken.status, 1);
  EXPECT_EQ(
      broken.err,
      "FM1501 ParseError: line 2, column 13: expected ')'\n  %1 = exp(%0 : f32[4]\n              ^\n  in   broken.ir\n");
}

TEST_F(Cli, AWrongCommandLineIsStatusTwo) {
  EXPECT_EQ(run_program("fermata").status, 2);
  EXPECT_EQ(run_program("fermata no_such_command").status, 2);
  EXPECT_EQ(run_program("fermata run").status, 2);
  EXPECT_EQ(run_program("fermata --help").status, 0);
  EXPECT_THAT(run_program("fermata --version").out, HasSubstr("fermata 0."));
}

}  // namespace
}  // namespace fermata
