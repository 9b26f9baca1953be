# How a folder joins the library. Object libraries are named in the global property FERMATA_OBJECTS, what they link in
# FERMATA_LIBS; library.cmake puts both together.
set_property(GLOBAL PROPERTY FERMATA_OBJECTS "")
set_property(GLOBAL PROPERTY FERMATA_LIBS "")

# fermata_folder(NAME [SUBFOLDERS ...]): an object library fermata_NAME of the sources in a folder and the named ones
# below it.
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

# fermata_subdirectory(PATH): add_subdirectory, for a folder that a source tree may leave out.
function(fermata_subdirectory path)
  if(EXISTS ${PROJECT_SOURCE_DIR}/${path}/CMakeLists.txt)
    add_subdirectory(${path})
  endif()
endfunction()
