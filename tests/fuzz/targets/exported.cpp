// Programs in files: the descriptions of exported ones.
#include "frontend/run/program_file.h"
#include "ir/error.h"
#include "tests/fuzz/targets/target.h"

namespace fermata::testing {
namespace {

/// The description of a program, without the head and the checksum around it, which would hide all that is behind them.
/// InternalError is what a damaged description of a kernel gives.
void exported(std::string_view input) {
  ProgramFile program;
  try {
    program = decode_program(input, "the input");
    check_program(program, "the input");
  } catch (const InternalError&) { return; }
  const std::string written = encode_program(program);
  require(encode_program(decode_program(written, "the input")) == written, "a program reads back as another one");
}
const AddFuzzTarget add_exported("exported", &exported, kReaderGrowth);

}  // namespace
}  // namespace fermata::testing
