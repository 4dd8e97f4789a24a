#include "app/log.h"

#include <spdlog/cfg/helpers.h>
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <cstdlib>

namespace foresay::app {

void start_log() {
    auto log = spdlog::stderr_color_st("foresay");
    const char* no_color = std::getenv("NO_COLOR");
    if (no_color && *no_color) {
        spdlog::drop("foresay");
        log = spdlog::stderr_logger_st("foresay");
    }
    log->set_pattern("foresay: %^%l%$: %v");
    spdlog::set_default_logger(log);
    spdlog::set_level(spdlog::level::warn);
    if (const char* level = std::getenv("FORESAY_LOG")) spdlog::cfg::helpers::load_levels(level);
}

}  // namespace foresay::app
