// That every kind of model can be measured: not how long it takes.
#include "engine/measured_times.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <utility>

#include "base/error.h"
#include "kernels/ops_decorator.h"
#include "tests/models/family_models.h"

namespace foresay::engine {
namespace {

using kernels::QuantType;
using ::testing::Each;
using ::testing::Gt;

core::RowTimes measure(core::ModelSource& source, kernels::Ops& ops) {
    return measured_times(ops, source, core::model_bytes(source));
}

TEST(MeasuredTimes, OfEveryFamilyAndOfEachLayer) {
    const auto ops = kernels::make_cpu_ops({1, ""});
    for (const std::string& name : test::family_names()) {
        const auto source =
            core::ModelSource::random(test::config_of(test::family_json(name)), QuantType::q8_0, QuantType::q8_0, 1);
        const core::RowTimes times = measure(*source, *ops);
        EXPECT_EQ(std::ssize(times.layers), source->config().shape.layers) << name;
        EXPECT_THAT(times.layers, Each(Gt(0.0))) << name;
        EXPECT_GT(times.head, 0.0) << name;
    }
}

// The same again in this process, so that a split does not change by chance.
TEST(MeasuredTimes, AreMeasuredOnceForAModelAndABackend) {
    const auto config = test::config_of(test::family_json("qwen3"));
    const auto source = core::ModelSource::random(config, QuantType::q4_0, QuantType::q8_0, 1);
    const auto one = kernels::make_cpu_ops({1, ""}), same = kernels::make_cpu_ops({1, ""});
    const core::RowTimes times = measure(*source, *one), again = measure(*source, *same);
    EXPECT_EQ(times.layers, again.layers);
    EXPECT_EQ(times.head, again.head);
}

// A backend without memory: nothing is said, and nothing thrown.
class Full final : public kernels::OpsDecorator {
public:
    Full() : OpsDecorator(kernels::make_cpu_ops({1, ""})) {}
    kernels::BackendInfo describe() const override { return {"full", "", 1}; }
    std::unique_ptr<kernels::KvPages> allocate_kv(const kernels::KvShape&, std::int32_t, kernels::KvFormat) override {
        throw Error("out of memory");
    }
};

TEST(MeasuredTimes, AreEmptyWhereThereIsNoMemory) {
    Full full;
    const auto config = test::config_of(test::family_json("qwen3"));
    const auto source = core::ModelSource::random(config, QuantType::q4_0, QuantType::q8_0, 1);
    EXPECT_TRUE(measure(*source, full).layers.empty());
}

// A model whose last layer cannot be read, as a damaged file.
class Damaged final : public core::ModelSource {
public:
    explicit Damaged(std::unique_ptr<core::ModelSource> inner) : inner_(std::move(inner)) {
        config_ = inner_->config();
        path_ = "damaged";
    }
    kernels::TensorView tensor(const core::TensorName& name, core::TensorShape shape) override {
        if (reads && name.layer == config_.shape.layers - 1) throw Error("the file is damaged");
        return inner_->tensor(name, shape);
    }
    bool has(const core::TensorName& name) const override { return inner_->has(name); }
    void release() override { inner_->release(); }
    std::int64_t weight_bytes() override { return inner_->weight_bytes(); }

    bool reads = false;

private:
    std::unique_ptr<core::ModelSource> inner_;
};

// Loading says what is wrong.
TEST(MeasuredTimes, AreEmptyOfADamagedFile) {
    const auto ops = kernels::make_cpu_ops({1, ""});
    core::ModelConfig config = test::config_of(test::family_json("qwen3"));
    config.shape.layers = 1;
    Damaged source(core::ModelSource::random(config, QuantType::q4_0, QuantType::q8_0, 1));
    const core::ModelBytes bytes = core::model_bytes(source);
    source.reads = true;
    EXPECT_TRUE(measured_times(*ops, source, bytes).layers.empty());
    source.reads = false;
    EXPECT_EQ(measured_times(*ops, source, bytes).layers.size(), 1u) << "what failed is not remembered";
}

}  // namespace
}  // namespace foresay::engine
