// plugins/host/check_subject.h: a sampler under test: a vocabulary that is made up, its stage, and what it answers.
//
// What a sampler is handed ends where readable memory ends, so reading or writing beyond it is a crash.
//
// Threads:  a Subject is used as a stage is: by several threads, each with its own state.
// Errors:   Error where the sampler refuses its parameters, or a text.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "samplers/stage.h"

namespace foresay::plugins {

// Tokens that look like those of a model: bytes, pieces of words and of code, two control tokens, one of which ends a
// text. The same in every process.
class CheckVocabulary : public samplers::Vocabulary {
public:
    explicit CheckVocabulary(std::int32_t size);
    std::int32_t size() const override { return static_cast<std::int32_t>(texts_.size()); }
    std::string_view text(std::int32_t id) const override;
    std::int32_t find(std::string_view text) const override;
    bool ends_text(std::int32_t id) const override { return id == end_; }
    std::string_view control_text(std::int32_t id) const override;
    std::int32_t find_control(std::string_view name) const override;
    std::optional<std::vector<std::int32_t>> tokens(std::string_view text) const override;
    std::string_view model_name() const override { return "made up for a check"; }

private:
    std::vector<std::string> texts_;
    std::unordered_map<std::string_view, std::int32_t> by_text_;  // of texts_
    std::int32_t end_ = -1, call_ = -1;
};

// A check that says nothing about this sampler, and why.
struct NotApplicable {
    std::string why;
};

// What a stage says about one row, by each function that it has.
struct Answer {
    std::string wrong;                                      // how a function failed; empty: none did
    std::vector<std::pair<std::int32_t, float>> processed;  // what process() leaves, by id
    std::vector<std::uint8_t> tested;                       // of the row's ids
    std::vector<std::uint32_t> masked;
    bool operator==(const Answer&) const = default;
};

struct Row {
    std::vector<std::int32_t> ids;  // best first
    std::vector<float> logits;
};

// Where a row stands.
struct Place {
    std::uint64_t seed = 1;
    std::uint64_t branch = 0;
    std::vector<std::int32_t> history;
    std::size_t answer = 0;
};

class Subject {
public:
    Subject(std::shared_ptr<const samplers::StageFactory> factory, const samplers::Parameters& stated,
            std::int32_t vocabulary);
    Subject(const Subject&) = delete;
    Subject& operator=(const Subject&) = delete;
    // Another instance over the same vocabulary.
    void make_again();

    const samplers::StageTraits& traits() const { return factory_->description().traits; }
    const CheckVocabulary& vocabulary() const { return vocabulary_; }
    const samplers::Stage& stage() const { return *stage_; }
    bool steps() const { return stage_->kind() == samplers::StageKind::step; }
    bool processes() const;  // a step, too, transforms candidates
    bool tests() const { return stage_->tests(); }
    bool masks() const { return stage_->kind() == samplers::StageKind::mask; }
    bool stateful() const { return traits().memory != samplers::StageMemory::stateless; }

    std::unique_ptr<samplers::StageState> begin(const Place& place) const;
    samplers::StageContext context(const Place& place) const;
    // The row that the stage would see, by a made-up model: all tokens, or the best ones, at most `most`.
    Row row(std::mt19937_64& random, std::int32_t most = 1 << 30) const;
    // Throws NotApplicable where the stage's parameters switch it off.
    Answer answer(const samplers::StageState* state, const Place& place, const Row& row) const;
    // A token that the answer lets through and that does not end the text; -1: there is none.
    std::int32_t pick(const Answer& answer, const Row& row, std::mt19937_64& random) const;
    void accept(samplers::StageState* state, Place& place, std::int32_t token, bool supposed = false) const;
    // A prompt.
    Place place(std::mt19937_64& random) const;
    // Writes a text of at most `steps` tokens and returns all answers. Throws Error where the sampler fails.
    std::vector<Answer> walk(std::uint64_t seed, int steps) const;

private:
    std::string_view ask_process(const samplers::StageState* state, const samplers::StageContext& context,
                                 const Row& row, Answer& answer) const;

    std::shared_ptr<const samplers::StageFactory> factory_;
    std::vector<samplers::ParameterValue> parameters_;
    CheckVocabulary vocabulary_;
    std::unique_ptr<samplers::Stage> stage_;
};

}  // namespace foresay::plugins
