# `cmake --install` and `find_package(starling)`.
include(CMakePackageConfigHelpers)
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/starling)

install(TARGETS starling EXPORT starling_targets)
if(TARGET starling_command)
  install(TARGETS starling_command)
endif()
install(DIRECTORY include/starling DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(EXPORT starling_targets FILE starling-targets.cmake NAMESPACE starling:: DESTINATION ${package_dir})
configure_package_config_file(cmake/starling-config.cmake.in ${CMAKE_BINARY_DIR}/starling-config.cmake
  INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(${CMAKE_BINARY_DIR}/starling-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES cmake/dependencies.cmake ${CMAKE_BINARY_DIR}/starling-config.cmake ${CMAKE_BINARY_DIR}/starling-config-version.cmake
  DESTINATION ${package_dir})
