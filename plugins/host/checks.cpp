// The checks of what a sampler answers.
#include "plugins/host/checks.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <unordered_map>

#include "base/error.h"
#include "samplers/chain.h"

namespace foresay::plugins {
namespace {

using samplers::StageMemory;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

std::string at_step(std::size_t step) { return " (step " + std::to_string(step + 1) + ")"; }

// Where two walks of the same text differ first; empty: they do not.
std::string difference(const std::vector<Answer>& one, const std::vector<Answer>& other) {
    const auto [a, b] = std::ranges::mismatch(one, other);
    if (a == one.end() && b == other.end()) return {};
    return at_step(static_cast<std::size_t>(a - one.begin()));
}

bool bit_of(const Answer& answer, std::int32_t id) {
    return (answer.masked[static_cast<std::size_t>(id) / 32] >> (id % 32) & 1u) != 0;
}

// Writes a text: calls look(state, place, row, answer, step) for each token until it finds something wrong, or no token
// may follow.
template <typename Look>
std::string write_text(const Subject& subject, std::mt19937_64& random, Look&& look, std::int32_t most = 1 << 30) {
    Place at = subject.place(random);
    const auto state = subject.begin(at);
    for (std::size_t step = 0; step < kCheckSteps; ++step) {
        const Row row = subject.row(random, most);
        const Answer answer = subject.answer(state.get(), at, row);
        if (!answer.wrong.empty()) return answer.wrong;
        if (const std::string wrong = look(state.get(), at, row, answer); !wrong.empty()) return wrong + at_step(step);
        const std::int32_t token = subject.pick(answer, row, random);
        if (token < 0) break;
        subject.accept(state.get(), at, token);
    }
    return {};
}

// Smaller vocabularies than any model's may be refused, with a reason.
std::string vocabularies(const CheckInput& input) {
    for (const std::int32_t size : {1, 257, 128256}) {
        const std::string where = "with a vocabulary of " + std::to_string(size) + " tokens: ";
        try {
            const Subject subject = input.subject(size);
            std::mt19937_64 random(input.seed);
            const Place at = subject.place(random);
            const auto state = subject.begin(at);
            subject.answer(state.get(), at, subject.row(random));
        } catch (const Error& error) {
            const std::string_view why = error.what();
            if (size > 257 || why.find("gave no reason") != why.npos) return where + error.what();
        }
    }
    return {};
}

// What process() may make of a row.
std::string bounds_of(const Subject& subject, const Row& row, const Answer& answer) {
    std::unordered_map<std::int32_t, float> given;
    if (subject.processes()) {
        for (std::size_t i = 0; i < row.ids.size(); ++i) given.emplace(row.ids[i], row.logits[i]);
    }
    for (std::size_t i = 0; i < answer.processed.size(); ++i) {
        const auto [id, logit] = answer.processed[i];
        const auto at = given.find(id);
        if (at == given.end()) return "process() returns a token that it was not given";
        if (i > 0 && answer.processed[i - 1].first == id) return "process() returns one token twice";
        if (std::isnan(logit) || logit == kInfinity)
            return "process() returns a logit that is not a number, or infinite";
        if (subject.traits().masks_only && logit != at->second)
            return "process() changes a logit, though the sampler declares that it only masks";
    }
    if (subject.processes() && answer.processed.empty()) return "process() leaves no token";
    if (std::ranges::any_of(answer.tested, [](std::uint8_t verdict) { return verdict > 1; }))
        return "test() answers neither 0 nor 1";
    if (subject.masks() && std::ranges::all_of(answer.masked, [](std::uint32_t word) { return word == 0; }))
        return "mask() leaves no token";
    return {};
}

std::string bounds(const CheckInput& input) {
    const Subject subject = input.subject();
    std::mt19937_64 random(input.seed);
    for (int text = 0; text < 8; ++text) {
        const std::string wrong =
            write_text(subject, random, [&](const auto*, const Place&, const Row& row, const Answer& answer) {
                return bounds_of(subject, row, answer);
            });
        if (!wrong.empty()) return wrong;
    }
    return {};
}

// The only candidate may be ruled out, as long as that is said: a sampler fails, or leaves none.
std::string small_rows(const CheckInput& input) {
    const Subject subject = input.subject();
    std::mt19937_64 random(input.seed);
    const Place at = subject.place(random);
    const auto state = subject.begin(at);
    if (subject.tests()) {
        const std::string_view wrong = subject.stage().test(state.get(), subject.context(at), {}, {});
        if (!wrong.empty()) return "test() of no ids fails: " + std::string(wrong);
    }
    for (int round = 0; round < 40; ++round) {
        Row row = subject.row(random, 1 + round % 2);
        if (round % 4 == 3) row.logits.assign(row.logits.size(), -3.0e38f);
        const Answer answer = subject.answer(state.get(), at, row);
        if (answer.wrong.find("gave no reason") != std::string::npos) return answer.wrong;
        if (!answer.wrong.empty()) continue;
        for (const auto& [id, logit] : answer.processed) {
            if (std::ranges::find(row.ids, id) == row.ids.end())
                return "of a row of " + std::to_string(row.ids.size()) +
                       ", process() returns a token that was not in it";
            if (std::isnan(logit) || logit == kInfinity)
                return "of a row of " + std::to_string(row.ids.size()) +
                       ", process() returns a logit that is not a number, or infinite";
        }
    }
    return {};
}

std::string same_again(const CheckInput& input) {
    const Subject subject = input.subject();
    std::mt19937_64 random(input.seed);
    return write_text(subject, random,
                      [&](const auto* state, const Place& at, const Row& row, const Answer& answer) -> std::string {
                          for (int again = 0; again < 3; ++again) {
                              if (subject.answer(state, at, row) != answer)
                                  return "asked again about the same row, it gives another answer";
                          }
                          return {};
                      });
}

// A state depends on its own text alone: what other states, instances and texts did before must not show.
std::string alone(const CheckInput& input) {
    Subject subject = input.subject();
    const std::vector<Answer> first = subject.walk(input.seed, kCheckSteps);
    subject.walk(input.seed + 1, kCheckSteps);
    subject.walk(input.seed + 2, 3);
    std::string at = difference(first, subject.walk(input.seed, kCheckSteps));
    if (!at.empty()) return "after other texts, it answers differently about the same one" + at;
    subject.make_again();
    at = difference(first, subject.walk(input.seed, kCheckSteps));
    return at.empty() ? at : "another instance with the same parameters answers differently" + at;
}

std::string memory_of_text(const Subject& subject, std::mt19937_64& random) {
    Place walked = subject.place(random);
    const auto state = subject.begin(walked);
    const auto supposing = subject.begin(walked);
    Place supposed = walked;
    Row row;
    for (std::size_t step = 0; step < kCheckSteps; ++step) {
        row = subject.row(random);
        const Answer answer = subject.answer(state.get(), walked, row);
        if (!answer.wrong.empty()) return answer.wrong;
        if (subject.traits().memory == StageMemory::history) {
            const auto begun = subject.begin(walked);
            if (subject.answer(begun.get(), walked, row) != answer)
                return "a state that began with the text answers differently from one that accepted it" + at_step(step);
            if (subject.answer(supposing.get(), supposed, row) != answer)
                return "a state depends on whether tokens were drawn or supposed, and declares only the tokens" +
                       at_step(step);
        }
        const std::int32_t token = subject.pick(answer, row, random);
        if (token < 0) break;
        subject.accept(state.get(), walked, token);
        subject.accept(supposing.get(), supposed, token, true);
    }
    // Begun again, it has forgotten.
    const Place again = subject.place(random);
    const std::string_view wrong = state->begin(again.history, again.answer);
    if (!wrong.empty()) return "state_begin() fails: " + std::string(wrong);
    const auto fresh = subject.begin(again);
    if (subject.answer(state.get(), again, row) != subject.answer(fresh.get(), again, row))
        return "a state that begins again remembers the text before";
    return {};
}

std::string memory(const CheckInput& input) {
    const Subject subject = input.subject();
    if (!subject.stateful()) throw NotApplicable{"it has no state"};
    std::mt19937_64 random(input.seed);
    for (int text = 0; text < 6; ++text) {
        if (std::string wrong = memory_of_text(subject, random); !wrong.empty()) return wrong;
    }
    return {};
}

std::string clones(const CheckInput& input) {
    const Subject subject = input.subject();
    if (!subject.stateful()) throw NotApplicable{"it has no state"};
    if (!subject.traits().clonable) throw NotApplicable{"its state cannot be copied, so the draft does without it"};
    std::mt19937_64 random(input.seed);
    const auto clone = subject.begin({});
    return write_text(subject, random,
                      [&](const auto* state, const Place& at, const Row& row, const Answer& answer) -> std::string {
                          const std::string_view wrong = clone->copy(*state);
                          if (!wrong.empty()) return "state_copy() fails: " + std::string(wrong);
                          Place ahead = at;
                          if (subject.answer(clone.get(), ahead, row) != answer) return "a copy answers differently";
                          for (int more = 0; more < 3; ++more) {
                              const Row next = subject.row(random);
                              const Answer guess = subject.answer(clone.get(), ahead, next);
                              const std::int32_t token = subject.pick(guess, next, random);
                              if (token < 0) break;
                              subject.accept(clone.get(), ahead, token, true);
                          }
                          if (subject.answer(state, at, row) != answer)
                              return "what a copy accepts changes the original: they share memory";
                          return {};
                      });
}

std::string judged_alone(const CheckInput& input) {
    const Subject subject = input.subject();
    if (!subject.tests()) throw NotApplicable{"it has no test()"};
    std::mt19937_64 random(input.seed);
    return write_text(
        subject, random,
        [&](const auto* state, const Place& at, const Row& row, const Answer& answer) -> std::string {
            Row turned = row;
            std::ranges::reverse(turned.ids);
            Answer other = subject.answer(state, at, turned);
            std::ranges::reverse(other.tested);
            if (other.tested != answer.tested) return "test() depends on the order of the ids";
            for (std::size_t i = 0; i < row.ids.size(); i += 7) {
                const Row one{{row.ids[i]}, {1.0f}};
                if (subject.answer(state, at, one).tested[0] != answer.tested[i])
                    return "test() depends on the other ids that it is asked about";
            }
            return {};
        },
        64);
}

std::string agreement(const CheckInput& input) {
    const Subject subject = input.subject(500);
    if (static_cast<int>(subject.tests()) + static_cast<int>(subject.masks()) + static_cast<int>(subject.processes()) <
        2)
        throw NotApplicable{"it has one of process(), test() and mask()"};
    std::mt19937_64 random(input.seed);
    return write_text(
        subject, random, [&](const auto*, const Place&, const Row& row, const Answer& answer) -> std::string {
            for (std::size_t i = 0; i < row.ids.size(); ++i) {
                const std::int32_t id = row.ids[i];
                const std::string about = " disagree about token " + std::to_string(id);
                const bool bit = subject.masks() && bit_of(answer, id);
                const bool kept = subject.tests() && answer.tested[i] == 1;
                if (subject.masks() && subject.tests() && bit != kept) return "test() and mask()" + about;
                if (!subject.processes()) continue;
                const bool left =
                    std::ranges::binary_search(answer.processed, id, {}, [](const auto& one) { return one.first; });
                if (subject.masks() && bit != left) return "process() and mask()" + about;
                if (subject.tests() && kept != left) return "process() and test()" + about;
            }
            return {};
        });
}

// Random numbers where they are declared, and nowhere else.
std::string randomness(const CheckInput& input) {
    const Subject subject = input.subject();
    if (subject.traits().randomised) throw NotApplicable{"it declares that it is randomised"};
    std::mt19937_64 random(input.seed);
    return write_text(subject, random,
                      [&](const auto* state, const Place& at, const Row& row, const Answer& answer) -> std::string {
                          for (std::uint64_t other = 1; other < 5; ++other) {
                              Place elsewhere = at;
                              elsewhere.seed += other * 7919;
                              elsewhere.branch = other % 2;
                              if (subject.answer(state, elsewhere, row) != answer)
                                  return "it depends on the seed, and does not declare that it is randomised";
                          }
                          return {};
                      });
}

// A toy model: the row that follows the last tokens of a text.
std::vector<float> toy_row(std::uint64_t seed, std::span<const std::int32_t> text) {
    std::uint64_t mixed = seed + text.size();
    for (const std::int32_t token : text.last(std::min<std::size_t>(text.size(), 3)))
        mixed = (mixed ^ static_cast<std::uint64_t>(token)) * 0x9e3779b97f4a7c15u;
    std::mt19937_64 model(mixed);
    std::vector<float> row(400);
    for (float& logit : row) logit = static_cast<float>(model() % 10000) * 0.0012f;
    return row;
}

// Guesses at random, half of them those of a draft that is as good as the model.
std::vector<std::int32_t> guesses(samplers::DraftChain& draft, const samplers::Chain& chain, std::uint64_t seed,
                                  std::mt19937_64& random) {
    draft.start(chain);
    std::vector<std::int32_t> drafted;
    std::vector<std::int32_t> ahead(chain.history().begin(), chain.history().end());
    for (std::size_t left = random() % 6; left > 0; --left) {
        std::vector<float> row = toy_row(seed, ahead);
        const bool wild = random() % 4 == 0;
        const std::int32_t token =
            wild ? static_cast<std::int32_t>(random() % row.size()) : draft.propose(std::span<float>(row)).token;
        if (token < 0) break;
        drafted.push_back(token);
        ahead.push_back(token);
        draft.advance(token);
    }
    return drafted;
}

// The text that the chain writes, token by token, and the failure that ends it, if any.
std::string written(const samplers::ChainSpec& spec, const CheckVocabulary& vocabulary, std::uint64_t seed,
                    bool speculates) {
    constexpr std::size_t kTokens = 100;
    std::mt19937_64 random(seed + 99);
    samplers::Chain chain(spec, vocabulary);
    samplers::DraftChain draft;
    chain.begin(seed, 1, std::vector<std::int32_t>{40, 41, 42}, kTokens + 1);
    std::string out;
    while (chain.history().size() < kTokens) {
        const std::vector<std::int32_t> drafted =
            speculates ? guesses(draft, chain, seed, random) : std::vector<std::int32_t>();
        for (std::size_t at = 0; at <= drafted.size() && chain.history().size() < kTokens; ++at) {
            std::vector<float> row = toy_row(seed, chain.history());
            const samplers::Decision decision = chain.decide(std::span<float>(row));
            if (decision.failure != nullptr) return out + decision.failure->message + "\n";
            const bool agreed = at < drafted.size() && decision.token == drafted[at];
            chain.accept(decision.token);
            out += std::to_string(decision.token) + "\n";
            if (vocabulary.ends_text(decision.token)) return out;
            if (!agreed) break;
        }
    }
    return out;
}

std::string texts(const CheckInput& input, bool speculates) {
    const CheckVocabulary vocabulary(400);
    const std::string& name = input.factory->description().name;
    samplers::ChainSpec spec = {{name, input.parameters, input.factory, samplers::StageSpec::OnError::stop}};
    if (name != "temperature") spec.push_back({"temperature", {{"value", 0.9}}, nullptr});
    std::string out;
    for (std::uint64_t seed = input.seed; seed < input.seed + 4; ++seed)
        out += written(spec, vocabulary, seed, speculates);
    return out;
}
std::string plain_texts(const CheckInput& input) { return texts(input, false); }
std::string drafted_texts(const CheckInput& input) { return texts(input, true); }

std::string forced_bytes(const CheckInput& input) {
    const Subject subject = input.subject();
    if (!subject.stage().forces()) throw NotApplicable{"it forces nothing"};
    std::mt19937_64 random(input.seed);
    return write_text(subject, random,
                      [&](const auto* state, const Place& at, const Row& row, const Answer& answer) -> std::string {
                          std::string_view bytes;
                          const std::string_view wrong = subject.stage().forced(state, subject.context(at), bytes);
                          if (!wrong.empty()) return "forced() fails: " + std::string(wrong);
                          const std::string must(bytes);
                          const auto fits = [&](std::int32_t id) {
                              const std::string_view text = subject.vocabulary().text(id);
                              return must.empty() || subject.vocabulary().ends_text(id) ||
                                     (!text.empty() && (text.starts_with(must) || must.starts_with(text)));
                          };
                          const std::string other = " allows a token with other bytes than forced() says must come";
                          for (std::size_t i = 0; i < answer.tested.size(); ++i) {
                              if (answer.tested[i] == 1 && !fits(row.ids[i])) return "test()" + other;
                          }
                          for (const auto& [id, logit] : answer.processed) {
                              if (!fits(id)) return "process()" + other;
                          }
                          for (std::int32_t id = 0; subject.masks() && id < subject.vocabulary().size(); ++id) {
                              if (bit_of(answer, id) && !fits(id)) return "mask()" + other;
                          }
                          return {};
                      });
}

// All answers, a number for each.
std::string transcript(const CheckInput& input) {
    const Subject subject = input.subject();
    std::uint64_t hash = 1469598103934665603u;
    const auto add = [&](std::uint64_t value) { hash = (hash ^ value) * 1099511628211u; };
    std::string out;
    for (std::uint64_t seed = input.seed; seed < input.seed + 3; ++seed) {
        for (const Answer& answer : subject.walk(seed, kCheckSteps)) {
            for (const auto& [id, logit] : answer.processed) {
                std::uint32_t bits = 0;
                std::memcpy(&bits, &logit, sizeof bits);
                add(static_cast<std::uint64_t>(id));
                add(bits);
            }
            for (const std::uint8_t verdict : answer.tested) add(verdict);
            for (const std::uint32_t word : answer.masked) add(word);
            out += std::to_string(hash) + "\n";
        }
    }
    return out;
}

constexpr Check kChecks[] = {
    {"vocabularies", "works with vocabularies of 1, 257 and 128,256 tokens", vocabularies},
    {"bounds", "answers only with what it was given, leaves a token, changes logits only where it says so", bounds},
    {"small rows", "takes rows of one or two tokens, and tests of none", small_rows},
    {"same again", "answers the same when asked again", same_again},
    {"alone", "is not changed by other texts and instances", alone},
    {"memory", "remembers what it declares, and nothing else", memory},
    {"clones", "copies states that are equal and independent", clones},
    {"judged alone", "tests each token by itself", judged_alone},
    {"agreement", "says the same with test(), mask() and process()", agreement},
    {"randomness", "depends on the seed only where it declares that", randomness},
    {"elsewhere",
     "answers the same at another address, time, folder and thread",
     nullptr,
     {transcript, transcript, true,
      "it answers differently in another process: it depends on addresses, the clock or the environment"}},
    {"identity",
     "gives the same text with drafts as without",
     nullptr,
     {plain_texts, drafted_texts, false, "with a draft the text is another one"}},
    {"forced", "forces only what must come", forced_bytes},
};

}  // namespace

std::span<const Check> answer_checks() { return kChecks; }

}  // namespace foresay::plugins
