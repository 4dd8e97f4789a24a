// The code that host and device share, without a device: plans prepared for a device and run in its order by plain
// loops choose what sample_row() chooses, and the shared arithmetic does what its comments say.

#include "kernels/cuda/sampling/device_plan.h"

#include <gtest/gtest.h>

#include <bit>
#include <numeric>

#include "kernels/sampling.h"
#include "kernels/sampling_cutoffs.h"
#include "kernels/sampling_steps.h"
#include "tests/samplers/support.h"

namespace foresay::samplers {
namespace {

using namespace kernels;

// ------------------------------------------------------------------------------------------------ device's order

constexpr std::int32_t kGroup = 16;  // ids of one thread in kernels/cuda/sampling/sampling.cu

float stepped(const cuda::DeviceStep& step, const std::uint32_t* words, std::int32_t id, float logit) {
    const std::uint32_t* list = words + step.first;
    if (step.kind == SamplingStepKind::bias) {
        const auto* entry = find_entry(reinterpret_cast<const TokenValue*>(list), step.count, id);
        return entry != nullptr ? logit + entry->value : logit;
    }
    if (step.kind == SamplingStepKind::penalties) {
        const auto* entry = find_entry(reinterpret_cast<const TokenCount*>(list), step.count, id);
        return entry != nullptr ? penalised(logit, step.penalties, entry->count) : logit;
    }
    if (step.kind == SamplingStepKind::mask) return is_allowed(list, step.count, id) ? logit : -positive_infinity();
    return logit / step.temperature;
}

std::vector<std::uint64_t> sorted_keys(const std::vector<Entry>& entries) {
    std::vector<std::uint64_t> keys;
    for (const Entry& entry : entries) {
        if (is_candidate(entry.logit)) keys.push_back(order_key(finite_logit(entry.logit), entry.id));
    }
    std::sort(keys.begin(), keys.end());
    return keys;
}

// The bound by histograms of the upper two bytes, of the largest of each group.
float bound_of_groups(const std::vector<float>& row, std::int32_t vocab, std::int32_t k) {
    std::vector<float> largest;
    for (std::int32_t first = 0; first < vocab; first += kGroup) {
        float top = -positive_infinity();
        for (std::int32_t id = first; id < std::min(first + kGroup, vocab); ++id)
            top = row[static_cast<std::size_t>(id)] > top ? row[static_cast<std::size_t>(id)] : top;
        largest.push_back(top);
    }
    if (static_cast<std::int32_t>(largest.size()) < k) return -FLT_MAX;
    std::uint32_t prefix = 0;
    for (int shift = 24; shift >= 16; shift -= 8) {
        std::int32_t counts[256] = {};
        for (const float value : largest) {
            const std::uint32_t bits = rising_bits(value);
            if (shift == 24 || bits >> 24 == prefix >> 24) ++counts[(bits >> shift) & 255];
        }
        const RankedByte at = kth_largest_byte(counts, k);
        prefix |= static_cast<std::uint32_t>(at.byte) << shift;
        k = at.rank;
    }
    return prefix_bound(prefix);
}

std::vector<Entry> entries_of_keys(const std::vector<std::uint64_t>& keys, std::size_t most) {
    std::vector<Entry> list;
    for (std::size_t i = 0; i < std::min(most, keys.size()); ++i) list.push_back({key_id(keys[i]), key_logit(keys[i])});
    return list;
}

// Neighbours first, as warps merge them by shuffles; `lanes` is a power of two.
Moments merged_lanes(std::vector<Moments> m, std::size_t lanes) {
    m.resize(lanes, Moments::none());
    for (std::size_t offset = 1; offset < lanes; offset *= 2) {
        for (std::size_t lane = 0; lane < lanes; lane += 2 * offset) m[lane] = merged(m[lane], m[lane + offset]);
    }
    return m[0];
}

// In the kernels' order: threads of a warp, warps of a part, parts of a row in portions of 32.
Moments moments_as_device(const std::vector<float>& x, std::int32_t n) {
    constexpr std::int32_t kPart = 512 * kGroup;
    std::vector<Moments> parts;
    for (std::int32_t part = 0; part < n; part += kPart) {
        std::vector<Moments> warps;
        for (std::int32_t warp = part; warp < part + kPart; warp += 32 * kGroup) {
            std::vector<Moments> threads;
            for (std::int32_t first = warp; first < warp + 32 * kGroup; first += kGroup)
                threads.push_back(moments_of(x.data() + std::min(first, n), std::clamp(n - first, 0, kGroup)));
            warps.push_back(merged_lanes(threads, 32));
        }
        parts.push_back(merged_lanes(warps, 32));
    }
    MomentsTree tree;
    for (std::size_t begin = 0; begin < parts.size(); begin += 32) {
        const auto first = parts.begin() + static_cast<std::ptrdiff_t>(begin);
        tree.add(merged_lanes(
            {first, first + static_cast<std::ptrdiff_t>(std::min<std::size_t>(32, parts.size() - begin))}, 32));
    }
    return tree.all();
}

// The steps of kernels/sampling_cutoffs.h. `weights`: of the candidates.
std::vector<Entry> cut_off(const cuda::DeviceStep& step, std::vector<Entry> list,
                           const std::vector<std::uint64_t>& weights) {
    const auto keep = [&](std::size_t count) { list.resize(std::clamp<std::size_t>(count, 1, list.size())); };
    const auto count_leading = [&](std::size_t most, auto holds) {
        std::size_t count = 0;
        while (count < most && holds(count)) ++count;
        return count;
    };
    const float best = list[0].logit;
    const std::size_t count = list.size();
    WeightSums sums;
    for (std::size_t i = count; i-- > 0;) {  // in any order
        sums.weight += weights[i];
        sums.distance += weighed_distance(weights[i], list[i].logit, best);
    }
    if (step.kind == SamplingStepKind::top_n_sigma) {
        std::vector<float> logits;
        for (const Entry& entry : list) logits.push_back(entry.logit);
        const double least = least_within(step.limit, moments_as_device(logits, static_cast<std::int32_t>(count)));
        keep(count_leading(count, [&](std::size_t i) { return is_within(list[i].logit, least); }));
    } else if (step.kind == SamplingStepKind::tfs) {
        if (count < 3) return list;
        std::vector<std::uint64_t> bends;
        for (std::size_t i = 0; i + 2 < count; ++i)
            bends.push_back(bend(weights[i], weights[i + 1], weights[i + 2]) + (i > 0 ? bends[i - 1] : 0));
        if (bends.back() == 0) return list;
        keep(1 +
             count_leading(count - 2, [&](std::size_t i) { return tfs_goes_on(step.limit, bends[i], bends.back()); }));
    } else if (step.kind == SamplingStepKind::typical) {
        std::vector<std::uint64_t> keys;
        for (std::size_t i = 0; i < count; ++i)
            keys.push_back(typical_key(list[i].logit, best, expected_distance(sums), static_cast<std::int32_t>(i)));
        std::sort(keys.begin(), keys.end());
        const std::uint64_t enough = typical_weight(step.limit, sums.weight);
        std::uint64_t reached = 0;
        bool done = false;
        for (const std::uint64_t key : keys) {
            const auto rank = static_cast<std::size_t>(rank_of(key));
            if (done) list[rank].logit = -kInfinity;
            reached += weights[rank];
            done = reached >= enough;
        }
        list = entries_of_keys(sorted_keys(list), count);
    } else if (step.kind == SamplingStepKind::dynatemp || step.kind == SamplingStepKind::smoothing) {
        const float temperature = dynamic_temperature(step.dynatemp, static_cast<std::int32_t>(count), sums);
        for (Entry& entry : list) {
            entry.logit = step.kind == SamplingStepKind::dynatemp ? entry.logit / temperature
                                                                  : smoothed(step.smoothing, entry.logit, best);
        }
        list = entries_of_keys(sorted_keys(list), count);
    } else {
        const double least = least_probability(step, weights[0], sums);
        keep(count_leading(count, [&](std::size_t i) { return is_probable(weights[i], sums.weight, least); }));
    }
    return list;
}

std::vector<Entry> ranked(const cuda::DeviceStep& step, const NoiseKey& key, std::vector<Entry> list) {
    const auto keep = [&](std::size_t count) { list.resize(std::clamp<std::size_t>(count, 1, list.size())); };
    if (list.empty()) return list;
    const auto count_leading = [&](auto holds) {
        std::size_t count = 0;
        while (count < list.size() && holds(count)) ++count;
        return count;
    };
    std::vector<std::uint64_t> sums(list.size());
    for (std::size_t i = 0; i < list.size(); ++i)
        sums[i] = fixed_weight(list[i].logit, list[0].logit) + (i > 0 ? sums[i - 1] : 0);
    if (step.kind == SamplingStepKind::top_k) {
        keep(static_cast<std::size_t>(top_k_count(step.top_k)));
    } else if (step.kind == SamplingStepKind::min_p) {
        const float least = min_p_logit(step.min_p_log, list[0].logit);
        keep(count_leading([&](std::size_t i) { return list[i].logit >= least; }));
    } else if (step.kind == SamplingStepKind::top_p) {
        const std::uint64_t enough = top_p_weight(step.top_p, sums.back());
        keep(1 + count_leading([&](std::size_t i) { return sums[i] < enough; }));
    } else if (step.kind != SamplingStepKind::xtc) {
        std::vector<std::uint64_t> weights;
        for (const Entry& entry : list) weights.push_back(fixed_weight(entry.logit, list[0].logit));
        list = cut_off(step, std::move(list), weights);
    } else if (list.size() > 1 && xtc_acts(step.xtc, key)) {
        const std::size_t likely = count_leading(
            [&](std::size_t i) { return xtc_is_likely(step.xtc, sums[i] - (i > 0 ? sums[i - 1] : 0), sums.back()); });
        if (likely > 1) list.erase(list.begin(), list.begin() + static_cast<std::ptrdiff_t>(likely - 1));
    }
    return list;
}

// What the kernel does with an encoded plan, in its order, one thread at a time.
SampledToken run_as_device(const cuda::DevicePlan& plan, const std::uint32_t* words, std::vector<float> row) {
    const auto at = [&](std::int32_t id) -> float& { return row[static_cast<std::size_t>(id)]; };
    for (std::int32_t step = 0; step < plan.whole; ++step) {
        if (plan.spread == step + 1) {
            const double least = least_within(plan.step[step].limit, moments_as_device(row, plan.vocab));
            for (std::int32_t id = 0; id < plan.vocab; ++id) at(id) = is_within(at(id), least) ? at(id) : -kInfinity;
            continue;
        }
        for (std::int32_t id = 0; id < plan.vocab; ++id) at(id) = stepped(plan.step[step], words, id, at(id));
    }
    const auto score = [&](const Entry& entry) {
        return entry.logit + (plan.greedy != 0 ? 0.0f : gumbel(plan.key, entry.id));
    };
    BestTwo two = BestTwo::none();
    if (plan.keep == 0) {
        // Parts from last to first: merging does not depend on the order.
        for (std::int32_t end = plan.vocab; end > 0; end = (end - 1) / 512 * 512) {
            BestTwo part = BestTwo::none();
            for (std::int32_t id = (end - 1) / 512 * 512; id < end; ++id) {
                if (is_candidate(at(id))) part.add(score({id, finite_logit(at(id))}), id);
            }
            two.merge(part.best, part.second, part.id);
        }
        return {two.id, two.margin()};
    }
    const float bound = bound_of_groups(row, plan.vocab, plan.keep);
    std::vector<Entry> list;
    for (std::int32_t id = 0; id < plan.vocab; ++id) {
        if (at(id) >= bound) list.push_back({id, at(id)});
    }
    list = entries_of_keys(sorted_keys(list), static_cast<std::size_t>(plan.keep));
    for (std::int32_t i = plan.whole; i < plan.steps; ++i) {
        const cuda::DeviceStep& step = plan.step[i];
        if (is_elementwise(step.kind)) {
            for (Entry& entry : list) entry.logit = stepped(step, words, entry.id, entry.logit);
            list = entries_of_keys(sorted_keys(list), list.size());
        } else {
            list = ranked(step, plan.key, std::move(list));
        }
    }
    for (const Entry& entry : list) two.add(score(entry), entry.id);
    return {two.id, two.margin()};
}

// Lists that steps borrow, one set for all.
struct Lists {
    std::vector<TokenValue> values;
    std::vector<TokenCount> counts;
    std::vector<std::uint32_t> bits;
    Lists(std::mt19937& random, std::int32_t vocab) : bits(static_cast<std::size_t>(vocab / 32)) {
        for (std::int32_t id = 0; id < vocab + 40; id += 1 + static_cast<std::int32_t>(random() % 60)) {
            values.push_back({id, static_cast<float>(random() % 800) * 0.01f - 4.0f});
            counts.push_back({id, 1 + static_cast<std::int32_t>(random() % 5)});
        }
        for (std::uint32_t& word : bits) word = static_cast<std::uint32_t>(random() | random());
    }
};

SamplingStep random_step(std::mt19937& random, const Lists& lists) {
    const auto unit = [&] { return static_cast<float>(random() % 1000) * 0.001f; };
    return {.kind = static_cast<SamplingStepKind>(random() % (1 + static_cast<unsigned>(SamplingStepKind::smoothing))),
            .penalties = {.repeat = 0.5f + unit(), .frequency = unit() - 0.3f, .presence = unit()},
            .temperature = 0.05f + 2.0f * unit(),
            .top_k = static_cast<std::uint32_t>(random() % 3 == 0 ? random() : random() % 700),
            .top_p = unit(),
            .min_p_log = -8.0f * unit(),
            .xtc = {.probability = unit(), .threshold = 0.6f * unit(), .stream = static_cast<std::uint32_t>(random())},
            .limit = random() % 2 == 0 ? 0.05 * unit() * unit() : 1.5 * unit(),
            .dynatemp = {.min = 0.1 + unit(), .max = 1.0 + 2.0 * unit(), .exponent = 0.1f + 3.0f * unit()},
            .smoothing = {.factor = unit(), .square = unit(), .cube = unit()},
            .values = lists.values,
            .counts = lists.counts,
            .bits = lists.bits};
}

TEST(DevicePlan, ChoosesWhatTheHostChooses) {
    std::mt19937 random(11);
    SamplingScratch scratch;
    int run = 0, with_cut = 0;
    for (int round = 0; round < 8000; ++round) {
        const std::int32_t length = 1 + static_cast<std::int32_t>(random() % 3000);
        const Lists lists(random, length);
        SamplingPlan plan;
        plan.key = {random(), random() % 3, static_cast<std::uint32_t>(round)};
        plan.vocab = random() % 3 == 0 ? 1 + static_cast<std::int32_t>(random() % 3000) : 0;
        plan.greedy = random() % 4 == 0;
        plan.step_count = static_cast<std::int32_t>(random() % 7);
        for (std::int32_t i = 0; i < plan.step_count; ++i) plan.steps[i] = random_step(random, lists);
        if (random() % 2 == 0) plan.cut = 1 + static_cast<std::int32_t>(random() % kCandidateCut);
        plan.cut_at = static_cast<std::int32_t>(random() % static_cast<unsigned>(plan.step_count + 1));
        if (!cuda::plan_runs(plan, length)) continue;
        ++run;
        std::vector<std::uint32_t> words(static_cast<std::size_t>(cuda::plan_words(plan)) + 3);
        cuda::DevicePlan encoded;
        std::int64_t used = 3;  // as after another plan's lists
        cuda::encode_plan(plan, length, 5, encoded, words.data(), used);
        ASSERT_LE(used, static_cast<std::int64_t>(words.size()));
        ASSERT_EQ(encoded.slot, 5);
        with_cut += encoded.keep > 0 ? 1 : 0;
        std::vector<float> row = random_row(random, length);
        const SampledToken device = run_as_device(encoded, words.data(), row);
        const SampledToken host = sample_row(row, plan, scratch);
        ASSERT_EQ(device.token, host.token) << "round " << round;
        ASSERT_EQ(std::bit_cast<std::uint32_t>(device.margin), std::bit_cast<std::uint32_t>(host.margin));
    }
    EXPECT_GT(run, 1500);
    EXPECT_GT(with_cut, 800);
    EXPECT_GT(run - with_cut, 200);
}

TEST(DevicePlan, RefusesWhatTheDeviceCannotRank) {
    const auto runs = [](std::vector<SamplingStep> steps, std::int32_t cut = 0, std::int32_t cut_at = 0,
                         std::int32_t length = 20000) {
        SamplingPlan plan;
        plan.cut = cut;
        plan.cut_at = cut_at;
        for (const SamplingStep& step : steps) plan.steps[plan.step_count++] = step;
        return cuda::plan_runs(plan, length);
    };
    const SamplingStep warm{.kind = SamplingStepKind::temperature, .temperature = 0.5f};
    const SamplingStep top_p{.kind = SamplingStepKind::top_p, .top_p = 0.5f};
    const SamplingStep few{.kind = SamplingStepKind::top_k, .top_k = 512},
        many{.kind = SamplingStepKind::top_k, .top_k = 513};
    EXPECT_TRUE(runs({}));
    EXPECT_TRUE(runs({warm}));
    EXPECT_TRUE(runs({warm, few, top_p}));
    EXPECT_FALSE(runs({warm, top_p}));     // ranks the whole vocabulary
    EXPECT_FALSE(runs({many}));            // more candidates than threads
    EXPECT_TRUE(runs({many}, 0, 0, 400));  // though not of a small vocabulary
    EXPECT_TRUE(runs({warm, top_p}, 512, 1));
    EXPECT_FALSE(runs({warm, top_p}, 512, 2));  // the cut comes after the ranking
    EXPECT_FALSE(runs({few, top_p}, 40, 2));    // a second cut, to fewer
    EXPECT_TRUE(runs({few, top_p}, 512, 2));
    // A spread is found without ranking, once; after the cut it is like any other step.
    const SamplingStep sigma{.kind = SamplingStepKind::top_n_sigma, .limit = 1.0};
    EXPECT_TRUE(runs({warm, sigma, warm}));
    EXPECT_TRUE(runs({sigma, warm, few, top_p}));
    EXPECT_FALSE(runs({sigma, warm, sigma}));
    EXPECT_TRUE(runs({sigma, few, sigma, sigma}));
    EXPECT_FALSE(runs({sigma, top_p}));
    using Kind = SamplingStepKind;
    for (const Kind kind : {Kind::tfs, Kind::typical, Kind::top_a, Kind::epsilon_cutoff, Kind::eta_cutoff,
                            Kind::dynatemp, Kind::smoothing}) {
        EXPECT_FALSE(runs({warm, {.kind = kind}}));  // of the whole vocabulary
        EXPECT_TRUE(runs({few, {.kind = kind}}));
        EXPECT_FALSE(runs({many, {.kind = kind}}));
        EXPECT_TRUE(runs({sigma, {.kind = kind}}, 512, 1));
    }
}

// ---------------------------------------------------------------------------------------------- shared arithmetic

TEST(SamplingSteps, OrderKeysSortAsCandidatesDo) {
    const float values[] = {-FLT_MAX, -2.0f, -1e-45f, -0.0f, 0.0f, 1e-45f, 1.5f, FLT_MAX};
    for (const float a : values) {
        EXPECT_EQ(value_of_rising(rising_bits(a)), a);
        for (const float b : values) {
            EXPECT_TRUE(!(a < b) || rising_bits(a) < rising_bits(b)) << a << " " << b;
            EXPECT_EQ(order_key(a, 4) < order_key(b, 3), a > b) << a << " " << b;
            EXPECT_EQ(order_key(a, 3) < order_key(b, 4), a >= b) << a << " " << b;
        }
        EXPECT_EQ(key_id(order_key(a, 2147483647)), 2147483647);
        EXPECT_EQ(key_logit(order_key(a, 7)), a);
    }
    EXPECT_FALSE(is_candidate(-kInfinity));
    EXPECT_FALSE(is_candidate(std::numeric_limits<float>::quiet_NaN()));
    EXPECT_TRUE(is_candidate(-FLT_MAX));
    EXPECT_EQ(finite_logit(kInfinity), FLT_MAX);
    EXPECT_EQ(finite_logit(-3.0f), -3.0f);
}

TEST(SamplingSteps, BoundsAreReachedByTheKLargest) {
    std::mt19937 random(12);
    for (int round = 0; round < 300; ++round) {
        std::vector<float> row = random_row(random, 1 + static_cast<std::int32_t>(random() % 600));
        std::erase_if(row, [](float x) { return !is_candidate(x); });
        if (row.empty()) continue;
        const std::int32_t k = 1 + static_cast<std::int32_t>(random() % row.size());
        std::uint32_t prefix = 0;
        std::int32_t rank = k;
        for (int shift = 24; shift >= 16; shift -= 8) {
            std::int32_t counts[256] = {};
            for (const float value : row) {
                if (shift == 24 || rising_bits(value) >> 24 == prefix >> 24)
                    ++counts[(rising_bits(value) >> shift) & 255];
            }
            const RankedByte at = kth_largest_byte(counts, rank);
            prefix |= static_cast<std::uint32_t>(at.byte) << shift;
            rank = at.rank;
        }
        const float bound = prefix_bound(prefix);
        std::sort(row.begin(), row.end(), std::greater<>());
        const float kth = row[static_cast<std::size_t>(k - 1)];
        EXPECT_LE(bound, kth);
        EXPECT_LE(kth - bound, 0.01f * std::abs(kth) + 1e-30f);  // 7 bits of mantissa
    }
    EXPECT_EQ(prefix_bound(rising_bits(-kInfinity) & 0xffff0000u), -FLT_MAX);
}

TEST(SamplingSteps, TwoBestDoNotDependOnTheOrder) {
    std::mt19937 random(13);
    for (int round = 0; round < 300; ++round) {
        std::vector<std::int32_t> ids(1 + random() % 40);
        std::iota(ids.begin(), ids.end(), 0);
        std::vector<float> scores;
        for (std::size_t i = 0; i < ids.size(); ++i) scores.push_back(static_cast<float>(random() % 12));
        const auto best_of = [&] {
            BestTwo all = BestTwo::none(), part = BestTwo::none();
            for (const std::int32_t id : ids) {
                part.add(scores[static_cast<std::size_t>(id)], id);
                if (random() % 3 != 0) continue;
                all.merge(part.best, part.second, part.id);
                part = BestTwo::none();
            }
            all.merge(part.best, part.second, part.id);
            return all;
        };
        std::vector<float> sorted = scores;
        std::sort(sorted.begin(), sorted.end(), std::greater<>());
        const auto first = std::find(scores.begin(), scores.end(), sorted[0]) - scores.begin();
        for (int order = 0; order < 4; ++order) {
            const BestTwo two = best_of();
            ASSERT_EQ(two.id, first);
            ASSERT_EQ(two.best, sorted[0]);
            ASSERT_EQ(two.margin(), ids.size() > 1 ? sorted[0] - sorted[1] : kInfinity);
            std::shuffle(ids.begin(), ids.end(), random);
        }
    }
    EXPECT_EQ(BestTwo::none().margin(), 0.0f);
}

TEST(SamplingSteps, StepsAreTheirFormulas) {
    const TokenCount list[] = {{3, 2}, {7, 1}, {9, 5}};
    for (std::int32_t id = 0; id < 12; ++id) {
        const TokenCount* entry = find_entry(list, 3, id);
        ASSERT_EQ(entry != nullptr, id == 3 || id == 7 || id == 9);
        EXPECT_TRUE(entry == nullptr || entry->token == id);
        EXPECT_EQ(find_entry(list, 0, id), nullptr);
    }
    const std::uint32_t bits[] = {0x80000001u, 0x2u};
    for (std::int32_t id = 0; id < 100; ++id) EXPECT_EQ(is_allowed(bits, 2, id), id == 0 || id == 31 || id == 33);
    const Penalties penalties{.repeat = 2.0f, .frequency = 0.25f, .presence = 1.0f};
    EXPECT_EQ(penalised(3.0f, penalties, 2), 3.0f / 2.0f - 0.5f - 1.0f);
    EXPECT_EQ(penalised(-3.0f, penalties, 2), -3.0f * 2.0f - 0.5f - 1.0f);
    EXPECT_EQ(top_k_count(0), 1);
    EXPECT_EQ(top_k_count(40), 40);
    EXPECT_EQ(top_k_count(~0u), 1 << 30);
    EXPECT_EQ(fixed_weight(1.0f, 1.0f), std::uint64_t{1} << 40);
    EXPECT_EQ(fixed_weight(-200.0f, 1.0f), 0u);
    EXPECT_EQ(log_of_fixed(std::uint64_t{1} << 40), 0.0f);
    EXPECT_EQ(top_p_weight(0.5f, 100), 50u);
    const Xtc xtc{.probability = 1.0f, .threshold = 0.25f, .stream = 1};
    EXPECT_TRUE(xtc_acts(xtc, {}));
    EXPECT_FALSE(xtc_acts({.probability = 1.0f, .threshold = 0.51f, .stream = 1}, {}));
    EXPECT_FALSE(xtc_acts({.probability = 0.0f, .threshold = 0.25f, .stream = 1}, {}));
    EXPECT_TRUE(xtc_is_likely(xtc, 25, 100));
    EXPECT_FALSE(xtc_is_likely(xtc, 24, 100));
}

}  // namespace
}  // namespace foresay::samplers
