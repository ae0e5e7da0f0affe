# Every library that Starling links, all of them Debian 12 packages (packages.txt). The installed
# package uses this file too. oneDNN is linked by name: its CMake file asks for OpenCL, unused here.
include(CMakeFindDependencyMacro)
find_dependency(Threads)
find_dependency(OpenMP COMPONENTS CXX)
find_dependency(fmt)
find_dependency(spdlog)
find_dependency(ZLIB)
find_dependency(OpenSSL)

set(STARLING_LIBRARIES
  dnnl hwy xxhash fmt::fmt spdlog::spdlog ZLIB::ZLIB OpenSSL::Crypto OpenMP::OpenMP_CXX Threads::Threads)
