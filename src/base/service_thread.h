// ServiceThread: a thread that serves until its owner goes. It gets no signals, which are for the
// process's own thread, and a descriptor that becomes readable when it is to end.
#pragma once

#include <functional>
#include <thread>

namespace starling {

class ServiceThread {
 public:
  // The name is of at most 15 characters. `serve` polls `quit`, and returns when it is readable.
  ServiceThread(const char* name, std::function<void(int quit)> serve);
  // Waits for its end.
  ~ServiceThread();
  ServiceThread(const ServiceThread&) = delete;
  ServiceThread& operator=(const ServiceThread&) = delete;

 private:
  const int quit_;
  std::thread thread_;
};

}  // namespace starling
