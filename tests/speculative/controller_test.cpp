// The controller against simulated pairs: texts that change from easy to hard, costs in steps, noisy clocks. It has to
// come near the best fixed length known in hindsight, and must never be noticeably slower than plain decoding.

#include "speculative/controller.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <random>
#include <vector>

namespace foresay::test {
namespace {

using speculative::Controller;
using speculative::Proposal;

constexpr std::int32_t kLongest = 16;
constexpr std::int32_t kTokens = 6000;

double virtual_ms = 0.0;
double virtual_now() { return virtual_ms; }

// For each position of a text, the draft that would start there: margins, and how many tokens would be accepted.
struct Text {
    std::vector<std::array<float, kLongest>> margins;
    std::vector<std::int32_t> accepted;
};

// Phases of about 80 tokens with the given acceptance rates. Margins tell right from wrong only roughly.
Text make_text(const std::vector<double>& rates, unsigned seed) {
    std::mt19937 random(seed);
    std::uniform_real_distribution<double> uniform(0.0, 1.0);
    std::normal_distribution<double> normal(0.0, 1.0);
    Text text;
    double rate = rates[0];
    for (std::int32_t t = 0; t < kTokens; ++t) {
        if (uniform(random) < 1.0 / 80.0) rate = rates[random() % rates.size()];
        std::array<float, kLongest> margins{};
        std::int32_t accepted = 0;
        bool right = true;
        for (std::int32_t i = 0; i < kLongest; ++i) {
            // A token's own chance spreads around the phase's rate; the margin is a noisy view of it.
            const double logit = std::log(rate / (1.0 - rate)) + 1.5 * normal(random);
            right = right && uniform(random) < 1.0 / (1.0 + std::exp(-logit));
            if (right) ++accepted;
            margins[static_cast<std::size_t>(i)] = static_cast<float>(std::exp(0.6 * logit + 0.4 * normal(random)));
        }
        text.margins.push_back(margins);
        text.accepted.push_back(accepted);
    }
    return text;
}

struct Machine {
    double draft_ms;
    double row_ms;  // of each further row; a plain step takes 1 ms
    double noise;
    double burst = 1.0;    // slows down this much for a third of the time
    double stall = 1.0;    // and single operations as much, one in forty
    double sampler = 0.0;  // of each emitted token, on the host
    double verify(std::int32_t rows) const {
        const double step = rows > 8 ? 0.3 : 0.0;  // another kernel from 9 rows on
        return 1.0 + row_ms * static_cast<double>(rows - 1) + step;
    }
};

struct Outcome {
    double speed = 0.0;    // over plain
    double slowest = 9.0;  // of any stretch of 512 tokens
    std::int64_t drafted = 0;
};

// `mistake`: how far the first measurements of anything but a plain step are off.
Outcome simulate(const Text& text, const Machine& machine, std::int32_t fixed, unsigned seed, double mistake = 1.0) {
    std::mt19937 random(seed);
    std::normal_distribution<double> normal(0.0, machine.noise);
    const auto jitter = [&](double ms) {
        ms *= std::exp(normal(random));
        if (machine.stall > 1.0 && random() % 40 == 0) ms *= machine.stall;
        return std::fmod(virtual_ms, 300.0) < 100.0 ? ms * machine.burst : ms;
    };
    Controller controller(virtual_now);
    for (const std::int32_t rows : {1, 2, 4, 8, 16}) {
        controller.costs().calibrate(rows, jitter(machine.verify(rows)) * (rows > 1 ? mistake : 1.0));
    }
    controller.calibrate_draft(machine.draft_ms * mistake);
    Outcome outcome;
    const double start = virtual_ms;
    double stretch_start = start;
    std::int32_t stretch_token = 0;
    for (std::int32_t t = 0; t < kTokens;) {
        const double round_start = virtual_ms;
        std::int32_t keep = 0;
        const std::int32_t limit = std::min(kLongest, kTokens - t - 1);
        const std::int32_t length = fixed >= 0 ? std::min(fixed, limit) : controller.plan(limit, true, Proposal{});
        const auto& margins = text.margins[static_cast<std::size_t>(t)];
        if (length > 0) {
            std::int32_t count = 0;
            controller.start_steps();
            while (fixed >= 0 ? count < length : controller.next(Proposal{}) == Controller::Next::draft) {
                virtual_ms += jitter(machine.draft_ms);
                controller.drafted(Proposal{}, 0, margins[static_cast<std::size_t>(count++)]);
            }
            keep = fixed >= 0 ? length : controller.finish_draft(virtual_ms - round_start);
        }
        const double verify_ms = jitter(machine.verify(keep + 1));
        virtual_ms += verify_ms;
        const std::int32_t accepted = std::min(keep, text.accepted[static_cast<std::size_t>(t)]);
        const double sampler_ms = machine.sampler * (accepted + 1);
        virtual_ms += sampler_ms;
        controller.observe(keep, accepted, accepted + 1, verify_ms, virtual_ms - round_start, sampler_ms);
        outcome.drafted += keep;
        t += accepted + 1;
        if (t - stretch_token >= 512) {
            outcome.slowest = std::min(outcome.slowest, (t - stretch_token) / (virtual_ms - stretch_start));
            stretch_token = t;
            stretch_start = virtual_ms;
        }
    }
    outcome.speed = kTokens / (virtual_ms - start);
    return outcome;
}

struct Pair {
    const char* name;
    std::vector<double> rates;
    Machine machine;
};

const Pair kPairs[] = {
    {"mixed text, quick draft", {0.9, 0.6, 0.3, 0.97}, {0.03, 0.05, 0.05}},
    {"mixed text, usual draft", {0.9, 0.6, 0.3, 0.97}, {0.10, 0.10, 0.05}},
    {"mixed text, slow draft", {0.9, 0.6, 0.3, 0.97}, {0.25, 0.10, 0.05}},
    {"even text", {0.75}, {0.10, 0.10, 0.05}},
    {"copying", {0.98}, {0.05, 0.05, 0.05}},
};

TEST(Controller, ComesNearTheBestFixedLength) {
    for (const Pair& pair : kPairs) {
        for (unsigned seed = 1; seed <= 3; ++seed) {
            const Text text = make_text(pair.rates, seed);
            double best = 1.0;
            for (std::int32_t length = 1; length <= kLongest; ++length) {
                best = std::max(best, simulate(text, pair.machine, length, seed).speed);
            }
            const Outcome found = simulate(text, pair.machine, -1, seed);
            EXPECT_GT(found.speed, 0.95 * best)
                << pair.name << ", seed " << seed << ": best fixed length gives " << best;
            EXPECT_GT(found.slowest, 0.93) << pair.name << ", seed " << seed;
        }
    }
}

TEST(Controller, NeverFallsFarBehindPlainDecoding) {
    const Pair hopeless[] = {
        {"useless draft", {0.02}, {0.10, 0.10, 0.05}},
        {"poor and slow draft", {0.3}, {0.60, 0.30, 0.05}},
        {"draft as slow as the target", {0.9}, {1.00, 0.20, 0.05}},
        {"noisy machine", {0.05, 0.2}, {0.20, 0.30, 0.40}},
    };
    for (const Pair& pair : hopeless) {
        // Noise is not symmetric in time; the plain text of the same machine is the measure.
        double found = 0.0;
        double plain = 0.0;
        double slowest_found = 0.0;
        double slowest_plain = 0.0;
        for (unsigned seed = 1; seed <= 8; ++seed) {
            const Text text = make_text(pair.rates, seed);
            const Outcome speculating = simulate(text, pair.machine, -1, seed);
            const Outcome stepping = simulate(text, pair.machine, 0, seed);
            found += speculating.speed;
            plain += stepping.speed;
            slowest_found += speculating.slowest;
            slowest_plain += stepping.slowest;
        }
        EXPECT_GT(found, 0.96 * plain) << pair.name;
        EXPECT_GT(slowest_found, 0.90 * slowest_plain) << pair.name;
    }
}

// Noise of other programs in single measurements must not stop speculation that pays.
TEST(Controller, KeepsItsGainOnABusyMachine) {
    const Pair pairs[] = {
        {"bursts", {0.9, 0.6, 0.97}, {0.08, 0.12, 0.10, 3.0, 1.0}},
        {"stalls", {0.9, 0.6, 0.97}, {0.08, 0.12, 0.10, 1.0, 15.0}},
        {"both", {0.9, 0.6, 0.97}, {0.08, 0.12, 0.20, 3.0, 15.0}},
    };
    for (const Pair& pair : pairs) {
        for (unsigned seed = 1; seed <= 3; ++seed) {
            const Text text = make_text(pair.rates, seed);
            double best = 0.0;
            for (std::int32_t length = 0; length <= 8; ++length) {
                best = std::max(best, simulate(text, pair.machine, length, seed).speed);
            }
            const Outcome found = simulate(text, pair.machine, -1, seed);
            EXPECT_GT(found.speed, 0.85 * best)
                << pair.name << ", seed " << seed << ": best fixed length gives " << best;
        }
    }
}

// Each token is sampled once, with a draft and without. So what that costs takes nothing from what drafts save.
TEST(Controller, ADearSamplerIsNoReasonNotToDraft) {
    for (const double rate : {0.5, 0.6, 0.7}) {
        for (unsigned seed = 1; seed <= 3; ++seed) {
            const Text text = make_text({rate}, seed);
            const Machine cheap{0.08, 0.08, 0.05};
            Machine dear = cheap;
            dear.sampler = 3.0;
            const double without = simulate(text, cheap, -1, seed).speed;
            // By the time that is not the sampler's.
            const double with = 1.0 / (1.0 / simulate(text, dear, -1, seed).speed - dear.sampler);
            EXPECT_GT(without, 1.1) << "drafts pay";
            EXPECT_GT(with, 0.97 * without) << rate << ", seed " << seed;
        }
    }
}

TEST(Controller, RecoversFromWrongFirstMeasurements) {
    for (const double mistake : {0.3, 3.0, 10.0}) {
        const Text text = make_text({0.9, 0.6, 0.97}, 8);
        const Machine machine{0.08, 0.12, 0.05};
        const double informed = simulate(text, machine, -1, 8).speed;
        EXPECT_GT(simulate(text, machine, -1, 8, mistake).speed, 0.93 * informed) << mistake;
    }
}

TEST(Controller, ReturnsAfterAHardStretch) {
    Text text = make_text({0.03}, 5);
    const Text easy = make_text({0.95}, 6);
    for (std::size_t t = 2000; t < text.accepted.size(); ++t) {
        text.accepted[t] = easy.accepted[t];
        text.margins[t] = easy.margins[t];
    }
    const Machine machine{0.08, 0.08, 0.05};
    const Outcome found = simulate(text, machine, -1, 7);
    // 2000 tokens at plain speed and 4000 at no less than twice that.
    EXPECT_GT(found.speed, 6000.0 / (2000.0 / 0.95 + 4000.0 / 2.0));
}

}  // namespace
}  // namespace foresay::test
