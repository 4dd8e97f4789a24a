// Which rows of a text are decode rows (core/models/given_text.h): on a backend that has memory of its own, and so two
// classes, the class of a token follows from the tokens before it, wherever chunks, turns and truncations cut the text.

#include "core/models/given_text.h"

#include <gtest/gtest.h>

#include <vector>

#include "kernels/ops_decorator.h"
#include "speculative/branch_cache.h"
#include "tests/models/backends.h"

namespace foresay::test {
namespace {

using kernels::RowClass;

// A host's backend that calls itself a device, and notes the class of each position that is evaluated.
class DeviceLikeOps final : public kernels::OpsDecorator {
public:
    explicit DeviceLikeOps(kernels::Ops& inner) : OpsDecorator(inner) {}
    std::int64_t free_memory() const override { return std::int64_t{1} << 40; }
    void begin(kernels::Workspace& workspace, const kernels::Batch& batch) override {
        for (const kernels::Row& row : batch.rows) {
            const auto at = static_cast<std::size_t>(row.position);
            if (at >= classes.size()) classes.resize(at + 1);
            classes[at] = batch.row_class;
        }
        OpsDecorator::begin(workspace, batch);
    }
    std::vector<RowClass> classes;
};

class GivenText : public testing::Test {
protected:
    static constexpr std::int32_t kLength = 512;
    static core::ContextOptions options(std::int32_t prefill_rows, std::int32_t decode_rows) {
        return {.length = kLength, .prefill_rows = prefill_rows, .decode_rows = decode_rows};
    }
    std::int32_t rows() const { return core::given_decode_rows(device_); }
    core::Context context(std::int32_t prefill_rows, std::int32_t decode_rows) {
        core::ModelConfig config = small_config();
        config.shape.layers = 1;
        auto model = random_model(config, kernels::QuantType::f32, kernels::QuantType::f32, device_);
        return core::Context(std::move(model), options(prefill_rows, decode_rows));
    }

    // The text: given, generated and given again; both given segments are longer than their decode rows.
    static constexpr std::int32_t kGiven = 170, kGenerated = 9, kAgain = 150;
    void append(speculative::BranchCache& cache, std::int32_t begin, std::int32_t end) const {
        for (std::int32_t i = begin; i < end; ++i) cache.append(i % 100, i >= kGiven && i < kGiven + kGenerated);
    }
    std::vector<RowClass> expected() const {
        std::vector<RowClass> classes;
        const auto given = [&](std::int32_t count) {
            for (std::int32_t i = 0; i < count; ++i) {
                classes.push_back(i < rows() ? RowClass::decode : RowClass::prefill);
            }
        };
        given(kGiven);
        classes.insert(classes.end(), kGenerated, RowClass::decode);
        given(kAgain);
        return classes;
    }

    DeviceLikeOps device_{backends()[1].ops()};
};

TEST_F(GivenText, HostsHaveOneClass) {
    for (const Backend& backend : backends()) {
        if (backend.name == "cuda") continue;
        EXPECT_EQ(core::given_decode_rows(backend.ops()), 0) << backend.name;
    }
    ASSERT_GT(rows(), 0);
    ASSERT_LT(rows(), kAgain);  // or the cases below show nothing
}

TEST_F(GivenText, FirstRowsOfASegmentAreDecodeRows) {
    core::Context target = context(64, 33);
    speculative::BranchCache cache(target);
    append(cache, 0, kGiven + kGenerated + kAgain);
    ASSERT_TRUE(cache.evaluate(nullptr));
    EXPECT_EQ(device_.classes, expected());
}

TEST_F(GivenText, ClassesDoNotDependOnHowTheTextIsCut) {
    const std::int32_t end = kGiven + kGenerated + kAgain;
    for (const std::int32_t piece : {1, 7, 50, 127, 128, 129, 200}) {
        SCOPED_TRACE(piece);
        core::Context target = context(piece % 2 == 0 ? 16 : 256, 33);
        speculative::BranchCache cache(target);
        device_.classes.clear();
        for (std::int32_t at = 0; at < end; at += piece) {
            append(cache, at, std::min(end, at + piece));
            ASSERT_TRUE(cache.evaluate(nullptr));
        }
        EXPECT_EQ(device_.classes, expected());
        // The middle of a segment again, and its last token again for its logits.
        for (const std::int32_t keep : {60, 140, kGiven + 3, kGiven + kGenerated + 130}) {
            cache.truncate(keep);
            append(cache, keep, end);
            ASSERT_TRUE(cache.evaluate(nullptr));
            ASSERT_TRUE(cache.evaluate(nullptr));
            EXPECT_EQ(device_.classes, expected());
        }
    }
}

TEST_F(GivenText, LogitsOfEarlierTokensComeFromTheSameRows) {
    core::Context target = context(64, 33);
    speculative::BranchCache cache(target);
    append(cache, 0, kGiven + kGenerated + kAgain);
    std::int32_t seen = 0;
    cache.visit_logits(1, [&](std::int32_t, std::span<const float>) { ++seen; });
    EXPECT_EQ(seen, kGiven + kGenerated + kAgain - 1);
    device_.classes.resize(expected().size(), expected().back());  // of the last token, which has no successor
    EXPECT_EQ(device_.classes, expected());
}

TEST_F(GivenText, AWholeSegmentAtOnce) {
    core::Context target = context(64, 33);
    std::vector<std::int32_t> tokens;
    for (std::int32_t i = 0; i < kGiven; ++i) tokens.push_back(i % 100);
    ASSERT_TRUE(core::evaluate_given(target, tokens));
    const std::vector<RowClass> all = expected();
    EXPECT_EQ(device_.classes, std::vector<RowClass>(all.begin(), all.begin() + kGiven));
    // What does not fit leaves the context as it was.
    tokens.resize(kLength);
    EXPECT_FALSE(core::evaluate_given(target, tokens));
    EXPECT_EQ(target.length(), kGiven);
}

}  // namespace
}  // namespace foresay::test
