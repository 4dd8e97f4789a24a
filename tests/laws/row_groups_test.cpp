// Prompts that divided layers take in two groups of rows (kernels/divided_ops.h): the bits are those of one backend at
// every cut, of every family, cache and mix of sequences. A rank that fails or hangs within a group leaves nothing, and
// where copies run beside ops there are ops for them to run beside.

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <functional>
#include <map>

#include "kernels/cuda_info.h"
#include "kernels/divided_ops.h"
#include "kernels/kv_names.h"
#include "tests/laws/listed_backends.h"
#include "tests/models/sharing_ops.h"
#include "tests/support/error_of.h"

namespace foresay::test {
namespace {

using kernels::DividedOps;
using kernels::DividedOptions;
using kernels::LayerShare;
using kernels::QuantType;
using kernels::RowClass;
using kernels::Values;
using kernels::ValuesAt;
using kernels::Workspace;
using Shares = std::vector<std::int32_t>;

// A prompt of two rows is cut.
DividedOps& groups(const Shares& shares) {
    static std::map<Shares, std::unique_ptr<DividedOps>> all;
    std::unique_ptr<DividedOps>& ops = all[shares];
    if (ops == nullptr) {
        ops = std::make_unique<DividedOps>(std::vector(shares.size(), lent(host())),
                                           DividedOptions{.shares = shares, .group_rows = 1});
    }
    return *ops;
}

std::shared_ptr<const core::Model> family(const std::string& name, kernels::Ops& ops) {
    return load_whole_or_divided(
        core::ModelSource::random(config_of(family_json(name)), QuantType::q8_0, QuantType::q8_0), ops);
}
std::shared_ptr<const core::Model> small(kernels::Ops& ops) {
    return load_whole_or_divided(core::ModelSource::random(small_config(), QuantType::q8_0, QuantType::q8_0), ops);
}
std::shared_ptr<const core::Model> target(kernels::Ops& ops) {
    return load_whole_or_divided(core::ModelSource::open(bundled_path("target")), ops);
}

class RowGroupsOf : public testing::TestWithParam<std::string> {};

TEST_P(RowGroupsOf, GiveTheBytesOfOneBackend) {
    if (GetParam().starts_with("olmo")) GTEST_SKIP() << "its heads cannot be divided";
    const Outcome expected = evaluate(family(GetParam(), host()), RowClass::prefill, {64});
    for (const Shares& shares : {Shares{1, 2}, Shares{5, 1, 2}}) {
        const auto divided = family(GetParam(), groups(shares));
        for (const std::vector<std::size_t>& widths :
             {std::vector<std::size_t>{64}, std::vector<std::size_t>{17, 1, 2, 60}}) {
            EXPECT_TRUE(evaluate(divided, RowClass::prefill, widths) == expected)
                << shares.size() << " ranks, " << widths.front();
        }
    }
}

INSTANTIATE_TEST_SUITE_P(Models, RowGroupsOf, testing::ValuesIn(family_names()), [](const auto& info) {
    std::string name = info.param;
    std::ranges::replace(name, '-', '_');
    return name;
});

TEST(RowGroups, EveryWidth) {
    const Outcome expected = evaluate(family("qwen3", host()), RowClass::prefill, {64});
    const auto divided = family("qwen3", groups({1, 1}));
    for (std::size_t width = 1; width <= 64; ++width) {
        EXPECT_TRUE(evaluate(divided, RowClass::prefill, {width}) == expected) << width;
    }
}

TEST(RowGroups, EveryTypeOfTheCache) {
    const auto whole = target(host()), divided = target(groups({1, 2}));
    for (const kernels::KvFormat format : kernels::all_kv_formats()) {
        EXPECT_TRUE(evaluate(divided, RowClass::prefill, {5, 1, 33}, format) ==
                    evaluate(whole, RowClass::prefill, {5, 1, 33}, format))
            << kernels::name(format);
    }
}

// Two sequences in a forward: the cut is in either of them, or between them, and logits are wanted of rows before it,
// after it, or of both.
Outcome two_sequences(const std::shared_ptr<const core::Model>& model) {
    core::Context context(model, options());
    EXPECT_EQ(context.cache().create(), 1);
    const std::vector<std::int32_t> ids = random_tokens(64, model->config().shape.vocab, 5);
    std::vector<kernels::TokenRef> tokens;
    for (const std::int32_t id : ids) tokens.push_back(kernels::TokenRef::id(id));
    Outcome outcome;
    for (const std::size_t first : {3, 8, 13}) {
        for (const bool before : {false, true}) {
            for (const bool after : {false, true}) {
                const std::vector<std::int32_t> early = {0, 2}, last = {1, 2};
                const std::span<const std::int32_t> none;
                const core::Segment segments[] = {
                    {0, std::span(tokens).first(first), before ? std::span(early) : none},
                    {1, std::span(tokens).subspan(first, 16 - first), after ? std::span(last) : none}};
                EXPECT_TRUE(context.evaluate(RowClass::prefill, segments));
                for (std::int32_t i = 0; i < 2 * (before ? 1 : 0) + 2 * (after ? 1 : 0); ++i) {
                    outcome.logits.emplace_back(context.logits(i).begin(), context.logits(i).end());
                }
                const std::vector<std::byte> pages = pages_of(context, 1);
                outcome.pages.insert(outcome.pages.end(), pages.begin(), pages.end());
                context.truncate(2, 0);
                context.truncate(1, 1);
            }
        }
    }
    return outcome;
}

TEST(RowGroups, OfSeveralSequences) {
    EXPECT_TRUE(two_sequences(small(groups({1, 2}))) == two_sequences(small(host())));
}

// The residual stream of all rows, read and written where a forward begins without tokens.
TEST(RowGroups, RowsAreReadAndWritten) {
    const auto whole = small(host()), divided = small(groups({1, 1}));
    const auto stream = [](const std::shared_ptr<const core::Model>& model) {
        core::Context context(model, options());
        Rows logits;
        feed(context, RowClass::prefill, random_tokens(9, model->config().shape.vocab, 5), {9}, logits);
        std::vector<float> rows(9 * static_cast<std::size_t>(model->config().shape.d_model));
        context.ops().read_rows(context.workspace(), rows);
        for (std::int32_t t = 0; t < 9; ++t) {
            const auto row = context.ops().residual(context.workspace(), t);
            EXPECT_TRUE(
                std::ranges::equal(row, std::span(rows).subspan(static_cast<std::size_t>(t) * row.size(), row.size())))
                << t;
        }
        std::vector<float> again(rows.size());
        context.ops().write_rows(context.workspace(), rows);
        context.ops().read_rows(context.workspace(), again);
        EXPECT_EQ(again, rows);
        return rows;
    };
    EXPECT_EQ(stream(divided), stream(whole));
}

// ------------------------------------------------------------------------------------------------------------ which

// Counts the rows of the forwards that it is given.
class Counting final : public SharingOps {
public:
    explicit Counting(kernels::Ops& inner, bool beside = true) : SharingOps(inner), beside_(beside) {}
    bool copies_beside_ops(std::span<LayerShare* const>) override { return beside_; }
    std::int64_t shared_workspace_bytes(const kernels::ModelShape&, std::int32_t) const override { return 1000; }
    void begin(Workspace& workspace, const kernels::Batch& batch) override {
        rows.push_back(batch.rows.size());
        inner().begin(workspace, batch);
    }
    std::vector<std::size_t> rows;

private:
    bool beside_;
};

// Of the second rank, which begins each forward in two workspaces.
std::vector<std::size_t> rows_given(const DividedOptions& options, bool beside, RowClass row_class, std::size_t width,
                                    const core::ModelConfig& config = small_config()) {
    Counting first(host(), beside), second(host(), beside);
    DividedOps ops({lent(first), lent(second)}, options);
    const auto model = load_whole_or_divided(core::ModelSource::random(config, QuantType::q8_0, QuantType::q8_0), ops);
    core::Context context(model, {.length = 2048, .prefill_rows = 2048, .decode_rows = 4});
    std::vector<kernels::TokenRef> tokens(width, kernels::TokenRef::id(3));
    EXPECT_TRUE(context.evaluate(row_class, tokens, {}));
    return second.rows;
}

TEST(RowGroups, WhatIsCut) {
    using Cut = std::vector<std::size_t>;
    EXPECT_EQ(rows_given({}, true, RowClass::prefill, 1023), (Cut{1023, 1023}));
    EXPECT_EQ(rows_given({}, true, RowClass::prefill, 1024), (Cut{512, 512, 512, 512}));
    EXPECT_EQ(rows_given({}, true, RowClass::prefill, 1500), (Cut{796, 796, 704, 704})) << "whole tiles of rows";
    EXPECT_EQ(rows_given({}, true, RowClass::prefill, 2048), (Cut{1024, 1024, 1024, 1024}));
    EXPECT_EQ(rows_given({}, true, RowClass::decode, 1024), (Cut{1024, 1024}));
    EXPECT_EQ(rows_given({}, false, RowClass::prefill, 1024), (Cut{1024, 1024})) << "copies that ops wait for";
    EXPECT_EQ(rows_given({.through_host = true}, true, RowClass::prefill, 1024), (Cut{1024, 1024}));
    EXPECT_EQ(rows_given({.group_rows = 0}, true, RowClass::prefill, 1024), (Cut{1024, 1024}));
    EXPECT_EQ(rows_given({.group_rows = 100}, false, RowClass::prefill, 201), (Cut{137, 137, 64, 64}));
    EXPECT_EQ(rows_given({}, true, RowClass::prefill, 1024, mixture_config()), (Cut{1024, 1024}))
        << "experts are read once for all rows";
}

TEST(RowGroups, TakeTheMemoryThatIsPlanned) {
    Counting first(host()), second(host());
    const kernels::ModelShape shape = [&] {
        kernels::ModelShape of = small_config().shape;
        of.devices = 3;
        return of;
    }();
    const DividedOps whole({lent(first), lent(second)}, {.group_rows = 0}),
        cut({lent(first), lent(second)}, {.group_rows = 64});
    const std::int64_t late = whole.workspace_bytes_on(1, shape, 100, 4) - 2 * 1000;
    EXPECT_EQ(cut.workspace_bytes_on(1, shape, 200, 4), whole.workspace_bytes_on(1, shape, 200, 4) + late);
    EXPECT_EQ(cut.workspace_bytes_on(1, shape, 127, 4), whole.workspace_bytes_on(1, shape, 127, 4));
}

// ----------------------------------------------------------------------------------------------------------- copies

// What a copy that was asked for waits to do.
struct Copy {
    Workspace *from, *to;
    std::function<void()> run;
    const int* calls;  // of the reader's rank that have run
    int asked_at;
};

// All copies of some ranks that have not been made. Each is made as late as can be.
struct Copies {
    std::deque<Copy> waiting;
    int beside = 0, made = 0;

    // The copies for which `now` holds, each after those before it that it needs.
    void make(const std::function<bool(const Copy&)>& now) {
        for (std::size_t i = 0; i < waiting.size();) {
            if (!now(waiting[i])) {
                ++i;
                continue;
            }
            const Copy copy = waiting[i];
            waiting.erase(waiting.begin() + static_cast<std::ptrdiff_t>(i));
            copy.run();
            beside += *copy.calls > copy.asked_at ? 1 : 0;
            ++made;
        }
    }
    void make_of(const Workspace& workspace) {
        make([&](const Copy& copy) { return copy.from == &workspace || copy.to == &workspace; });
    }
};

// The host as a device: calls are noted until they are started, and copies are made when calls come that use their
// rows.
class Device final : public SharingOps {
public:
    Device(kernels::Ops& inner, Copies& copies) : SharingOps(inner), copies_(copies) {}
    bool copies_beside_ops(std::span<LayerShare* const>) override { return true; }

    void begin(Workspace& workspace, const kernels::Batch& batch) override {
        start(workspace);
        copies_.make_of(workspace);
        rows_[&workspace] = batch.rows.size();
        inner().begin(workspace, batch);
    }
    void embed(const kernels::PreparedOp& op, Workspace& workspace) override {
        note(workspace, [&, this] { inner().embed(op, workspace); });
    }
    void attention_in(const kernels::PreparedOp& op, Workspace& workspace, kernels::KvPages& kv,
                      std::int32_t layer) override {
        note(workspace, [&, this, layer] { inner().attention_in(op, workspace, kv, layer); });
    }
    void attend(const kernels::PreparedOp& op, Workspace& workspace, const kernels::KvPages& kv,
                std::int32_t layer) override {
        note(workspace, [&, this, layer] { inner().attend(op, workspace, kv, layer); });
    }
    void mlp_in(const kernels::PreparedOp& op, Workspace& workspace) override {
        note(workspace, [&, this] { inner().mlp_in(op, workspace); });
    }
    void mlp_out(const kernels::PreparedOp& op, Workspace& workspace) override {
        note(workspace, [&, this] { inner().mlp_out(op, workspace); });
    }
    void lm_head(const kernels::PreparedOp& op, Workspace& workspace) override {
        note(workspace, [&, this] { inner().lm_head(op, workspace); });
        start(workspace);
    }
    void start(Workspace& workspace) override {
        std::vector<std::function<void()>> calls = std::move(noted_[&workspace]);
        noted_[&workspace].clear();
        if (calls.empty()) return;
        copies_.make_of(workspace);
        for (const auto& call : calls) call();
        calls_run += static_cast<int>(calls.size());
    }
    void clear_rows(Workspace& workspace) override {
        start(workspace);
        copies_.make_of(workspace);
        shared().clear_rows(workspace);
    }
    std::span<const float> residual(Workspace& workspace, std::int32_t t) override {
        copies_.make_of(workspace);
        return inner().residual(workspace, t);
    }
    bool copy_values(const ValuesAt& to, LayerShare& other, const ValuesAt& from, std::int64_t count) override {
        Device& source = dynamic_cast<Device&>(other);
        source.start(from.workspace);
        start(to.workspace);
        copies_.make([&](const Copy& copy) { return copy.to == &from.workspace || copy.from == &to.workspace; });
        copies_.waiting.push_back({&from.workspace, &to.workspace,
                                   [=, this, &source] { copy(to, source, from, count); }, &calls_run, calls_run});
        return true;
    }
    int calls_run = 0;

private:
    void note(Workspace& workspace, std::function<void()> call) { noted_[&workspace].push_back(std::move(call)); }
    void copy(const ValuesAt& to, Device& source, const ValuesAt& from, std::int64_t count) {
        const std::size_t rows = rows_.at(&to.workspace);
        const auto size = [](std::int64_t values) { return static_cast<std::size_t>(values); };
        std::vector<float> made(rows * size(from.width)), read(rows * size(to.width));
        source.shared().read_values(from.workspace, from.values, from.width, made);
        shared().read_values(to.workspace, to.values, to.width, read);
        for (std::size_t t = 0; t < rows; ++t) {
            std::copy_n(made.data() + t * size(from.width) + size(from.first), size(count),
                        read.data() + t * size(to.width) + size(to.first));
        }
        shared().write_values(to.workspace, to.values, to.width, read);
    }

    Copies& copies_;
    std::map<Workspace*, std::size_t> rows_;
    std::map<Workspace*, std::vector<std::function<void()>>> noted_;
};

TEST(RowGroups, OpsRunWhileValuesAreCopied) {
    for (const std::string name : {"qwen3", "gemma3"}) {
        const Outcome expected = evaluate(family(name, host()), RowClass::prefill, {64});
        for (const std::int32_t group_rows : {0, 1}) {
            Copies copies;
            Device first(host(), copies), second(host(), copies);
            DividedOps ops({lent(first), lent(second)}, {.shares = {1, 2}, .group_rows = group_rows});
            EXPECT_TRUE(evaluate(family(name, ops), RowClass::prefill, {64}) == expected) << name;
            ASSERT_GT(copies.made, 30);
            if (group_rows == 0) {
                EXPECT_EQ(copies.beside, 0) << name << ": each op waits for what it reads";
            } else {
                EXPECT_GT(copies.beside, copies.made * 3 / 4) << name;
            }
            copies.waiting.clear();
        }
    }
}

// ---------------------------------------------------------------------------------------------------------- faults

// Fails, hangs or sees Ctrl-C at one of the calls of a forward.
class FailingRank final : public Failing<SharingOps> {
public:
    using Failing::Failing;
    std::atomic<bool> hangs = false;

    void read_values(Workspace& workspace, Values values, std::int64_t width, std::span<float> to) override {
        count();
        SharingOps::read_values(workspace, values, width, to);
    }
    void write_values(Workspace& workspace, Values values, std::int64_t width, std::span<const float> from) override {
        count();
        SharingOps::write_values(workspace, values, width, from);
    }
    bool idle() override { return !hangs; }
};

// A rank of two that may fail, and a text of 20 rows on both.
struct Text {
    explicit Text(DividedOptions options = {}) {
        options.names = {"other", "failing"};
        options.group_rows = 1;
        ops = std::make_unique<DividedOps>(std::vector{lent(host()), lent(rank)}, options);
        context = std::make_unique<core::Context>(small(*ops), test::options());
        EXPECT_TRUE(context->prefill(std::span(tokens).first(20)));
    }
    std::vector<float> go_on(core::Context& of) const {
        EXPECT_TRUE(of.prefill(std::span(tokens).subspan(20, 9)));
        const std::vector<float> row(of.logits(0).begin(), of.logits(0).end());
        of.truncate(20);
        return row;
    }
    std::vector<float> expected() const {
        core::Context plain(small(host()), test::options());
        EXPECT_TRUE(plain.prefill(std::span(tokens).first(20)));
        return go_on(plain);
    }
    FailingRank rank{host()};
    std::vector<std::int32_t> tokens = random_tokens(kTokens, small_config().shape.vocab, 5);
    std::unique_ptr<DividedOps> ops;
    std::unique_ptr<core::Context> context;
};

TEST(RowGroups, ARankThatFailsIsNamedAndLeavesNothing) {
    Text text;
    const std::vector<float> expected = text.expected();
    int failures = 0;
    for (bool failed = true; failed;) {
        text.rank.calls = failures + 1;
        const std::string problem = error_of([&] { text.go_on(*text.context); });
        text.rank.calls = 0;
        failed = problem != "no error";
        if (failed) {
            EXPECT_EQ(problem, "failing: no answer");
            ++failures;
        }
        text.context->truncate(20);  // logits are asked for when the rows are there
        EXPECT_EQ(text.go_on(*text.context), expected) << failures;
    }
    EXPECT_GE(failures, 40) << "begin, the ops of two layers and their hand-overs, twice, and logits";
}

TEST(RowGroups, ARankThatHangsIsNamedAndTheSessionLives) {
    Text text({.limit = std::chrono::milliseconds(20)});
    const std::vector<float> expected = text.expected();
    text.rank.interrupts = &text.rank.hangs;
    int hung = 0;
    for (bool failed = true; failed;) {
        text.rank.calls = hung + 1;
        const std::string problem = error_of([&] { text.go_on(*text.context); });
        text.rank.calls = 0;
        failed = text.rank.hangs.exchange(false) && problem != "no error";
        if (failed) {
            EXPECT_EQ(problem, "failing has not answered for 20 ms, so the answer ends here");
            ++hung;
        }
        text.context->truncate(20);
        EXPECT_EQ(text.go_on(*text.context), expected) << hung;
    }
    EXPECT_GE(hung, 38) << "all but the last ones, which no other waits for";
}

TEST(RowGroups, AnInterruptDoesNotWaitForTheGroup) {
    Text text;
    text.context->truncate(0);
    EXPECT_GE(interrupts_that_leave_nothing(text.rank, *text.context, small(host())), 20);
}

#ifdef FORESAY_HAVE_CUDA
// Two halves of a GPU, and two GPUs: groups of rows whose copies run beside the ops. Each prompt several times, for
// what depends on the moment.
class RowGroupsOnDevices : public testing::TestWithParam<int> {};

TEST_P(RowGroupsOnDevices, cuda_prompts) {
    const std::vector<kernels::CudaDevice> found = kernels::cuda_devices(nullptr);
    if (found.size() < static_cast<std::size_t>(GetParam())) {
        GTEST_SKIP() << "not run on " << GetParam() << " GPUs: there are " << found.size();
    }
    std::vector<std::shared_ptr<kernels::Ops>> ranks;
    for (std::int32_t r = 0; r < 2; ++r) {
        const int device = found[GetParam() == 2 ? static_cast<std::size_t>(r) : 0].index;
        ranks.push_back(GetParam() == 2 ? kernels::make_cuda_ops({.device = device})
                                        : kernels::make_cuda_ops({.device = device, .part = r, .parts = 2}));
    }
    const auto whole_ops = kernels::make_cuda_ops({.device = found.front().index});
    constexpr std::int32_t kRows = 700;
    const auto prompt = [](const std::shared_ptr<const core::Model>& model, const std::vector<std::size_t>& widths,
                           kernels::KvFormat format) {
        core::Context context(model,
                              {.length = 1024, .prefill_rows = kRows, .decode_rows = kRows, .kv_format = format});
        Rows logits;
        feed(context, RowClass::prefill, random_tokens(kRows, model->config().shape.vocab, 5), widths, logits);
        return logits;
    };
    for (const std::string name : {"small", "qwen3", "gemma3", "starcoder2", "gemma4-e"}) {
        const auto load_on = [&](kernels::Ops& ops) { return name == "small" ? small(ops) : family(name, ops); };
        for (const kernels::KvFormat format : {kernels::KvFormat::f16, kernels::KvFormat::q8}) {
            const Rows expected = prompt(load_on(*whole_ops), {static_cast<std::size_t>(kRows)}, format);
            for (const Shares& shares : {Shares{1, 1}, Shares{1, 2}}) {
                for (const std::int32_t group_rows : {0, 64, 150}) {
                    DividedOps ops(ranks, {.shares = shares, .group_rows = group_rows});
                    std::shared_ptr<const core::Model> divided;
                    const std::string problem = error_of([&] { divided = load_on(ops); });
                    if (other_order(problem)) continue;
                    ASSERT_EQ(problem, "no error");
                    for (const std::vector<std::size_t>& widths :
                         {std::vector<std::size_t>{kRows}, std::vector<std::size_t>{433, 1, 266},
                          std::vector<std::size_t>{kRows}}) {
                        EXPECT_TRUE(prompt(divided, widths, format) == expected)
                            << name << ", " << kernels::name(format) << ", 1:" << shares.back() << ", groups of "
                            << group_rows << ", " << widths.front();
                    }
                }
            }
        }
    }
}

INSTANTIATE_TEST_SUITE_P(Gpus, RowGroupsOnDevices, testing::Values(1, 2));
#endif

}  // namespace
}  // namespace foresay::test
