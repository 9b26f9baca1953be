/* Opens a library by dlopen, as interpreters of other languages do. If it is a plugin, lets it compute, closes it, and
   computes with what it has registered, which is still there. */
#include <dlfcn.h>
#include <stdio.h>

static int fail(const char* what) {
  const char* why = dlerror();
  fprintf(stderr, "%s: %s\n", what, why != NULL ? why : "?");
  return 1;
}

typedef int (*Compute)(void);

int main(int count, char** arguments) {
  if (count != 2) return 2;
  void* library = dlopen(arguments[1], RTLD_NOW | RTLD_LOCAL);
  if (library == NULL) return fail("dlopen");
  Compute compute;
  *(void**)&compute = dlsym(library, "fermata_test_compute");
  if (compute == NULL) return dlclose(library) == 0 ? 0 : fail("dlclose");
  for (int mode = 0; mode < 2; ++mode)
    if (compute() != 42) return fail("before it is closed");
  if (dlclose(library) != 0) return fail("dlclose");
  if (compute() != 42) return fail("after it was closed");
  library = dlopen(arguments[1], RTLD_NOW | RTLD_LOCAL);
  if (library == NULL) return fail("dlopen, again");
  *(void**)&compute = dlsym(library, "fermata_test_compute");
  if (compute() != 42) return fail("after it was opened again");
  return dlclose(library) == 0 ? 0 : fail("dlclose, again");
}
