# The library fermata::fermata and its install rules.
#
# Public headers include "ir/dtype.h" and the like: from the source folder in the build tree, and from
# include/fermata/internal in an installed tree. They are not in include itself, so that they never shadow a system
# header.
get_property(objects GLOBAL PROPERTY FERMATA_OBJECTS)
# Static objects are made in the order of the link. That of frontend/engine/context.cpp fills the kernel table at one go
# from what the files of the backends have listed (dispatch/kernel_files.h), so it comes after them.
list(REMOVE_ITEM objects fermata_frontend)
list(APPEND objects fermata_frontend)
get_property(libs GLOBAL PROPERTY FERMATA_LIBS)
list(TRANSFORM objects REPLACE "(.+)" "$<TARGET_OBJECTS:\\1>" OUTPUT_VARIABLE object_files)

add_library(fermata SHARED ${object_files})
add_library(fermata::fermata ALIAS fermata)
set_target_properties(fermata PROPERTIES LINKER_LANGUAGE CXX VERSION ${PROJECT_VERSION}
  SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
target_compile_features(fermata INTERFACE cxx_std_20)
target_link_libraries(fermata PRIVATE ${libs} Threads::Threads ${CMAKE_DL_LIBS})
if(NOT FERMATA_FMT_HEADER_ONLY)
  target_link_libraries(fermata PRIVATE fmt::fmt)
endif()
# Calls inside the library go straight to their function: nobody is to replace one of them, and recording an op makes ten.
if(NOT APPLE)
  target_link_options(fermata PRIVATE LINKER:-Bsymbolic-functions)
endif()
# Its threads, its handlers of forks and what threads keep would be called after it was unloaded.
if(NOT APPLE)
  target_link_options(fermata PRIVATE LINKER:-z,nodelete)
endif()
include(GNUInstallDirs)
target_include_directories(fermata INTERFACE
  $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/frontend/include> $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}>
  $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}/fermata/internal>)

set_target_properties(fermata PROPERTIES INSTALL_RPATH "$ORIGIN" INSTALL_RPATH_USE_LINK_PATH ON)
if(TARGET fermata_xsmm)
  set_target_properties(fermata_xsmm PROPERTIES LIBRARY_OUTPUT_DIRECTORY $<TARGET_FILE_DIR:fermata>
    VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
endif()
# The plugin is searched for in the folder of the library.
if(TARGET fermata_llvm)
  set_target_properties(fermata_llvm PROPERTIES LIBRARY_OUTPUT_DIRECTORY $<TARGET_FILE_DIR:fermata>
    INSTALL_RPATH "$ORIGIN" INSTALL_RPATH_USE_LINK_PATH ON)
  add_dependencies(fermata fermata_llvm)  # also in another project, which builds only what it links
endif()

if(NOT FERMATA_INSTALL)
  return()
endif()
include(CMakePackageConfigHelpers)
set(package ${CMAKE_INSTALL_LIBDIR}/cmake/fermata)
install(TARGETS fermata EXPORT fermata LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
if(TARGET fermata_xsmm)
  install(TARGETS fermata_xsmm EXPORT fermata LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
endif()
if(TARGET fermata_llvm)
  install(TARGETS fermata_llvm LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
endif()
install(DIRECTORY frontend/include/ DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h" PATTERN "*.def")
foreach(folder IN ITEMS ir runtime dispatch)
  install(DIRECTORY ${folder} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/fermata/internal
    FILES_MATCHING PATTERN "*.h" PATTERN "*.def")
endforeach()
install(FILES frontend/tools/debugger/fermata_debugger.py DESTINATION ${CMAKE_INSTALL_DATADIR}/fermata)
# What it takes to run an exported program, also by itself: cmake --install BUILD --component run.
if(TARGET fermata_run)
  install(TARGETS fermata_run fermata_run_math EXPORT fermata LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT run)
  foreach(part IN ITEMS fermata_xsmm fermata_run_cuda)  # found beside the library
    if(TARGET ${part})
      install(TARGETS ${part} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT run NAMELINK_SKIP)
    endif()
  endforeach()
  install(DIRECTORY frontend/run/include/ DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT run FILES_MATCHING PATTERN "*.h")
endif()
install(FILES LICENSE NOTICE DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/fermata)
install(EXPORT fermata NAMESPACE fermata:: FILE fermataTargets.cmake DESTINATION ${package})
configure_package_config_file(cmake/fermata-config.cmake.in ${PROJECT_BINARY_DIR}/fermata-config.cmake
  INSTALL_DESTINATION ${package})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/fermata-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/fermata-config.cmake ${PROJECT_BINARY_DIR}/fermata-config-version.cmake
  DESTINATION ${package})
