// app/log.h: sets up the program's log on standard error. FORESAY_LOG sets the level: trace, debug, info, warn (the
// default), error or off.
#pragma once

namespace foresay::app {

void start_log();

}  // namespace foresay::app
