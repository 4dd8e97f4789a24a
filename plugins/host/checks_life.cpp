// The checks of what a sampler does to its process, and what its functions cost.
#include <malloc.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <thread>

#include "base/error.h"
#include "plugins/host/checks.h"
#include "plugins/host/process_state.h"
#include "samplers/float_state.h"
#include "samplers/plugin_stage.h"

namespace foresay::plugins {
namespace {

std::string threads(const CheckInput& input) {
    const Subject subject = input.subject();
    constexpr std::size_t kThreads = 8;
    std::vector<std::vector<Answer>> expected(kThreads), found(kThreads);
    for (std::size_t i = 0; i < kThreads; ++i) expected[i] = subject.walk(input.seed + i, kCheckSteps);
    for (int round = 0; round < 3; ++round) {
        std::array<std::string, kThreads> wrong;
        {
            std::vector<std::jthread> running;
            for (std::size_t i = 0; i < kThreads; ++i) {
                running.emplace_back([&, i] {
                    try {
                        found[i] = subject.walk(input.seed + i, kCheckSteps);
                    } catch (const std::exception& error) {
                        wrong[i] = error.what();
                    }
                });
            }
        }
        for (std::size_t i = 0; i < kThreads; ++i) {
            if (!wrong[i].empty()) return "with eight threads: " + wrong[i];
            if (found[i] != expected[i]) return "with eight states on eight threads, it gives other answers";
        }
    }
    return {};
}

std::size_t mapped_bytes() {
    std::size_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    return pages * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
}

// By how many bytes the process grows each time that `lives` runs; 0: it does not. The first time warms up whatever is
// kept for good.
template <typename Lives>
std::size_t growth(Lives&& lives) {
    constexpr std::size_t kHeap = 4000, kMapped = 1 << 20;
    std::array<std::size_t, 3> heap{}, mapped{};
    for (std::size_t i = 0; i < 3; ++i) {
        lives();
        heap[i] = ::mallinfo2().uordblks + ::mallinfo2().hblkhd;
        mapped[i] = mapped_bytes();
    }
    if (heap[1] > heap[0] + kHeap && heap[2] > heap[1] + kHeap) return heap[2] - heap[1];
    if (mapped[1] > mapped[0] + kMapped && mapped[2] > mapped[1] + kMapped) return mapped[2] - mapped[1];
    return 0;
}

// After 1,000 lives of a state, and 200 of an instance, everything has been freed.
std::string leaks(const CheckInput& input) {
    Subject subject = input.subject(257);
    const std::size_t files = open_files();
    const std::size_t of_states = growth([&] {
        std::mt19937_64 random(input.seed);
        for (int i = 0; i < 1000; ++i) {
            Place at = subject.place(random);
            const auto state = subject.begin(at);
            const Row row = subject.row(random, 16);
            const Answer answer = subject.answer(state.get(), at, row);
            const std::int32_t token = subject.pick(answer, row, random);
            if (token >= 0) subject.accept(state.get(), at, token);
        }
    });
    if (of_states > 0) return "1,000 texts leave " + std::to_string(of_states) + " bytes allocated";
    const std::size_t of_instances = growth([&] {
        for (int i = 0; i < 200; ++i) subject.make_again();
    });
    if (of_instances > 0) return "200 instances leave " + std::to_string(of_instances) + " bytes allocated";
    return open_files() > files ? "instances leave files open" : "";
}

std::string process_state(const CheckInput& input) {
    const ProcessState before;
    {
        const Subject subject = input.subject();
        subject.walk(input.seed, kCheckSteps);
        if (std::string changed = before.changed(); !changed.empty()) return "it changes " + changed;
    }
    const std::string changed = before.changed();
    return changed.empty() ? changed : "when it is destroyed, it changes " + changed;
}

// The host restores the state after each call, and reports the call.
std::string floating_point(const CheckInput& input) {
    const samplers::FloatState before;
    try {
        const Subject subject = input.subject();
        subject.walk(input.seed, kCheckSteps);
    } catch (const Error& error) {
        if (std::string_view(error.what()).find("floating-point") != std::string_view::npos) return error.what();
        throw;
    }
    return samplers::FloatState() == before ? "" : "it changes how this thread computes with floating-point numbers";
}

class MadeUpValues {
private:
    template <typename One>
    auto list(One&& one) {
        std::vector<decltype(one())> all;
        for (std::size_t left = random_() % 5; left > 0; --left) all.push_back(one());
        return all;
    }

public:
    MadeUpValues(const samplers::ParameterSchema& schema, std::mt19937_64& random) : schema_(schema), random_(random) {}

    samplers::ParameterValue value() {
        using Type = samplers::ParameterType;
        switch (schema_.type) {
            case Type::boolean:
                return random_() % 2 == 0;
            case Type::integer:
                return integer();
            case Type::real:
                return number();
            case Type::text:
                return text();
            case Type::choice:
                return schema_.choices[random_() % schema_.choices.size()];
            case Type::text_list:
                return list([&] { return text(); });
            case Type::integer_list:
                return list([&] { return integer(); });
            case Type::real_list:
                return list([&] { return number(); });
            case Type::file:
                break;
        }
        return file();
    }

private:
    double number() {
        const double low = schema_.min.value_or(-1e6), high = schema_.max.value_or(1e6);
        const std::uint64_t kind = random_() % 6;
        if (kind == 0) return std::max(low, -1e300);
        if (kind == 1) return std::min(high, 1e300);
        const double share = static_cast<double>(random_() % 1000) / 999.0;
        const double from = std::max(low, -1e6), to = std::min(high, 1e6);
        return std::clamp(from + share * (to - from), low, high);
    }
    std::int64_t integer() { return static_cast<std::int64_t>(std::clamp(number(), -9e15, 9e15)); }
    std::string text() {
        std::string out;
        for (std::size_t left = random_() % 40; left > 0; --left) out += static_cast<char>(random_() % 256);
        return out;
    }
    // A file in memory, which this process keeps; or none.
    std::string file() {
        if (random_() % 3 == 0) return {};
        const int handle = ::memfd_create("parameter", 0);
        const std::string bytes = text();
        if (handle < 0 || ::write(handle, bytes.data(), bytes.size()) < 0) return {};
        return "/proc/self/fd/" + std::to_string(handle);
    }

    const samplers::ParameterSchema& schema_;
    std::mt19937_64& random_;
};

// Whatever is in the declared range is taken, or refused with a reason.
std::string parameters(const CheckInput& input) {
    const auto& schemas = input.factory->description().parameters;
    if (schemas.empty()) throw NotApplicable{"it has none"};
    std::mt19937_64 random(input.seed);
    for (int round = 0; round < 100; ++round) {
        CheckInput changed = input;
        std::string tried;
        for (const samplers::ParameterSchema& schema : schemas) {
            if (random() % 2 == 0) continue;
            std::erase_if(changed.parameters, [&](const auto& stated) { return stated.first == schema.name; });
            changed.parameters.emplace_back(schema.name, MadeUpValues(schema, random).value());
            tried += " " + schema.name;
        }
        const std::string with = "with made-up values of" + (tried.empty() ? " nothing" : tried);
        try {
            const Subject subject = changed.subject(257);
            std::mt19937_64 rows(input.seed);
            const Place at = subject.place(rows);
            const auto state = subject.begin(at);
            const Answer answer = subject.answer(state.get(), at, subject.row(rows));
            if (answer.wrong.find("gave no reason") != std::string::npos) return with + ", " + answer.wrong;
            for (const auto& [id, logit] : answer.processed) {
                if (!std::isfinite(logit)) return with + ", process() returns a logit that is not finite";
            }
        } catch (const NotApplicable&) {
            continue;
        } catch (const Error& error) {
            if (std::string_view(error.what()).find("gave no reason") != std::string_view::npos)
                return with + ", " + error.what();
        }
    }
    return {};
}

std::string extensions(const CheckInput& input) {
    const Subject subject = input.subject(257);
    return samplers::offers_extension(subject.stage(), "no such extension/0")
               ? "it offers an extension that does not exist, so it answers to any name"
               : "";
}

std::string own_test(const CheckInput& input) {
    const Subject subject = input.subject(257);
    const auto result = samplers::run_self_test(subject.stage());
    if (!result) throw NotApplicable{"it has no self-test"};
    return *result;
}

constexpr Check kChecks[] = {
    {"floating point", "leaves rounding and small numbers as they were", floating_point},
    {"threads", "serves eight states on eight threads", threads},
    {"parameters", "takes or refuses every value in its declared ranges", parameters},
    {"leaks", "frees its memory and closes its files, over 1,000 texts", leaks},
    {"process", "leaves locale, signals, environment, folder, threads and output as they were", process_state},
    {"extensions", "knows its extensions", extensions},
    {"self-test", "passes its own test", own_test},
};

// The time of one of `times` calls, in microseconds.
template <typename Body>
double microseconds(int times, Body&& body) {
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < times; ++i) body();
    return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count() / times;
}

}  // namespace

std::span<const Check> life_checks() { return kChecks; }

std::string measure(const CheckInput& input) {
    constexpr int kTimes = 100;
    std::string out;
    const auto add = [&](const char* what, double us) {
        char line[100];
        std::snprintf(line, sizeof line, "%s\t%.2f us\n", what, us);
        out += line;
    };
    Subject subject = input.subject(128256);
    add("create, 128,256 tokens", microseconds(3, [&] { subject.make_again(); }));
    std::mt19937_64 random(input.seed);
    Place at = subject.place(random);
    const auto state = subject.begin(at);
    const Row best = subject.row(random), few = subject.row(random, 64);
    const samplers::StageContext context = subject.context(at);
    const samplers::Stage& stage = subject.stage();
    const std::int32_t token = subject.pick(subject.answer(state.get(), at, best), best, random);
    if (subject.processes() && !subject.steps()) {
        std::vector<std::int32_t> ids(best.ids.size());
        std::vector<float> logits(best.ids.size());
        const std::string what = "process, " + std::to_string(best.ids.size()) + " candidates";
        add(what.c_str(), microseconds(kTimes, [&] {
                std::ranges::copy(best.ids, ids.begin());
                std::ranges::copy(best.logits, logits.begin());
                kernels::Candidates list{ids.data(), logits.data(), static_cast<std::int32_t>(ids.size())};
                stage.process(state.get(), context, list);
            }));
    }
    if (subject.tests()) {
        std::vector<std::uint8_t> keep(few.ids.size());
        const std::string what = "test, " + std::to_string(few.ids.size()) + " tokens";
        add(what.c_str(), microseconds(kTimes, [&] { stage.test(state.get(), context, few.ids, keep); }));
    }
    if (subject.masks()) {
        std::vector<std::uint32_t> bits((128256 + 31) / 32);
        add("mask, 128,256 tokens", microseconds(kTimes, [&] { stage.mask(state.get(), context, bits); }));
    }
    if (!subject.stateful() || token < 0) return out;
    if (subject.traits().clonable) {
        const auto copy = subject.begin({});
        add("copy", microseconds(kTimes, [&] { copy->copy(*state); }));
    }
    // Which token may follow is the sampler's to say, so only the first one is accepted.
    add("accept", microseconds(1, [&] { subject.accept(state.get(), at, token); }));
    return out;
}

}  // namespace foresay::plugins
