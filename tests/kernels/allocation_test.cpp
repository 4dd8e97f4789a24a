// Steady-state decoding allocates nothing: operator new is counted over a hundred forwards of each width.

#include <gtest/gtest.h>

#include <new>

#include "kernels/cpu/isa_select.h"
#include "tests/kernels/tiny_model.h"
#include "tests/support/allocated.h"

namespace foresay::test {
namespace {

using namespace kernels;

struct AllocationCase {
    std::string isa;
    QuantType quant_type;
    int threads;
};

class Allocation : public testing::TestWithParam<AllocationCase> {
protected:
    void SetUp() override { FORESAY_SKIP_WITHOUT_DEVICE(GetParam().isa); }
};

// Calls the operators, which a compiler may not leave out, unlike the pair of a new and a delete expression.
TEST(AllocationCount, SeesAnAllocation) {
    const std::int64_t before = allocations();
    ::operator delete(::operator new(1000));
    ::operator delete[](::operator new[](1000));
    EXPECT_EQ(allocations() - before, 2);
}

TEST_P(Allocation, SteadyStateHasNone) {
    const AllocationCase& c = GetParam();
    const TinyModel model(smallest(c.quant_type, c.isa));
    const std::int32_t most = 9, forwards = 100;
    std::vector<SamplingPlan> plans(static_cast<std::size_t>(most));
    std::vector<std::int32_t> slots = counting(most);
    for (SamplingPlan& plan : plans) {
        plan.step_count = 3;
        plan.steps[0] = {.kind = SamplingStepKind::top_k, .top_k = 20};
        plan.steps[1] = {.kind = SamplingStepKind::top_p, .top_p = 0.9f};
        plan.steps[2] = {.kind = SamplingStepKind::temperature, .temperature = 0.7f};
    }
    for (const std::int32_t width : {1, 4, most}) {
        const std::int32_t pages_needed = (width * (forwards + 1)) / kPagePositions + 1;
        TinyRun run(model, backend_ops(c.isa, c.threads), pages_needed, most);
        const std::vector<std::int32_t> pages = counting(pages_needed), logit_rows = counting(width);
        std::vector<Row> rows(static_cast<std::size_t>(width));
        const auto step = [&](std::int32_t i) {
            for (std::int32_t t = 0; t < width; ++t)
                rows[static_cast<std::size_t>(t)] = {TokenRef::id((i + t) % model.shape().vocab), i * width + t};
            const SequenceView view = {pages, i * width};
            run.forward({RowClass::decode, false, rows, {&view, 1}, logit_rows});
            run.ops().sample(run.workspace(), std::span(plans).first(rows.size()), std::span(slots).first(rows.size()));
        };
        // The first forwards may still make tables and graphs. After them the text grows over many pages.
        const std::int32_t warm = c.isa == "cuda" ? forwards / 2 : 1;
        for (std::int32_t i = 0; i < warm; ++i) step(i);
        const std::int64_t before = allocations();
        for (std::int32_t i = warm; i <= forwards; ++i) step(i);
        EXPECT_EQ(allocations() - before, 0) << "in " << forwards << " forwards of " << width << " rows";
    }
}

std::vector<AllocationCase> allocation_cases() {
    std::vector<AllocationCase> cases;
    for (const std::string& isa : fast_backends()) {
        for (const int threads : {1, 2}) {
            if (isa == "cuda" && threads > 1) continue;
            for (const QuantType quant_type : {QuantType::f16, QuantType::q8_0, QuantType::q4_k})
                cases.push_back({isa, quant_type, threads});
        }
    }
    return cases;
}

INSTANTIATE_TEST_SUITE_P(All, Allocation, testing::ValuesIn(allocation_cases()), [](const auto& info) {
    return info.param.isa + "_" + std::string(kernels::info(info.param.quant_type).name) + "_" +
           std::to_string(info.param.threads);
});

}  // namespace
}  // namespace foresay::test
