#include "plugins/host/crash_watch.h"

#include <link.h>
#include <signal.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <exception>

#include "plugins/host/crash_marker.h"
#include "samplers/plugin_call.h"

namespace foresay::plugins {
namespace {

using samplers::LatestCall;
using samplers::PluginSite;

constexpr int kCrashSignals[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT};
constexpr std::size_t kStackBytes = std::size_t{64} << 10;
constexpr std::uintptr_t kNearStack = std::uintptr_t{1} << 20;
constexpr int kExitStatus = 1;
constexpr long kHangTick_ns = 250'000'000;

void nothing() {}
void (*restore_terminal)() = nothing;
bool on_terminal = false;  // standard error is a terminal, whose line may hold half an answer
std::terminate_handler terminate_before = nullptr;
char escaped[256];  // what() of an exception that nothing caught; empty: there was none

// Text for standard error, written in one piece. Safe in signal handlers.
class Line {
public:
    Line() {
        if (on_terminal) *this << "\n";
        *this << "foresay: ";
    }
    Line& operator<<(const char* text) {
        while (*text != 0 && size_ + 1 < sizeof text_) text_[size_++] = *text++;
        return *this;
    }
    void write() {
        text_[size_++] = '\n';
        const ssize_t ignored = ::write(STDERR_FILENO, text_, size_);
        static_cast<void>(ignored);
    }

private:
    char text_[4096];
    std::size_t size_ = 0;
};

const char* name_of(int signal) {
    switch (signal) {
        case SIGSEGV:
            return "segmentation fault";
        case SIGBUS:
            return "bus error";
        case SIGILL:
            return "illegal instruction";
        case SIGFPE:
            return "arithmetic error";
        default:
            return escaped[0] != 0 ? escaped : "abort";
    }
}

// Where the code of a library lies.
struct Library {
    std::uintptr_t begin = 0;
    std::uintptr_t end = 0;
};
constexpr int kLibraries = 64;  // more are not watched
Library libraries[kLibraries];
std::atomic<const PluginSite*> library_sites[kLibraries];
std::atomic<int> library_count{0};

// The instruction and the stack pointer of the thread when the signal came; 0 where they are not known.
struct Place {
    std::uintptr_t instruction = 0;
    std::uintptr_t stack = 0;
};
Place place_of(const void* context) {
    if (context == nullptr) return {};
    const mcontext_t& machine = static_cast<const ucontext_t*>(context)->uc_mcontext;
#if defined(__x86_64__)
    return {static_cast<std::uintptr_t>(machine.gregs[REG_RIP]), static_cast<std::uintptr_t>(machine.gregs[REG_RSP])};
#elif defined(__aarch64__)
    return {static_cast<std::uintptr_t>(machine.pc), static_cast<std::uintptr_t>(machine.sp)};
#else
    static_cast<void>(machine);
    return {};
#endif
}

// The plugin to blame: the one that the thread has called, or the one whose code it runs.
const PluginSite* culprit(const Place& place) {
    if (const PluginSite* site = samplers::plugin_call_of_this_thread()) return site;
    for (int i = 0; i < library_count.load(); ++i) {
        if (place.instruction >= libraries[i].begin && place.instruction < libraries[i].end) return library_sites[i];
    }
    return nullptr;
}

// Whether the fault is an access just beyond the stack pointer, which a stack that is used up causes.
bool is_stack_overflow(int signal, const siginfo_t& info, const Place& place) {
    if (signal != SIGSEGV || place.stack == 0) return false;
    const auto address = reinterpret_cast<std::uintptr_t>(info.si_addr);
    return address - (place.stack - kNearStack) < 2 * kNearStack;
}

void on_crash(int signal, siginfo_t* info, void* context) {
    const int before = errno;
    if (signal == SIGBUS && info != nullptr && give_up_marker(info->si_addr)) {
        errno = before;
        return;
    }
    static std::atomic<bool> crashing{false};  // a crash in here must not come back here
    const Place place = place_of(context);
    if (const PluginSite* site = crashing.exchange(true) ? nullptr : culprit(place)) {
        const char* how = name_of(signal);
        if (info != nullptr && is_stack_overflow(signal, *info, place)) how = "stack overflow";
        const bool kept = mark_crash(*site, how);
        Line line;
        line << site->who << " crashed " << site->where << ": " << how;
        if (kept) {
            line << "; this build of it is not loaded again until `foresay plugin free " << site->name << "` allows it";
        }
        line.write();
    }
    restore_terminal();
    struct sigaction usual {};
    usual.sa_handler = SIG_DFL;
    ::sigaction(signal, &usual, nullptr);
    ::raise(signal);
    errno = before;
}

// The handlers need a stack of their own, because a plugin may have used up the thread's. Each thread has one.
class HandlerStack {
public:
    HandlerStack() {
        void* memory = ::mmap(nullptr, kStackBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (memory == MAP_FAILED) return;
        stack_t stack{};
        stack.ss_sp = memory;
        stack.ss_size = kStackBytes;
        if (::sigaltstack(&stack, nullptr) == 0) memory_ = memory;
    }
    ~HandlerStack() {
        if (memory_ == nullptr) return;
        stack_t none{};
        none.ss_flags = SS_DISABLE;
        ::sigaltstack(&none, nullptr);
        ::munmap(memory_, kStackBytes);
    }
    HandlerStack(const HandlerStack&) = delete;
    HandlerStack& operator=(const HandlerStack&) = delete;

private:
    void* memory_ = nullptr;
};

void prepare_thread() { static thread_local const HandlerStack stack; }

void on_terminate() {
    if (samplers::plugin_call_of_this_thread() == nullptr && terminate_before != nullptr) terminate_before();
    const char* what = "";
    try {
        if (const std::exception_ptr current = std::current_exception()) std::rethrow_exception(current);
    } catch (const std::exception& error) {
        what = error.what();
    } catch (...) {
    }
    const std::string text = samplers::one_line(what, sizeof escaped - 80);
    std::snprintf(escaped, sizeof escaped, "an exception left a function that must not throw%s%s",
                  text.empty() ? "" : ": ", text.c_str());
    std::abort();
}

void on_exit() {
    const PluginSite* site = samplers::plugin_call_of_this_thread();
    if (site == nullptr) return;
    Line line;
    line << site->who << " called exit() " << site->where << ", which ends the program";
    line.write();
    absolve_plugins();
    restore_terminal();
    ::_exit(kExitStatus);
}

// ---- interrupts

const std::atomic<bool>* still_wanted = nullptr;
std::uint64_t seen_call = 0;

// A timer and a signal of its own: SIGALRM is the program's.
timer_t hang_timer{};
std::atomic<bool> has_hang_timer{false};
int hang_signal() { return SIGRTMIN + 3; }

void set_timer(long every_ns) {
    itimerspec timer{};
    timer.it_value.tv_nsec = timer.it_interval.tv_nsec = every_ns;
    if (has_hang_timer) ::timer_settime(hang_timer, 0, &timer, nullptr);
}

void on_tick(int) {
    const int before = errno;
    const LatestCall call = samplers::latest_plugin_call();
    if (still_wanted == nullptr || !still_wanted->load()) {
        set_timer(0);
    } else if (call.site == nullptr || call.number != seen_call) {
        seen_call = call.number;
    } else {
        Line line;
        line << call.site->who << " does not return: it is " << call.site->where
             << "; press Ctrl-C again to end the program";
        line.write();
        set_timer(0);
    }
    errno = before;
}

}  // namespace

void watch_for_crashes(void (*restore)()) {
    restore_terminal = restore;
    on_terminal = ::isatty(STDERR_FILENO) == 1;
    prepare_thread();
    samplers::before_first_plugin_call(prepare_thread);
    struct sigaction action {};
    action.sa_sigaction = on_crash;
    sigemptyset(&action.sa_mask);
    action.sa_flags = static_cast<int>(SA_SIGINFO | SA_ONSTACK | SA_NODEFER);
    for (const int signal : kCrashSignals) ::sigaction(signal, &action, nullptr);
    terminate_before = std::set_terminate(on_terminate);
    std::atexit(on_exit);
    std::at_quick_exit(on_exit);
}

void watch_library(const void* inside, const PluginSite* sites) {
    struct Search {
        std::uintptr_t inside;
        Library found;
    } search{reinterpret_cast<std::uintptr_t>(inside), {}};
    const PluginSite* site = sites + static_cast<int>(samplers::PluginFunction::none);
    const int count = library_count.load();
    for (int i = 0; i < count; ++i) {
        if (search.inside < libraries[i].begin || search.inside >= libraries[i].end) continue;
        if (site->running != nullptr) library_sites[i] = site;  // the marker of the latest host
        return;
    }
    const auto look = [](dl_phdr_info* object, std::size_t, void* data) -> int {
        auto& wanted = *static_cast<Search*>(data);
        Library library{~std::uintptr_t{0}, 0};
        for (int i = 0; i < object->dlpi_phnum; ++i) {
            const auto& segment = object->dlpi_phdr[i];
            if (segment.p_type != PT_LOAD) continue;
            const std::uintptr_t begin = object->dlpi_addr + segment.p_vaddr;
            library.begin = std::min(library.begin, begin);
            library.end = std::max(library.end, begin + segment.p_memsz);
        }
        if (wanted.inside < library.begin || wanted.inside >= library.end) return 0;
        wanted.found = library;
        return 1;
    };
    if (count == kLibraries || ::dl_iterate_phdr(look, &search) == 0) return;
    libraries[count] = search.found;
    library_sites[count] = site;
    library_count = count + 1;
}

void watch_for_hangs() {
    on_terminal = ::isatty(STDERR_FILENO) == 1;  // a sanitized program watches for hangs alone
    struct sigaction action {};
    action.sa_handler = on_tick;
    sigemptyset(&action.sa_mask);
    action.sa_flags = SA_RESTART;
    ::sigaction(hang_signal(), &action, nullptr);
    sigevent event{};
    event.sigev_notify = SIGEV_SIGNAL;
    event.sigev_signo = hang_signal();
    has_hang_timer = ::timer_create(CLOCK_MONOTONIC, &event, &hang_timer) == 0;
}

void name_hanging_plugin(const std::atomic<bool>& wanted) noexcept {
    still_wanted = &wanted;
    seen_call = samplers::latest_plugin_call().number;
    set_timer(kHangTick_ns);
}

void end_running_plugin() noexcept {
    const PluginSite* site = samplers::latest_plugin_call().site;
    if (site != nullptr) {
        Line line;
        line << "ended while " << site->who << " was " << site->where;
        line.write();
    }
    absolve_plugins();
}

}  // namespace foresay::plugins
