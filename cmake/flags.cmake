# Flags that every target of this project shares: link fermata_flags privately.
#
# Bits never depend on the compiler: no contraction anywhere. Thread-local state of a shared library is reached with one
# load only under the initial-exec model; the default costs 11 ns per recorded op.
add_library(fermata_flags INTERFACE)
target_compile_options(fermata_flags INTERFACE -ffp-contract=off -ftls-model=initial-exec -fno-semantic-interposition)
# xxHash is used as a header: its functions inline, and there is nothing to link.
target_compile_definitions(fermata_flags INTERFACE FERMATA_VERSION="${PROJECT_VERSION}" XXH_INLINE_ALL=)
if(FERMATA_WARNINGS)
  target_compile_options(fermata_flags INTERFACE -Wall -Wextra -Wconversion -Werror)
  if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
    # std::stable_sort of libstdc++ 12 calls a function that it declares deprecated itself.
    target_compile_options(fermata_flags INTERFACE -Wno-deprecated-declarations)
  endif()
endif()
if(FERMATA_SANITIZE)
  add_compile_options(-fsanitize=${FERMATA_SANITIZE} -fno-omit-frame-pointer -g1)
  add_link_options(-fsanitize=${FERMATA_SANITIZE})
  add_compile_definitions(FERMATA_POOLED=0)  # pools would hide what a sanitizer looks for
endif()
target_include_directories(fermata_flags INTERFACE ${PROJECT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/frontend/include)
target_include_directories(fermata_flags SYSTEM INTERFACE ${FERMATA_XXHASH_INCLUDE})
target_link_libraries(fermata_flags INTERFACE fmt::fmt-header-only Threads::Threads)
