/* Runs an exported program in a process that has nothing but libfermata_run: f32 inputs are 0, 1/64, 2/64 ... and sizes
 * that are dynamic are the second argument, and a device may be the third. Prints the elements of all results, and fails if a library is loaded that
 * should not be needed. */
#include <fermata/run.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int fail(const char* what) {
  printf("%s\n", what);
  return 1;
}

static int is_loaded(const char* library) {
  char line[4096];
  int found = 0;
  FILE* maps = fopen("/proc/self/maps", "r");
  while (maps != NULL && fgets(line, sizeof line, maps) != NULL) found |= strstr(line, library) != NULL;
  if (maps != NULL) fclose(maps);
  return found;
}

int main(int argc, char** argv) {
  static const char* const kUnwanted[] = {"libLLVM", "libfermata.so", "libfermata_llvm", "libprotobuf", "libdnnl", "liblapack", "libnvrtc"};
  fermata_program* program = NULL;
  fermata_results* results = NULL;
  fermata_tensor inputs[16];
  int64_t sizes[16][16];
  if (argc < 3) return fail("usage: fermata_runs_program FILE SIZE [DEVICE]");
  if (fermata_program_load_on(argv[1], argc > 3 ? argv[3] : "", &program) != 0) return fail(fermata_last_error());
  const size_t count = fermata_program_input_count(program);
  if (count > 16) return fail("too many inputs");
  for (size_t i = 0; i < count; ++i) {
    fermata_tensor t = fermata_program_input(program, i);
    int64_t elements = 1;
    for (int32_t d = 0; d < t.rank; ++d) {
      sizes[i][d] = t.sizes[d] < 0 ? atoll(argv[2]) : t.sizes[d];
      elements *= sizes[i][d];
    }
    if (t.dtype != FERMATA_F32) return fail("an input is not f32");
    float* data = malloc((size_t)elements * sizeof(float) + 1);
    for (int64_t k = 0; k < elements; ++k) data[k] = (float)k / 64;
    t.data = data, t.sizes = sizes[i];
    inputs[i] = t;
  }
  if (fermata_program_run(program, inputs, count, &results) != 0) return fail(fermata_last_error());
  for (size_t i = 0; i < fermata_results_count(results); ++i) {
    const fermata_tensor t = fermata_results_get(results, i);
    int64_t elements = 1;
    printf("%s", fermata_program_output_name(program, i));
    for (int32_t d = 0; d < t.rank; ++d) printf(" %lld", (long long)t.sizes[d]), elements *= t.sizes[d];
    printf(" :");
    for (int64_t k = 0; k < elements && t.dtype == FERMATA_F32; ++k) printf(" %.9g", (double)((const float*)t.data)[k]);
    printf("\n");
  }
  fermata_results_free(results);
  for (size_t i = 0; i < count; ++i) free(inputs[i].data);
  fermata_program_free(program);
  for (size_t i = 0; i < sizeof kUnwanted / sizeof *kUnwanted; ++i)
    if (is_loaded(kUnwanted[i])) return fail(kUnwanted[i]);
  return 0;
}
