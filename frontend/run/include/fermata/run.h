/* C interface to programs written by fermata::export_program(). Link fermata::run, or -lfermata_run.
 *
 *   fermata_program* program;
 *   if (fermata_program_load("model.fermata", &program) != 0) { puts(fermata_last_error()); return 1; }
 *   const int64_t sizes[] = {1, 784};
 *   const fermata_tensor image = {pixels, FERMATA_F32, 2, sizes};
 *   fermata_results* results;
 *   if (fermata_program_run(program, &image, 1, &results) != 0) ...
 *   fermata_tensor scores = fermata_results_get(results, 0);
 * * Functions that return an int return 0 or an error code (docs/errors.md); fermata_last_error() has its text.
 * Tensors are dense and in row-major order. A program contains machine code: load only files that you trust.
 */
#ifndef FERMATA_RUN_H
#define FERMATA_RUN_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define FERMATA_RUN_API __attribute__((visibility("default")))
#else
#define FERMATA_RUN_API
#endif

/* clang-format off */
typedef enum fermata_dtype {
  FERMATA_BOOL, FERMATA_U8, FERMATA_U16, FERMATA_U32, FERMATA_U64, FERMATA_I8, FERMATA_I16, FERMATA_I32, FERMATA_I64,
  FERMATA_F16, FERMATA_BF16, FERMATA_F32, FERMATA_F64, FERMATA_C64, FERMATA_C128,
  /* One byte per element. */
  FERMATA_F8E4M3FN = 17, FERMATA_F8E5M2, FERMATA_F8E4M3FNUZ, FERMATA_F8E5M2FNUZ, FERMATA_F4E2M1FN,
  FERMATA_I4, FERMATA_U4, FERMATA_I2, FERMATA_U2, FERMATA_F8E8M0FNU
} fermata_dtype;
/* clang-format on */

/* A tensor owned by the caller, or a view returned by a call. */
typedef struct fermata_tensor {
  void* data;
  int32_t dtype; /* a fermata_dtype */
  int32_t rank;
  const int64_t* sizes; /* [rank]; -1 in results of fermata_program_input() means any size */
} fermata_tensor;

typedef struct fermata_program fermata_program;
typedef struct fermata_results fermata_results;

/* The text of the last error on this thread, or "". The address is the same for all errors of a thread. */
FERMATA_RUN_API const char* fermata_last_error(void);
/* The version of the library. */
FERMATA_RUN_API const char* fermata_run_version(void);
/* Sets the number of threads shared by all programs; by default FERMATA_NUM_THREADS, or one per processor.
 * Call it before the first run. */
FERMATA_RUN_API int fermata_set_threads(int threads);

FERMATA_RUN_API int fermata_program_load(const char* path, fermata_program** program);
/* The same for a device: "cpu", "cuda", "cuda:1". fermata_program_load() takes the processor if the file has code for
 * it, else "cuda". CUDA needs NVIDIA's driver, and libfermata_run_cuda beside this library. */
FERMATA_RUN_API int fermata_program_load_on(const char* path, const char* device, fermata_program** program);
FERMATA_RUN_API void fermata_program_free(fermata_program* program);

FERMATA_RUN_API size_t fermata_program_input_count(const fermata_program* program);
FERMATA_RUN_API size_t fermata_program_output_count(const fermata_program* program);
/* NULL if the index is out of range. */
FERMATA_RUN_API const char* fermata_program_input_name(const fermata_program* program, size_t input);
FERMATA_RUN_API const char* fermata_program_output_name(const fermata_program* program, size_t output);
/* The dtype and sizes of an input, without data. */
FERMATA_RUN_API fermata_tensor fermata_program_input(const fermata_program* program, size_t input);
/* The instruction set whose code is used: "avx2", "avx512"; of CUDA an architecture: "sm_90", or "compute_90" for code
 * that the driver has translated. */
FERMATA_RUN_API const char* fermata_program_target(const fermata_program* program);
/* Reads the whole file and verifies its checksums; loading verifies everything but constants. */
FERMATA_RUN_API int fermata_program_verify(const fermata_program* program);
/* Sets the seed for random numbers of subsequent runs. */
FERMATA_RUN_API void fermata_program_seed(fermata_program* program, uint64_t seed);

/* Runs a program. Any number of threads may run one concurrently. */
FERMATA_RUN_API int fermata_program_run(fermata_program* program, const fermata_tensor* inputs, size_t input_count,
                                        fermata_results** results);
/* Runs a program into memory of the caller; an output without data is computed and discarded. */
FERMATA_RUN_API int fermata_program_run_into(fermata_program* program, const fermata_tensor* inputs, size_t input_count,
                                             const fermata_tensor* outputs, size_t output_count);

/* On CUDA: data of inputs and outputs may be of the host or of the device, whichever each pointer is of; both functions
 * above wait for the device, and give results in memory of the host. This one waits for nothing and leaves results on
 * the device, where a later run may take them as inputs. On the processor it is fermata_program_run(). */
FERMATA_RUN_API int fermata_program_run_on_device(fermata_program* program, const fermata_tensor* inputs,
                                                  size_t input_count, fermata_results** results);
/* The stream (CUstream, cudaStream_t) of the runs that follow: work that is in it before them is done before them. NULL
 * for the library's own. It has to outlive the program, or the next call of this. */
FERMATA_RUN_API int fermata_program_set_stream(fermata_program* program, void* stream);
/* Until everything is done that has been run; gives the errors of it. */
FERMATA_RUN_API int fermata_program_wait(fermata_program* program);

FERMATA_RUN_API size_t fermata_results_count(const fermata_results* results);
/* Valid until the results are freed. */
FERMATA_RUN_API fermata_tensor fermata_results_get(const fermata_results* results, size_t output);
/* A result to memory of the host, wherever it is. */
FERMATA_RUN_API int fermata_results_copy(const fermata_results* results, size_t output, void* to);
FERMATA_RUN_API void fermata_results_free(fermata_results* results);

#ifdef __cplusplus
}
#endif
#endif
