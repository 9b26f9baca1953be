/* Runs the exported network in C. */
#include <fermata/run.h>
#include <stdio.h>

int main(int argc, char** argv) {
  float pixels[64];
  const int64_t sizes[] = {1, 64};
  const fermata_tensor image = {pixels, FERMATA_F32, 2, sizes};
  fermata_program* program = NULL;
  fermata_results* results = NULL;
  for (int i = 0; i < 64; ++i) pixels[i] = 0.5f;
  if (fermata_program_load(argc > 1 ? argv[1] : "network.fermata", &program) != 0 ||
      fermata_program_run(program, &image, 1, &results) != 0) {
    puts(fermata_last_error());
    fermata_program_free(program);
    return 1;
  }
  const fermata_tensor scores = fermata_results_get(results, 0);
  for (int64_t i = 0; i < scores.sizes[1]; ++i)
    printf("%s[%d] = %.4f\n", fermata_program_output_name(program, 0), (int)i, (double)((const float*)scores.data)[i]);
  fermata_results_free(results);
  fermata_program_free(program);
  return 0;
}
