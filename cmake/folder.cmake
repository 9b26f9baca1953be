# Adds a source folder to the library. The global property FERMATA_OBJECTS lists the object libraries, FERMATA_LIBS the
# libraries they link; library.cmake links both into fermata::fermata.
set_property(GLOBAL PROPERTY FERMATA_OBJECTS "")
set_property(GLOBAL PROPERTY FERMATA_LIBS "")

# fermata_folder(NAME [SUBFOLDERS ...]): an object library fermata_NAME of the sources in a folder and in the named
# subfolders.
function(fermata_folder name)
  set(patterns ${PROJECT_SOURCE_DIR}/${name}/*.cpp)
  foreach(sub IN LISTS ARGN)
    list(APPEND patterns ${PROJECT_SOURCE_DIR}/${name}/${sub}/*.cpp)
  endforeach()
  file(GLOB sources CONFIGURE_DEPENDS ${patterns})
  if(NOT sources)
    return()
  endif()
  add_library(fermata_${name} OBJECT ${sources})
  target_link_libraries(fermata_${name} PRIVATE fermata_flags)
  fermata_precompile(fermata_${name})
  set_property(GLOBAL APPEND PROPERTY FERMATA_OBJECTS fermata_${name})
endfunction()

# fermata_subdirectory(PATH): add_subdirectory, if the folder exists in this source tree.
function(fermata_subdirectory path)
  if(EXISTS ${PROJECT_SOURCE_DIR}/${path}/CMakeLists.txt)
    add_subdirectory(${path})
  endif()
endfunction()
