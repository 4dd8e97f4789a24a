// What backends promise besides arithmetic: pages, token slots, accessors, any alignment, the backend's name.

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>

#include "base/error.h"
#include "kernels/cpu/isa_select.h"
#include "tests/kernels/tiny_model.h"

namespace foresay::test {
namespace {

using namespace kernels;

std::vector<std::string> backend_names() {
    std::vector<std::string> names = fast_backends();
    names.insert(names.begin(), "reference");
    return names;
}

class Backend : public testing::TestWithParam<std::string> {
protected:
    void SetUp() override { FORESAY_SKIP_WITHOUT_DEVICE(GetParam()); }
    Ops& ops() const { return backend_ops(GetParam(), 2); }

    SamplingPlan plan(std::uint32_t index, float temperature) const {
        SamplingPlan plan;
        plan.key = {.seed = 3, .branch = 1, .index = index};
        plan.greedy = temperature == 0.0f;
        if (!plan.greedy) {
            plan.step_count = 1;
            plan.steps[0] = {.kind = SamplingStepKind::temperature, .temperature = temperature};
        }
        return plan;
    }
};

void expect_equal(const std::vector<RowResult>& expected, const std::vector<RowResult>& found) {
    ASSERT_EQ(expected.size(), found.size());
    for (std::size_t t = 0; t < expected.size(); ++t) {
        EXPECT_EQ(expected[t].residual, found[t].residual) << "row " << t;
        EXPECT_EQ(expected[t].logits, found[t].logits) << "row " << t;
    }
}

TEST_P(Backend, ACopiedPageHoldsTheSame) {
    const TinyModel model(smallest(QuantType::f16, GetParam()));
    const auto tokens = random_tokens(1, 100, model.shape().vocab);
    TinyRun run(model, ops(), 6, 64);
    Sequence original{{0, 1}}, copy{{4, 2}}, other{{3, 5}};
    feed(run, other, random_tokens(2, 90, model.shape().vocab), {30});
    feed(run, original, std::span(tokens).first(90), {30});
    for (std::size_t i = 0; i < 2; ++i) run.ops().copy_page(run.kv(), original.pages[i], copy.pages[i]);
    copy.length = 90;
    // The original changes; the copy and the bystander must not.
    Sequence astray = original;
    astray.length = 40;
    feed(run, astray, random_tokens(3, 60, model.shape().vocab), {20});
    const auto found = feed(run, copy, std::span(tokens).subspan(90), {3});
    const auto bystander = feed(run, other, std::span(tokens).subspan(90), {3});

    TinyRun fresh(model, ops(), 6, 64);
    Sequence alone{{5, 0}}, other_alone{{1, 2}};
    feed(fresh, alone, std::span(tokens).first(90), {30});
    feed(fresh, other_alone, random_tokens(2, 90, model.shape().vocab), {30});
    expect_equal(feed(fresh, alone, std::span(tokens).subspan(90), {3}), found);
    expect_equal(feed(fresh, other_alone, std::span(tokens).subspan(90), {3}), bystander);
}

TEST_P(Backend, ATokenFromASlotEqualsATokenById) {
    const TinyModel model(smallest(QuantType::q8_0, GetParam()));
    const std::int32_t steps = 20;
    for (const float temperature : {0.0f, 0.8f}) {
        TinyRun slots(model, ops(), 1, 1), ids(model, ops(), 1, 1);
        const std::vector<std::int32_t> pages = {0}, logit_rows = {0};
        TokenRef by_slot = TokenRef::id(7), by_id = TokenRef::id(7);
        std::vector<SampledToken> sampled;
        for (std::int32_t i = 0; i < steps; ++i) {
            const SequenceView view = {pages, i};
            const SamplingPlan sampling = plan(static_cast<std::uint32_t>(i + 1), temperature);
            const std::int32_t slot = (5 * i + 3) % kTokenSlots;
            for (TinyRun* run : {&slots, &ids}) {
                const Row row = {run == &slots ? by_slot : by_id, i};
                run->forward({RowClass::decode, false, {&row, 1}, {&view, 1}, logit_rows});
                run->ops().sample(run->workspace(), {&sampling, 1}, {&slot, 1});
            }
            by_slot = TokenRef::slot(slot);
            sampled.push_back(ids.ops().sampled(ids.workspace(), slot));
            by_id = TokenRef::id(sampled.back().token);
            ASSERT_EQ(slots.ops().sampled(slots.workspace(), slot).token, sampled.back().token);
            ASSERT_EQ(slots.ops().sampled(slots.workspace(), slot).margin, sampled.back().margin);
            ASSERT_EQ(slots.residual(0), ids.residual(0)) << "step " << i;
        }
        // Slots keep what they hold.
        for (std::int32_t i = 0; i < steps; ++i) {
            const SampledToken held = slots.ops().sampled(slots.workspace(), (5 * i + 3) % kTokenSlots);
            EXPECT_EQ(held.token, sampled[static_cast<std::size_t>(i)].token);
        }
    }
}

TEST_P(Backend, ATokenFromASlotOfAnotherModelEqualsATokenById) {
    TinyConfig small = smallest(QuantType::q8_0, GetParam());
    const TinyModel model(small);
    small.shape.layers = 1;
    const TinyModel drafting(small);
    TinyRun draft(drafting, ops(), 1, 1), slots(model, ops(), 3, 3), ids(model, ops(), 3, 3);
    const std::vector<std::int32_t> pages = {0}, first = {0}, all = {0, 1, 2};
    for (std::int32_t i = 0; i < 4; ++i) {
        const SequenceView one = {pages, i}, three = {pages, 3 * i};
        const SamplingPlan sampling = plan(static_cast<std::uint32_t>(i + 1), 0.8f);
        const std::int32_t slot = 9 + i;
        const Row row = {TokenRef::id(5 + i), i};
        draft.forward({RowClass::decode, false, {&row, 1}, {&one, 1}, first});
        draft.ops().sample(draft.workspace(), {&sampling, 1}, {&slot, 1});
        // Between two ids; enqueued before the token is known.
        std::vector<Row> rows = {
            {TokenRef::id(3), 3 * i}, {TokenRef::slot(slot), 3 * i + 1}, {TokenRef::id(8), 3 * i + 2}};
        Batch batch = {RowClass::decode, false, rows, {&three, 1}, all};
        batch.token_source = &draft.workspace();
        slots.forward(batch);
        rows[1].token = TokenRef::id(draft.ops().sampled(draft.workspace(), slot).token);
        ids.forward({RowClass::decode, false, rows, {&three, 1}, all});
        for (std::int32_t t = 0; t < 3; ++t) ASSERT_EQ(slots.residual(t), ids.residual(t)) << "step " << i;
    }
}

TEST_P(Backend, SamplesEqualSampleRow) {
    const TinyModel model(smallest(QuantType::f32, GetParam()));
    TinyRun run(model, ops(), 1, 16);
    Sequence sequence{{0}};
    const auto rows = feed(run, sequence, random_tokens(4, 16, model.shape().vocab), {16});
    std::vector<SamplingPlan> plans;
    std::vector<std::int32_t> slots;
    for (std::int32_t i = 0; i < 16; ++i) {
        plans.push_back(plan(static_cast<std::uint32_t>(i), i % 4 == 0 ? 0.0f : 0.3f * static_cast<float>(i)));
        slots.push_back(kTokenSlots - 1 - 2 * i);
    }
    run.ops().sample(run.workspace(), plans, slots);
    SamplingScratch scratch;
    for (std::size_t i = 0; i < 16; ++i) {
        std::vector<float> logits = rows[i].logits;
        const SampledToken expected = sample_row(logits, plans[i], scratch);
        const SampledToken found = run.ops().sampled(run.workspace(), slots[i]);
        EXPECT_EQ(found.token, expected.token) << "row " << i;
        EXPECT_EQ(found.margin, expected.margin) << "row " << i;
    }
}

TEST_P(Backend, LogitsAreThoseOfTheRowsAskedFor) {
    const TinyModel model(smallest(QuantType::q4_0, GetParam()));
    const auto tokens = random_tokens(5, 20, model.shape().vocab);
    TinyRun all(model, ops(), 1, 20), some(model, ops(), 1, 20);
    Sequence sequence{{0}};
    const auto expected = feed(all, sequence, tokens, {20}, RowClass::prefill);
    std::vector<Row> rows;
    for (std::int32_t i = 0; i < 20; ++i) rows.push_back({TokenRef::id(tokens[static_cast<std::size_t>(i)]), i});
    const std::vector<std::int32_t> pages = {0};
    const SequenceView view = {pages, 0};
    for (const std::vector<std::int32_t>& wanted :
         {std::vector<std::int32_t>{}, {0}, {19}, {3, 4, 11}, {0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 19}}) {
        some.forward({RowClass::prefill, false, rows, {&view, 1}, wanted});
        for (std::size_t i = 0; i < wanted.size(); ++i) {
            const auto row = static_cast<std::size_t>(wanted[i]);
            EXPECT_EQ(some.logits(static_cast<std::int32_t>(i)), expected[row].logits) << "row " << row;
        }
        for (std::int32_t t = 0; t < 20; ++t)
            EXPECT_EQ(some.residual(t), expected[static_cast<std::size_t>(t)].residual) << "row " << t;
        // Logits are writable and rows do not overlap.
        for (std::size_t i = 0; i < wanted.size(); ++i) {
            const auto logits = some.ops().logits(some.workspace(), static_cast<std::int32_t>(i));
            ASSERT_EQ(logits.size(), static_cast<std::size_t>(model.shape().vocab));
            std::fill(logits.begin(), logits.end(), static_cast<float>(i));
        }
        for (std::size_t i = 0; i < wanted.size(); ++i) {
            for (const float logit : some.logits(static_cast<std::int32_t>(i))) ASSERT_EQ(logit, static_cast<float>(i));
        }
    }
}

// The tests' tensors lie at odd addresses; these are the same at aligned ones.
TEST_P(Backend, AlignmentOfTheFileMakesNoDifference) {
    for (const QuantType quant_type : kAllQuantTypes) {
        const std::int32_t width = 256, outputs = 37;
        const ModelShape shape = {
            .layers = 1, .d_model = width, .heads = 1, .kv_heads = 1, .head_dim = 16, .d_ff = 16, .vocab = outputs};
        Random random(6);
        const Tensor norm = Tensor::random(random, QuantType::f32, 1, width, 0.1f, 1.0f);
        const Tensor table = Tensor::random(random, quant_type, 5, width, 1.0f);
        const Tensor weight = Tensor::random(random, quant_type, outputs, width);
        ASSERT_EQ(reinterpret_cast<std::uintptr_t>(weight.view().data) % 2, 1u);
        std::vector<std::byte> storage[3];
        std::vector<float> logits[2];
        for (const bool aligned : {false, true}) {
            const auto view = [&](const Tensor& t, int i) { return aligned ? t.aligned_view(storage[i]) : t.view(); };
            const auto embed = ops().prepare(EmbedSpec{view(table, 0)});
            const auto head = ops().prepare(LmHeadSpec{shape, {view(norm, 1)}, view(weight, 2)});
            const auto workspace = ops().allocate_workspace(shape, 1, 1);
            const std::vector<std::int32_t> pages = {0}, logit_rows = {0};
            const Row row = {TokenRef::id(3), 0};
            const SequenceView sequence = {pages, 0};
            ops().begin(*workspace, {RowClass::decode, false, {&row, 1}, {&sequence, 1}, logit_rows});
            ops().embed(*embed, *workspace);
            ops().lm_head(*head, *workspace);
            const auto found = ops().logits(*workspace, 0);
            logits[aligned].assign(found.begin(), found.end());
        }
        EXPECT_EQ(logits[0], logits[1]) << info(quant_type).name;
    }
}

TEST_P(Backend, SaysWhatItTakes) {
    const TinyModel model(smallest(QuantType::q8_0, GetParam()));
    const ModelShape& s = model.shape();
    const auto kv = ops().allocate_kv(s, 3, KvFormat::f16);
    EXPECT_EQ(kv->pages, 3);
    EXPECT_EQ(kv->bytes, ops().kv_bytes(s, 3, KvFormat::f16));
    EXPECT_GE(kv->bytes, std::int64_t{2} * 2 * s.layers * 3 * kPagePositions * s.kv_heads * s.head_dim);
    const auto workspace = ops().allocate_workspace(s, 9, 4);
    EXPECT_EQ(workspace->max_rows, 9);
    EXPECT_EQ(workspace->max_logit_rows, 4);
    EXPECT_GT(workspace->bytes, 0);
    const auto op = ops().prepare(model.mlp_in(0));
    EXPECT_EQ(op->macs_per_row, std::int64_t{2} * s.d_ff * s.d_model);
    EXPECT_EQ(op->weight_bytes, std::int64_t{2} * s.d_ff * s.d_model / 32 * 34);
    EXPECT_EQ(ops().prepare(model.head())->macs_per_row, std::int64_t{s.vocab} * s.d_model);
    const auto attention = ops().prepare(model.attention_in(0));
    EXPECT_EQ(attention->macs_per_row, std::int64_t{s.heads + 2 * s.kv_heads} * s.head_dim * s.d_model);
}

INSTANTIATE_TEST_SUITE_P(All, Backend, testing::ValuesIn(backend_names()), [](const auto& info) { return info.param; });

std::string refusal(const CpuOptions& options) {
    try {
        make_cpu_ops(options);
    } catch (const Error& error) {
        return error.what();
    }
    return {};
}

TEST(Isa, TheOneAskedForRuns) {
    const std::vector<std::string> usable = cpu::usable_isas();
    ASSERT_FALSE(usable.empty());
    EXPECT_EQ(usable.back(), "portable");
    for (const std::string& isa : usable) {
        const auto ops = make_cpu_ops({.threads = 2, .isa = isa});
        EXPECT_EQ(ops->describe().name, "cpu");
        EXPECT_EQ(ops->describe().detail, isa + ", 2 threads");
        EXPECT_EQ(ops->describe().threads, 2);
        EXPECT_EQ(cpu::select_isa(isa).name, isa);
    }
    EXPECT_EQ(make_cpu_ops({.threads = 1, .isa = "portable"})->describe().detail, "portable, 1 thread");
    EXPECT_EQ(cpu::select_isa("").name, usable.front());
}

TEST(Isa, TheEnvironmentIsAskedWhenTheOptionsSayNothing) {
    const char* before = std::getenv("FORESAY_CPU_ISA");
    const std::string kept = before ? before : "";
    setenv("FORESAY_CPU_ISA", "portable", 1);
    EXPECT_EQ(make_cpu_ops({.threads = 1})->describe().detail, "portable, 1 thread");
    EXPECT_EQ(make_cpu_ops({.threads = 1, .isa = cpu::usable_isas().front()})->describe().detail,
              cpu::usable_isas().front() + ", 1 thread");
    setenv("FORESAY_CPU_ISA", "mmx", 1);
    EXPECT_EQ(refusal({.threads = 1}), "unknown instruction set 'mmx'; choose avx512, avx2 or portable");
    if (before) {
        setenv("FORESAY_CPU_ISA", kept.c_str(), 1);
    } else {
        unsetenv("FORESAY_CPU_ISA");
    }
}

TEST(Isa, UnknownAndMissingSetsAreRefused) {
    EXPECT_EQ(refusal({.threads = 1, .isa = "AVX2"}),
              "unknown instruction set 'AVX2'; choose avx512, avx2 or portable");
    EXPECT_EQ(refusal({.threads = 1, .isa = "neon"}),
              "unknown instruction set 'neon'; choose avx512, avx2 or portable");
    const std::vector<std::string> usable = cpu::usable_isas();
    for (const std::string isa : {"avx512", "avx2"}) {
        if (std::find(usable.begin(), usable.end(), isa) != usable.end()) continue;
        EXPECT_NE(refusal({.threads = 1, .isa = isa}), "") << isa << " is not usable, yet it was not refused";
    }
}

// Holds in every build and on every machine.
TEST(Device, IsListedOrItsAbsenceHasAReason) {
    std::string why;
    const std::vector<CudaDevice> devices = cuda_devices(&why);
    EXPECT_NE(devices.empty(), why.empty());
    for (const CudaDevice& device : devices) {
        EXPECT_FALSE(device.name.empty());
        EXPECT_GT(device.memory, 0);
        EXPECT_LE(device.free_memory, device.memory);
    }
    try {
        make_cuda_ops({.device = 12345});
        FAIL() << "there is no such device";
    } catch (const Error& error) {
        EXPECT_NE(std::string(error.what()).find("cuda:12345"), std::string::npos) << error.what();
        EXPECT_NE(std::string(error.what()).find(devices.empty() ? why : "the last one"), std::string::npos)
            << error.what();
    }
}

}  // namespace
}  // namespace foresay::test
