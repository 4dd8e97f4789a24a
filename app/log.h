// app/log.h: the log of the program, on standard error. FORESAY_LOG sets its level: trace, debug, info, warn (default),
// error, off.
#pragma once

namespace foresay::app {

void start_log();

}  // namespace foresay::app
