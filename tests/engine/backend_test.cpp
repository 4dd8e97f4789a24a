// Which GPU a machine has, from a list of PCI devices.
#include "engine/backend.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "tests/app/program.h"

namespace foresay::engine {
namespace {

namespace fs = std::filesystem;

void device(const std::string& name, const std::string& vendor, const std::string& kind) {
    fs::create_directories(testing::scratch() / name);
    testing::write_scratch(name + "/vendor", vendor + "\n");
    testing::write_scratch(name + "/class", kind + "\n");
}

TEST(NvidiaGpu, IsADisplayOrComputeDeviceOfThatMaker) {
    const fs::path devices = testing::scratch() / "devices";
    EXPECT_FALSE(has_nvidia_gpu(devices)) << "there is no such list";
    device("devices/0000:00:02.0", "0x8086", "0x030000");  // another maker's
    device("devices/0000:01:00.1", "0x10de", "0x040300");  // sound of a graphics card
    fs::create_directories(devices / "0000:02:00.0");      // says nothing
    EXPECT_FALSE(has_nvidia_gpu(devices));
    device("devices/0000:01:00.0", "0x10de", "0x030200");
    EXPECT_TRUE(has_nvidia_gpu(devices));
}

TEST(BackendText, NamesTheInstructionSetAndTheThreads) {
    EXPECT_EQ(backend_text(*kernels::make_cpu_ops({1, "portable"})), "cpu (portable, 1 thread)");
}

}  // namespace
}  // namespace foresay::engine
