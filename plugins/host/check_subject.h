// plugins/host/check_subject.h: a sampler under test: a vocabulary that is made
// up, its stage, and what it answers.
#pragma once

#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "samplers/stage.h"

namespace foresay::plugins {

// Tokens that look like those of a model: bytes, pieces of words and of code,
// two control tokens, one of which ends a text. The same for every process.
class CheckVocabulary : public samplers::Vocabulary {
public:
  explicit CheckVocabulary(std::int32_t size);
  std::int32_t size() const override {
    return static_cast<std::int32_t>(texts_.size());
  }
  std::string_view text(std::int32_t id) const override;
  std::int32_t find(std::string_view text) const override;
  bool ends_text(std::int32_t id) const override { return id == end_; }
  std::string_view control_text(std::int32_t id) const override;
  std::int32_t find_control(std::string_view name) const override;
  std::optional<std::vector<std::int32_t>>
  tokens(std::string_view text) const override;
  std::string_view model_name() const override { return "made up for a check"; }

private:
  std::vector<std::string> texts_;
  std::int32_t end_ = -1, call_ = -1;
};

// What a stage says about one row, by each function that it has; `wrong` where
// one fails.
struct Answer {
  std::string wrong;
  std::vector<std::pair<std::int32_t, float>>
      processed;                    // what process() leaves, by id
  std::vector<std::uint8_t> tested; // of the row's ids
  std::vector<std::uint32_t> masked;
  bool operator==(const Answer &) const = default;
};

struct Row {
  std::vector<std::int32_t> ids; // best first
  std::vector<float> logits;
};

// Where a row stands.
struct Place {
  std::uint64_t seed = 1;
  std::uint64_t branch = 0;
  std::vector<std::int32_t> history;
  std::size_t answer = 0;
  samplers::Phase phase = samplers::Phase::decide;
};

class Subject {
public:
  Subject(std::shared_ptr<const samplers::StageFactory> factory,
          const samplers::Parameters &stated, std::int32_t vocabulary);
  // Another instance over the same vocabulary.
  void make_again();

  const samplers::StageTraits &traits() const {
    return factory_->description().traits;
  }
  const samplers::StageDescription &description() const {
    return factory_->description();
  }
  const CheckVocabulary &vocabulary() const { return vocabulary_; }
  const samplers::Stage &stage() const { return *stage_; }
  bool processes() const;
  bool tests() const { return stage_->tests(); }
  bool masks() const { return stage_->kind() == samplers::StageKind::mask; }
  bool stateful() const {
    return traits().memory != samplers::StageMemory::stateless;
  }

  std::unique_ptr<samplers::StageState> begin(const Place &place) const;
  // The row that the stage would see: all tokens or the best ones, by a made-up
  // model.
  Row row(std::mt19937_64 &random, std::int32_t most = 1 << 30) const;
  Answer answer(const samplers::StageState *state, const Place &place,
                const Row &row) const;
  // A token that the answer lets through, and is not the end of the text.
  std::int32_t pick(const Answer &answer, const Row &row,
                    std::mt19937_64 &random) const;
  void accept(samplers::StageState *state, Place &place, std::int32_t token,
              bool supposed = false) const;
  // A prompt and a few tokens of an answer.
  Place place(std::mt19937_64 &random) const;
  // Walks a text of `steps` tokens and returns all answers. Throws Error where
  // the sampler fails.
  std::vector<Answer> walk(std::uint64_t seed, int steps) const;

private:
  std::shared_ptr<const samplers::StageFactory> factory_;
  std::vector<samplers::ParameterValue> parameters_;
  CheckVocabulary vocabulary_;
  std::unique_ptr<samplers::Stage> stage_;
};

} // namespace foresay::plugins
