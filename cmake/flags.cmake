# Compile flags of all targets of this project: link fermata_flags as PRIVATE.
#
# Bits must not depend on the compiler, so there is no contraction. With the initial-exec TLS model an access to
# thread-local state takes one load; the default model of a shared library costs 11 ns per recorded op.
add_library(fermata_flags INTERFACE)
target_compile_options(fermata_flags INTERFACE -ffp-contract=off -ftls-model=initial-exec -fno-semantic-interposition)
# So that the linker can leave out what libfermata_run never calls.
target_compile_options(fermata_flags INTERFACE -ffunction-sections -fdata-sections)
# xxHash is header-only here: its functions are inlined, and there is nothing to link.
target_compile_definitions(fermata_flags INTERFACE FERMATA_VERSION="${PROJECT_VERSION}" XXH_INLINE_ALL=)
if(FERMATA_PCH AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  target_compile_options(fermata_flags INTERFACE -fpch-preprocess)  # required by ccache
endif()
if(FERMATA_WARNINGS)
  target_compile_options(fermata_flags INTERFACE -Wall -Wextra -Wconversion -Werror)
  if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
    # std::stable_sort of libstdc++ 12 calls a function that libstdc++ itself deprecates.
    target_compile_options(fermata_flags INTERFACE -Wno-deprecated-declarations)
  endif()
endif()
# The optimization of files that vectorize, in every build type: without inlining a vector addition is a call.
set(FERMATA_O2 -O2)
set(FERMATA_O3 -O3)
if(FERMATA_SANITIZE)
  # Checks cost most where code is inlined: an eager loop takes 85 s to compile with -O2 and inlined checks, 18 s so.
  set(FERMATA_O2 -O1)
  set(FERMATA_O3 -O1)
  add_compile_options(-fsanitize=${FERMATA_SANITIZE} -fno-omit-frame-pointer -g1 -O1)
  if(FERMATA_SANITIZE MATCHES address AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    add_compile_options("SHELL:--param asan-instrumentation-with-call-threshold=0")
  elseif(FERMATA_SANITIZE MATCHES address)
    add_compile_options("SHELL:-mllvm -asan-instrumentation-with-call-threshold=0")
  endif()
  add_link_options(-fsanitize=${FERMATA_SANITIZE})
  add_compile_definitions(FERMATA_POOLED=0)  # memory pools would hide errors from the sanitizers
endif()
target_include_directories(fermata_flags INTERFACE ${PROJECT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/frontend/include)
target_include_directories(fermata_flags SYSTEM INTERFACE ${FERMATA_XXHASH_INCLUDE})
target_link_libraries(fermata_flags INTERFACE Threads::Threads)
if(FERMATA_FMT_HEADER_ONLY)
  target_link_libraries(fermata_flags INTERFACE fmt::fmt-header-only)
else()
  target_link_libraries(fermata_flags INTERFACE fmt::fmt)
endif()

# Precompiled headers of the standard library and fmt, which take half the compile time of an average file. They include
# no header of this project, so edits do not rebuild them.
#   fermata_precompile(TARGET)                 one precompiled header, shared by all targets of the library
#   fermata_precompile(TARGET FROM NAME HEADERS ... LIBRARIES ... OPTIONS ...)
#                                              one per NAME, with more headers; OPTIONS also apply to TARGET
file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/precompiled.cpp CONTENT "")
function(fermata_precompile target)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "FROM" "HEADERS;LIBRARIES;OPTIONS")
  target_compile_options(${target} PRIVATE ${arg_OPTIONS})
  if(NOT FERMATA_PCH)
    return()
  endif()
  set(name fermata_precompiled${arg_FROM})
  if(NOT TARGET ${name})
    add_library(${name} OBJECT ${PROJECT_BINARY_DIR}/precompiled.cpp)
    target_link_libraries(${name} PRIVATE fermata_flags ${arg_LIBRARIES})
    target_compile_options(${name} PRIVATE ${arg_OPTIONS})
    target_precompile_headers(${name} PRIVATE <cmake/precompiled.h> ${arg_HEADERS})
  endif()
  target_precompile_headers(${target} REUSE_FROM ${name})
endfunction()
