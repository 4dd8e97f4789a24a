#include "plugins/host/check_subject.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>

#include "base/error.h"
#include "samplers/plugin_stage.h"

namespace foresay::plugins {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr std::uint32_t kStream = 12345;

std::string made_up_text(std::int32_t id) {
  static constexpr std::array<std::string_view, 16> kPieces = {
      "in", "re", "turn", "the",  "for", "def",  "a", "on",
      "er", "(",  ")",    "self", "\n",  "    ", ".", "x"};
  if (id < 256)
    return std::string(1, static_cast<char>(id));
  std::string text;
  for (auto rest = static_cast<std::size_t>(id); rest > 0;
       rest /= kPieces.size()) {
    text += kPieces[rest % kPieces.size()];
  }
  return id % 3 == 0 ? " " + text : text;
}

} // namespace

CheckVocabulary::CheckVocabulary(std::int32_t size) {
  for (std::int32_t id = 0; id < size; ++id)
    texts_.push_back(made_up_text(id));
  if (size < 4)
    return;
  end_ = size - 1;
  call_ = size - 2;
  texts_[static_cast<std::size_t>(end_)] = "<|end|>";
  texts_[static_cast<std::size_t>(call_)] = "<|call|>";
}

std::string_view CheckVocabulary::text(std::int32_t id) const {
  return id == end_ || id == call_
             ? std::string_view()
             : std::string_view(texts_[static_cast<std::size_t>(id)]);
}
std::string_view CheckVocabulary::control_text(std::int32_t id) const {
  return id == end_ || id == call_
             ? std::string_view(texts_[static_cast<std::size_t>(id)])
             : std::string_view();
}
std::int32_t CheckVocabulary::find(std::string_view wanted) const {
  for (std::int32_t id = 0; id < size(); ++id) {
    if (!wanted.empty() && text(id) == wanted)
      return id;
  }
  return -1;
}
std::int32_t CheckVocabulary::find_control(std::string_view wanted) const {
  for (const std::int32_t id : {end_, call_}) {
    if (id >= 0 && control_text(id) == wanted)
      return id;
  }
  return -1;
}
std::optional<std::vector<std::int32_t>>
CheckVocabulary::tokens(std::string_view wanted) const {
  std::vector<std::int32_t> ids;
  for (const char c : wanted)
    ids.push_back(
        std::min<std::int32_t>(static_cast<std::uint8_t>(c), size() - 1));
  return ids;
}

Subject::Subject(std::shared_ptr<const samplers::StageFactory> factory,
                 const samplers::Parameters &stated, std::int32_t vocabulary)
    : factory_(std::move(factory)), parameters_(samplers::complete_parameters(
                                        factory_->description(), stated)),
      vocabulary_(vocabulary) {
  make_again();
}

void Subject::make_again() {
  stage_.reset();
  stage_ = factory_->create(parameters_, vocabulary_);
}

bool Subject::processes() const { return samplers::has_process(*stage_); }

std::unique_ptr<samplers::StageState> Subject::begin(const Place &place) const {
  std::unique_ptr<samplers::StageState> state = stage_->make_state();
  if (!state)
    return state;
  const std::string_view wrong = state->begin(place.history, place.answer);
  if (!wrong.empty())
    throw Error("a text cannot begin: " + std::string(wrong));
  return state;
}

Row Subject::row(std::mt19937_64 &random, std::int32_t most) const {
  const std::int32_t seen =
      traits().whole_vocabulary ? most : std::min(most, kernels::kCandidateCut);
  std::vector<std::int32_t> all(static_cast<std::size_t>(vocabulary_.size()));
  std::iota(all.begin(), all.end(), 0);
  const auto count = std::min<std::size_t>(
      all.size(), static_cast<std::size_t>(std::max(seen, 1)));
  for (std::size_t i = 0; i < count; ++i)
    std::swap(all[i], all[i + random() % (all.size() - i)]);
  Row row;
  row.ids.assign(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(count));
  float logit = 12.0f;
  for (std::size_t i = 0; i < count; ++i) {
    row.logits.push_back(logit);
    logit -= static_cast<float>(random() % 1000) * 0.002f;
  }
  return row;
}

Answer Subject::answer(const samplers::StageState *state, const Place &place,
                       const Row &row) const {
  const kernels::NoiseKey key{place.seed, place.branch,
                              static_cast<std::uint32_t>(place.history.size())};
  const samplers::StageContext context{place.phase, key, kStream, place.history,
                                       place.answer};
  Answer answer;
  const auto failed = [&](const char *function, std::string_view wrong) {
    if (wrong.empty() || !answer.wrong.empty())
      return;
    answer.wrong = std::string(function) + " fails: " + std::string(wrong);
  };
  if (processes()) {
    Row own = row;
    kernels::Candidates list{own.ids.data(), own.logits.data(),
                             static_cast<std::int32_t>(own.ids.size())};
    failed("process()", stage_->process(state, context, list));
    for (std::int32_t i = 0; i < list.count && answer.wrong.empty(); ++i) {
      const auto at = static_cast<std::size_t>(i);
      if (own.logits[at] != -kInfinity)
        answer.processed.emplace_back(own.ids[at], own.logits[at]);
    }
    std::ranges::sort(answer.processed);
  }
  if (tests()) {
    answer.tested.assign(row.ids.size(), 0);
    failed("test()", stage_->test(state, context, row.ids, answer.tested));
  }
  if (masks()) {
    answer.masked.assign(
        (static_cast<std::size_t>(vocabulary_.size()) + 31) / 32, 0);
    failed("mask()", stage_->mask(state, context, answer.masked));
    const std::size_t beyond = answer.masked.size() * 32 -
                               static_cast<std::size_t>(vocabulary_.size());
    if (!answer.masked.empty())
      answer.masked.back() &= ~0u >> beyond;
  }
  return answer;
}

std::int32_t Subject::pick(const Answer &answer, const Row &row,
                           std::mt19937_64 &random) const {
  std::vector<std::int32_t> allowed;
  const auto add = [&](std::int32_t id) {
    if (!vocabulary_.ends_text(id))
      allowed.push_back(id);
  };
  if (!answer.processed.empty()) {
    for (const auto &[id, logit] : answer.processed)
      add(id);
  } else {
    for (std::size_t i = 0; i < row.ids.size(); ++i) {
      const auto id = static_cast<std::size_t>(row.ids[i]);
      const bool keep = !answer.tested.empty() ? answer.tested[i] == 1
                        : !answer.masked.empty()
                            ? (answer.masked[id / 32] >> (id % 32) & 1u) != 0
                            : false;
      if (keep)
        add(row.ids[i]);
    }
  }
  return allowed.empty() ? -1 : allowed[random() % allowed.size()];
}

void Subject::accept(samplers::StageState *state, Place &place,
                     std::int32_t token, bool supposed) const {
  place.history.push_back(token);
  if (state == nullptr)
    return;
  const bool told =
      traits().memory == samplers::StageMemory::feedback && !supposed;
  const float unknown = std::numeric_limits<float>::quiet_NaN();
  const float probability =
      told ? -0.1f * static_cast<float>(token % 50) : unknown;
  const std::string_view wrong =
      state->accept({token, supposed, probability, probability});
  if (!wrong.empty())
    throw Error("accept() fails: " + std::string(wrong));
}

Place Subject::place(std::mt19937_64 &random) const {
  Place place;
  place.seed = random();
  const std::size_t prompt = random() % 20;
  for (std::size_t i = 0; i < prompt; ++i) {
    place.history.push_back(static_cast<std::int32_t>(
        random() % static_cast<std::uint64_t>(vocabulary_.size())));
  }
  place.answer = prompt;
  return place;
}

std::vector<Answer> Subject::walk(std::uint64_t seed, int steps) const {
  std::mt19937_64 random(seed);
  Place at = place(random);
  const auto state = begin(at);
  std::vector<Answer> answers;
  for (int step = 0; step < steps; ++step) {
    const Row seen = row(random);
    answers.push_back(answer(state.get(), at, seen));
    if (!answers.back().wrong.empty())
      throw Error(answers.back().wrong);
    const std::int32_t token = pick(answers.back(), seen, random);
    if (token < 0)
      break;
    accept(state.get(), at, token);
  }
  return answers;
}

} // namespace foresay::plugins
