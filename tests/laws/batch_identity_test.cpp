// A text has the same bytes alone and in a batch: random schedules of arrivals, cancels and pauses, with different
// prompts, seeds, temperatures, chains, limits and stop strings, with beginnings that others have evaluated, with so
// few pages that texts give theirs up and come back, and with drafts good and bad. Each text equals that of a fresh
// Generator.
//
// FORESAY_SCHEDULES=500 runs that many schedules; without it a few.

#include <gtest/gtest.h>

#include <cstdlib>

#include "kernels/ops_decorator.h"
#include "tests/samplers/judging_samplers.h"
#include "tests/speculative/batch_support.h"

namespace foresay::test {
namespace {

using speculative::BatchGenerator;
using speculative::GenerateResult;
using speculative::Ticket;

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
    GenerateResult expected;
};

constexpr double kTemperatures[] = {0.0, 0.6, 1.0, 1.5};

// A stage of the plugin SDK that judges tokens.
template <typename T>
samplers::StageSpec judge() {
    static const std::shared_ptr<const samplers::StageFactory> factory = samplers::linked_factory<T>();
    samplers::StageSpec spec = stage("rule");
    spec.factory = factory;
    return spec;
}

std::unique_ptr<samplers::Chain> chain_of(const Job& job) {
    const samplers::StageSpec heat = stage("temperature", {{"value", job.temperature}});
    switch (job.chain) {
        case 0:
            return make_chain({heat});
        case 1:
            return make_chain({stage("penalties", {{"repeat", 1.1}, {"frequency", 0.1}, {"presence", 0.1}}),
                               stage("top_k", {{"k", std::int64_t{40}}}), stage("top_p", {{"p", 0.95}}), heat});
        case 2:
            return make_chain({judge<samplers::Masker>(), stage("min_p", {{"p", 0.02}}),
                               stage("xtc", {{"probability", 0.5}, {"threshold", 0.1}}), heat});
        default:  // keeps a state that follows what was sampled
            return make_chain({judge<samplers::Tester>(), heat, stage("mirostat")});
    }
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
        job.chain = static_cast<int>(random() % 4);
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
        speculative::Generator alone = make_generator(chain_of(job), sources(nullptr), off());
        job.expected = alone.generate({.input = job.input,
                                       .max_tokens = job.max_tokens,
                                       .seed = job.seed,
                                       .branch = job.branch,
                                       .stop = job.stop,
                                       .ignore_eos = job.ignore_eos});
    }
    return jobs;
}

const std::vector<Job>& jobs() {
    static const std::vector<Job> all = make_jobs(24, 5);
    return all;
}

struct Faults {
    bool noise_by_place = false;               // the key of the noise has the place in the batch
    std::shared_ptr<const core::Model> model;  // on a backend that mixes up sequences
};

struct Outcome {
    int complete = 0;  // texts that came to their end
    int cancelled = 0;
    int different = 0;     // those that are not what they are alone
    std::size_t most = 0;  // that ran at once
    std::int64_t cached = 0, preempted = 0, drafted = 0, accepted = 0;
    void operator+=(const Outcome& other) {
        complete += other.complete;
        cancelled += other.cancelled;
        different += other.different;
        most = std::max(most, other.most);
        cached += other.cached;
        preempted += other.preempted;
        drafted += other.drafted;
        accepted += other.accepted;
    }
};

bool is_prefix(const std::vector<std::int32_t>& tokens, const std::vector<std::int32_t>& of) {
    return tokens.size() <= of.size() && std::equal(tokens.begin(), tokens.end(), of.begin());
}

bool same(const Recorder& found, const GenerateResult& expected) {
    if (!found.ended || !found.error.empty()) return false;
    if (found.result.finish == speculative::FinishReason::cancelled) {
        return is_prefix(found.tokens, expected.tokens) && expected.text.starts_with(found.text);
    }
    return found.tokens == expected.tokens && found.text == expected.text && found.result.text == expected.text &&
           found.result.tokens == expected.tokens && found.result.finish == expected.finish &&
           found.result.prompt_tokens == expected.prompt_tokens;
}

Outcome run_schedule(unsigned seed, const Faults& faults = {}) {
    std::mt19937 random(seed);
    const auto chance = [&](unsigned one_in) { return random() % one_in == 0; };
    core::ContextOptions options = for_sequences(static_cast<std::int32_t>(2 + random() % 6), 320);
    constexpr std::int32_t kChunks[] = {7, 48, 128};
    constexpr std::int32_t kBeside[] = {1, 5, 64};
    options.prefill_rows = kChunks[random() % 3];
    options.branches = static_cast<std::int32_t>(random() % 8);
    // Pages for few of those that run: texts give theirs up and come back.
    std::int32_t sure_growth = kernels::kPagePositions;
    if (chance(2)) {
        options.branches += options.sequences - 1;
        options.sequences = 1;
        sure_growth = 1;
    }
    speculative::BatchParts parts = batch_parts(options, faults.model);
    parts.prefill_rows_beside = kBeside[random() % 3];
    parts.most_sequences = 2 + static_cast<std::int32_t>(random() % 7);
    parts.sure_growth = sure_growth;
    parts.reuse_prefixes = !chance(4);
    parts.classes_agree = parts.target->ops().free_memory() < 0 && chance(2);
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
    if (chance(2)) {
        parts.draft = std::make_unique<core::Context>(bundled(fast_backend(), "draft"), options);
    }
    BatchGenerator batch(std::move(parts));

    struct Added {
        const Job* job;
        Ticket ticket{};
        bool paused = false;
    };
    std::deque<Recorder> recorders;
    std::vector<Added> added;
    Outcome outcome;
    const std::size_t count = 6 + random() % 8;
    while (added.size() < count || batch.running() + batch.waiting() > 0) {
        while (added.size() < count && (sure_growth == 1 || chance(4) || batch.running() == 0)) {
            const Job& job = jobs()[random() % jobs().size()];
            Added next{.job = &job};
            next.ticket = batch.add({.input = job.input,
                                     .chain = chain_of(job),
                                     .max_tokens = job.max_tokens,
                                     .seed = job.seed,
                                     .branch = faults.noise_by_place ? batch.running() : job.branch,
                                     .stop = job.stop,
                                     .ignore_eos = job.ignore_eos,
                                     .prediction = chance(4) ? job.expected.tokens : std::vector<std::int32_t>{},
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
    outcome.preempted = batch.counters().preemptions;
    outcome.drafted = batch.counters().drafted;
    outcome.accepted = batch.counters().accepted;
    EXPECT_TRUE(no_page_is_lost(batch));
    for (std::size_t i = 0; i < added.size(); ++i) {
        const bool cancelled = recorders[i].result.finish == speculative::FinishReason::cancelled;
        ++(cancelled ? outcome.cancelled : outcome.complete);
        outcome.different += same(recorders[i], added[i].job->expected) ? 0 : 1;
    }
    return outcome;
}

int schedules() {
    const char* wanted = std::getenv("FORESAY_SCHEDULES");
    return wanted != nullptr ? std::atoi(wanted) : 8;
}

TEST(BatchIdentity, EveryTextIsWhatItIsAlone) {
    Outcome all;
    for (int schedule = 0; schedule < schedules(); ++schedule) {
        const Outcome one = run_schedule(static_cast<unsigned>(schedule));
        EXPECT_EQ(one.different, 0) << "schedule " << schedule;
        all += one;
    }
    // The schedules are worth their name.
    EXPECT_GE(all.most, 4u);
    EXPECT_GT(all.cancelled, 0);
    EXPECT_GT(all.complete, all.cancelled);
    EXPECT_GT(all.cached, 0);
    EXPECT_GT(all.preempted, 0);
    EXPECT_GT(all.accepted, 0);
    EXPECT_GT(all.drafted, all.accepted);
}

int different_texts(const Faults& faults) {
    Outcome all;
    for (unsigned seed = 100; seed < 102; ++seed) all += run_schedule(seed, faults);
    return all.different;
}

// Controls: each fault must be noticed.
TEST(BatchIdentity, NoiseKeyedByThePlaceInTheBatchIsNoticed) {
    EXPECT_GT(different_texts({.noise_by_place = true, .model = nullptr}), 0);
}

// Gives a row the logits of the next one, or the draw of the one before.
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
    kernels::SampledToken sampled(kernels::Workspace& workspace, std::int32_t slot) override {
        return OpsDecorator::sampled(workspace, std::max(0, slot - 1));
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
int different_texts_with() {
    Wrong ops(fast_backend().ops());
    Faults faults;
    faults.model = core::Model::load(core::ModelSource::open(bundled_path("target")), ops);
    return different_texts(faults);
}

TEST(BatchIdentity, ANeighboursLogitsAreNoticed) { EXPECT_GT(different_texts_with<NeighboursLogits>(), 0); }

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
    for (const Job& job : jobs()) all.push_back(job.expected.tokens);
    std::ranges::sort(all);
    EXPECT_GE(std::ranges::unique(all).begin() - all.begin(), std::ssize(all) - 4);
}

}  // namespace
}  // namespace foresay::test
