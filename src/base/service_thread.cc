#include "base/service_thread.h"

#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <utility>

namespace starling {

ServiceThread::ServiceThread(const char* name, std::function<void(int quit)> serve)
    : quit_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  thread_ = std::thread([name, serve = std::move(serve), quit = quit_] {
    pthread_setname_np(pthread_self(), name);
    serve(quit);
  });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

ServiceThread::~ServiceThread() {
  eventfd_write(quit_, 1);
  thread_.join();
  close(quit_);
}

}  // namespace starling
