#include "speculative/drafters/ngram_drafter.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

#include "core/config/schema.h"
#include "speculative/drafters/drafters.h"

namespace foresay::speculative {
namespace {

constexpr std::int32_t kLongest = 32;  // tokens compared: longer matches count as equal
constexpr int kMostPlaces = 64;        // earlier places compared per search
constexpr std::int32_t kMostReserved = 1 << 20;

// Chance by length of the match: the prior, its weight in observations, and the decay of old observations.
constexpr int kBins = 8;
constexpr std::int32_t kBinStart[kBins] = {1, 2, 3, 4, 5, 7, 10, 16};
constexpr double kPrior[kBins] = {0.35, 0.5, 0.6, 0.7, 0.75, 0.8, 0.88, 0.93};
constexpr double kPriorWeight = 6.0;
constexpr double kDecay = 0.99;
// A common shift of the odds follows the last lines: how far one surprise moves it, and the power of it that each
// observation keeps.
constexpr double kTiltRate = 0.25;
constexpr double kTiltMemory = 0.95;

std::size_t bin_of(std::int32_t length) {
    std::size_t bin = 0;
    while (bin + 1 < kBins && length >= kBinStart[bin + 1]) ++bin;
    return bin;
}

// Positions by a hash of the `Order` tokens before them, the latest first.
template <int Order>
class Places {
public:
    void reserve(std::size_t capacity) {
        previous_.reserve(capacity + 1);
        latest_.assign(std::bit_ceil(std::max<std::size_t>(capacity, 1024)), -1);
    }
    // The next position is previous_.size(); `tokens` are those before it.
    void push(std::span<const std::int32_t> tokens) {
        if (tokens.size() < Order) {
            previous_.push_back(-1);
            return;
        }
        std::int32_t& latest = latest_[slot(tokens)];
        previous_.push_back(latest);
        latest = static_cast<std::int32_t>(previous_.size()) - 1;
    }
    // Removes the last position; `tokens` are those before it.
    void pop(std::span<const std::int32_t> tokens) {
        if (tokens.size() >= Order) latest_[slot(tokens)] = previous_.back();
        previous_.pop_back();
    }
    std::int32_t latest(std::span<const std::int32_t> tokens) const {
        return tokens.size() < Order ? -1 : latest_[slot(tokens)];
    }
    std::int32_t before(std::int32_t position) const { return previous_[static_cast<std::size_t>(position)]; }

private:
    std::size_t slot(std::span<const std::int32_t> tokens) const {
        std::uint64_t hash = 0;
        for (std::size_t i = tokens.size() - Order; i < tokens.size(); ++i) {
            hash = (hash ^ static_cast<std::uint32_t>(tokens[i])) * 0x9e3779b97f4a7c15u;
        }
        return static_cast<std::size_t>(hash >> 32) & (latest_.size() - 1);
    }
    std::vector<std::int32_t> latest_;    // by hash, -1: none
    std::vector<std::int32_t> previous_;  // by position
};

class NgramDrafter final : public Drafter {
public:
    NgramDrafter(std::int32_t capacity, std::string name) : name_(std::move(name)) {
        const std::size_t most = static_cast<std::size_t>(std::clamp(capacity, 1, kMostReserved));
        text_.reserve(most + core::kMaxDraft);
        singles_.reserve(most);
        pairs_.reserve(most);
    }

    std::string_view name() const override { return name_; }
    bool is_lookup() const override { return true; }

    void begin(std::span<const std::int32_t> tokens) override {
        forget_draft();
        const auto same = std::ranges::mismatch(text_, tokens).in1 - text_.begin();
        rewind(static_cast<std::int32_t>(same));
        follow(tokens);
    }

    void rewind(std::int32_t length) override {
        forget_draft();
        if (length < 0 || length >= std::ssize(text_)) return;
        while (std::ssize(text_) > length) {
            text_.pop_back();
            singles_.pop(text_);
            pairs_.pop(text_);
        }
        followed_ = search();
    }

    Proposal look_up(std::span<const std::int32_t> sequence, std::span<const std::int32_t> draft) override {
        if (sequence.size() + static_cast<std::size_t>(drafted_) != text_.size()) {
            forget_draft();
            follow(sequence);
        }
        if (static_cast<std::size_t>(drafted_) > draft.size()) forget_draft();
        while (static_cast<std::size_t>(drafted_) < draft.size()) {
            const std::int32_t token = draft[static_cast<std::size_t>(drafted_)];
            const bool right = place_.length > 0 && at(place_) == token;
            text_.push_back(token);
            ++drafted_;
            place_ = right ? Place{place_.position + 1, place_.length + 1} : search();
        }
        if (place_.length == 0) return {};
        return {.token = at(place_), .chance = chance(place_.length), .length = place_.length};
    }

    void propose(const DraftTask& task, DraftedTokens& draft) override {
        while (std::ssize(draft.tokens) < task.max_tokens) {
            const Proposal next = look_up(task.tokens, draft.tokens);
            if (next.token < 0) return;
            draft.tokens.push_back(next.token);
            draft.margins.push_back(static_cast<float>(next.length));
            if (std::ranges::find(task.end_tokens, next.token) != task.end_tokens.end()) return;
            const std::int32_t count = static_cast<std::int32_t>(draft.tokens.size());
            if (task.stop_rule != nullptr && !task.stop_rule->keep_drafting(count, draft.margins.back())) return;
        }
    }

private:
    // An earlier occurrence of the text's last tokens: the position after it, and how many tokens are equal.
    struct Place {
        std::int32_t position = 0;
        std::int32_t length = 0;  // 0: none
    };

    std::int32_t at(Place place) const { return text_[static_cast<std::size_t>(place.position)]; }

    double chance(std::int32_t length) const {
        const std::size_t bin = bin_of(length);
        const double rate = (hits_[bin] + kPrior[bin] * kPriorWeight) / (total_[bin] + kPriorWeight);
        return rate * tilt_ / (rate * tilt_ + 1.0 - rate);
    }

    void learn(std::int32_t length, bool right) {
        const std::size_t bin = bin_of(length);
        const double error = (right ? 1.0 : 0.0) - chance(length);
        tilt_ = std::clamp(std::pow(tilt_, kTiltMemory) * std::exp(kTiltRate * error), 0.1, 10.0);
        hits_[bin] = hits_[bin] * kDecay + (right ? 1.0 : 0.0);
        total_[bin] = total_[bin] * kDecay + 1.0;
    }

    // Appends the tokens that the sequence has gained and learns from them. Call forget_draft() first.
    void follow(std::span<const std::int32_t> sequence) {
        if (sequence.size() < text_.size()) rewind(static_cast<std::int32_t>(sequence.size()));
        for (const std::int32_t token : sequence.subspan(text_.size())) {
            const bool right = followed_.length > 0 && at(followed_) == token;
            if (followed_.length > 0) learn(followed_.length, right);
            singles_.push(text_);
            pairs_.push(text_);
            text_.push_back(token);
            followed_ = right ? Place{followed_.position + 1, followed_.length + 1} : search();
        }
        place_ = followed_;
    }

    void forget_draft() {
        text_.resize(text_.size() - static_cast<std::size_t>(drafted_));
        drafted_ = 0;
        place_ = followed_;
    }

    // The tables hold positions of the sequence only, not of the draft, so text_ has a token at each.
    Place search() const {
        const Place best = longest(pairs_);
        return best.length > 0 ? best : longest(singles_);
    }

    template <class Table>
    Place longest(const Table& table) const {
        Place best;
        const std::int32_t end = static_cast<std::int32_t>(text_.size());
        std::int32_t position = table.latest(text_);
        for (int seen = 0; position > 0 && seen < kMostPlaces; ++seen, position = table.before(position)) {
            std::int32_t length = 0;
            while (length < std::min(position, kLongest) && text_[static_cast<std::size_t>(position - 1 - length)] ==
                                                                text_[static_cast<std::size_t>(end - 1 - length)]) {
                ++length;
            }
            if (length > best.length) best = {position, length};
            if (length == kLongest) break;
        }
        return best;
    }

    std::string name_;
    std::vector<std::int32_t> text_;  // the sequence, then drafted_ tokens of the draft
    std::int32_t drafted_ = 0;
    Places<1> singles_;
    Places<2> pairs_;
    Place followed_;     // at the end of the sequence
    Place place_;        // at the end of the draft
    double tilt_ = 1.0;  // multiplies the odds
    std::array<double, kBins> hits_{};
    std::array<double, kBins> total_{};
};

}  // namespace

std::unique_ptr<Drafter> make_ngram_drafter(std::int32_t capacity, std::string name) {
    return std::make_unique<NgramDrafter>(capacity, std::move(name));
}

DrafterKind ngram_drafter_kind() {
    return {.name = "ngram",
            .doc = "n-gram lookup in the text so far",
            .aliases = {"suffix"},
            .needs_draft_model = false,
            .make = [](const DrafterParts& parts) { return make_ngram_drafter(parts.context_length, "ngram"); }};
}

}  // namespace foresay::speculative
