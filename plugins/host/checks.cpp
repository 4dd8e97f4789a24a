// The checks of one sampler. Each takes the contract's word for one thing and
// looks whether it is so.
#include "plugins/host/checks.h"

#include <malloc.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <clocale>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <limits>
#include <thread>

#include "base/error.h"
#include "kernels/sampling.h"
#include "plugins/host/process_state.h"
#include "samplers/chain.h"
#include "samplers/plugin_stage.h"

namespace foresay::plugins {
namespace {

using samplers::StageMemory;

constexpr int kSteps = 24;

std::string at_step(std::size_t step) {
  return " (step " + std::to_string(step + 1) + ")";
}

std::string difference(const std::vector<Answer> &one,
                       const std::vector<Answer> &other) {
  const auto [a, b] = std::ranges::mismatch(one, other);
  return a == one.end() && b == other.end()
             ? std::string()
             : at_step(static_cast<std::size_t>(a - one.begin()));
}

std::string made(const CheckInput &input) {
  for (const std::int32_t size : {1, 257, 128256}) {
    try {
      const Subject subject = input.subject(size);
      if (subject.stateful())
        subject.begin({});
    } catch (const Error &error) {
      return "with a vocabulary of " + std::to_string(size) +
             " tokens: " + error.what();
    }
  }
  return {};
}

// What a row may become, and whether candidates are masked only where that is
// declared.
std::string bounds_of(const Subject &subject, const Answer &answer,
                      const Row &row) {
  if (!answer.wrong.empty())
    return answer.wrong;
  for (std::size_t i = 0; i < answer.processed.size(); ++i) {
    const auto [id, logit] = answer.processed[i];
    const auto at = std::ranges::find(row.ids, id);
    if (at == row.ids.end())
      return "process() returns a token that it was not given";
    if (i > 0 && answer.processed[i - 1].first == id)
      return "process() returns one token twice";
    if (std::isnan(logit) || logit == std::numeric_limits<float>::infinity())
      return "process() returns a logit that is not a number, or infinite";
    const float before =
        row.logits[static_cast<std::size_t>(at - row.ids.begin())];
    if (subject.traits().masks_only && logit != before)
      return "process() changes a logit, though the sampler declares that it "
             "only masks";
  }
  if (subject.processes() && answer.processed.empty())
    return "process() leaves no token";
  if (std::ranges::any_of(answer.tested,
                          [](std::uint8_t verdict) { return verdict > 1; }))
    return "test() answers neither 0 nor 1";
  if (subject.masks() &&
      std::ranges::all_of(answer.masked,
                          [](std::uint32_t word) { return word == 0; }))
    return "mask() leaves no token";
  return {};
}

std::string bounds(const CheckInput &input) {
  const Subject subject = input.subject();
  std::mt19937_64 random(input.seed);
  for (int text = 0; text < 8; ++text) {
    Place at = subject.place(random);
    const auto state = subject.begin(at);
    for (int step = 0; step < kSteps; ++step) {
      const Row row = subject.row(random);
      const Answer answer = subject.answer(state.get(), at, row);
      if (std::string wrong = bounds_of(subject, answer, row); !wrong.empty())
        return wrong;
      const std::int32_t token = subject.pick(answer, row, random);
      if (token < 0)
        break;
      subject.accept(state.get(), at, token);
    }
  }
  return {};
}

// Rows of one candidate, of none (a test of no ids), and of equal logits.
std::string small_rows(const CheckInput &input) {
  const Subject subject = input.subject();
  std::mt19937_64 random(input.seed);
  const Place at = subject.place(random);
  const auto state = subject.begin(at);
  if (subject.tests()) {
    const samplers::StageContext context{
        at.phase, {at.seed, 0, 0}, 1, at.history, at.answer};
    const std::string_view wrong =
        subject.stage().test(state.get(), context, {}, {});
    if (!wrong.empty())
      return "test() of no ids fails: " + std::string(wrong);
  }
  for (int round = 0; round < 20; ++round) {
    const Row row = subject.row(random, 1);
    const Answer answer = subject.answer(state.get(), at, row);
    // That the only candidate may not follow is no fault: it may leave none,
    // and must say so.
    if (answer.processed.size() > 1)
      return "process() returns more candidates than it was given";
    for (const auto &[id, logit] : answer.processed) {
      if (id != row.ids[0])
        return "process() returns a token that it was not given";
      if (std::isnan(logit))
        return "process() returns a logit that is not a number";
    }
  }
  return {};
}

std::string same_again(const CheckInput &input) {
  const Subject subject = input.subject();
  std::mt19937_64 random(input.seed);
  Place at = subject.place(random);
  const auto state = subject.begin(at);
  for (std::size_t step = 0; step < kSteps; ++step) {
    const Row row = subject.row(random);
    const Answer answer = subject.answer(state.get(), at, row);
    for (int again = 0; again < 3; ++again) {
      if (subject.answer(state.get(), at, row) != answer)
        return "asked again about the same row, it gives another answer" +
               at_step(step);
    }
    const std::int32_t token = subject.pick(answer, row, random);
    if (token < 0)
      break;
    subject.accept(state.get(), at, token);
  }
  return {};
}

// A state depends on its own text alone: what other states, instances and texts
// did before must not show.
std::string alone(const CheckInput &input) {
  Subject subject = input.subject();
  const std::vector<Answer> first = subject.walk(input.seed, kSteps);
  subject.walk(input.seed + 1, kSteps);
  subject.walk(input.seed + 2, 3);
  std::string at = difference(first, subject.walk(input.seed, kSteps));
  if (!at.empty())
    return "after other texts, it answers differently about the same one" + at;
  subject.make_again();
  at = difference(first, subject.walk(input.seed, kSteps));
  return at.empty()
             ? at
             : "another instance with the same parameters answers differently" +
                   at;
}

std::string memory(const CheckInput &input) {
  const Subject subject = input.subject();
  if (!subject.stateful())
    throw NotApplicable{"it has no state"};
  std::mt19937_64 random(input.seed);
  for (int text = 0; text < 6; ++text) {
    Place walked = subject.place(random);
    const auto state = subject.begin(walked);
    const auto supposing = subject.begin(walked);
    Place supposed = walked;
    std::vector<Row> rows;
    for (std::size_t step = 0; step < kSteps; ++step) {
      rows.push_back(subject.row(random));
      const Answer answer = subject.answer(state.get(), walked, rows.back());
      if (subject.traits().memory == StageMemory::history) {
        const auto begun = subject.begin(walked);
        if (subject.answer(begun.get(), walked, rows.back()) != answer)
          return "a state that began with the text answers differently from "
                 "one that accepted it" +
                 at_step(step);
        if (subject.answer(supposing.get(), supposed, rows.back()) != answer)
          return "a state depends on whether tokens were drawn or supposed, "
                 "and declares only the tokens" +
                 at_step(step);
      }
      const std::int32_t token = subject.pick(answer, rows.back(), random);
      if (token < 0)
        break;
      subject.accept(state.get(), walked, token);
      subject.accept(supposing.get(), supposed, token, true);
    }
    // Begun again, it has forgotten.
    Place again = subject.place(random);
    const std::string_view wrong = state->begin(again.history, again.answer);
    if (!wrong.empty())
      return "state_begin() fails: " + std::string(wrong);
    const auto fresh = subject.begin(again);
    if (subject.answer(state.get(), again, rows[0]) !=
        subject.answer(fresh.get(), again, rows[0]))
      return "a state that begins again remembers the text before";
  }
  return {};
}

std::string clones(const CheckInput &input) {
  const Subject subject = input.subject();
  if (!subject.stateful())
    throw NotApplicable{"it has no state"};
  if (!subject.traits().clonable)
    throw NotApplicable{
        "its state cannot be copied, so the draft does without it"};
  std::mt19937_64 random(input.seed);
  Place at = subject.place(random);
  const auto state = subject.begin(at);
  const auto clone = subject.begin({});
  for (std::size_t step = 0; step < kSteps; ++step) {
    const Row row = subject.row(random);
    const Answer answer = subject.answer(state.get(), at, row);
    const std::string_view wrong = clone->copy(*state);
    if (!wrong.empty())
      return "state_copy() fails: " + std::string(wrong);
    Place ahead = at;
    if (subject.answer(clone.get(), ahead, row) != answer)
      return "a copy answers differently" + at_step(step);
    for (int more = 0; more < 3; ++more) {
      const Row next = subject.row(random);
      const std::int32_t token =
          subject.pick(subject.answer(clone.get(), ahead, next), next, random);
      if (token < 0)
        break;
      subject.accept(clone.get(), ahead, token, true);
    }
    if (subject.answer(state.get(), at, row) != answer)
      return "what a copy accepts changes the original: they share memory" +
             at_step(step);
    const std::int32_t token = subject.pick(answer, row, random);
    if (token < 0)
      break;
    subject.accept(state.get(), at, token);
  }
  return {};
}

std::string judged_alone(const CheckInput &input) {
  const Subject subject = input.subject();
  if (!subject.tests())
    throw NotApplicable{"it has no test()"};
  std::mt19937_64 random(input.seed);
  Place at = subject.place(random);
  const auto state = subject.begin(at);
  for (std::size_t step = 0; step < kSteps; ++step) {
    const Row row = subject.row(random, 64);
    const Answer all = subject.answer(state.get(), at, row);
    Row turned = row;
    std::ranges::reverse(turned.ids);
    Answer other = subject.answer(state.get(), at, turned);
    std::ranges::reverse(other.tested);
    if (other.tested != all.tested)
      return "test() depends on the order of the ids" + at_step(step);
    for (std::size_t i = 0; i < row.ids.size(); i += 7) {
      const Row one{{row.ids[i]}, {1.0f}};
      if (subject.answer(state.get(), at, one).tested[0] != all.tested[i])
        return "test() depends on the other ids that it is asked about" +
               at_step(step);
    }
    const std::int32_t token = subject.pick(all, row, random);
    if (token < 0)
      break;
    subject.accept(state.get(), at, token);
  }
  return {};
}

std::string agreement(const CheckInput &input) {
  const Subject subject = input.subject(600);
  if (subject.tests() + subject.masks() + subject.processes() < 2)
    throw NotApplicable{"it has one of the three"};
  std::mt19937_64 random(input.seed);
  Place at = subject.place(random);
  const auto state = subject.begin(at);
  for (std::size_t step = 0; step < kSteps; ++step) {
    const Row row = subject.row(random, 1 << 20);
    const Answer answer = subject.answer(state.get(), at, row);
    if (!answer.wrong.empty())
      return answer.wrong;
    for (std::size_t i = 0; i < row.ids.size(); ++i) {
      const std::int32_t id = row.ids[i];
      const auto word = static_cast<std::size_t>(id) / 32;
      const bool bit =
          subject.masks() && (answer.masked[word] >> (id % 32) & 1u) != 0;
      if (subject.masks() && subject.tests() && bit != (answer.tested[i] == 1))
        return "test() and mask() disagree about token " + std::to_string(id) +
               at_step(step);
      if (!subject.processes())
        continue;
      const bool left = std::ranges::any_of(
          answer.processed, [&](const auto &one) { return one.first == id; });
      if ((subject.masks() && bit != left) ||
          (subject.tests() && (answer.tested[i] == 1) != left))
        return std::string("process() and ") +
               (subject.masks() ? "mask()" : "test()") +
               " disagree about token " + std::to_string(id) + at_step(step);
    }
    const std::int32_t token = subject.pick(answer, row, random);
    if (token < 0)
      break;
    subject.accept(state.get(), at, token);
  }
  return {};
}

// Random numbers where they are declared, and nowhere else.
std::string randomness(const CheckInput &input) {
  const Subject subject = input.subject();
  std::mt19937_64 random(input.seed);
  Place at = subject.place(random);
  const auto state = subject.begin(at);
  for (std::size_t step = 0; step < kSteps; ++step) {
    const Row row = subject.row(random);
    const Answer answer = subject.answer(state.get(), at, row);
    for (std::uint64_t other = 1; other < 5; ++other) {
      Place elsewhere = at;
      elsewhere.seed += other * 7919;
      elsewhere.branch = other % 2;
      if (!subject.traits().randomised &&
          subject.answer(state.get(), elsewhere, row) != answer)
        return "it depends on the seed, and does not declare that it is "
               "randomised" +
               at_step(step);
    }
    const std::int32_t token = subject.pick(answer, row, random);
    if (token < 0)
      break;
    subject.accept(state.get(), at, token);
  }
  return {};
}

std::string threads(const CheckInput &input) {
  const Subject subject = input.subject();
  constexpr std::size_t kThreads = 8;
  std::vector<std::vector<Answer>> expected(kThreads), found(kThreads);
  for (std::size_t i = 0; i < kThreads; ++i)
    expected[i] = subject.walk(input.seed + i, kSteps);
  for (int round = 0; round < 3; ++round) {
    std::array<std::string, kThreads> wrong;
    {
      std::vector<std::jthread> running;
      for (std::size_t i = 0; i < kThreads; ++i) {
        running.emplace_back([&, i] {
          try {
            found[i] = subject.walk(input.seed + i, kSteps);
          } catch (const Error &error) {
            wrong[i] = error.what();
          }
        });
      }
    }
    for (std::size_t i = 0; i < kThreads; ++i) {
      if (!wrong[i].empty())
        return "with eight threads: " + wrong[i];
      if (found[i] != expected[i])
        return "with eight states on eight threads, it gives other answers";
    }
  }
  return {};
}

// 1,000 lives of a state, and 200 of an instance: nothing is left behind.
std::string leaks(const CheckInput &input) {
  Subject subject = input.subject(257);
  const auto used = [] {
    return ::mallinfo2().uordblks + ::mallinfo2().hblkhd;
  };
  const auto live = [&] {
    std::mt19937_64 random(input.seed);
    for (int i = 0; i < 1000; ++i) {
      Place at = subject.place(random);
      const auto state = subject.begin(at);
      const Row row = subject.row(random, 16);
      const std::int32_t token =
          subject.pick(subject.answer(state.get(), at, row), row, random);
      if (token >= 0)
        subject.accept(state.get(), at, token);
    }
  };
  const auto again = [&] {
    for (int i = 0; i < 200; ++i)
      subject.make_again();
  };
  const auto grows = [&](const auto &lives) {
    lives();
    const std::size_t before = used();
    lives();
    const std::size_t between = used();
    lives();
    const std::size_t after = used();
    return between > before + 4000 && after > between + 4000 ? (after - between)
                                                             : 0;
  };
  const auto open_before = open_files();
  if (const std::size_t bytes = grows(live); bytes > 0)
    return "1,000 states leave " + std::to_string(bytes) + " bytes behind";
  if (const std::size_t bytes = grows(again); bytes > 0)
    return "200 instances leave " + std::to_string(bytes) + " bytes behind";
  if (open_files() > open_before)
    return "instances leave files open";
  return {};
}

std::string process_state(const CheckInput &input) {
  const ProcessState before;
  {
    const Subject subject = input.subject();
    subject.walk(input.seed, kSteps);
    if (std::string changed = before.changed(); !changed.empty())
      return "it changes " + changed;
  }
  const std::string changed = before.changed();
  return changed.empty() ? changed
                         : "when it is destroyed, it changes " + changed;
}

samplers::ParameterValue made_up_value(const samplers::ParameterSchema &schema,
                                       std::mt19937_64 &random) {
  const double low = schema.min.value_or(-1e6), high = schema.max.value_or(1e6);
  const auto number = [&] {
    const std::uint64_t kind = random() % 6;
    if (kind == 0)
      return std::max(low, -1e300);
    if (kind == 1)
      return std::min(high, 1e300);
    const double share = static_cast<double>(random() % 1000) / 999.0;
    return std::clamp(std::max(low, -1e6) +
                          share * (std::min(high, 1e6) - std::max(low, -1e6)),
                      low, high);
  };
  const auto integer = [&] {
    return static_cast<std::int64_t>(std::clamp(number(), -9e15, 9e15));
  };
  const auto text = [&] {
    std::string out;
    for (std::size_t left = random() % 40; left > 0; --left)
      out += static_cast<char>(random() % 256);
    return out;
  };
  const auto list = [&](const auto &one) {
    std::vector<decltype(one())> all;
    for (std::size_t left = random() % 5; left > 0; --left)
      all.push_back(one());
    return all;
  };
  using Type = samplers::ParameterType;
  switch (schema.type) {
  case Type::boolean:
    return random() % 2 == 0;
  case Type::integer:
    return integer();
  case Type::real:
    return number();
  case Type::text:
    return text();
  case Type::choice:
    return schema.choices[random() % schema.choices.size()];
  case Type::text_list:
    return list(text);
  case Type::integer_list:
    return list(integer);
  case Type::real_list:
    return list(number);
  case Type::file:
    break;
  }
  return std::string();
}

// Whatever is in the declared range is taken, or refused with a reason.
std::string parameters(const CheckInput &input) {
  const auto &schemas = input.factory->description().parameters;
  if (schemas.empty())
    throw NotApplicable{"it has none"};
  std::mt19937_64 random(input.seed);
  for (int round = 0; round < 100; ++round) {
    CheckInput changed = input;
    std::string tried;
    for (const samplers::ParameterSchema &schema : schemas) {
      if (random() % 2 == 0)
        continue;
      changed.parameters.emplace_back(schema.name,
                                      made_up_value(schema, random));
      tried += " " + schema.name;
    }
    try {
      const Subject subject = changed.subject(257);
      std::mt19937_64 rows(input.seed);
      Place at = subject.place(rows);
      const auto state = subject.begin(at);
      const Row row = subject.row(rows);
      const Answer answer = subject.answer(state.get(), at, row);
      for (const auto &[id, logit] : answer.processed) {
        if (std::isnan(logit) || std::isinf(logit))
          return "with made-up values of" + tried +
                 ", process() returns a logit that is not finite";
      }
    } catch (const Error &error) {
      if (std::string_view(error.what()).find("gave no reason") !=
          std::string_view::npos)
        return "with made-up values of" + tried +
               ", it fails and gives no reason";
    }
  }
  return {};
}

// The text is the same whatever is drafted: a toy model, drafts at random, the
// chain with this stage.
std::string identity(const CheckInput &input) {
  const CheckVocabulary vocabulary(400);
  const samplers::StageSpec own{input.factory->description().name,
                                input.parameters, input.factory,
                                samplers::StageSpec::OnError::stop};
  const samplers::ChainSpec spec = {own,
                                    {"temperature", {{"value", 0.9}}, nullptr}};
  const auto row_after = [&](std::span<const std::int32_t> history) {
    std::uint64_t mixed = input.seed + history.size();
    for (const std::int32_t token :
         history.last(std::min<std::size_t>(history.size(), 3)))
      mixed = (mixed ^ static_cast<std::uint64_t>(token)) * 0x9e3779b97f4a7c15u;
    std::mt19937_64 model(mixed);
    std::vector<float> row(400);
    for (float &logit : row)
      logit = static_cast<float>(model() % 10000) * 0.0012f;
    return row;
  };
  const std::vector<std::int32_t> prompt = {40, 41, 42};
  for (std::uint64_t seed = 0; seed < 4; ++seed) {
    const auto write = [&](bool speculates) {
      std::mt19937_64 random(seed + 99);
      samplers::Chain chain(spec, vocabulary);
      samplers::DraftChain draft;
      chain.begin(seed, 1, prompt, 200);
      std::vector<std::int32_t> drafted;
      while (chain.history().size() < 100) {
        drafted.clear();
        if (speculates) {
          draft.start(chain);
          std::vector<std::int32_t> ahead(chain.history().begin(),
                                          chain.history().end());
          for (std::size_t left = random() % 6; left > 0; --left) {
            std::vector<float> row = row_after(ahead);
            const std::int32_t token =
                random() % 4 == 0 ? static_cast<std::int32_t>(random() % 400)
                                  : draft.propose(row).token;
            if (token < 0)
              break;
            drafted.push_back(token);
            ahead.push_back(token);
            draft.advance(token);
          }
        }
        for (std::size_t at = 0; at <= drafted.size(); ++at) {
          std::vector<float> row = row_after(chain.history());
          const samplers::Decision decision = chain.decide(row);
          if (decision.failure != nullptr)
            throw Error(decision.failure->message);
          const bool agreed =
              at < drafted.size() && decision.token == drafted[at];
          chain.accept(decision.token);
          if (!agreed || chain.history().size() >= 100)
            break;
        }
      }
      return std::vector<std::int32_t>(chain.history().begin(),
                                       chain.history().end());
    };
    const auto plain = write(false), speculated = write(true);
    const auto [a, b] = std::ranges::mismatch(plain, speculated);
    if (a != plain.end() || b != speculated.end())
      return "with a draft the text is another one, from token " +
             std::to_string(a - plain.begin() + 1) + " on";
  }
  return {};
}

std::string forced_bytes(const CheckInput &input) {
  const Subject subject = input.subject();
  if (!subject.stage().forces())
    throw NotApplicable{"it forces nothing"};
  std::mt19937_64 random(input.seed);
  Place at = subject.place(random);
  const auto state = subject.begin(at);
  for (std::size_t step = 0; step < kSteps; ++step) {
    const samplers::StageContext context{
        at.phase,
        {at.seed, 0, static_cast<std::uint32_t>(at.history.size())},
        12345,
        at.history,
        at.answer};
    std::string_view bytes;
    const std::string_view wrong =
        subject.stage().forced(state.get(), context, bytes);
    if (!wrong.empty())
      return "forced() fails: " + std::string(wrong);
    const Row row = subject.row(random);
    const Answer answer = subject.answer(state.get(), at, row);
    const std::string must(bytes);
    const auto fits = [&](std::int32_t id) {
      const std::string_view text = subject.vocabulary().text(id);
      return subject.vocabulary().ends_text(id) || text.starts_with(must) ||
             must.starts_with(text);
    };
    for (std::size_t i = 0; !must.empty() && i < answer.tested.size(); ++i) {
      if (answer.tested[i] == 1 && !fits(row.ids[i]))
        return "test() allows a token with other bytes than forced() says must "
               "come" +
               at_step(step);
    }
    for (std::int32_t id = 0;
         !must.empty() && subject.masks() && id < subject.vocabulary().size();
         ++id) {
      if ((answer.masked[static_cast<std::size_t>(id) / 32] >> (id % 32) &
           1u) != 0 &&
          !fits(id))
        return "mask() allows a token with other bytes than forced() says must "
               "come" +
               at_step(step);
    }
    const std::int32_t token = subject.pick(answer, row, random);
    if (token < 0)
      break;
    subject.accept(state.get(), at, token);
  }
  return {};
}

std::string extensions(const CheckInput &input) {
  const Subject subject = input.subject(257);
  return samplers::offers_extension(subject.stage(), "no such extension/0")
             ? "it offers an extension that does not exist, so it answers to "
               "any name"
             : "";
}

std::string own_test(const CheckInput &input) {
  const Subject subject = input.subject(257);
  const auto result = samplers::run_self_test(subject.stage());
  if (!result)
    throw NotApplicable{"it has no self-test"};
  return *result;
}

// All answers, in hexadecimal where they are numbers.
std::string transcript(const CheckInput &input) {
  const Subject subject = input.subject();
  std::uint64_t hash = 1469598103934665603u;
  const auto add = [&](std::uint64_t value) {
    hash = (hash ^ value) * 1099511628211u;
  };
  std::string out;
  for (std::uint64_t seed = input.seed; seed < input.seed + 3; ++seed) {
    for (const Answer &answer : subject.walk(seed, kSteps)) {
      for (const auto &[id, logit] : answer.processed) {
        std::uint32_t bits = 0;
        std::memcpy(&bits, &logit, sizeof bits);
        add(static_cast<std::uint64_t>(id));
        add(bits);
      }
      for (const std::uint8_t verdict : answer.tested)
        add(verdict);
      for (const std::uint32_t word : answer.masked)
        add(word);
      out += std::to_string(hash) + " ";
    }
  }
  return out;
}

constexpr Check kChecks[] = {
    {"vocabularies", "works with 1, 257 and 128,256 tokens", made, nullptr},
    {"bounds",
     "answers only with what it was given, leaves a token, masks where it says "
     "so",
     bounds, nullptr},
    {"small rows", "takes rows of one token", small_rows, nullptr},
    {"same again", "answers the same when asked again", same_again, nullptr},
    {"alone", "is not changed by other texts and instances", alone, nullptr},
    {"memory", "remembers what it declares", memory, nullptr},
    {"clones", "copies states that are independent", clones, nullptr},
    {"judged alone", "tests each token by itself", judged_alone, nullptr},
    {"agreement", "says the same with test(), mask() and process()", agreement,
     nullptr},
    {"randomness", "depends on the seed only where it declares that",
     randomness, nullptr},
    {"elsewhere", "answers the same at another address, time and thread",
     nullptr, transcript},
    {"threads", "serves eight states on eight threads", threads, nullptr},
    {"identity", "gives the same text with and without drafts", identity,
     nullptr},
    {"forced", "forces only what must come", forced_bytes, nullptr},
    {"parameters", "takes or refuses every value in its declared ranges",
     parameters, nullptr},
    {"leaks", "leaves no memory and no file behind", leaks, nullptr},
    {"process", "leaves the process as it was", process_state, nullptr},
    {"extensions", "knows its extensions", extensions, nullptr},
    {"self-test", "passes its own test", own_test, nullptr},
};

} // namespace

std::span<const Check> checks() { return kChecks; }

} // namespace foresay::plugins
