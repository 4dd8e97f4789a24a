#include "plugins/host/isolated.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/futex.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <limits>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>

#include "base/error.h"
#include "samplers/plugin_call.h"

namespace foresay::plugins {
namespace {

using samplers::StageContext;
using samplers::StageKind;
using samplers::StageState;
using Clock = std::chrono::steady_clock;

constexpr std::size_t kHistoryRoom = std::size_t{1} << 24;  // tokens; memory is taken where it is written
constexpr std::size_t kReason = 1000;
constexpr std::size_t kForcedRoom = 65536;
constexpr int kSpins = 50;    // about 2 us: where both sides share a core, spinning only keeps the other one waiting
constexpr int kRestarts = 5;  // of a process whose sampler has no state
constexpr std::uint64_t kMoreMemory = std::uint64_t{1} << 30;
constexpr auto kToMake = std::chrono::seconds(10);  // that making an instance may take
constexpr long kLook = 20;                          // ms, after which a waiting side looks whether the other one lives

enum class Call : std::uint32_t { make, make_state, drop_state, begin, copy, accept, process, test, mask, forced };
constexpr const char* kNames[] = {"create()", "state_create()", "state_destroy()", "state_begin()", "state_copy()",
                                  "accept()", "process()",      "test()",          "mask()",        "forced()"};

// What both processes see.
struct Shared {
    std::atomic<std::uint32_t> turn{0};  // 0: the program's, 1: the sampler's
    // Whether a side has to be woken: each writes its own, so that neither undoes the other's.
    std::atomic<std::uint32_t> program_sleeps{0}, sampler_sleeps{0};
    Call call = Call::make;
    std::uint32_t state = 0, other = 0;
    samplers::Phase phase = samplers::Phase::decide;
    kernels::NoiseKey key;
    std::uint32_t stream = 0;
    std::uint64_t history = 0, answer = 0;
    samplers::AcceptedToken token;
    std::int32_t count = 0;  // of candidates or ids; of bytes that are forced
    bool failed = false;
    char reason[kReason + 1] = {};
    // Of the stage, once it is made.
    StageKind kind = StageKind::process;
    bool whole = false, idle = false, tests = false, forces = false;
};
static_assert(std::atomic<std::uint32_t>::is_always_lock_free, "shared between processes");

long futex(std::atomic<std::uint32_t>* word, int operation, std::uint32_t value, const timespec* patience) {
    return ::syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(word), operation, value, patience, nullptr, 0);
}

void pause_a_moment() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

// Memory that is shared with the children of this process.
class SharedMemory {
public:
    explicit SharedMemory(std::int32_t vocabulary) {
        const auto ids = static_cast<std::size_t>(std::max(vocabulary, 1));
        at_history_ = room(sizeof(Shared));
        at_ids_ = at_history_ + room(kHistoryRoom * sizeof(std::int32_t));
        at_logits_ = at_ids_ + room(ids * sizeof(std::int32_t));
        at_keep_ = at_logits_ + room(ids * sizeof(float));
        at_bits_ = at_keep_ + room(ids);
        at_forced_ = at_bits_ + room(ids / 8 + 8);
        bytes_ = at_forced_ + room(kForcedRoom);
        data_ = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (data_ == MAP_FAILED) throw Error(std::string("no memory can be shared: ") + std::strerror(errno));
        new (data_) Shared();
    }
    ~SharedMemory() { ::munmap(data_, bytes_); }
    SharedMemory(const SharedMemory&) = delete;
    SharedMemory& operator=(const SharedMemory&) = delete;

    Shared& head() const { return *static_cast<Shared*>(data_); }
    std::int32_t* history() const { return at<std::int32_t>(at_history_); }
    std::int32_t* ids() const { return at<std::int32_t>(at_ids_); }
    float* logits() const { return at<float>(at_logits_); }
    std::uint8_t* keep() const { return at<std::uint8_t>(at_keep_); }
    std::uint32_t* bits() const { return at<std::uint32_t>(at_bits_); }
    char* forced() const { return at<char>(at_forced_); }

private:
    static std::size_t room(std::size_t bytes) { return (bytes + 4095) / 4096 * 4096; }
    template <typename T>
    T* at(std::size_t offset) const {
        return reinterpret_cast<T*>(static_cast<char*>(data_) + offset);
    }
    void* data_ = MAP_FAILED;
    std::size_t bytes_ = 0, at_history_, at_ids_, at_logits_, at_keep_, at_bits_, at_forced_;
};

// ------------------------------------------------------------------------------------------------ the sampler's side

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

void limit_memory() {
    std::uint64_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    const rlim_t most = pages * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE)) + kMoreMemory;
    const rlimit limit{most, most};
    ::setrlimit(RLIMIT_AS, &limit);
    const rlimit none{0, 0};
    ::setrlimit(RLIMIT_CORE, &none);
}

// Makes the stage and answers calls until the program ends.
class Server {
public:
    Server(const SharedMemory& memory, const samplers::StageFactory& factory,
           std::span<const samplers::ParameterValue> parameters, const samplers::Vocabulary& vocabulary)
        : memory_(memory), factory_(factory), parameters_(parameters), vocabulary_(vocabulary) {}

    [[noreturn]] void serve(pid_t program) {
        for (;;) {
            wait(program);
            Shared& head = memory_.head();
            head.failed = false;
            try {
                const std::string_view wrong = answer(head);
                if (!wrong.empty()) fail(head, wrong);
            } catch (const std::exception& error) {
                fail(head, error.what());
            }
            head.turn.store(0);
            if (head.program_sleeps.load() != 0) futex(&head.turn, FUTEX_WAKE, 1, nullptr);
        }
    }

private:
    void wait(pid_t program) {
        Shared& head = memory_.head();
        for (int i = 0; i < kSpins && head.turn.load(std::memory_order_acquire) == 0; ++i) pause_a_moment();
        while (head.turn.load(std::memory_order_acquire) == 0) {
            const timespec second{1, 0};
            head.sampler_sleeps.store(1);
            if (head.turn.load() == 0) futex(&head.turn, FUTEX_WAIT, 0, &second);
            head.sampler_sleeps.store(0);
            if (::getppid() != program) ::_exit(0);
        }
    }

    static void fail(Shared& head, std::string_view why) {
        const std::size_t size = std::min(why.size(), kReason);
        std::memcpy(head.reason, why.data(), size);
        head.reason[size] = '\0';
        head.failed = true;
    }

    void make(Shared& head) {
        const auto& schemas = factory_.description().parameters;
        const bool reads = std::ranges::any_of(
            schemas, [](const auto& schema) { return schema.type == samplers::ParameterType::file; });
        if (!reads) forbid_files_and_network();
        stage_ = factory_.create(parameters_, vocabulary_);
        if (reads) forbid_files_and_network();
        head.kind = stage_->kind();
        head.whole = stage_->whole_vocabulary();
        head.idle = stage_->idle();
        head.tests = stage_->tests();
        head.forces = stage_->forces();
    }

    std::string_view answer(Shared& head) {
        const std::span<const std::int32_t> history(memory_.history(), head.history);
        const StageContext context{head.phase, head.key, head.stream, history, static_cast<std::size_t>(head.answer)};
        const auto count = static_cast<std::size_t>(head.count);
        const auto found = states_.find(head.state);
        StageState* const state = found != states_.end() ? found->second.get() : nullptr;
        switch (head.call) {
            case Call::make:
                make(head);
                return {};
            case Call::make_state:
                states_[head.state] = stage_->make_state();
                return {};
            case Call::drop_state:
                states_.erase(head.state);
                return {};
            case Call::begin:
                return state->begin(history, static_cast<std::size_t>(head.answer));
            case Call::copy:
                return state->copy(*states_.at(head.other));
            case Call::accept:
                return state->accept(head.token);
            case Call::process: {
                kernels::Candidates list{memory_.ids(), memory_.logits(), head.count};
                const std::string_view wrong = stage_->process(state, context, list);
                head.count = list.count;
                return wrong;
            }
            case Call::test:
                return stage_->test(state, context, {memory_.ids(), count}, {memory_.keep(), count});
            case Call::mask:
                return stage_->mask(state, context, {memory_.bits(), count});
            case Call::forced: {
                std::string_view bytes;
                const std::string_view wrong = stage_->forced(state, context, bytes);
                const std::size_t size = std::min(bytes.size(), kForcedRoom);
                std::memcpy(memory_.forced(), bytes.data(), size);
                head.count = static_cast<std::int32_t>(size);
                return wrong;
            }
        }
        return "there is no such call";
    }

    const SharedMemory& memory_;
    const samplers::StageFactory& factory_;
    std::span<const samplers::ParameterValue> parameters_;
    const samplers::Vocabulary& vocabulary_;
    std::unique_ptr<samplers::Stage> stage_;
    std::unordered_map<std::uint32_t, std::unique_ptr<StageState>> states_;
};

// ------------------------------------------------------------------------------------------------ the program's side

// The process of an instance, and the calls that it answers.
class Worker {
public:
    Worker(std::shared_ptr<const samplers::StageFactory> factory, std::span<const samplers::ParameterValue> parameters,
           const samplers::Vocabulary& vocabulary, std::chrono::milliseconds deadline)
        : factory_(std::move(factory)),
          parameters_(parameters.begin(), parameters.end()),
          vocabulary_(vocabulary),
          deadline_(deadline),
          memory_(vocabulary.size()) {
        const std::lock_guard lock(mutex_);
        if (const std::string wrong = start(); !wrong.empty()) throw Error(factory_->description().name + ": " + wrong);
    }
    ~Worker() { end(SIGKILL); }
    Worker(const Worker&) = delete;
    Worker& operator=(const Worker&) = delete;

    // Held while a call is prepared, made and read.
    std::unique_lock<std::mutex> lock() { return std::unique_lock(mutex_); }
    const SharedMemory& memory() const { return memory_; }
    // Which process answers: counts from 1. States belong to one of them.
    std::uint32_t process() const { return process_; }
    std::uint32_t next_state() { return ++states_; }

    // A new process in place of one that has ended. Empty, or why there is none.
    std::string restart() { return child_ > 0 ? std::string() : start(); }
    bool may_restart() const { return process_ <= static_cast<std::uint32_t>(kRestarts); }

    void send_history(std::span<const std::int32_t> history) {
        Shared& head = memory_.head();
        const std::size_t count = std::min(history.size(), kHistoryRoom);
        const std::size_t known = std::min<std::size_t>(sent_, count);
        std::int32_t* const room = memory_.history();
        const bool same = std::memcmp(room, history.data(), known * sizeof(std::int32_t)) == 0;
        const std::size_t from = same ? known : 0;
        std::copy(history.begin() + static_cast<std::ptrdiff_t>(from),
                  history.begin() + static_cast<std::ptrdiff_t>(count), room + from);
        sent_ = std::max(same ? sent_ : 0, count);
        head.history = count;
    }

    // Makes the call that has been prepared. Empty, or why it failed, valid until the next one on this thread.
    std::string_view call(Call which, std::chrono::milliseconds patience) {
        static thread_local std::string why;
        if (child_ <= 0) return why = "its process has ended: " + ended_;
        Shared& head = memory_.head();
        head.call = which;
        head.turn.store(1);
        if (head.sampler_sleeps.load() != 0) futex(&head.turn, FUTEX_WAKE, 1, nullptr);
        if (std::string wrong = wait(which, patience); !wrong.empty()) return why = wrong;
        if (!head.failed) return {};
        head.reason[kReason] = '\0';
        return why = samplers::one_line(head.reason, kReason);
    }
    std::string_view call(Call which) { return call(which, deadline_); }

private:
    std::string start() {
        new (&memory_.head()) Shared();
        sent_ = 0;
        const pid_t program = ::getpid();
        child_ = ::fork();
        if (child_ < 0) return std::string("no process can be started: ") + std::strerror(errno);
        if (child_ == 0) be_server(program);
        ++process_;
        const std::string_view wrong = call(Call::make, kToMake);
        if (!wrong.empty()) {
            std::string text(wrong);
            end(SIGKILL);
            return text;
        }
        return {};
    }

    [[noreturn]] void be_server(pid_t program) {
        for (int number = 1; number < SIGRTMIN; ++number) ::signal(number, SIG_DFL);
        ::signal(SIGINT, SIG_IGN);  // Ctrl-C is for the program
        const int nowhere = ::open("/dev/null", O_RDWR);
        ::dup2(nowhere, STDIN_FILENO);
        ::dup2(nowhere, STDOUT_FILENO);
        ::syscall(SYS_close_range, 3u, ~0u, 0u);
        limit_memory();
        Server(memory_, *factory_, parameters_, vocabulary_).serve(program);
    }

    std::string wait(Call which, std::chrono::milliseconds patience) {
        Shared& head = memory_.head();
        for (int i = 0; i < kSpins; ++i) {
            if (head.turn.load(std::memory_order_acquire) == 0) return {};
            pause_a_moment();
        }
        const Clock::time_point last = Clock::now() + patience;
        while (head.turn.load(std::memory_order_acquire) != 0) {
            if (Clock::now() >= last) {
                end(SIGKILL);
                return ended_ = std::string(kNames[static_cast<int>(which)]) + " did not return within " +
                                std::to_string(patience.count()) + " ms";
            }
            int status = 0;
            if (::waitpid(child_, &status, WNOHANG) == child_) {
                child_ = 0;
                return ended_ = how_it_ended(which, status);
            }
            const timespec a_while{0, kLook * 1000000};
            head.program_sleeps.store(1);
            if (head.turn.load() != 0) futex(&head.turn, FUTEX_WAIT, 1, &a_while);
            head.program_sleeps.store(0);
        }
        return {};
    }

    static std::string how_it_ended(Call which, int status) {
        const std::string where = kNames[static_cast<int>(which)];
        if (!WIFSIGNALED(status)) return where + " ended its process";
        const char* const name = ::strsignal(WTERMSIG(status));
        return "it crashed in " + where + ": " + (name != nullptr ? name : "a signal");
    }

    void end(int signal) {
        if (child_ <= 0) return;
        ::kill(child_, signal);
        while (::waitpid(child_, nullptr, 0) < 0 && errno == EINTR) {
        }
        child_ = 0;
    }

    std::shared_ptr<const samplers::StageFactory> factory_;
    std::vector<samplers::ParameterValue> parameters_;
    const samplers::Vocabulary& vocabulary_;
    const std::chrono::milliseconds deadline_;
    SharedMemory memory_;
    std::mutex mutex_;
    pid_t child_ = 0;
    std::uint32_t process_ = 0, states_ = 0;
    std::size_t sent_ = 0;  // tokens of the history that are in shared memory
    std::string ended_;
};

class IsolatedState : public StageState {
public:
    explicit IsolatedState(std::shared_ptr<Worker> worker) : worker_(std::move(worker)) {
        const auto held = worker_->lock();
        if (const std::string_view wrong = make(); !wrong.empty())
            throw Error("its state cannot be created: " + std::string(wrong));
    }
    ~IsolatedState() override {
        const auto held = worker_->lock();
        if (process_ != worker_->process()) return;
        worker_->memory().head().state = id_;
        worker_->call(Call::drop_state);
    }
    // A text begins: in a new process, where the last one has ended.
    std::string_view begin(std::span<const std::int32_t> history, std::size_t answer) override {
        const auto held = worker_->lock();
        static thread_local std::string why;
        if (why = worker_->restart(); !why.empty()) return why;
        if (process_ != worker_->process()) {
            if (const std::string_view wrong = make(); !wrong.empty()) return wrong;
        }
        worker_->send_history(history);
        worker_->memory().head().answer = answer;
        return call(Call::begin);
    }
    std::string_view copy(const StageState& other) override {
        const auto held = worker_->lock();
        const auto& from = static_cast<const IsolatedState&>(other);
        if (from.process_ == worker_->process() && process_ != from.process_) {
            if (const std::string_view wrong = make(); !wrong.empty()) return wrong;
        }
        worker_->memory().head().other = from.id_;
        return call(Call::copy);
    }
    std::string_view accept(const samplers::AcceptedToken& token) override {
        const auto held = worker_->lock();
        worker_->memory().head().token = token;
        return call(Call::accept);
    }
    // The number of this state for the process, which must be the one that has it; 0: it is another.
    std::uint32_t id() const { return process_ == worker_->process() ? id_ : 0; }

private:
    std::string_view make() {
        id_ = worker_->next_state();
        process_ = worker_->process();
        worker_->memory().head().state = id_;
        return worker_->call(Call::make_state);
    }
    std::string_view call(Call which) {
        if (id() == 0) return "its process has ended, and with it what it knew of the text";
        worker_->memory().head().state = id_;
        return worker_->call(which);
    }
    std::shared_ptr<Worker> worker_;
    std::uint32_t id_ = 0, process_ = 0;
};

class IsolatedStage : public samplers::Stage {
public:
    IsolatedStage(std::shared_ptr<Worker> worker, const samplers::StageTraits& traits)
        : worker_(std::move(worker)), traits_(traits) {
        const Shared& head = worker_->memory().head();
        kind_ = head.kind;
        whole_ = head.whole;
        idle_ = head.idle;
        tests_ = head.tests;
        forces_ = head.forces;
    }
    StageKind kind() const override { return kind_; }
    bool idle() const override { return idle_; }
    bool whole_vocabulary() const override { return whole_; }
    bool tests() const override { return tests_; }
    bool forces() const override { return forces_; }
    std::unique_ptr<StageState> make_state() const override {
        if (traits_.memory == samplers::StageMemory::stateless) return nullptr;
        return std::make_unique<IsolatedState>(worker_);
    }

    std::string_view process(const StageState* state, const StageContext& context,
                             kernels::Candidates& candidates) const override {
        const auto held = worker_->lock();
        const SharedMemory& memory = worker_->memory();
        const std::int32_t count = candidates.count;
        std::copy_n(candidates.ids, count, memory.ids());
        std::copy_n(candidates.logits, count, memory.logits());
        memory.head().count = count;
        if (const std::string_view wrong = ask(Call::process, state, context); !wrong.empty()) return wrong;
        const std::int32_t left = memory.head().count;
        if (left < 0 || left > count) return "it returned more candidates than it got";
        std::copy_n(memory.ids(), left, candidates.ids);
        std::copy_n(memory.logits(), left, candidates.logits);
        candidates.count = left;
        return {};
    }
    std::string_view test(const StageState* state, const StageContext& context, std::span<const std::int32_t> ids,
                          std::span<std::uint8_t> keep) const override {
        const auto held = worker_->lock();
        const SharedMemory& memory = worker_->memory();
        std::ranges::copy(ids, memory.ids());
        std::ranges::copy(keep, memory.keep());
        memory.head().count = static_cast<std::int32_t>(ids.size());
        if (const std::string_view wrong = ask(Call::test, state, context); !wrong.empty()) return wrong;
        std::copy_n(memory.keep(), keep.size(), keep.begin());
        return {};
    }
    std::string_view mask(const StageState* state, const StageContext& context,
                          std::span<std::uint32_t> bits) const override {
        const auto held = worker_->lock();
        const SharedMemory& memory = worker_->memory();
        std::ranges::copy(bits, memory.bits());
        memory.head().count = static_cast<std::int32_t>(bits.size());
        if (const std::string_view wrong = ask(Call::mask, state, context); !wrong.empty()) return wrong;
        std::copy_n(memory.bits(), bits.size(), bits.begin());
        return {};
    }
    std::string_view forced(const StageState* state, const StageContext& context,
                            std::string_view& bytes) const override {
        static thread_local std::string text;
        const auto held = worker_->lock();
        bytes = {};
        if (const std::string_view wrong = ask(Call::forced, state, context); !wrong.empty()) return wrong;
        const std::int32_t size = worker_->memory().head().count;
        if (size < 0 || static_cast<std::size_t>(size) > kForcedRoom)
            return "it forces more bytes than there is room for";
        text.assign(worker_->memory().forced(), static_cast<std::size_t>(size));
        bytes = text;
        return {};
    }

private:
    std::string_view ask(Call which, const StageState* state, const StageContext& context) const {
        static thread_local std::string why;
        const auto* own = static_cast<const IsolatedState*>(state);
        if (own != nullptr && own->id() == 0) return "its process has ended, and with it what it knew of the text";
        if (own == nullptr && worker_->may_restart()) {
            // Where there is no state, nothing is lost with a process; where() keeps what has been prepared.
            if (why = restarted(); !why.empty()) return why;
        }
        Shared& head = worker_->memory().head();
        head.state = own != nullptr ? own->id() : 0;
        head.phase = context.phase;
        head.key = context.key;
        head.stream = context.stage;
        head.answer = context.answer;
        worker_->send_history(context.history);
        return worker_->call(which);
    }
    std::string restarted() const {
        const std::int32_t count = worker_->memory().head().count;
        std::string wrong = worker_->restart();
        worker_->memory().head().count = count;
        return wrong;
    }

    std::shared_ptr<Worker> worker_;
    samplers::StageTraits traits_;
    StageKind kind_ = StageKind::process;
    bool whole_ = false, idle_ = false, tests_ = false, forces_ = false;
};

class IsolatedFactory : public samplers::StageFactory {
public:
    IsolatedFactory(std::shared_ptr<const samplers::StageFactory> factory, std::chrono::milliseconds deadline)
        : factory_(std::move(factory)), deadline_(deadline) {}
    const samplers::StageDescription& description() const override { return factory_->description(); }
    std::unique_ptr<samplers::Stage> create(std::span<const samplers::ParameterValue> parameters,
                                            const samplers::Vocabulary& vocabulary) const override {
        return std::make_unique<IsolatedStage>(std::make_shared<Worker>(factory_, parameters, vocabulary, deadline_),
                                               factory_->description().traits);
    }

private:
    std::shared_ptr<const samplers::StageFactory> factory_;
    std::chrono::milliseconds deadline_;
};

}  // namespace

std::shared_ptr<const samplers::StageFactory> isolate(std::shared_ptr<const samplers::StageFactory> factory,
                                                      std::chrono::milliseconds deadline) {
    return std::make_shared<IsolatedFactory>(std::move(factory), deadline);
}

}  // namespace foresay::plugins
