#include "app/log.h"

#include <spdlog/cfg/helpers.h>
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include <cstdlib>

#include "app/output.h"

namespace foresay::app {

void start_log() {
    const auto log =
        spdlog::stderr_color_mt("foresay", colourful_errors() ? spdlog::color_mode::always : spdlog::color_mode::never);
    log->set_pattern("foresay: %^%l%$: %v");
    spdlog::set_default_logger(log);
    spdlog::set_level(spdlog::level::warn);
    if (const char* level = std::getenv("FORESAY_LOG")) spdlog::cfg::helpers::load_levels(level);
}

}  // namespace foresay::app
