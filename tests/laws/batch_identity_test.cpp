// A text has the same bytes alone and in a batch: random schedules of arrivals, cancels and pauses, with different
// prompts, seeds, temperatures, chains, limits, stop strings, priorities, queues and salts, with log-probabilities
// asked for or not, with beginnings that others have evaluated and answers that are taken up again, with so few pages
// that texts give theirs up and come back, from host memory and from disk too, and with drafts good and bad. Each text
// equals that of a fresh Generator, and so do its log-probabilities.
//
// FORESAY_SCHEDULES=500 runs that many schedules with the bundled pair, FORESAY_SMALL_SCHEDULES=500 with the bundled
// draft model as the target of itself, a tenth of the work; without them a few of the former and many of the latter.
// FORESAY_SEQUENCES=64: as many sequences at once; without it at most 8.

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>

#include "core/cache/page_store.h"
#include "kernels/kv_names.h"
#include "kernels/ops_decorator.h"
#include "speculative/drafters/ngram_drafter.h"
#include "speculative/logprobs.h"
#include "speculative/prefix_cache.h"
#include "tests/kernels/kv_suffix.h"
#include "tests/laws/shipped.h"
#include "tests/samplers/judging_samplers.h"
#include "tests/speculative/batch_support.h"
#include "tests/weights/temporary_directory.h"

namespace foresay::test {
namespace {

using speculative::BatchGenerator;
using speculative::GenerateResult;
using speculative::Ticket;

// Targets: the bundled one, and the draft model, which then drafts for itself.
const std::string kPair = "target", kSmall = "draft";

// A request, and what it is answered when it is alone.
struct Job {
    std::vector<std::int32_t> input;
    int chain = 0;
    double temperature = 0.0;
    std::int32_t max_tokens = 0;
    std::uint64_t seed = 0, branch = 0;
    std::vector<std::string> stop;
    bool ignore_eos = false;
    std::optional<speculative::SpeculationOptions> speculation;  // of its own

    // What it is when nothing runs beside it, with this target and a cache of this format.
    struct Alone {
        GenerateResult result;
        std::vector<std::vector<speculative::TokenLogprob>> logprobs;  // of every token, with kLikeliest others
    };
    const Alone& alone(const std::string& target, kernels::KvFormat format) const;
    // The small one is for many schedules of shorter texts.
    std::int32_t limit(const std::string& target) const { return target == kSmall ? (max_tokens + 1) / 2 : max_tokens; }
    void forget() { answers_.clear(); }  // what is known, for a job that has changed

private:
    mutable std::map<std::pair<std::string, kernels::KvFormat>, Alone> answers_;
};

constexpr std::int32_t kLikeliest = 2;

// A fifth of the schedules has each, in an order in which the first ones have fewer than eight bits, too.
constexpr kernels::KvFormat kFormats[] = {kernels::KvFormat::f16, kLowBits, kernels::KvFormat::q8,
                                          kernels::kv_format(kernels::KvType::q4, kernels::KvType::q4),
                                          kernels::kv_format(kernels::KvType::q8, kernels::KvType::q4)};

constexpr double kTemperatures[] = {0.0, 0.6, 1.0, 1.5};

// A stage of the plugin SDK that judges tokens.
template <typename T>
samplers::StageSpec judge() {
    static const std::shared_ptr<const samplers::StageFactory> factory = samplers::linked_factory<T>();
    samplers::StageSpec spec = stage("rule");
    spec.factory = factory;
    return spec;
}

// A rule whose states share what they should copy.
struct Uncopied : samplers::Rule {
    static constexpr Info info{"uncopied", "1", "The rule, with one state for all copies.", "Apache-2.0"};
    struct State {
        std::shared_ptr<Rule::State> shared = std::make_shared<Rule::State>();
    };
    explicit Uncopied(Host) {}
    void begin(State& state, const Text& text) const { Rule::begin(*(state.shared = State().shared), text); }
    void accept(State& state, std::int32_t token) const { Rule::accept(*state.shared, token); }
    bool test(const State& state, const RandomContext& context, std::int32_t id) const {
        return allows(*state.shared, context, id);
    }
};

std::unique_ptr<samplers::Chain> chain_of(const Job& job, bool uncopied = false) {
    const samplers::StageSpec heat = stage("temperature", {{"value", job.temperature}});
    if (uncopied && job.chain == 3) return make_chain({judge<Uncopied>(), heat, stage("mirostat")});
    switch (job.chain) {
        case 0:
            return make_chain({heat});
        case 1:
            return make_chain({stage("penalties", {{"repeat", 1.1}, {"frequency", 0.1}, {"presence", 0.1}}),
                               stage("top_k", {{"k", std::int64_t{40}}}), stage("top_p", {{"p", 0.95}}), heat});
        case 2:
            return make_chain({judge<samplers::Masker>(), stage("min_p", {{"p", 0.02}}),
                               stage("xtc", {{"probability", 0.5}, {"threshold", 0.1}}), heat});
        case 3:  // keeps a state that follows what was sampled
            return make_chain({judge<samplers::Tester>(), heat, stage("mirostat")});
        case 4:  // under a grammar that no answer comes to the end of, with a plugin in a process of its own
            return make_chain({stage("grammar", {{"language", std::string("regex")},
                                                 {"after", std::string("free")},
                                                 {"text", std::string("([a-z_]{2,9} = [0-9]{1,4}\\n){200}")}}),
                               shipped("wordlist", {{"forbid", std::vector<std::string>{"self", "1"}}}, true), heat});
        case 5:
            return make_chain({shipped("indent", {}), stage("no_repeat_ngram", {{"size", std::int64_t{4}}}),
                               stage("dry", {{"multiplier", 0.8}}), stage("min_length", {{"tokens", std::int64_t{20}}}),
                               stage("top_n_sigma", {{"n", 2.0}}), heat});
        case 6:
            return make_chain(
                {shipped("budget", {{"tokens", std::int64_t{5}},
                                    {"begin", std::string("def")},
                                    {"end", std::string("\n")},
                                    {"message", std::string("  # enough")}}),
                 stage("logit_bias",
                       {{"tokens", std::vector<std::int64_t>{199, 220}}, {"values", std::vector<double>{-1.5, 1.0}}}),
                 stage("tfs", {{"z", 0.98}}), stage("typical", {{"p", 0.98}}), stage("top_a", {{"a", 0.05}}),
                 stage("epsilon_cutoff", {{"epsilon", 0.0003}}), stage("eta_cutoff", {{"eta", 0.001}}), heat});
        default:  // remembers what was sampled, too
            return make_chain({job.temperature > 0.0
                                   ? stage("dynatemp", {{"min", 0.5 * job.temperature}, {"max", 1.5 * job.temperature}})
                                   : heat,
                               stage("smoothing", {{"factor", 0.2}, {"curve", 2.0}}), stage("skew", {{"skew", 0.2}}),
                               stage(job.seed == 0 ? "mirostat_1" : "adaptive_p")});
    }
}

const Job::Alone& Job::alone(const std::string& target, kernels::KvFormat format) const {
    if (const auto known = answers_.find({target, format}); known != answers_.end()) return known->second;
    core::ContextOptions options = context_options();
    options.kv_format = format;
    speculative::Generator generator =
        make_generator(chain_of(*this), sources(nullptr), off(), options, bundled(fast_backend(), target));
    Alone answer;
    answer.result = generator.generate({.input = input,
                                        .max_tokens = limit(target),
                                        .seed = seed,
                                        .branch = branch,
                                        .stop = stop,
                                        .ignore_eos = ignore_eos});
    speculative::Logprobs read(tokenizer().vocab_size(), kLikeliest);
    generator.visit_logits(static_cast<std::int32_t>(input.size()),
                           [&](std::int32_t index, std::span<const float> logits) {
                               read.read(logits);
                               const auto of = read.of(generator.tokens()[static_cast<std::size_t>(index)]);
                               answer.logprobs.emplace_back(of.begin(), of.end());
                           });
    return answers_[{target, format}] = std::move(answer);
}

std::vector<Job> make_jobs(std::size_t count, unsigned seed) {
    std::mt19937 random(seed);
    const std::string texts[] = {
        "def read_lines(path):\n    \"\"\"Return the lines of a file.\"\"\"\n",
        "class Stack:\n    def __init__(self):\n        self.items = []\n\n    def push(self, item):\n",
        "import os\nimport sys\n\n\ndef main():\n",
        "# The quick brown fox jumps over the lazy dog. It is a sentence that\n",
    };
    const std::vector<std::string> stops[] = {{}, {}, {"\n\n"}, {"return", ":\n"}};
    std::vector<Job> jobs(count);
    for (Job& job : jobs) {
        std::string text;
        for (unsigned repeats = 1 + random() % 4; repeats > 0; --repeats) text += texts[random() % std::size(texts)];
        job.input = tokenizer().encode(text);
        job.input.resize(1 + random() % job.input.size());
        // Some go on from an earlier prompt, and so share a beginning with others.
        if (&job != jobs.data() && random() % 2 == 0) {
            const std::vector<std::int32_t>& earlier =
                jobs[random() % static_cast<std::size_t>(&job - jobs.data())].input;
            std::vector<std::int32_t> more = earlier;
            more.insert(more.end(), job.input.begin(),
                        job.input.begin() + static_cast<std::ptrdiff_t>(std::min<std::size_t>(job.input.size(), 40)));
            if (more.size() < 160) job.input = std::move(more);
        }
        constexpr int kChains[] = {0, 1, 2, 3, 3, 3, 4, 5, 6, 7};  // a control needs many with a state that follows
        job.chain = kChains[random() % std::size(kChains)];
        job.temperature = kTemperatures[random() % std::size(kTemperatures)];
        job.max_tokens = static_cast<std::int32_t>(1 + random() % 50 + (random() % 2 == 0 ? 90 : 0));
        job.seed = random() % 3;
        job.branch = random() % 2;
        job.stop = stops[random() % std::size(stops)];
        job.ignore_eos = random() % 2 == 0;
        switch (random() % 6) {
            case 0:
                job.speculation = off();
                break;
            case 1:
                job.speculation = fixed(1 + static_cast<std::int32_t>(random() % 8));
                break;
            default:
                break;
        }
    }
    return jobs;
}

const std::vector<Job>& jobs() {
    static const std::vector<Job> all = make_jobs(24, 5);
    return all;
}

// Those whose prompts fill a page.
const std::vector<const Job*>& long_jobs() {
    static const std::vector<const Job*> some = [] {
        std::vector<const Job*> found;
        for (const Job& job : jobs()) {
            if (job.input.size() > kernels::kPagePositions) found.push_back(&job);
        }
        return found;
    }();
    return some;
}

// Sequences that run at once, at most.
constexpr std::int32_t kFew = 8;
std::int32_t most_sequences() {
    const char* wanted = std::getenv("FORESAY_SEQUENCES");
    return wanted != nullptr ? std::clamp(std::atoi(wanted), 3, 64) : kFew;
}

struct Faults {
    bool noise_by_place = false;               // the key of the noise has the place in the batch
    bool uncopied = false;                     // a stage whose states are not copied
    std::shared_ptr<const core::Model> model;  // on a backend that mixes up sequences
};

struct Outcome {
    int complete = 0;  // texts that came to their end
    int cancelled = 0;
    int different = 0;     // those that are not what they are alone
    std::size_t most = 0;  // that ran at once
    std::int64_t cached = 0, preempted = 0, drafted = 0, accepted = 0, restored = 0, from_host = 0, from_disk = 0;
    std::int64_t draft_cached = 0, draft_restored = 0, mixed = 0;
    int resumed = 0, told = 0;  // taken up again; with log-probabilities
    void operator+=(const Outcome& other) {
        complete += other.complete;
        cancelled += other.cancelled;
        different += other.different;
        most = std::max(most, other.most);
        cached += other.cached;
        preempted += other.preempted;
        drafted += other.drafted;
        accepted += other.accepted;
        restored += other.restored;
        mixed += other.mixed;
        draft_cached += other.draft_cached;
        draft_restored += other.draft_restored;
        from_host += other.from_host;
        from_disk += other.from_disk;
        resumed += other.resumed;
        told += other.told;
    }
};

bool is_prefix(const std::vector<std::int32_t>& tokens, const std::vector<std::int32_t>& of) {
    return tokens.size() <= of.size() && std::equal(tokens.begin(), tokens.end(), of.begin());
}

// `from`: the answer was taken up again after so many tokens.
bool same(const Recorder& found, const Job::Alone& alone, std::size_t from = 0) {
    const GenerateResult& expected = alone.result;
    if (!found.ended || !found.error.empty()) return false;
    const auto start = static_cast<std::ptrdiff_t>(from);
    if (!found.logprobs.empty() &&
        (found.logprobs.size() != found.tokens.size() || from + found.logprobs.size() > alone.logprobs.size() ||
         !std::equal(found.logprobs.begin(), found.logprobs.end(), alone.logprobs.begin() + start)))
        return false;
    const std::vector<std::int32_t> tokens(expected.tokens.begin() + start, expected.tokens.end());
    if (found.result.finish == speculative::FinishReason::cancelled) {
        return is_prefix(found.tokens, tokens) && (from > 0 || expected.text.starts_with(found.text));
    }
    return found.tokens == tokens && found.result.tokens == tokens && found.result.finish == expected.finish &&
           found.result.prompt_tokens == expected.prompt_tokens + start &&
           (from > 0 || (found.text == expected.text && found.result.text == expected.text));
}

std::int64_t page_bytes(core::Context& context) {
    const kernels::KvPages& pages = context.cache().pages();
    return context.ops().kv_bytes(pages.shape, 1, pages.format);
}

std::shared_ptr<core::PageStore> make_store(core::Context& context, std::int64_t host_pages,
                                            const std::filesystem::path& folder = {},
                                            const std::string& fingerprint = "the bundled target") {
    return std::make_shared<core::PageTiers>(
        context.ops(),
        core::PageTiersOptions{.page_bytes = page_bytes(context),
                               .host_bytes = host_pages * page_bytes(context),
                               .folder = folder,
                               .disk_bytes = std::int64_t{1} << 30,
                               .fingerprint = fingerprint,
                               .notice = [](const std::string& sentence) { ADD_FAILURE() << sentence; }});
}

// Kept from schedule to schedule: what one has written, another reads.
std::filesystem::path page_folder(const std::string& target) {
    static const core::testing::TemporaryDirectory folder;
    return folder.path() / target;
}

// What a schedule decides by measured times is decided by chance: any times lead to the same texts, and a schedule that
// fails does so again.
std::mt19937 random_of_times;
double now_by_chance() {
    static double now = 0.0;
    return now += 0.02 * static_cast<double>(random_of_times() % 100) + (random_of_times() % 50 == 0 ? 20.0 : 0.0);
}

Outcome run_schedule(const std::string& target, unsigned seed, const Faults& faults = {}) {
    random_of_times.seed(seed);
    // Pages that leave the cache are 0: lost; 1: in host memory; 2: on disk; 3: in little host memory, and on disk,
    // where the same texts have left theirs before.
    const unsigned tiers = seed % 4;
    std::mt19937 random(seed);
    const auto chance = [&](unsigned one_in) { return random() % one_in == 0; };
    const std::int32_t many = most_sequences();
    core::ContextOptions options =
        for_sequences(2 + static_cast<std::int32_t>(random() % static_cast<unsigned>(many - 2)), 320);
    options.decode_rows = std::max(options.decode_rows, 2 * many);
    options.kv_format = kFormats[seed / 2 % std::size(kFormats)];  // of both schedules that share pages on disk
    constexpr std::int32_t kChunks[] = {7, 48, 128};
    constexpr std::int32_t kBeside[] = {1, 5, 64};
    options.prefill_rows = kChunks[random() % 3];
    options.branches = static_cast<std::int32_t>(random() % 8);
    // Pages for few of those that run: texts give theirs up and come back.
    std::int32_t sure_growth = kernels::kPagePositions;
    if (chance(2) || tiers % 2 == 1) {
        options.branches += options.sequences - 1;
        options.sequences = 1;
        sure_growth = 1;
    }
    speculative::BatchParts parts =
        batch_parts(options, faults.model != nullptr ? faults.model : bundled(fast_backend(), target));
    parts.now = target == kSmall ? now_by_chance : speculative::steady_now;
    parts.prefill_rows_beside = kBeside[random() % 3];
    parts.most_sequences = 2 + static_cast<std::int32_t>(random() % static_cast<unsigned>(many - 1));
    if (many > kFew) parts.most_sequences = many;
    parts.sure_growth = sure_growth;
    parts.reuse_prefixes = !chance(4) || tiers > 0;
    parts.classes_agree = core::classes_agree(parts.target->ops()) && chance(2);
    switch (random() % 4) {
        case 0:
            break;
        case 1:
            parts.speculation = {.mode = core::SpeculationMode::automatic};
            parts.make_drafter = [](std::int32_t capacity) { return speculative::make_ngram_drafter(capacity); };
            break;
        case 2:
            parts.speculation = {.mode = core::SpeculationMode::fixed,
                                 .draft_length = 1 + static_cast<std::int32_t>(random() % 8)};
            parts.make_drafter = [](std::int32_t capacity) { return speculative::make_ngram_drafter(capacity); };
            break;
        default:  // nearly always wrong
            parts.speculation = {.mode = core::SpeculationMode::fixed, .draft_length = 4};
            parts.make_drafter = [&random](std::int32_t) -> std::unique_ptr<speculative::Drafter> {
                const auto first = static_cast<unsigned>(random());
                return std::make_unique<RandomLengthDrafter>(random_drafter(first), first + 1);
            };
    }
    if (chance(2) || tiers > 1) {
        parts.draft = std::make_unique<core::Context>(bundled(fast_backend(), "draft"), options);
    }
    // Keys and values of a broken backend are not for others.
    if (tiers == 1 || (tiers > 0 && faults.model == nullptr)) {
        constexpr std::int64_t kHostPages[] = {0, 40, 0, 3};
        const std::filesystem::path folder = tiers == 1 ? std::filesystem::path() : page_folder(target);
        const std::string with = " with " + kernels::name(options.kv_format);
        parts.pages = make_store(*parts.target, kHostPages[tiers], folder, "the bundled " + target + with);
        if (parts.draft) {
            parts.draft_pages = make_store(*parts.draft, kHostPages[tiers], folder, "the draft model" + with);
        }
    }
    BatchGenerator batch(std::move(parts));

    struct Added {
        const Job* job;
        const Job::Alone* alone;
        Ticket ticket{};
        std::size_t from = 0;  // tokens of its answer that it is given
        bool paused = false;
        bool same(const Recorder& found) const { return test::same(found, *alone, from); }
    };
    std::deque<Recorder> recorders;
    std::vector<Added> added;
    Outcome outcome;
    std::size_t count = target == kSmall ? 4 + random() % 7 : 6 + random() % 8;
    if (many > kFew) count += 2 * static_cast<std::size_t>(many);
    const unsigned rare = many > kFew ? 2 : 4;
    const char* const queues[] = {"", "ann", "bob"};
    while (added.size() < count || batch.running() + batch.waiting() > 0) {
        while (added.size() < count && (sure_growth == 1 || chance(rare) || batch.running() == 0)) {
            // Where pages are kept, few texts that fill some come again and again, in both schedules that share a disk.
            const bool few = tiers > 0 && many == kFew;
            const Job& job =
                few ? *long_jobs()[(seed / 2 + random() % 4) % long_jobs().size()] : jobs()[random() % jobs().size()];
            Added next{.job = &job, .alone = &job.alone(target, options.kv_format)};
            std::vector<std::int32_t> input = job.input;
            const std::vector<std::int32_t>& answer = next.alone->result.tokens;
            // Some are taken up where they were left: not where a stop string may have begun, or a stage (mirostat,
            // adaptive_p) remembers how likely its tokens were.
            if (job.stop.empty() && job.chain != 3 && job.chain != 7 && answer.size() > 1 && chance(4)) {
                next.from = 1 + random() % (answer.size() - 1);
                input.insert(input.end(), answer.begin(), answer.begin() + static_cast<std::ptrdiff_t>(next.from));
                ++outcome.resumed;
            }
            const auto given = static_cast<std::int32_t>(next.from);
            std::vector<std::uint8_t> generated(job.input.size(), 0);
            generated.resize(input.size(), 1);
            const bool told = chance(4);
            outcome.told += told ? 1 : 0;
            next.ticket = batch.add({.input = std::move(input),
                                     .generated = std::move(generated),
                                     .begun = given,
                                     .chain = chain_of(job, faults.uncopied),
                                     .max_tokens = job.limit(target) - given,
                                     .seed = job.seed,
                                     .branch = faults.noise_by_place ? batch.running() : job.branch,
                                     .stop = job.stop,
                                     .ignore_eos = job.ignore_eos,
                                     .logprobs = told ? kLikeliest : -1,
                                     .priority = static_cast<std::int32_t>(random() % 3),
                                     .queue = queues[random() % std::size(queues)],
                                     .cache_salt = chance(4) ? "of its own" : "",
                                     .prediction = chance(4) ? answer : std::vector<std::int32_t>{},
                                     .speculation = job.speculation},
                                    recorders.emplace_back());
            added.push_back(next);
        }
        Added& any = added[random() % added.size()];
        if (chance(40)) batch.cancel(any.ticket);
        if (chance(10)) {
            any.paused = !any.paused;
            any.paused ? batch.pause(any.ticket) : batch.resume(any.ticket);
        }
        if (!batch.step()) {
            for (Added& one : added) {
                batch.resume(one.ticket);
                one.paused = false;
            }
        }
        outcome.most = std::max(outcome.most, batch.running());
    }
    EXPECT_FALSE(batch.step());
    outcome.cached = batch.counters().cached_tokens;
    outcome.mixed = batch.counters().mixed_forwards;
    outcome.draft_cached = batch.counters().draft_cached_tokens;
    outcome.preempted = batch.counters().preemptions;
    outcome.drafted = batch.counters().drafted;
    outcome.accepted = batch.counters().accepted;
    outcome.restored = batch.counters().restored_tokens + batch.counters().draft_restored_tokens;
    outcome.draft_restored = batch.counters().draft_restored_tokens;
    outcome.from_host = batch.pages().from_host;
    outcome.from_disk = batch.pages().from_disk;
    batch.store_pages();
    EXPECT_TRUE(no_page_is_lost(batch));
    for (std::size_t i = 0; i < added.size(); ++i) {
        const bool cancelled = recorders[i].result.finish == speculative::FinishReason::cancelled;
        ++(cancelled ? outcome.cancelled : outcome.complete);
        outcome.different += added[i].same(recorders[i]) ? 0 : 1;
    }
    return outcome;
}

int from_environment(const char* name, int otherwise) {
    const char* wanted = std::getenv(name);
    return wanted != nullptr ? std::atoi(wanted) : otherwise;
}

#ifdef FORESAY_SANITIZED
constexpr int kSmallSchedules = 40;
#else
constexpr int kSmallSchedules = 334;
#endif

TEST(BatchIdentity, EveryTextIsWhatItIsAlone) {
    Outcome all;
    const auto run = [&all](const std::string& target, int schedules) {
        for (int schedule = 0; schedule < schedules; ++schedule) {
            const Outcome one = run_schedule(target, static_cast<unsigned>(schedule));
            EXPECT_EQ(one.different, 0) << "schedule " << schedule << " of " << target;
            all += one;
        }
    };
    run(kPair, from_environment("FORESAY_SCHEDULES", 4));
    run(kSmall, from_environment("FORESAY_SMALL_SCHEDULES", kSmallSchedules));
    // The schedules are worth their name.
    EXPECT_GE(all.most, 4u);
    EXPECT_GT(all.cancelled, 0);
    EXPECT_GT(all.complete, all.cancelled);
    EXPECT_GT(all.cached, 0);
    EXPECT_GT(all.preempted, 0);
    EXPECT_GT(all.accepted, 0);
    EXPECT_GT(all.drafted, all.accepted);
    EXPECT_EQ(all.mixed > 0, fast_backend().ops().free_memory() < 0);
    EXPECT_GT(all.from_host, 0);
    EXPECT_GT(all.from_disk, 0);
    EXPECT_GT(all.resumed, 0);
    EXPECT_GT(all.told, 0);
    EXPECT_GT(all.draft_cached, all.draft_restored);
    EXPECT_GT(all.draft_restored, 0);
    EXPECT_EQ(all.restored, kernels::kPagePositions * (all.from_host + all.from_disk));
}

int different_texts(const Faults& faults, unsigned schedules = 4) {
    Outcome all;
    for (unsigned seed = 100; seed < 100 + schedules; ++seed) all += run_schedule(kSmall, seed, faults);
    return all.different;
}

// Controls: each fault must be noticed.
TEST(BatchIdentity, NoiseKeyedByThePlaceInTheBatchIsNoticed) {
    EXPECT_GT(different_texts({.noise_by_place = true, .model = nullptr}), 0);
}

TEST(BatchIdentity, AStateThatIsNotCopiedIsNoticed) {
    Outcome all;
    for (unsigned seed = 100; seed < 108 && all.different == 0; ++seed)
        all += run_schedule(kSmall, seed, {.uncopied = true, .model = nullptr});
    EXPECT_GT(all.different, 0);
}

// ------------------------------------------------------------------------------------------ pages that leave the cache

// Two texts that differ in their first page, and another one that has the first page of the one and what follows in the
// other. Returns what it is answered, after the pages of the two went to `store`.
std::vector<std::int32_t> after_two_others(const std::shared_ptr<core::PageStore>& store, std::int64_t* restored,
                                           bool outlasts = true) {
    const auto text = [](int first, int then) {
        std::vector<std::int32_t> tokens(2 * kernels::kPagePositions + 5);
        for (std::size_t i = 0; i < tokens.size(); ++i)
            tokens[i] = 300 + static_cast<std::int32_t>(i * 7 % 50) + 60 * (i < kernels::kPagePositions ? first : then);
        return tokens;
    };
    const auto ask = [&](const std::vector<std::int32_t>& tokens) {
        speculative::BatchParts parts = batch_parts(for_sequences(1, 320));
        parts.pages = store;
        BatchGenerator batch(std::move(parts));
        Recorder sink;
        batch.add({.input = tokens,
                   .chain = temperature_chain(0.8),
                   .max_tokens = 24,
                   .seed = 1,
                   .stop = {},
                   .ignore_eos = true,
                   .outlasts = outlasts},
                  sink);
        while (batch.step()) {
        }
        batch.store_pages();
        if (restored != nullptr) *restored = batch.counters().restored_tokens;
        return sink.tokens;
    };
    ask(text(0, 1));
    ask(text(2, 3));
    return ask(text(2, 1));
}

// Without the page before it, a page's name is that of other texts, too.
class WithoutParents final : public core::PageStore {
public:
    explicit WithoutParents(std::shared_ptr<core::PageStore> inner) : inner_(std::move(inner)) {}
    bool has(const core::PageId& id) const override { return inner_->has(orphan(id)); }
    std::span<const std::byte> find(const core::PageId& id) override { return inner_->find(orphan(id)); }
    void store(const core::PageId& id, const std::function<void(std::span<std::byte>)>& fill) override {
        inner_->store(orphan(id), fill);
    }
    void flush() override { inner_->flush(); }
    core::PageCounters counters() const override { return inner_->counters(); }

private:
    static core::PageId orphan(core::PageId id) {
        id.parent = {};
        return id;
    }
    std::shared_ptr<core::PageStore> inner_;
};

TEST(BatchIdentity, APageNameWithoutTheTextBeforeItIsNoticed) {
    core::Context context(bundled(fast_backend(), "target"), for_sequences(1, 320));
    const std::vector<std::int32_t> expected = after_two_others(nullptr, nullptr);
    std::int64_t restored = 0;
    EXPECT_EQ(after_two_others(make_store(context, 40), &restored), expected);
    EXPECT_EQ(restored, kernels::kPagePositions) << "of the text with the same first page";
    const auto wrong = std::make_shared<WithoutParents>(make_store(context, 40));
    EXPECT_NE(after_two_others(wrong, &restored), expected);
    EXPECT_EQ(restored, 2 * kernels::kPagePositions);
    // What must not outlast its text does not.
    const auto empty = make_store(context, 40);
    EXPECT_EQ(after_two_others(empty, &restored, false), expected);
    EXPECT_EQ(empty->counters().stored, 0);
}

// Keys and values that come back are those that evaluating gives, byte by byte, whatever the chunks were.
void expect_the_same_bytes_back(kernels::KvFormat format) {
    Job job = jobs()[0];
    job.input.clear();
    while (job.input.size() < 150) job.input.push_back(300 + static_cast<std::int32_t>(job.input.size() * 13 % 97));
    job.max_tokens = 12;
    job.forget();
    const core::testing::TemporaryDirectory folder;
    core::ContextOptions options = for_sequences(1, 320);
    options.kv_format = format;
    const auto run = [&](const std::shared_ptr<core::PageStore>& store, std::int32_t chunk) {
        options.prefill_rows = chunk;
        speculative::BatchParts parts = batch_parts(options);
        parts.pages = store;
        BatchGenerator batch(std::move(parts));
        Recorder sink;
        batch.add({.input = job.input,
                   .chain = chain_of(job),
                   .max_tokens = job.max_tokens,
                   .seed = job.seed,
                   .branch = job.branch,
                   .stop = job.stop,
                   .ignore_eos = job.ignore_eos},
                  sink);
        while (batch.step()) {
        }
        EXPECT_TRUE(same(sink, job.alone(kPair, format)));
        batch.store_pages();
        return batch.counters();
    };
    core::Context context(bundled(fast_backend(), "target"), options);
    const auto host = make_store(context, 40);
    EXPECT_EQ(run(host, 128).restored_tokens, 0);
    EXPECT_EQ(run(make_store(context, 0, folder.path()), 7).restored_tokens, 0);
    // Another program, which finds the pages on the disk.
    const auto disk = make_store(context, 40, folder.path());
    const std::int64_t whole = static_cast<std::int64_t>(job.input.size() - 1) / kernels::kPagePositions;
    EXPECT_EQ(run(disk, 48).restored_tokens, whole * kernels::kPagePositions);
    EXPECT_GE(disk->counters().from_disk, 2);
    EXPECT_EQ(run(host, 48).restored_tokens, whole * kernels::kPagePositions);
    const std::vector<std::uint8_t> given(job.input.size(), 0);
    const auto rows = core::classes_of(given, core::short_given_tokens(context.ops()));
    speculative::PageNames names({job.input, rows, {}}, false);
    for (std::int64_t page = 0; page < whole; ++page) {
        const auto id = names.next();
        ASSERT_TRUE(id);
        const std::span<const std::byte> first = host->find(*id), second = disk->find(*id);
        ASSERT_FALSE(first.empty());
        ASSERT_EQ(first.size(), second.size());
        EXPECT_EQ(std::memcmp(first.data(), second.data(), first.size()), 0) << "page " << page;
    }
}

TEST(BatchIdentity, PagesComeBackWithTheSameBytes) {
    for (const kernels::KvFormat format : kFormats) {
        SCOPED_TRACE(kernels::name(format));
        expect_the_same_bytes_back(format);
    }
}

// Gives a row the logits of the next one.
class NeighboursLogits final : public kernels::OpsDecorator {
public:
    explicit NeighboursLogits(kernels::Ops& inner) : OpsDecorator(inner) {}
    void begin(kernels::Workspace& workspace, const kernels::Batch& batch) override {
        rows_ = static_cast<std::int32_t>(batch.logit_rows.size());
        OpsDecorator::begin(workspace, batch);
    }
    std::span<float> logits(kernels::Workspace& workspace, std::int32_t i) override {
        return OpsDecorator::logits(workspace, (i + 1) % rows_);
    }

private:
    std::int32_t rows_ = 1;
};

// Gives a row the draw of the next one.
class NeighboursDraw final : public kernels::OpsDecorator {
public:
    explicit NeighboursDraw(kernels::Ops& inner) : OpsDecorator(inner) {}
    void sample(kernels::Workspace& workspace, std::span<const kernels::SamplingPlan> plans,
                std::span<const std::int32_t> slots) override {
        rows_ = static_cast<std::int32_t>(slots.size());
        OpsDecorator::sample(workspace, plans, slots);
    }
    kernels::SampledToken sampled(kernels::Workspace& workspace, std::int32_t slot) override {
        return OpsDecorator::sampled(workspace, (slot + 1) % rows_);
    }

private:
    std::int32_t rows_ = 1;
};

// Lets one sequence read and write another one's pages, where they are long enough.
class NeighboursPages final : public kernels::OpsDecorator {
public:
    explicit NeighboursPages(kernels::Ops& inner) : OpsDecorator(inner) {}
    void begin(kernels::Workspace& workspace, const kernels::Batch& batch) override {
        views_.assign(batch.sequences.begin(), batch.sequences.end());
        kernels::Batch wrong = batch;
        if (views_.size() > 1 && views_[1].pages.size() >= views_[0].pages.size()) {
            views_[0].pages = views_[1].pages;
            wrong.sequences = views_;
        }
        OpsDecorator::begin(workspace, wrong);
    }

private:
    std::vector<kernels::SequenceView> views_;
};

template <class Wrong>
int different_texts_with(unsigned schedules = 4) {
    Wrong ops(fast_backend().ops());
    Faults faults;
    faults.model = core::Model::load(core::ModelSource::open(bundled_path(kSmall)), ops);
    return different_texts(faults, schedules);
}

TEST(BatchIdentity, ANeighboursLogitsAreNoticed) { EXPECT_GT(different_texts_with<NeighboursLogits>(), 0); }

TEST(BatchIdentity, ANeighboursDrawIsNoticed) {
    if (!fast_backend().ops().asynchronous()) GTEST_SKIP() << "the host samples all rows here";
    EXPECT_GT(different_texts_with<NeighboursDraw>(16), 0);  // of few texts every token is drawn on the device
}

// Does not copy a page that two texts share before one of them writes to it.
class UncopiedPages final : public kernels::OpsDecorator {
public:
    explicit UncopiedPages(kernels::Ops& inner) : OpsDecorator(inner) {}
    void copy_page(kernels::KvPages&, std::int32_t, std::int32_t) override {}
};

TEST(BatchIdentity, PagesThatAreNotCopiedAreNoticed) { EXPECT_GT(different_texts_with<UncopiedPages>(), 0); }

TEST(BatchIdentity, ANeighboursPagesAreNoticed) { EXPECT_GT(different_texts_with<NeighboursPages>(), 0); }

// Seeds and temperatures make a difference, or the texts above would prove little.
TEST(BatchIdentity, TheTextsDiffer) {
    std::vector<std::vector<std::int32_t>> all;
    for (const Job& job : jobs()) all.push_back(job.alone(kPair, kernels::KvFormat::f16).result.tokens);
    std::ranges::sort(all);
    EXPECT_GE(std::ranges::unique(all).begin() - all.begin(), std::ssize(all) - 4);
}

}  // namespace
}  // namespace foresay::test
