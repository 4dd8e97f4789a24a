// The end of the program while a GPU hangs (app/leave.h, kernels/given_up.h).
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>

#include "app/leave.h"
#include "kernels/given_up.h"

namespace foresay::app {
namespace {

bool hangs = false;
bool busy(const void* device) { return *static_cast<const bool*>(device); }

TEST(GivenUp, ADeviceHangsUntilItIsNoLongerBusy) {
    EXPECT_FALSE(kernels::any_device_hangs());
    bool first = true, second = true;
    kernels::give_up_device(&first, busy);
    kernels::give_up_device(&first, busy);
    kernels::give_up_device(&second, busy);
    EXPECT_TRUE(kernels::any_device_hangs());
    first = false;
    EXPECT_TRUE(kernels::any_device_hangs()) << "the other one does";
    second = false;
    EXPECT_FALSE(kernels::any_device_hangs());
    first = second = true;
    EXPECT_FALSE(kernels::any_device_hangs()) << "they have answered and were not given up since";
}

TEST(Leave, AGpuThatHangsDoesNotHoldTheProgram) {
    // What exit() calls stands for the driver, which waits for the GPU.
    const auto end = [] {
        std::atexit([] { std::_Exit(99); });
        std::setvbuf(stderr, nullptr, _IOFBF, 4096);
        std::fputs("written", stderr);
        leave_if_a_device_hangs(3);
        std::exit(3);
    };
    EXPECT_EXIT(
        {
            hangs = true;
            kernels::give_up_device(&hangs, busy);
            end();
        },
        testing::ExitedWithCode(3), "written");
    EXPECT_EXIT(end(), testing::ExitedWithCode(99), "") << "else it ends as ever";
}

}  // namespace
}  // namespace foresay::app
