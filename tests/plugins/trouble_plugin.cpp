// tests/plugins/trouble_plugin.cpp: a sampler that does what its parameter says: crash, end the program, hang, or
// answer as it must not.

#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <limits>
#include <stdexcept>
#include <thread>

#include "samplers/sdk/sampler.hpp"

namespace {

volatile int* const kNowhere = nullptr;
volatile int zero = 0;
char* volatile leaked = nullptr;

__attribute__((noinline)) int use_up_the_stack(int depth) {
    volatile char frame[4096];
    frame[0] = static_cast<char>(depth);
    if (zero != 0) return 0;
    return use_up_the_stack(depth + 1) + frame[0];
}

void fail(const char* what) { throw std::runtime_error(what); }

struct Trouble {
    static constexpr foresay::Info info{"trouble", "1", "Breaks \x1b[31mall\a rules.", "Apache-2.0"};
    struct Parameters {
        std::string deed = "none";
        std::int64_t at = 0;
    };
    static auto parameters() {
        return foresay::parameters(
            foresay::choice(
                "deed", &Parameters::deed,
                {"none",   "segfault",   "bus",    "illegal", "divide",          "abort",          "overflow",
                 "exit",   "quick_exit", "_exit",  "hang",    "impure",          "huge",           "nan",
                 "thread", "file",       "socket", "leak",    "crash_in_create", "exit_in_create", "throw_in_destroy",
                 "branch"},
                "What it does."),
            foresay::integer("at", &Parameters::at, 0, 1000000, "From this index on."));
    }
    Trouble(Parameters p, foresay::Host) : p_(std::move(p)) {
        if (p_.deed == "crash_in_create") *kNowhere = 1;
        if (p_.deed == "exit_in_create") std::exit(0);
    }
    ~Trouble() {
        if (p_.deed == "throw_in_destroy") fail("thrown on \x1b purpose");
    }
    void process(const foresay::Context& context, foresay::Candidates& candidates) const {
        if (context.index() < static_cast<std::uint64_t>(p_.at)) return;
#ifdef TROUBLE_BUILT_AGAIN
        fail("this is the new code");
#endif
        if (p_.deed == "segfault") *kNowhere = 1;
        if (p_.deed == "bus") ::raise(SIGBUS);
        if (p_.deed == "illegal") __builtin_trap();
        if (p_.deed == "divide") zero = 7 / zero;  // 1 / x would become a comparison
        if (p_.deed == "abort") std::abort();
        if (p_.deed == "thread") std::thread([] { *kNowhere = 1; }).join();
        if (p_.deed == "overflow") use_up_the_stack(0);
        if (p_.deed == "exit") std::exit(0);
        if (p_.deed == "quick_exit") std::quick_exit(0);
        if (p_.deed == "_exit") ::_exit(0);
        if (p_.deed == "hang") {
            const ssize_t ignored = ::write(STDOUT_FILENO, "<hangs>", 7);
            for (zero = static_cast<int>(ignored); zero != 2;) {
            }
        }
        if (p_.deed == "file" && ::open("/etc/passwd", O_RDONLY) >= 0) fail("it could open a file");
        if (p_.deed == "socket" && ::socket(AF_INET, SOCK_STREAM, 0) >= 0) fail("it could make a socket");
        if (p_.deed == "leak") {
            for (int i = 0; i < 16; ++i) leaked = new char[std::size_t{256} << 20];
        }
        if (p_.deed == "branch" && context.branch() == 1) fail("this is branch 1");
        static int calls = 0;
        if (p_.deed == "impure" && ++calls % 4 == 0) candidates.truncate(1);
        if (p_.deed == "nan") candidates.logit(0) = std::numeric_limits<float>::quiet_NaN();
        for (std::size_t i = 0; p_.deed == "huge" && i < candidates.size(); ++i) candidates.logit(i) = 1e30f;
    }
    Parameters p_;
};

}  // namespace

FORESAY_EXPORT_SAMPLERS(Trouble)
