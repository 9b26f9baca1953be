# Dependencies of the build. fmt and xxHash (headers only) are required; LLVM, oneDNN, libxsmm and LAPACKE are optional.
# Sets FERMATA_WITH_LLVM, _DNNL, _XSMM, _LAPACK, _ZIP, _ONNX, _BACKTRACE, _NVTX and _MPI, and defines the imported targets
# DNNL::dnnl, libxsmm::libxsmm, LAPACKE::lapacke, libzip::libzip and ONNX::proto.
find_package(fmt REQUIRED)
find_package(Threads REQUIRED)
find_path(FERMATA_XXHASH_INCLUDE xxhash.h REQUIRED)

set(FERMATA_WITH_LLVM OFF)
if(FERMATA_LLVM)  # AUTO is true, too
  # Debian installs each version under its own prefix.
  find_package(LLVM 19.1 CONFIG QUIET PATHS /usr/lib/llvm-19)
  if(LLVM_FOUND)
    set(FERMATA_WITH_LLVM ON)
    # LLVM's static libraries depend on zstd. Debian's llvm-19-dev does not depend on libzstd-dev, but libzstd itself is
    # on every Debian system, and its headers are not needed.
    if(NOT TARGET zstd::libzstd_shared)
      find_library(FERMATA_ZSTD_LIBRARY NAMES zstd libzstd.so.1)
      mark_as_advanced(FERMATA_ZSTD_LIBRARY)
      if(FERMATA_ZSTD_LIBRARY)
        add_library(zstd::libzstd_shared UNKNOWN IMPORTED)
        set_target_properties(zstd::libzstd_shared PROPERTIES IMPORTED_LOCATION ${FERMATA_ZSTD_LIBRARY})
      endif()
    endif()
  elseif(NOT FERMATA_LLVM STREQUAL "AUTO")
    message(FATAL_ERROR "FERMATA_LLVM=ON, but LLVM 19.1 was not found (LLVM_DIR names the folder of LLVMConfig.cmake)")
  endif()
endif()

# fermata_imported(TARGET LIBRARY HEADER RESULT): an imported target, if both the library and its header are found. The
# packages' own config files are not used: oneDNN's requires OpenCL and OpenMP, which its CPU engine does not need.
function(fermata_imported target library header result)
  string(TOUPPER ${library} name)
  find_library(FERMATA_${name}_LIBRARY ${library})
  find_path(FERMATA_${name}_INCLUDE ${header})
  mark_as_advanced(FERMATA_${name}_LIBRARY FERMATA_${name}_INCLUDE)
  set(${result} OFF PARENT_SCOPE)
  if(FERMATA_${name}_LIBRARY AND FERMATA_${name}_INCLUDE)
    add_library(${target} UNKNOWN IMPORTED)
    set_target_properties(${target} PROPERTIES IMPORTED_LOCATION ${FERMATA_${name}_LIBRARY}
      INTERFACE_INCLUDE_DIRECTORIES ${FERMATA_${name}_INCLUDE})
    set(${result} ON PARENT_SCOPE)
  endif()
endfunction()
fermata_imported(DNNL::dnnl dnnl oneapi/dnnl/dnnl.hpp FERMATA_WITH_DNNL)
fermata_imported(libxsmm::noblas xsmmnoblas libxsmm.h FERMATA_WITH_XSMM)  # its BLAS fallbacks, which are never called
if(FERMATA_WITH_XSMM)
  fermata_imported(libxsmm::libxsmm xsmm libxsmm.h FERMATA_WITH_XSMM)
endif()
if(FERMATA_WITH_XSMM)
  target_link_libraries(libxsmm::libxsmm INTERFACE libxsmm::noblas ${CMAKE_DL_LIBS})
endif()
fermata_imported(LAPACKE::lapacke lapacke lapacke.h FERMATA_WITH_LAPACK)
fermata_imported(libzip::libzip zip zip.h FERMATA_WITH_ZIP)

# The messages of ONNX files: their classes, and the protocol buffers that they are made of.
find_package(Protobuf QUIET)
fermata_imported(ONNX::proto onnx_proto onnx/onnx_pb.h FERMATA_WITH_ONNX)
if(FERMATA_WITH_ONNX AND NOT TARGET protobuf::libprotobuf)
  set(FERMATA_WITH_ONNX OFF)
endif()
if(FERMATA_WITH_ONNX)
  target_compile_definitions(ONNX::proto INTERFACE ONNX_ML=1 ONNX_NAMESPACE=onnx)  # as the package was built
endif()

# Finds the callers of a call and their lines; part of GCC, embedded (NOTICE).
execute_process(COMMAND ${CMAKE_CXX_COMPILER} -print-file-name=libbacktrace.a OUTPUT_VARIABLE file
  OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
set(FERMATA_WITH_BACKTRACE OFF)
cmake_path(GET file PARENT_PATH folder)
if(IS_ABSOLUTE "${file}" AND EXISTS ${file} AND EXISTS ${folder}/include/backtrace.h)
  set(FERMATA_WITH_BACKTRACE ON)
  set(FERMATA_BACKTRACE_LIBRARY ${file})
  # Only this header is wanted of the compiler's folder: another compiler has its own.
  configure_file(${folder}/include/backtrace.h ${PROJECT_BINARY_DIR}/backtrace/backtrace.h COPYONLY)
endif()

# Ranges for profilers of CUDA: headers only, part of the CUDA toolkit (NOTICE).
find_path(FERMATA_NVTX_INCLUDE nvtx3/nvToolsExt.h
  HINTS ${CUDAToolkit_ROOT}/include $ENV{CUDA_PATH}/include $ENV{CUDA_HOME}/include PATHS /usr/local/cuda/include)
mark_as_advanced(FERMATA_NVTX_INCLUDE)
set(FERMATA_WITH_NVTX OFF)
if(FERMATA_NVTX_INCLUDE)
  set(FERMATA_WITH_NVTX ON)
endif()

# Moves tensors between processes.
set(MPI_CXX_SKIP_MPICXX ON)
find_package(MPI QUIET COMPONENTS CXX)
set(FERMATA_WITH_MPI OFF)
if(MPI_CXX_FOUND)
  set(FERMATA_WITH_MPI ON)
endif()

# Lays out the graphs of reports; embedded (NOTICE). Without it a simpler layout is used.
find_file(FERMATA_DAGRE dagre.min.js PATHS /usr/share/nodejs/dagre/dist /usr/share/javascript/dagre NO_DEFAULT_PATH)
mark_as_advanced(FERMATA_DAGRE)
