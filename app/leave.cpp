#include "app/leave.h"

#include <spdlog/spdlog.h>

#include <cstdio>
#include <cstdlib>
#include <iostream>

#include "kernels/given_up.h"

namespace foresay::app {

void leave_if_a_device_hangs(int status) {
    if (!kernels::any_device_hangs()) return;
    spdlog::default_logger()->flush();
    std::cout.flush();
    std::fflush(nullptr);
    std::_Exit(status);
}

}  // namespace foresay::app
