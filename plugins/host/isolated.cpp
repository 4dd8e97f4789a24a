#include "plugins/host/isolated.h"

#include <errno.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "plugins/host/isolated_child.h"
#include "plugins/host/isolated_memory.h"
#include "samplers/plugin_call.h"

namespace foresay::plugins {
namespace {

using samplers::StageContext;
using samplers::StageKind;
using samplers::StageState;
using std::chrono::milliseconds;

constexpr int kMostEnds = 8;            // of processes in one text
constexpr milliseconds kToMake{10000};  // that making an instance may take
constexpr std::uint32_t kLook = 20;     // ms, after which a waiting program looks whether the process lives
constexpr const char* kNames[] = {"create()", "state_create()", "state_destroy()", "state_begin()", "state_copy()",
                                  "accept()", "process()",      "test()",          "mask()",        "forced()"};

std::atomic<std::int64_t> calls{0};

// The process of an instance, and the calls that it answers.
class Worker {
public:
    Worker(std::shared_ptr<const samplers::StageFactory> factory, std::span<const samplers::ParameterValue> parameters,
           const samplers::Vocabulary& vocabulary, milliseconds deadline)
        : factory_(std::move(factory)),
          parameters_(parameters.begin(), parameters.end()),
          vocabulary_(vocabulary),
          deadline_(deadline),
          memory_(vocabulary.size()) {
        const std::lock_guard lock(mutex_);
        if (const std::string wrong = revive(); !wrong.empty())
            throw Error(factory_->description().name + ": " + wrong);
    }
    ~Worker() { end(); }
    Worker(const Worker&) = delete;
    Worker& operator=(const Worker&) = delete;

    bool made_of(std::span<const samplers::ParameterValue> parameters, const samplers::Vocabulary& vocabulary) const {
        return &vocabulary == &vocabulary_ && std::ranges::equal(parameters, parameters_);
    }
    // Held while a call is prepared, made and read.
    std::unique_lock<std::mutex> lock() { return std::unique_lock(mutex_); }
    const IsolatedMemory& memory() const { return memory_; }
    // Which process answers: counts from 1; 0: none does. States belong to one of them.
    std::uint32_t process() const { return child_ > 0 ? process_ : 0; }
    std::uint32_t next_state() { return ++states_; }
    // Why the last process has ended.
    const std::string& ended() const { return ended_; }

    // Starts a process where the last one has ended. Empty, or why there is none.
    std::string revive() {
        if (child_ > 0) return {};
        memory_.reset();
        sent_ = 0;
        child_ = start_isolated(memory_, *factory_, parameters_, vocabulary_);
        if (child_ < 0) return std::string("no process can be started: ") + std::strerror(errno);
        ++process_;
        std::string wrong(call(IsolatedCall::make, std::max(kToMake, deadline_)));
        if (!wrong.empty()) end();
        return wrong;
    }

    void send_history(std::span<const std::int32_t> history) {
        const std::size_t count = std::min(history.size(), IsolatedMemory::kHistoryRoom);
        const std::size_t known = std::min(sent_, count);
        std::int32_t* const room = memory_.history();
        const bool same = std::equal(room, room + known, history.begin());
        const std::size_t from = same ? known : 0;
        std::copy(history.begin() + static_cast<std::ptrdiff_t>(from),
                  history.begin() + static_cast<std::ptrdiff_t>(count), room + from);
        sent_ = std::max(same ? sent_ : 0, count);
        memory_.head().history = count;
    }

    // Makes the call that has been prepared. Empty, or why it failed, valid until the next one on this thread.
    std::string_view call(IsolatedCall which, milliseconds patience) {
        static thread_local std::string why;
        deaf_ = false;
        if (child_ <= 0) return why = "its process has ended: " + ended_;
        IsolatedHead& head = memory_.head();
        calls.fetch_add(1, std::memory_order_relaxed);
        head.call = which;
        hand_over(head, 1);
        const std::string wrong = wait(which, patience);
        deaf_ = head.told > 0 && (wrong.empty() ? head.failed && head.deaf : head.call == IsolatedCall::accept);
        head.told = 0;
        if (!wrong.empty()) return why = wrong;
        if (!head.failed) return {};
        head.reason[IsolatedHead::kReason] = '\0';
        why = samplers::one_line(head.reason, IsolatedHead::kReason);
        if (used_up()) {
            end();
            return why = ended_ = "it used up the " + std::to_string(kIsolatedMemory >> 20) +
                                  " MiB of memory that it may have, in " +
                                  name_of(deaf_ ? IsolatedCall::accept : which) + ": " + why;
        }
        return why;
    }
    std::string_view call(IsolatedCall which) { return call(which, deadline_); }
    // Whether the last call failed because of the tokens that came with it.
    bool deaf() const { return deaf_; }

private:
    static std::string name_of(IsolatedCall which) { return kNames[static_cast<int>(which)]; }

    std::string wait(IsolatedCall asked, milliseconds patience) {
        IsolatedHead& head = memory_.head();
        // Where it is: with the tokens that came with the call, or in the call itself.
        const auto at = [&] { return head.call == IsolatedCall::accept ? IsolatedCall::accept : asked; };
        using Clock = std::chrono::steady_clock;
        // Time while this process was stopped is not the sampler's, so each look counts for twice its time at most.
        constexpr milliseconds kMost{2 * kLook};
        const auto look = static_cast<std::uint32_t>(std::min<std::int64_t>(kLook, patience.count()));
        Clock::duration waited{};
        for (Clock::time_point before = Clock::now(); !wait_a_while(head, 1, look);) {
            const Clock::time_point now = Clock::now();
            waited += std::min<Clock::duration>(now - std::exchange(before, now), kMost);
            if (waited >= patience) {
                end();
                return ended_ = name_of(at()) + " did not return within " + std::to_string(patience.count()) + " ms";
            }
            int status = 0;
            if (::waitpid(child_, &status, WNOHANG) == child_) {
                child_ = 0;
                return ended_ = how_it_ended(at(), status);
            }
        }
        return {};
    }

    static std::string how_it_ended(IsolatedCall which, int status) {
        if (!WIFSIGNALED(status)) return name_of(which) + " ended its process";
        const char* const name = ::strsignal(WTERMSIG(status));
        return "it crashed in " + name_of(which) + ": " + (name != nullptr ? name : "a signal");
    }

    // Whether most of the memory that the process may have is gone, so that a failure is one of memory.
    bool used_up() const {
        const std::uint64_t now = memory_pages(std::to_string(child_).c_str());
        const auto page = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
        return now > memory_.head().pages && (now - memory_.head().pages) * page > kIsolatedMemory / 2;
    }

    void end() {
        if (child_ <= 0) return;
        ::kill(child_, SIGKILL);
        while (::waitpid(child_, nullptr, 0) < 0 && errno == EINTR) {
        }
        child_ = 0;
    }

    std::shared_ptr<const samplers::StageFactory> factory_;
    std::vector<samplers::ParameterValue> parameters_;
    const samplers::Vocabulary& vocabulary_;
    const milliseconds deadline_;
    IsolatedMemory memory_;
    std::mutex mutex_;
    pid_t child_ = 0;
    std::uint32_t process_ = 0, states_ = 0;
    std::size_t sent_ = 0;  // tokens of the history that are in shared memory
    std::string ended_;
    bool deaf_ = false;
};

// A state in the process, and what it was told, so that another process can have it, too. One that is a copy, for a
// draft, is not made again: it becomes another copy in the next round. A sampler without state has this one, too, which
// then only counts ends.
class IsolatedState : public StageState {
public:
    // `waits`: what it accepts is told with the next call.
    IsolatedState(std::shared_ptr<Worker> worker, bool stateless, bool waits)
        : worker_(std::move(worker)), stateless_(stateless), waits_(waits) {
        untold_.reserve(IsolatedHead::kTold);
        const auto held = worker_->lock();
        std::string wrong = worker_->revive();
        if (wrong.empty()) wrong = make();
        if (!wrong.empty()) throw Error("its state cannot be created: " + wrong);
    }
    ~IsolatedState() override {
        const auto held = worker_->lock();
        if (!here() || stateless_) return;
        worker_->memory().head().state = id_;
        worker_->call(IsolatedCall::drop_state);
    }
    IsolatedState(const IsolatedState&) = delete;
    IsolatedState& operator=(const IsolatedState&) = delete;

    std::string_view begin(std::span<const std::int32_t> history, std::size_t answer) override {
        const auto held = worker_->lock();
        text_ = std::make_shared<Text>();
        copy_ = false;
        lost_.clear();
        accepted_.clear();
        untold_.clear();
        answer_ = answer;
        if (!stateless_) begun_with_.assign(history.begin(), history.end());
        return lost_ = again();
    }
    std::string_view copy(const StageState& other) override {
        const auto held = worker_->lock();
        const auto& from = static_cast<const IsolatedState&>(other);
        text_ = from.text_;
        copy_ = true;
        lost_.clear();
        untold_.clear();
        if (text_->ended_in_draft) return lost_ = "its process has ended in a draft of this text";
        if (const std::string_view wrong = from.ready(); !wrong.empty()) return lost_ = wrong;
        if (stateless_) return {};
        if (!here()) {
            if (lost_ = make(); !lost_.empty()) return lost_;
        }
        from.tell();
        worker_->memory().head().state = id_;
        worker_->memory().head().other = from.id_;
        const std::string_view wrong = from.heard(worker_->call(IsolatedCall::copy));
        return done(wrong);
    }
    std::string_view accept(const samplers::AcceptedToken& token) override {
        if (!lost_.empty()) return copy_ ? std::string_view() : lost_;
        if (stateless_) return {};
        const auto held = worker_->lock();
        if (!copy_) accepted_.push_back(token);
        if (!here()) {
            // A live state is made again when it is asked; a copy is lost. It says so when it is asked: a failure here
            // would mean that its sampler cannot follow the token.
            if (copy_) lost_ = "its process has ended: " + worker_->ended();
            return {};
        }
        untold_.push_back(token);
        if (waits_ && untold_.size() < IsolatedHead::kTold) return {};
        tell();
        worker_->memory().head().state = id_;
        const std::string_view wrong = done(worker_->call(IsolatedCall::accept));
        if (here()) return waits_ ? heard(wrong) : wrong;
        lost_ = wrong;
        return copy_ ? std::string_view() : lost_;
    }

    // Before a call: has it tell what was accepted since the last one.
    void tell() const {
        IsolatedHead& head = worker_->memory().head();
        std::ranges::copy(untold_, head.tokens);
        head.told = static_cast<std::uint32_t>(untold_.size());
        head.listener = id_;
        untold_.clear();
    }
    // After it: a state that could not accept a token is of no use any more.
    std::string_view heard(std::string_view result) const {
        if (!worker_->deaf()) return result;
        return lost_ = result;
    }

    // With the lock held: makes sure that the process has this state. Empty, or why it has not, valid until the next
    // call on this thread.
    std::string_view ready() const {
        if (!lost_.empty()) return lost_;
        if (here() && worker_->process() != 0) return {};
        if (copy_) return lost_ = "its process has ended: " + worker_->ended();
        if (text_ && text_->ends > kMostEnds) {
            return lost_ = "its processes end again and again; the last time, " + worker_->ended();
        }
        return lost_ = again();
    }
    // After a call: counts an end of the process.
    std::string_view done(std::string_view result) const {
        if (worker_->process() != 0 || !text_) return result;
        if (copy_) {
            text_->ended_in_draft = true;
        } else {
            ++text_->ends;
        }
        return result;
    }
    std::uint32_t id() const { return stateless_ ? 0 : id_; }

private:
    // Of one text, shared by its state and the copies.
    struct Text {
        int ends = 0;
        bool ended_in_draft = false;
    };

    bool here() const { return stateless_ ? worker_->process() != 0 : process_ == worker_->process() && process_ != 0; }

    std::string make() const {
        if (stateless_) return {};
        id_ = worker_->next_state();
        process_ = worker_->process();
        worker_->memory().head().state = id_;
        return std::string(worker_->call(IsolatedCall::make_state));
    }
    // Begins and accepts what was accepted, in a new process if there is none.
    std::string again() const {
        if (std::string wrong = worker_->revive(); !wrong.empty()) return wrong;
        if (stateless_ || !text_) return {};
        if (!here()) {
            if (std::string wrong = make(); !wrong.empty()) return wrong;
        }
        IsolatedHead& head = worker_->memory().head();
        worker_->send_history(begun_with_);
        head.state = id_;
        head.answer = answer_;
        std::string wrong(done(worker_->call(IsolatedCall::begin)));
        for (std::size_t i = 0; i < accepted_.size() && wrong.empty(); i += IsolatedHead::kTold) {
            const auto next = accepted_.begin() + static_cast<std::ptrdiff_t>(i);
            untold_.assign(next,
                           next + static_cast<std::ptrdiff_t>(std::min(IsolatedHead::kTold, accepted_.size() - i)));
            tell();
            wrong = done(worker_->call(IsolatedCall::accept));
        }
        return wrong;
    }

    std::shared_ptr<Worker> worker_;
    const bool stateless_, waits_;
    bool copy_ = false;
    std::shared_ptr<Text> text_;
    std::vector<std::int32_t> begun_with_;
    std::size_t answer_ = 0;
    std::vector<samplers::AcceptedToken> accepted_;
    mutable std::vector<samplers::AcceptedToken> untold_;  // the last of them, which the process does not know
    // Its number in a process, and which one. Calls that read a state may have to make it again.
    mutable std::uint32_t id_ = 0, process_ = 0;
    mutable std::string lost_;  // why it cannot be made again; empty: it can
};

class IsolatedStage : public samplers::Stage {
public:
    IsolatedStage(std::shared_ptr<Worker> worker, const samplers::StageTraits& traits)
        : worker_(std::move(worker)), stateless_(traits.memory == samplers::StageMemory::stateless) {
        const auto held = worker_->lock();
        const IsolatedHead& head = worker_->memory().head();
        const std::uint32_t kind = head.kind;
        if (kind < static_cast<std::uint32_t>(StageKind::mask) || kind > static_cast<std::uint32_t>(StageKind::process))
            throw Error("an isolated sampler must be that of a plugin");
        kind_ = static_cast<StageKind>(kind);
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
        return std::make_unique<IsolatedState>(worker_, stateless_, kind_ == StageKind::test);
    }

    std::string_view process(const StageState* state, const StageContext& context,
                             kernels::Candidates& candidates) const override {
        const auto held = worker_->lock();
        const IsolatedMemory& memory = worker_->memory();
        const std::int32_t count = candidates.count;
        const auto prepare = [&] {
            std::copy_n(candidates.ids, count, memory.ids());
            std::copy_n(candidates.logits, count, memory.logits());
            memory.head().count = count;
        };
        if (const auto wrong = ask(IsolatedCall::process, state, context, prepare); !wrong.empty()) return wrong;
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
        const IsolatedMemory& memory = worker_->memory();
        check(ids.size() <= memory.room(), "more ids than the vocabulary has");
        const auto prepare = [&] {
            std::ranges::copy(ids, memory.ids());
            std::ranges::copy(keep, memory.keep());
            memory.head().count = static_cast<std::int32_t>(ids.size());
        };
        if (const auto wrong = ask(IsolatedCall::test, state, context, prepare); !wrong.empty()) return wrong;
        std::copy_n(memory.keep(), keep.size(), keep.begin());
        return {};
    }
    std::string_view mask(const StageState* state, const StageContext& context,
                          std::span<std::uint32_t> bits) const override {
        const auto held = worker_->lock();
        const IsolatedMemory& memory = worker_->memory();
        check(bits.size() <= memory.words(), "a longer mask than the vocabulary's");
        const auto prepare = [&] {
            std::ranges::copy(bits, memory.bits());
            memory.head().count = static_cast<std::int32_t>(bits.size());
        };
        if (const auto wrong = ask(IsolatedCall::mask, state, context, prepare); !wrong.empty()) return wrong;
        std::copy_n(memory.bits(), bits.size(), bits.begin());
        return {};
    }
    std::string_view forced(const StageState* state, const StageContext& context,
                            std::string_view& bytes) const override {
        static thread_local std::string text;
        const auto held = worker_->lock();
        bytes = {};
        if (const auto wrong = ask(IsolatedCall::forced, state, context, [] {}); !wrong.empty()) return wrong;
        const std::int32_t size = worker_->memory().head().count;
        if (size < 0 || static_cast<std::size_t>(size) > IsolatedMemory::kForcedRoom)
            return "it forces more bytes than there is room for";
        text.assign(worker_->memory().forced(), static_cast<std::size_t>(size));
        bytes = text;
        return {};
    }

private:
    // `prepare` writes the arguments; a new process begins with none.
    template <typename Prepare>
    std::string_view ask(IsolatedCall which, const StageState* state, const StageContext& context,
                         Prepare&& prepare) const {
        const auto* own = static_cast<const IsolatedState*>(state);
        check(own != nullptr, "an isolated stage is asked with a state");
        if (const std::string_view wrong = own->ready(); !wrong.empty()) return wrong;
        IsolatedHead& head = worker_->memory().head();
        head.state = own->id();
        head.phase = context.phase;
        head.key = context.key;
        head.stream = context.stage;
        head.answer = context.answer;
        worker_->send_history(context.history);
        own->tell();
        prepare();
        return own->heard(own->done(worker_->call(which)));
    }

    std::shared_ptr<Worker> worker_;
    bool stateless_;
    StageKind kind_ = StageKind::process;
    bool whole_ = false, idle_ = false, tests_ = false, forces_ = false;
};

class IsolatedFactory : public samplers::StageFactory {
public:
    IsolatedFactory(std::shared_ptr<const samplers::StageFactory> factory, milliseconds deadline)
        : factory_(std::move(factory)), deadline_(deadline) {}
    const samplers::StageDescription& description() const override { return factory_->description(); }
    std::unique_ptr<samplers::Stage> create(std::span<const samplers::ParameterValue> parameters,
                                            const samplers::Vocabulary& vocabulary) const override {
        return std::make_unique<IsolatedStage>(worker(parameters, vocabulary), description().traits);
    }

private:
    // The process outlives the chain that it was made for, because a server makes a chain for each request. Not one
    // that has read a file, which may have changed.
    std::shared_ptr<Worker> worker(std::span<const samplers::ParameterValue> parameters,
                                   const samplers::Vocabulary& vocabulary) const {
        const auto make = [&] { return std::make_shared<Worker>(factory_, parameters, vocabulary, deadline_); };
        const bool reads = std::ranges::any_of(description().parameters, [](const samplers::ParameterSchema& schema) {
            return schema.type == samplers::ParameterType::file;
        });
        if (reads) return make();
        const std::lock_guard lock(mutex_);
        if (!last_ || !last_->made_of(parameters, vocabulary)) last_ = make();
        return last_;
    }

    std::shared_ptr<const samplers::StageFactory> factory_;
    milliseconds deadline_;
    mutable std::mutex mutex_;
    mutable std::shared_ptr<Worker> last_;
};

}  // namespace

std::int64_t isolated_calls() { return calls.load(std::memory_order_relaxed); }

std::shared_ptr<const samplers::StageFactory> isolate(std::shared_ptr<const samplers::StageFactory> factory,
                                                      milliseconds deadline) {
    return std::make_shared<IsolatedFactory>(std::move(factory), deadline);
}

}  // namespace foresay::plugins
