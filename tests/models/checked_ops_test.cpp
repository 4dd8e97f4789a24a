// Two backends side by side: the first op at which they differ is found.

#include "tests/models/checked_ops.h"

#include <cmath>

#include "tests/models/backends.h"

namespace foresay::test {
namespace {

// The reference backend with one wrong value: in one row, after one op of one layer.
class WrongOps final : public kernels::OpsDecorator {
public:
    std::string op;
    std::int32_t layer = 0, row = 0, index = 0;
    float error = 0.0f;

    WrongOps() : OpsDecorator(kernels::make_reference_ops()) {}
    void attention_in(const kernels::PreparedOp& prepared, kernels::Workspace& workspace, kernels::KvPages& kv,
                      std::int32_t of) override {
        layer_ = of;
        OpsDecorator::attention_in(prepared, workspace, kv, of);
    }
    void attention_out(const kernels::PreparedOp& prepared, kernels::Workspace& workspace) override {
        OpsDecorator::attention_out(prepared, workspace);
        spoil("attention_out", workspace);
    }
    void mlp_out(const kernels::PreparedOp& prepared, kernels::Workspace& workspace) override {
        OpsDecorator::mlp_out(prepared, workspace);
        spoil("mlp_out", workspace);
    }
    void lm_head(const kernels::PreparedOp& prepared, kernels::Workspace& workspace) override {
        OpsDecorator::lm_head(prepared, workspace);
        if (op == "lm_head") logits(workspace, row)[static_cast<std::size_t>(index)] += error;
    }

private:
    void spoil(const char* now, kernels::Workspace& workspace) {
        if (op != now || layer != layer_) return;
        // The reference keeps the residual stream where residual() shows it.
        const_cast<float&>(residual(workspace, row)[static_cast<std::size_t>(index)]) += error;
    }
    std::int32_t layer_ = 0;
};

std::optional<OpDifference> compare(kernels::Ops& checked, double tolerance) {
    static const std::unique_ptr<kernels::Ops> reference = kernels::make_reference_ops();
    CheckedOps both(*reference, checked, tolerance);
    core::ModelConfig config = small_config();
    config.shape.layers = 3;
    core::Context context(random_model(config, kernels::QuantType::f32, kernels::QuantType::f32, both),
                          {.length = 64, .prefill_rows = 8, .decode_rows = 8});
    const std::vector<std::int32_t> tokens = {7, 300, 12, 5};
    EXPECT_TRUE(context.decode(tokens));
    EXPECT_TRUE(std::isfinite(context.logits(3)[0]));
    return both.difference();
}

TEST(Checked, EqualBackendsDoNotDiffer) {
    WrongOps same;
    EXPECT_FALSE(compare(same, 0.0).has_value());
}

TEST(Checked, TheFirstDifferenceIsNamed) {
    for (const char* op : {"attention_out", "mlp_out", "lm_head"}) {
        WrongOps wrong;
        wrong.op = op;
        wrong.layer = 1;
        wrong.row = 2;
        wrong.index = 45;
        wrong.error = 0.5f;
        const auto found = compare(wrong, 1e-3);
        ASSERT_TRUE(found.has_value()) << op;
        EXPECT_EQ(found->op, op);
        EXPECT_EQ(found->layer, wrong.op == "lm_head" ? -1 : 1);
        EXPECT_EQ(found->row, 2);
        EXPECT_EQ(found->index, 45);
        EXPECT_NEAR(found->found - found->expected, 0.5, 1e-4) << found->text();
    }
}

TEST(Checked, NotANumberIsADifference) {
    WrongOps wrong;
    wrong.op = "mlp_out";
    wrong.error = std::nanf("");
    ASSERT_TRUE(compare(wrong, 1e9).has_value());
}

TEST(Checked, WithinTheToleranceIsNoDifference) {
    WrongOps wrong;
    wrong.op = "mlp_out";
    wrong.error = 1e-4f;
    EXPECT_FALSE(compare(wrong, 0.05).has_value());
}

}  // namespace
}  // namespace foresay::test
