// Which GPU a machine has, from a list of PCI devices; what is said and measured of a backend.
#include "engine/backend.h"
#include "engine/bandwidth.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <utility>

#include "kernels/ops_decorator.h"
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

// A device that counts its measurements.
class Measured final : public kernels::OpsDecorator {
public:
    Measured(std::string name, int& measurements)
        : OpsDecorator(kernels::make_cpu_ops({1, "portable"})), name_(std::move(name)), measurements_(measurements) {}
    kernels::BackendInfo describe() const override { return {name_, "of a test", 1}; }
    std::int64_t free_memory() const override { return 1; }
    double read_bandwidth() override { return ++measurements_ * 1e9; }

private:
    std::string name_;
    int& measurements_;
};

TEST(Bandwidth, IsMeasuredOnceForABackend) {
    int measurements = 0;
    Measured one("one", measurements), same("one", measurements), other("other", measurements);
    EXPECT_EQ(read_bandwidth(one), 1e9);
    EXPECT_EQ(read_bandwidth(one), 1e9);
    EXPECT_EQ(read_bandwidth(same), 1e9) << "an engine that was opened again";
    EXPECT_EQ(read_bandwidth(other), 2e9);
    EXPECT_EQ(measurements, 2);
}

TEST(BackendText, NamesTheInstructionSetAndTheThreads) {
    EXPECT_EQ(backend_text(*kernels::make_cpu_ops({1, "portable"})), "cpu (portable, 1 thread)");
}

}  // namespace
}  // namespace foresay::engine
