// tests/samplers/support.h: rows, vocabularies and plain references for the samplers' tests.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "kernels/noise.h"
#include "kernels/sampling.h"
#include "samplers/chain.h"

namespace foresay::samplers {

inline constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Ids with made-up texts: "a", "b", ..., "ba", ...
class LetterVocabulary : public Vocabulary {
public:
    explicit LetterVocabulary(std::int32_t size) {
        for (std::int32_t id = 0; id < size; ++id) {
            std::string text;
            for (std::int32_t rest = id; text.empty() || rest > 0; rest /= 26)
                text += static_cast<char>('a' + rest % 26);
            texts_.push_back(text);
        }
    }
    std::int32_t size() const override { return static_cast<std::int32_t>(texts_.size()); }
    std::string_view text(std::int32_t token) const override { return texts_[static_cast<std::size_t>(token)]; }
    std::int32_t find(std::string_view text) const override {
        const auto at = std::find(texts_.begin(), texts_.end(), text);
        return at == texts_.end() ? -1 : static_cast<std::int32_t>(at - texts_.begin());
    }

private:
    std::vector<std::string> texts_;
};

// A row of logits of one of several shapes: bell, peaked, many ties, with holes.
inline std::vector<float> random_row(std::mt19937& random, std::int32_t size) {
    std::normal_distribution<float> bell(0.0f, 2.0f);
    const int shape = static_cast<int>(random() % 4);
    std::vector<float> row(static_cast<std::size_t>(size));
    for (float& x : row) {
        x = bell(random);
        if (shape == 1 && random() % 50 == 0) x += 12.0f;
        if (shape == 2) x = std::round(x);
        if (shape == 3 && random() % 7 == 0) x = random() % 2 ? -kInfinity : std::numeric_limits<float>::quiet_NaN();
    }
    return row;
}

struct Entry {
    std::int32_t id;
    float logit;
    bool operator==(const Entry&) const = default;
};

// All candidates of a row, best first, the plain way.
inline std::vector<Entry> sorted_entries(const std::vector<float>& row, std::int32_t vocab) {
    std::vector<Entry> entries;
    for (std::int32_t id = 0; id < std::min<std::int32_t>(vocab, static_cast<std::int32_t>(row.size())); ++id) {
        const float logit = row[static_cast<std::size_t>(id)];
        if (logit > -kInfinity) entries.push_back({id, std::min(logit, std::numeric_limits<float>::max())});
    }
    std::stable_sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) { return a.logit > b.logit; });
    return entries;
}

// Sampling by its definition: noise for everything.
inline kernels::SampledToken plain_sample(const std::vector<Entry>& entries, const kernels::NoiseKey& key,
                                          bool greedy) {
    kernels::SampledToken sampled;
    float best = -kInfinity, second = -kInfinity;
    for (const Entry& entry : entries) {
        const float score = entry.logit + (greedy ? 0.0f : kernels::gumbel(key, entry.id));
        if (score > best || (score == best && entry.id < sampled.token)) {
            second = best;
            best = score;
            sampled.token = entry.id;
        } else {
            second = std::max(second, score);
        }
    }
    if (sampled.token >= 0) sampled.margin = second > -kInfinity ? best - second : kInfinity;
    return sampled;
}

inline std::vector<Entry> entries_of(const kernels::Candidates& candidates) {
    std::vector<Entry> entries;
    for (std::int32_t i = 0; i < candidates.count; ++i) entries.push_back({candidates.ids[i], candidates.logits[i]});
    return entries;
}

}  // namespace foresay::samplers
