# Installs the build into an empty prefix, then configures, builds and runs an outside project
# against it (tests/package). Run by ctest:
#   cmake -DSOURCE_DIR=… -DBUILD_DIR=… -DWORK_DIR=… -DCOMPILER=… -DFLAGS=… -P package_test.cmake
file(REMOVE_RECURSE ${WORK_DIR})
set(prefix ${WORK_DIR}/prefix)

function(run)
  execute_process(COMMAND ${ARGV} RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT result EQUAL 0)
    list(JOIN ARGV " " command)
    message(FATAL_ERROR "failed (${result}): ${command}\n${output}")
  endif()
  set(output "${output}" PARENT_SCOPE)
endfunction()

run(${CMAKE_COMMAND} --install ${BUILD_DIR} --prefix ${prefix})

# What is installed is meant for others: no internal header, no path of this tree.
file(GLOB_RECURSE installed ${prefix}/*.h ${prefix}/*.cmake)
foreach(file ${installed})
  file(STRINGS ${file} lines REGEX "#include \"")
  list(FILTER lines EXCLUDE REGEX "\"starling/")
  if(lines)
    message(FATAL_ERROR "${file} includes what is not installed: ${lines}")
  endif()
  file(READ ${file} text)
  string(FIND "${text}" "${SOURCE_DIR}/src" found)
  if(NOT found EQUAL -1)
    message(FATAL_ERROR "${file} names the source tree")
  endif()
endforeach()

run(${CMAKE_COMMAND} -S ${SOURCE_DIR}/tests/package -B ${WORK_DIR}/build -G Ninja
  -DCMAKE_BUILD_TYPE=Debug -DCMAKE_CXX_COMPILER=${COMPILER} -DCMAKE_CXX_FLAGS=${FLAGS}
  -DCMAKE_PREFIX_PATH=${prefix} -DCMAKE_FIND_USE_PACKAGE_REGISTRY=OFF)
run(${CMAKE_COMMAND} --build ${WORK_DIR}/build)
run(${WORK_DIR}/build/outside)
message(STATUS "${output}")
if(EXISTS ${prefix}/bin/starling)
  run(${prefix}/bin/starling --version)
  message(STATUS "${output}")
endif()
file(REMOVE_RECURSE ${WORK_DIR})
