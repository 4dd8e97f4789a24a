// How a rank finds rank 0, and what ends that before its time: a name whose look-up takes long.
#include "engine/hosts/rendezvous.h"

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netdb.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <thread>

#include "tests/hosts/free_port.h"
#include "tests/support/error_of.h"

namespace {

constexpr const char* kSlow = "slow.example";
std::atomic<bool> answers = false;  // the resolver, for that name
std::atomic<int> asked = 0;

}  // namespace

// In place of the C library's.
extern "C" int getaddrinfo(const char* name, const char* service, const addrinfo* hints, addrinfo** found) {
    using Resolver = int (*)(const char*, const char*, const addrinfo*, addrinfo**);
    static const auto real = reinterpret_cast<Resolver>(::dlsym(RTLD_NEXT, "getaddrinfo"));
    if (name == nullptr || std::strcmp(name, kSlow) != 0) return real(name, service, hints, found);
    ++asked;
    while (!answers) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return real("127.0.0.1", service, hints, found);
}

namespace foresay::engine {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;
using Clock = std::chrono::steady_clock;

class Rendezvous : public ::testing::Test {
protected:
    Rendezvous() { answers = false; }
    ~Rendezvous() override {
        answers = true;
        std::this_thread::sleep_for(std::chrono::milliseconds(20));  // for a look-up that was left to its end
    }
    Launch one(int rank) const {
        Launch launch;
        launch.rank = rank;
        launch.size = 2;
        launch.host = kSlow;
        launch.port = port_;
        launch.start_seconds = 20.0;
        return launch;
    }

private:
    std::uint16_t port_ = static_cast<std::uint16_t>(foresay::testing::free_port());
};

TEST_F(Rendezvous, CtrlCEndsTheLookUpOfAName) {
    std::atomic<bool> interrupted = false;
    Launch launch = one(1);
    launch.interrupted = &interrupted;
    const int before = asked;
    std::thread user([&] {
        while (asked == before) std::this_thread::sleep_for(std::chrono::milliseconds(1));
        interrupted = true;
    });
    const auto start = Clock::now();
    EXPECT_THAT(test::error_of([&] { meet(launch, {}); }), StartsWith("interrupted while rank 1 waited"));
    EXPECT_LT(Clock::now() - start, std::chrono::seconds(10));
    user.join();
}

TEST_F(Rendezvous, ALookUpEndsWithTheWait) {
    Launch launch = one(1);
    launch.start_seconds = 0.3;
    EXPECT_THAT(test::error_of([&] { meet(launch, {}); }), HasSubstr("did not reach rank 0 at slow.example"));
}

TEST_F(Rendezvous, ANameThatTakesAWhileIsFound) {
    const kernels::NcclId id{};
    Meeting there;
    std::thread zero([&] { there = meet(one(0), id); });
    std::thread resolver([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(250));
        answers = true;
    });
    EXPECT_EQ(meet(one(1), {}).hosts.at(0), host_name());
    zero.join();
    resolver.join();
    EXPECT_EQ(there.hosts.at(1), host_name());
}

}  // namespace
}  // namespace foresay::engine
