// Steady-state decoding allocates nothing: operator new is counted over a hundred forwards of each width.

#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>

#include "kernels/cpu/isa_select.h"
#include "tests/kernels/tiny_model.h"

namespace {

std::atomic<bool> counting_now = false;
std::atomic<long> allocations = 0;

void* allocate(std::size_t bytes, std::size_t alignment) {
    if (counting_now) ++allocations;
    void* p = alignment > alignof(std::max_align_t)
                  ? std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment)
                  : std::malloc(bytes > 0 ? bytes : 1);
    if (!p) throw std::bad_alloc();
    return p;
}

}  // namespace

void* operator new(std::size_t bytes) { return allocate(bytes, 1); }
void* operator new[](std::size_t bytes) { return allocate(bytes, 1); }
void* operator new(std::size_t bytes, std::align_val_t a) { return allocate(bytes, static_cast<std::size_t>(a)); }
void* operator new[](std::size_t bytes, std::align_val_t a) { return allocate(bytes, static_cast<std::size_t>(a)); }
// Without these two a sanitizer's own would give memory that the operators below cannot take back.
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept { return allocate(bytes, 1); }
void* operator new[](std::size_t bytes, const std::nothrow_t&) noexcept { return allocate(bytes, 1); }
void operator delete(void* p) noexcept { std::free(p); }
void operator delete[](void* p) noexcept { std::free(p); }
void operator delete(void* p, std::size_t) noexcept { std::free(p); }
void operator delete[](void* p, std::size_t) noexcept { std::free(p); }
void operator delete(void* p, std::align_val_t) noexcept { std::free(p); }
void operator delete[](void* p, std::align_val_t) noexcept { std::free(p); }
void operator delete(void* p, std::size_t, std::align_val_t) noexcept { std::free(p); }
void operator delete[](void* p, std::size_t, std::align_val_t) noexcept { std::free(p); }

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
    counting_now = true;
    allocations = 0;
    ::operator delete(::operator new(1000));
    ::operator delete[](::operator new[](1000));
    counting_now = false;
    EXPECT_EQ(allocations, 2);
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
        allocations = 0;
        counting_now = true;
        for (std::int32_t i = warm; i <= forwards; ++i) step(i);
        counting_now = false;
        EXPECT_EQ(allocations, 0) << "in " << forwards << " forwards of " << width << " rows";
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
