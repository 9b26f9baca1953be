// The entry point that libfermata_run looks up in this library (load_program.cpp).
#include "frontend/run/cuda/cuda_program.h"
#include "ir/error.h"

using namespace fermata;

extern "C" __attribute__((visibility("default"))) LoadedProgram* fermata_run_cuda_load(const char* path, int device) {
  auto mapping = std::make_unique<MappedFile>(path);
  const std::string_view bytes = mapping->bytes();
  const ProgramHead head = decode_head(bytes, path);
  if (head.cuda.bytes == 0)
    throw UnsupportedError(
        2203, format_error(2203, "UnsupportedError", std::string(path) + " has code only for the CPU", {}, {},
                           "export it with ExportOptions::cuda"));
  return new CudaProgram(ProgramBytes{bytes, path, std::move(mapping)}, head, device);
}
