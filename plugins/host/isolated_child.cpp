#include "plugins/host/isolated_child.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/error.h"
#include "plugins/host/crash_marker.h"
#include "samplers/parameter_file.h"
#include "samplers/plugin_stage.h"

namespace foresay::plugins {
namespace {

using samplers::StageState;

constexpr std::uint32_t kLook = 1000;  // ms, after which a process without work looks whether the program lives

// Allows what computing needs, and standard error; everything else fails with EACCES.
void forbid_files_and_network() {
#if defined(__x86_64__)
    constexpr std::uint32_t kArchitecture = AUDIT_ARCH_X86_64;
#else
    constexpr std::uint32_t kArchitecture = AUDIT_ARCH_AARCH64;
#endif
    constexpr std::uint32_t kArgument = offsetof(seccomp_data, args);
    constexpr int kAlways[] = {
        SYS_futex,     SYS_exit,          SYS_exit_group,      SYS_rt_sigreturn,   SYS_mmap,
        SYS_munmap,    SYS_mremap,        SYS_mprotect,        SYS_madvise,        SYS_brk,
        SYS_getpid,    SYS_gettid,        SYS_getppid,         SYS_sched_yield,    SYS_getrandom,
        SYS_nanosleep, SYS_clock_gettime, SYS_clock_nanosleep, SYS_rt_sigprocmask, SYS_restart_syscall};
    std::vector<sock_filter> filter = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, arch)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, kArchitecture, 1, 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
    };
    for (const int number : kAlways) {
        filter.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<std::uint32_t>(number), 0, 1));
        filter.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
    }
    // write() to standard error, tgkill() of this process: what abort() does.
    const std::pair<int, std::uint32_t> only_with[] = {{SYS_write, STDERR_FILENO},
                                                       {SYS_tgkill, static_cast<std::uint32_t>(::getpid())}};
    for (const auto& [number, argument] : only_with) {
        filter.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<std::uint32_t>(number), 0, 4));
        filter.push_back(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, kArgument));
        filter.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, argument, 0, 1));
        filter.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
        filter.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EACCES));
    }
    filter.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EACCES));
    const sock_fprog program{static_cast<unsigned short>(filter.size()), filter.data()};
    const bool set =
        ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
    if (!set) throw Error("this system has no seccomp, so nothing can be isolated");
}

void limit_memory(std::uint64_t pages) {
    const rlim_t most = pages * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE)) + kIsolatedMemory;
    const rlimit limit{most, most};
    ::setrlimit(RLIMIT_AS, &limit);
    const rlimit none{0, 0};
    ::setrlimit(RLIMIT_CORE, &none);
}

// Makes the stage and answers calls.
class Server {
public:
    Server(const IsolatedMemory& memory, const samplers::StageFactory& factory,
           std::span<const samplers::ParameterValue> parameters, const samplers::Vocabulary& vocabulary)
        : memory_(memory), factory_(factory), parameters_(parameters), vocabulary_(vocabulary) {}

    [[noreturn]] void serve(pid_t program) {
        IsolatedHead& head = memory_.head();
        for (;;) {
            while (!wait_a_while(head, 0, kLook)) {
                if (::getppid() != program) ::_exit(0);
            }
            head.failed = head.deaf = false;
            try {
                std::string_view wrong = listen(head);
                head.deaf = !wrong.empty();
                if (wrong.empty()) wrong = answer(head);
                if (!wrong.empty()) fail(head, wrong);
            } catch (const std::exception& error) {
                head.deaf = head.call == IsolatedCall::accept;
                fail(head, error.what());
            }
            hand_over(head, 0);
        }
    }

private:
    static void fail(IsolatedHead& head, std::string_view why) {
        const std::size_t size = std::min(why.size(), IsolatedHead::kReason);
        std::memcpy(head.reason, why.data(), size);
        head.reason[size] = '\0';
        head.failed = true;
    }

    void make(IsolatedHead& head) {
        const samplers::StageDescription& description = factory_.description();
        for (std::size_t i = 0; i < description.parameters.size(); ++i) {
            if (description.parameters[i].type != samplers::ParameterType::file) continue;
            const std::string& path = std::get<std::string>(parameters_[i]);
            if (!path.empty()) {
                samplers::keep_parameter_file(path, description.name + "." + description.parameters[i].name);
            }
        }
        forbid_files_and_network();
        stage_ = factory_.create(parameters_, vocabulary_);
        head.kind = static_cast<std::uint32_t>(stage_->kind());
        head.whole = stage_->whole_vocabulary();
        head.idle = stage_->idle();
        head.tests = stage_->tests();
        head.forces = stage_->forces();
    }

    // What a state has accepted since it was last told. A crash in here is one of accept().
    std::string_view listen(IsolatedHead& head) {
        if (head.told == 0) return {};
        const IsolatedCall then = std::exchange(head.call, IsolatedCall::accept);
        StageState& state = *states_.at(head.listener);
        std::string_view wrong;
        for (std::uint32_t i = 0; i < head.told && wrong.empty(); ++i) wrong = state.accept(head.tokens[i]);
        head.call = then;
        return wrong;
    }

    std::string_view answer(IsolatedHead& head) {
        const std::span<const std::int32_t> history(memory_.history(), head.history);
        const samplers::StageContext context{head.phase, head.key, head.stream, history,
                                             static_cast<std::size_t>(head.answer)};
        const auto count = static_cast<std::size_t>(head.count);
        const auto found = states_.find(head.state);
        StageState* const state = found != states_.end() ? found->second.get() : nullptr;
        switch (head.call) {
            case IsolatedCall::make:
                make(head);
                return {};
            case IsolatedCall::make_state:
                states_[head.state] = stage_->make_state();
                return {};
            case IsolatedCall::drop_state:
                states_.erase(head.state);
                return {};
            case IsolatedCall::begin:
                return state->begin(history, static_cast<std::size_t>(head.answer));
            case IsolatedCall::copy:
                return state->copy(*states_.at(head.other));
            case IsolatedCall::accept:
                return {};  // it is told before
            case IsolatedCall::process: {
                kernels::Candidates list{memory_.ids(), memory_.logits(), head.count};
                const std::string_view wrong = stage_->process(state, context, list);
                head.count = list.count;
                return wrong;
            }
            case IsolatedCall::test:
                return stage_->test(state, context, {memory_.ids(), count}, {memory_.keep(), count});
            case IsolatedCall::mask:
                return stage_->mask(state, context, {memory_.bits(), count});
            case IsolatedCall::forced: {
                std::string_view bytes;
                const std::string_view wrong = stage_->forced(state, context, bytes);
                const std::size_t size = std::min(bytes.size(), IsolatedMemory::kForcedRoom);
                std::memcpy(memory_.forced(), bytes.data(), size);
                head.count = static_cast<std::int32_t>(size);
                return wrong;
            }
        }
        return "there is no such call";
    }

    const IsolatedMemory& memory_;
    const samplers::StageFactory& factory_;
    std::span<const samplers::ParameterValue> parameters_;
    const samplers::Vocabulary& vocabulary_;
    std::unique_ptr<samplers::Stage> stage_;
    std::unordered_map<std::uint32_t, std::unique_ptr<StageState>> states_;
};

void end_at_once() { ::_exit(0); }

// Cuts the ties to the program: its signals, descriptors, terminal, and its marker of crashes.
void shut_off(pid_t program, const std::string& name) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != program) ::_exit(0);  // it has ended in the meantime
    ::prctl(PR_SET_NAME, name.c_str());
    for (int number = 1; number < SIGRTMIN; ++number) ::signal(number, SIG_DFL);
    // Those of the terminal, and those that ask the program to end, which it may take its time for.
    for (const int number : {SIGINT, SIGQUIT, SIGTSTP, SIGTERM, SIGHUP}) ::signal(number, SIG_IGN);
    sigset_t none;
    sigemptyset(&none);
    ::sigprocmask(SIG_SETMASK, &none, nullptr);
    // Of exit(), this is what comes first: the destructors and handlers are the program's.
    std::atexit(end_at_once);
    std::at_quick_exit(end_at_once);
    give_up_markers();
    const int nowhere = ::open("/dev/null", O_RDWR);
    ::dup2(nowhere, STDIN_FILENO);
    ::dup2(nowhere, STDOUT_FILENO);
    ::syscall(SYS_close_range, 3u, ~0u, 0u);
}

// Forks in a thread that lives as long as the program, because PR_SET_PDEATHSIG is about the thread that has forked.
class Forker {
public:
    // That of this process, which may itself be a child without its parent's threads.
    static Forker& instance() {
        static std::mutex mutex;
        static Forker* forker = nullptr;  // never destroyed, as its thread
        static pid_t owner = 0;
        const std::lock_guard lock(mutex);
        if (owner != ::getpid()) {
            forker = new Forker();
            owner = ::getpid();
        }
        return *forker;
    }

    pid_t fork(const std::function<void()>& child) {
        const std::lock_guard one_at_a_time(callers_);
        std::unique_lock lock(mutex_);
        child_ = &child;
        changed_.notify_all();
        changed_.wait(lock, [&] { return child_ == nullptr; });
        errno = error_;
        return result_;
    }

private:
    Forker() {
        sigset_t all, before;
        sigfillset(&all);
        ::pthread_sigmask(SIG_SETMASK, &all, &before);  // handlers are for the other threads
        std::thread([this] { work(); }).detach();
        ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
    }
    void work() {
        std::unique_lock lock(mutex_);
        for (;;) {
            changed_.wait(lock, [&] { return child_ != nullptr; });
            // No call into a plugin may hold this lock in the moment of the fork: the child would wait for it.
            std::unique_lock calls(samplers::main_calls());
            result_ = ::fork();
            error_ = errno;
            calls.unlock();
            if (result_ == 0) (*child_)();
            child_ = nullptr;
            changed_.notify_all();
        }
    }

    std::mutex callers_, mutex_;
    std::condition_variable changed_;
    const std::function<void()>* child_ = nullptr;
    pid_t result_ = -1;
    int error_ = 0;
};

}  // namespace

std::uint64_t memory_pages(const char* process) {
    std::uint64_t pages = 0;
    std::ifstream(std::string("/proc/") + process + "/statm") >> pages;
    return pages;
}

pid_t start_isolated(const IsolatedMemory& memory, const samplers::StageFactory& factory,
                     std::span<const samplers::ParameterValue> parameters, const samplers::Vocabulary& vocabulary) {
    const pid_t program = ::getpid();
    return Forker::instance().fork([&] {
        shut_off(program, "sampler " + factory.description().name);
        memory.head().pages = memory_pages("self");
        limit_memory(memory.head().pages);
        Server(memory, factory, parameters, vocabulary).serve(program);
    });
}

}  // namespace foresay::plugins
