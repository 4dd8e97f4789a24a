// Runs the checks, each in a child process: run_child() returns what the child's body returned, or how it ended.
#include "plugins/host/plugin_check.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <fstream>
#include <iterator>
#include <memory>
#include <thread>

#include "base/error.h"
#include "plugins/host/checks.h"
#include "plugins/host/elf_check.h"
#include "plugins/host/plugin_host.h"
#include "samplers/plugin_call.h"
#include "samplers/sdk/sampler.h"

namespace foresay::plugins {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;
using Outcome = CheckResult::Outcome;
using Factories = std::vector<std::shared_ptr<const samplers::StageFactory>>;

constexpr double kSlowLoadMs = 100.0;  // that loading may take
constexpr std::size_t kMaxText = 1 << 20;
constexpr std::size_t kStack = 1 << 16;  // of the handler of crashes

struct Ended {
    bool well = false;
    bool hangs = false;
    std::string text;  // of the body, after a character: '=' passed or failed, '-' skipped, '!' an error; or how the
                       // child ended, as the end of a sentence
};

int result_pipe = -1;  // of a child

// [signal] Says in which function of the sampler the child crashes.
void say_where(int number) {
    const samplers::PluginSite* const site = samplers::plugin_call_of_this_thread();
    const char* const where = site != nullptr ? site->where : "outside any call";
    const ssize_t ignored = ::write(result_pipe, "#", 1) + ::write(result_pipe, where, std::strlen(where));
    static_cast<void>(ignored);
    ::signal(number, SIG_DFL);
    ::raise(number);
}

void handle_crashes() {
    static char stack[kStack];
    stack_t own{};
    own.ss_sp = stack;
    own.ss_size = sizeof stack;
    ::sigaltstack(&own, nullptr);
    for (const int fatal : {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT}) {
        struct sigaction action {};
        action.sa_handler = say_where;
        action.sa_flags = SA_ONSTACK | SA_NODEFER;
        ::sigaction(fatal, &action, nullptr);
    }
    for (const int late : {SIGALRM, SIGPROF}) ::signal(late, SIG_DFL);
}

void limit_time(unsigned seconds) {
    ::alarm(3 * seconds);
    const itimerval limit{{0, 0}, {static_cast<time_t>(seconds), 0}};
    ::setitimer(ITIMER_PROF, &limit, nullptr);
}

template <typename Body>
[[noreturn]] void be_child(int out, unsigned seconds, Body&& body) {
    result_pipe = out;
    handle_crashes();
    limit_time(seconds);
    const int output = ::memfd_create("output", 0);
    const int nowhere = ::open("/dev/null", O_RDWR);
    ::dup2(nowhere, STDIN_FILENO);
    ::dup2(output, STDOUT_FILENO);
    ::dup2(nowhere, STDERR_FILENO);
    std::string text = "=";
    try {
        text += body();
    } catch (const NotApplicable& skipped) {
        text = "-" + skipped.why;
    } catch (const std::exception& error) {
        text = std::string("!") + error.what();
    }
    const char* at = text.data();
    for (std::size_t left = text.size(); left > 0;) {
        const ssize_t put = ::write(out, at, left);
        if (put <= 0) break;
        at += put;
        left -= static_cast<std::size_t>(put);
    }
    ::_exit(0);
}

std::string read_all(int from) {
    std::string text;
    char buffer[4096];
    for (ssize_t got = 1; got != 0 && text.size() < kMaxText;) {
        got = ::read(from, buffer, sizeof buffer);
        if (got < 0 && errno != EINTR) break;
        if (got > 0) text.append(buffer, static_cast<std::size_t>(got));
    }
    return text;
}

// Runs `body` in a child whose standard output is a file in memory.
template <typename Body>
Ended run_child(unsigned seconds, Body&& body) {
    int ends[2] = {-1, -1};
    if (::pipe2(ends, O_CLOEXEC) != 0) throw Error(std::string("cannot make a pipe: ") + std::strerror(errno));
    std::fflush(nullptr);
    const pid_t child = ::fork();
    if (child < 0) throw Error(std::string("cannot start a process: ") + std::strerror(errno));
    if (child == 0) {
        ::close(ends[0]);
        be_child(ends[1], seconds, body);
    }
    ::close(ends[1]);
    const std::string text = read_all(ends[0]);
    ::close(ends[0]);
    int status = 0;
    while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    const int number = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    if (number == SIGALRM || number == SIGPROF)
        return {false, true, "does not return within " + std::to_string(seconds) + " s"};
    const bool said_where = !text.empty() && text[0] == '#';
    if (number != 0) {
        const char* const name = ::strsignal(number);
        return {false, false, "crashes" + (said_where ? " " + text.substr(1) : "") + ": " + (name ? name : "a signal")};
    }
    if (text.empty()) return {false, false, "ends the process, with status " + std::to_string(WEXITSTATUS(status))};
    return {true, false, text};
}

// The clock that a sampler may look at has gone on.
void wait_for_next_second() {
    for (const std::time_t start = std::time(nullptr); std::time(nullptr) == start;)
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
}

// Where things lie in a process, and what is around it, differs from now on.
std::vector<std::unique_ptr<char[]>> move_everything() {
    std::vector<std::unique_ptr<char[]>> ballast;
    for (std::size_t size = 24; size < 2000000; size = size * 5 / 3) ballast.push_back(std::make_unique<char[]>(size));
    for (std::size_t pages = 3; pages < 5000; pages *= 3)
        ::mmap(nullptr, pages * 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (::chdir("/") != 0) throw Error("cannot change the folder");
    for (const char* variable : {"HOME", "LANG", "TZ", "TMPDIR"}) ::unsetenv(variable);
    return ballast;
}

// Calls `body` on another thread, after everything has moved.
template <typename Body>
std::string elsewhere(Body&& body) {
    const auto ballast = move_everything();
    std::string text, wrong;
    std::thread([&] {
        try {
            text = body();
        } catch (const std::exception& error) {
            wrong = error.what();
        }
    }).join();
    if (!wrong.empty()) throw Error(wrong);
    return text;
}

// Empty where the lines of two processes agree. A line that is no number is how the sampler failed.
std::string disagreement(const std::string& one, const std::string& other, const std::string& otherwise) {
    if (one == other) return {};
    const auto at = std::ranges::mismatch(one, other).in1;
    const auto line = std::count(one.begin(), at, '\n') + 1;
    std::string why = otherwise + " (from token " + std::to_string(line) + " on)";
    for (const std::string& text : {one, other}) {
        const std::size_t failed = text.find("sampler '");
        if (failed != text.npos) return why + ": " + text.substr(failed, text.find('\n', failed) - failed);
    }
    return why;
}

class Checking {
public:
    // `open` loads the samplers, in a child.
    Checking(std::function<Factories()> open, const CheckOptions& options)
        : open_(std::move(open)), options_(options) {}

    void check_file(const fs::path& file) {
        const PluginFile found = PluginHost::inspect(file);
        if (!found.problem.empty()) throw Error("plugin '" + file.string() + "' cannot be loaded: " + found.problem);
        const Ended described = run_child(options_.seconds, [&] {
            std::string names;
            for (const auto& factory : open_()) names += factory->description().name + "\n";
            return names;
        });
        const bool loads = described.well && described.text[0] == '=';
        if (loads) check_parameters();
        if (wanted("loads") || !loads) check_load(file, described, loads);  // what is wanted may need it
        if (wanted("exports")) check_exports(file);
        if (!loads) return;
        bool any = false;
        std::string rest = described.text.substr(1);
        for (std::size_t end = 0; (end = rest.find('\n')) != rest.npos; rest.erase(0, end + 1)) {
            const std::string name = rest.substr(0, end);
            if (!options_.sampler.empty() && options_.sampler != name) continue;
            check(name);
            any = true;
        }
        if (!any) throw Error("plugin '" + file.string() + "' holds no sampler '" + options_.sampler + "'");
    }

    // Before all checks: what the caller mistyped would fail most of them, and is no fault of the sampler.
    void check_parameters() const {
        if (options_.parameters.empty()) return;
        const Ended ended = run_child(options_.seconds, [&]() -> std::string {
            for (const auto& factory : open_()) {
                const samplers::StageDescription& description = factory->description();
                if (!options_.sampler.empty() && options_.sampler != description.name) continue;
                try {
                    samplers::complete_parameters(description, options_.parameters);
                } catch (const Error& problem) {
                    return problem.what();
                }
            }
            return {};
        });
        // A child that ends otherwise is what the checks tell.
        if (ended.well && ended.text[0] == '=' && ended.text.size() > 1) throw UsageError(ended.text.substr(1));
    }

    void check(const std::string& sampler) {
        given_.clear();
        hangs_ = false;
        for (const auto& table : {answer_checks(), life_checks()}) {
            for (const Check& check : table) {
                if (wanted(check.name)) one(sampler, check);
            }
        }
        if (wanted("timing")) timing(sampler);
    }

    std::vector<CheckResult> take() { return std::move(results_); }

private:
    bool wanted(const std::string& check) const {
        return options_.checks.empty() || std::ranges::find(options_.checks, check) != options_.checks.end();
    }

    void add(const std::string& sampler, const std::string& check, Outcome outcome, const std::string& text) {
        results_.push_back({sampler, check, outcome, samplers::one_line(text, 1000)});
        if (options_.report) options_.report(results_.back());
    }
    void fail_or_pass(const std::string& check, const std::string& wrong) {
        add("", check, wrong.empty() ? Outcome::passed : Outcome::failed, wrong);
    }

    void check_load(const fs::path& file, const Ended& described, bool loads) {
        if (!loads) return fail_or_pass("loads", described.well ? described.text.substr(1) : "it " + described.text);
        // The best of three: the machine may be busy.
        double best = 1e9;
        for (int round = 0; round < 3; ++round) {
            const Ended timed = run_child(options_.seconds, [&] {
                const Clock::time_point start = Clock::now();
                void* const library = ::dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
                const double ms = std::chrono::duration<double, std::milli>(Clock::now() - start).count();
                return std::to_string(library != nullptr ? ms : 1e9);
            });
            if (timed.well && timed.text[0] == '=') best = std::min(best, std::stod(timed.text.substr(1)));
        }
        const std::string ms = std::to_string(static_cast<long>(best));
        fail_or_pass("loads", best > kSlowLoadMs ? "it takes " + ms + " ms to load; a plugin has 100 ms" : "");
    }

    void check_exports(const fs::path& file) {
        std::ifstream stream(file, std::ios::binary);
        const std::string bytes((std::istreambuf_iterator<char>(stream)), {});
        std::vector<std::string> others = exported_symbols(std::as_bytes(std::span(bytes)));
        std::erase(others, FORESAY_SAMPLER_ENTRY);
        std::ranges::sort(others, {}, &std::string::size);  // the names of templates are long, and say little
        if (others.empty()) return fail_or_pass("exports", "");
        std::string names;
        for (const std::string& symbol : others) {
            if (names.size() + symbol.size() < 300) names += (names.empty() ? "" : ", ") + symbol;
        }
        fail_or_pass("exports",
                     "it exports " + std::to_string(others.size() + 1) +
                         " symbols, and should export one; the others are " + names +
                         ": build it with add_sampler_plugin(), or link it with -Wl,--version-script=FILE, where "
                         "FILE holds: { global: " FORESAY_SAMPLER_ENTRY "; local: *; };");
    }

    static bool is_file(const samplers::StageFactory& factory, const std::string& key) {
        return std::ranges::any_of(factory.description().parameters, [&](const auto& schema) {
            return schema.name == key && schema.type == samplers::ParameterType::file;
        });
    }
    CheckInput input(const std::string& sampler) const {
        for (const auto& factory : open_()) {
            if (factory->description().name != sampler) continue;
            CheckInput input{factory, options_.parameters, options_.seed};
            // A check may change the folder.
            for (auto& [key, value] : input.parameters) {
                if (auto* path = std::get_if<std::string>(&value); path != nullptr && is_file(*factory, key))
                    *path = (folder_ / *path).string();
            }
            return input;
        }
        throw Error("the plugin holds no sampler '" + sampler + "' any more");
    }

    void one(const std::string& sampler, const Check& check) {
        if (hangs_) return add(sampler, check.name, Outcome::skipped, "a check before did not return");
        if (check.run == nullptr) return both(sampler, check);
        conclude(sampler, check, run_child(options_.seconds, [&] { return check.run(input(sampler)); }));
    }

    void conclude(const std::string& sampler, const Check& check, const Ended& ended) {
        hangs_ = hangs_ || ended.hangs;
        if (ended.well && ended.text[0] == '-') return add(sampler, check.name, Outcome::skipped, ended.text.substr(1));
        const std::string wrong = ended.well ? ended.text.substr(1) : "it " + ended.text;
        if (wrong.empty()) return add(sampler, check.name, Outcome::passed, "");
        const auto known = std::ranges::find(given_, wrong, &std::pair<std::string, std::string>::second);
        if (known != given_.end())
            return add(sampler, check.name, Outcome::skipped, "fails for the reason given at '" + known->first + "'");
        given_.emplace_back(check.name, wrong);
        add(sampler, check.name, Outcome::failed, wrong);
    }

    void both(const std::string& sampler, const Check& check) {
        const Check::Pair& pair = check.pair;
        const Ended one = run_child(options_.seconds, [&] { return pair.first(input(sampler)); });
        if (!one.well || one.text[0] != '=') return conclude(sampler, check, one);
        if (pair.moved) wait_for_next_second();
        const Ended other = run_child(options_.seconds, [&] {
            return pair.moved ? elsewhere([&] { return pair.second(input(sampler)); }) : pair.second(input(sampler));
        });
        if (!other.well || other.text[0] != '=') return conclude(sampler, check, other);
        conclude(sampler, check, {true, false, "=" + disagreement(one.text, other.text, pair.otherwise)});
    }

    void timing(const std::string& sampler) {
        if (hangs_) return;
        const Ended ended = run_child(options_.seconds, [&] { return measure(input(sampler)); });
        if (!ended.well || ended.text[0] != '=') return;
        std::string rest = ended.text.substr(1);
        for (std::size_t end = 0; (end = rest.find('\n')) != rest.npos; rest.erase(0, end + 1)) {
            const std::size_t tab = rest.find('\t');
            add(sampler, rest.substr(0, tab), Outcome::measured, rest.substr(tab + 1, end - tab - 1));
        }
    }

    std::function<Factories()> open_;
    const CheckOptions& options_;
    const fs::path folder_ = fs::current_path();
    std::vector<CheckResult> results_;
    std::vector<std::pair<std::string, std::string>> given_;  // checks that failed, and why
    bool hangs_ = false;
};

}  // namespace

std::string_view name(CheckResult::Outcome outcome) {
    switch (outcome) {
        case Outcome::passed:
            return "ok";
        case Outcome::failed:
            return "FAILED";
        case Outcome::skipped:
            return "skipped";
        case Outcome::measured:
            return "timing";
    }
    return "";
}

std::vector<std::pair<std::string, std::string>> check_names() {
    std::vector<std::pair<std::string, std::string>> names = {{"loads", "loads within 100 ms"},
                                                              {"exports", "exports its entry and nothing else"}};
    for (const auto& table : {answer_checks(), life_checks()}) {
        for (const Check& check : table) names.emplace_back(check.name, check.doc);
    }
    names.emplace_back("timing", "what each function costs; never fails");
    return names;
}

std::vector<CheckResult> check_plugin(const fs::path& file, const CheckOptions& options) {
    const fs::path whole = fs::absolute(file);
    Checking checking([whole] { return PluginHost({}).load_all(whole); }, options);
    checking.check_file(whole);
    return checking.take();
}

std::vector<CheckResult> check_sampler(const std::shared_ptr<const samplers::StageFactory>& factory,
                                       const CheckOptions& options) {
    Checking checking([factory] { return Factories{factory}; }, options);
    checking.check_parameters();
    checking.check(factory->description().name);
    return checking.take();
}

}  // namespace foresay::plugins
