#include "observe/run_log.h"

#include <fmt/format.h>
#include <spdlog/logger.h>
#include <spdlog/sinks/basic_file_sink.h>

#include <atomic>
#include <cerrno>
#include <cstdio>

#include "base/atomic_file.h"

namespace starling {

struct RunLog::State {
  Show show;
  std::unique_ptr<spdlog::logger> logger;
  std::atomic<bool> failed{false};
};

RunLog::RunLog(const std::filesystem::path& path, Show show) : state_(std::make_unique<State>()) {
  state_->show = show ? std::move(show) : [](std::string_view line) {
    std::fprintf(stderr, "%.*s\n", static_cast<int>(line.size()), line.data());
  };
  try {
    errno = 0;
    auto file = std::make_shared<spdlog::sinks::basic_file_sink_mt>(path.string());
    state_->logger = std::make_unique<spdlog::logger>("run", std::move(file));
  } catch (const spdlog::spdlog_ex&) {
    throw write_error(path, errno != 0 ? errno : EIO);
  }
  state_->logger->set_pattern("%Y-%m-%d %H:%M:%S.%e %-7l %v");
  state_->logger->flush_on(spdlog::level::info);  // few lines, and all are there after a crash
  state_->logger->set_error_handler([state = state_.get()](const std::string& reason) {
    if (!state->failed.exchange(true)) {
      state->show(fmt::format("warning: the log can't be written: {}", reason));
    }
  });
}

RunLog::~RunLog() = default;

void RunLog::info(std::string_view message) {
  state_->logger->log(spdlog::level::info, spdlog::string_view_t(message));
}

void RunLog::warn(std::string_view message) {
  state_->logger->log(spdlog::level::warn, spdlog::string_view_t(message));
  state_->show(fmt::format("warning: {}", message));
}

void RunLog::error(std::string_view message) {
  state_->logger->log(spdlog::level::err, spdlog::string_view_t(message));
}

}  // namespace starling
