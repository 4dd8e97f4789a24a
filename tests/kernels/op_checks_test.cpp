// Every refusal of kernels/op_checks.h: shapes that contradict each other throw, a bad batch aborts.

#include "kernels/op_checks.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "kernels/cpu/isa_select.h"
#include "tests/kernels/tiny_model.h"

namespace foresay::test {
namespace {

using namespace kernels;

// The text of the error with which both the check and every backend refuse `spec`.
template <class Spec>
std::string refusal(const Spec& spec) {
    std::string text;
    try {
        check_op(spec);
        return {};
    } catch (const Error& error) {
        text = error.what();
    }
    for (Ops* ops : {&reference_ops(), &cpu_ops(cpu::usable_isas().front(), 1)}) {
        try {
            ops->prepare(spec);
            ADD_FAILURE() << ops->describe().name << " accepts what the check refuses: " << text;
        } catch (const Error& error) {
            EXPECT_EQ(error.what(), text);
        }
    }
    return text;
}

TinyConfig full_config() {
    TinyConfig config;
    config.biases = config.head_norms = config.post_norms = true;
    return config;
}

class OpChecks : public testing::Test {
protected:
    // A tensor whose shape no op of the model has.
    const TensorView& wrong() const { return wrong_; }

    const TinyModel model_{full_config()};
    Random random_{1};
    const Tensor odd_ = Tensor::random(random_, QuantType::f32, 3, 5);
    const TensorView wrong_ = odd_.view();
};

TEST_F(OpChecks, WhatTheModelHasIsAccepted) {
    EXPECT_EQ(refusal(model_.embed()), "");
    EXPECT_EQ(refusal(model_.attention_in(0)), "");
    EXPECT_EQ(refusal(model_.attend(0)), "");
    EXPECT_EQ(refusal(model_.attention_out(0)), "");
    EXPECT_EQ(refusal(model_.mlp_in(0)), "");
    EXPECT_EQ(refusal(model_.mlp_out(0)), "");
    EXPECT_EQ(refusal(model_.head()), "");
}

TEST_F(OpChecks, MissingTensors) {
    EXPECT_EQ(refusal(EmbedSpec{}), "the weights lack the token embedding");
    const auto missing = [](auto spec, auto member) {
        member(spec) = {};
        return refusal(spec);
    };
    const AttentionInSpec in = model_.attention_in(0);
    EXPECT_EQ(missing(
                  in, [](auto& s) -> auto& { return s.norm.weight; }),
              "")
        << "some families have no norm there";
    EXPECT_EQ(missing(
                  in, [](auto& s) -> auto& { return s.q; }),
              "the weights lack the query projection");
    EXPECT_EQ(missing(
                  in, [](auto& s) -> auto& { return s.k; }),
              "the weights lack the key projection");
    EXPECT_EQ(missing(
                  in, [](auto& s) -> auto& { return s.v; }),
              "the weights lack the value projection");
    EXPECT_EQ(missing(
                  model_.attention_out(0), [](auto& s) -> auto& { return s.o; }),
              "the weights lack the attention output projection");
    const MlpInSpec mlp = model_.mlp_in(0);
    EXPECT_EQ(missing(
                  mlp, [](auto& s) -> auto& { return s.norm.weight; }),
              "")
        << "nor there";
    EXPECT_EQ(missing(
                  mlp, [](auto& s) -> auto& { return s.gate; }),
              "")
        << "nor a gate";
    EXPECT_EQ(missing(
                  mlp, [](auto& s) -> auto& { return s.up; }),
              "the weights lack the up projection");
    EXPECT_EQ(missing(
                  model_.mlp_out(0), [](auto& s) -> auto& { return s.down; }),
              "the weights lack the down projection");
    const LmHeadSpec head = model_.head();
    EXPECT_EQ(missing(
                  head, [](auto& s) -> auto& { return s.norm.weight; }),
              "the weights lack the final norm");
    EXPECT_EQ(missing(
                  head, [](auto& s) -> auto& { return s.weight; }),
              "the weights lack the LM head");
}

TEST_F(OpChecks, OptionalTensorsMayBeAbsent) {
    AttentionInSpec in = model_.attention_in(0);
    in.q_bias = in.k_bias = in.v_bias = in.q_norm.weight = in.k_norm.weight = {};
    in.rope = {};
    EXPECT_EQ(refusal(in), "");
    AttentionOutSpec out = model_.attention_out(0);
    out.bias = out.post_norm.weight = {};
    EXPECT_EQ(refusal(out), "");
    MlpOutSpec mlp = model_.mlp_out(0);
    mlp.post_norm.weight = {};
    EXPECT_EQ(refusal(mlp), "");
}

TEST_F(OpChecks, WrongShapes) {
    const auto changed = [&](auto spec, auto member) {
        member(spec) = wrong();
        return refusal(spec);
    };
    const std::string tail = " has the shape 3 x 5, the model needs ";
    const AttentionInSpec in = model_.attention_in(0);
    EXPECT_EQ(changed(
                  in, [](auto& s) -> auto& { return s.norm.weight; }),
              "the attention norm" + tail + "1 x 64");
    EXPECT_EQ(changed(
                  in, [](auto& s) -> auto& { return s.q; }),
              "the query projection" + tail + "64 x 64");
    EXPECT_EQ(changed(
                  in, [](auto& s) -> auto& { return s.k; }),
              "the key projection" + tail + "32 x 64");
    EXPECT_EQ(changed(
                  in, [](auto& s) -> auto& { return s.v; }),
              "the value projection" + tail + "32 x 64");
    EXPECT_EQ(changed(
                  in, [](auto& s) -> auto& { return s.q_bias; }),
              "the query bias" + tail + "1 x 64");
    EXPECT_EQ(changed(
                  in, [](auto& s) -> auto& { return s.k_bias; }),
              "the key bias" + tail + "1 x 32");
    EXPECT_EQ(changed(
                  in, [](auto& s) -> auto& { return s.v_bias; }),
              "the value bias" + tail + "1 x 32");
    EXPECT_EQ(changed(
                  in, [](auto& s) -> auto& { return s.q_norm.weight; }),
              "the query norm" + tail + "1 x 16");
    EXPECT_EQ(changed(
                  in, [](auto& s) -> auto& { return s.k_norm.weight; }),
              "the key norm" + tail + "1 x 16");
    const AttentionOutSpec out = model_.attention_out(0);
    EXPECT_EQ(changed(
                  out, [](auto& s) -> auto& { return s.o; }),
              "the attention output projection" + tail + "64 x 64");
    EXPECT_EQ(changed(
                  out, [](auto& s) -> auto& { return s.bias; }),
              "the attention output bias" + tail + "1 x 64");
    EXPECT_EQ(changed(
                  out, [](auto& s) -> auto& { return s.post_norm.weight; }),
              "the norm after attention" + tail + "1 x 64");
    const MlpInSpec mlp = model_.mlp_in(0);
    EXPECT_EQ(changed(
                  mlp, [](auto& s) -> auto& { return s.norm.weight; }),
              "the feed-forward norm" + tail + "1 x 64");
    EXPECT_EQ(changed(
                  mlp, [](auto& s) -> auto& { return s.gate; }),
              "the gate projection" + tail + "96 x 64");
    EXPECT_EQ(changed(
                  mlp, [](auto& s) -> auto& { return s.up; }),
              "the up projection" + tail + "96 x 64");
    const MlpOutSpec mlp_out = model_.mlp_out(0);
    EXPECT_EQ(changed(
                  mlp_out, [](auto& s) -> auto& { return s.down; }),
              "the down projection" + tail + "64 x 96");
    EXPECT_EQ(changed(
                  mlp_out, [](auto& s) -> auto& { return s.post_norm.weight; }),
              "the norm after the feed-forward" + tail + "1 x 64");
    const LmHeadSpec head = model_.head();
    EXPECT_EQ(changed(
                  head, [](auto& s) -> auto& { return s.norm.weight; }),
              "the final norm" + tail + "1 x 64");
    EXPECT_EQ(changed(
                  head, [](auto& s) -> auto& { return s.weight; }),
              "the LM head" + tail + "53 x 64");
}

TEST_F(OpChecks, RowsThatAreNoWholeBlocks) {
    MlpInSpec mlp = model_.mlp_in(0);
    mlp.up.quant_type = QuantType::q4_k;
    EXPECT_EQ(refusal(mlp), "the up projection has rows of 64 values, which is not a whole number of q4_k blocks");
    EmbedSpec embed = model_.embed();
    embed.table.quant_type = QuantType::q6_k;
    EXPECT_EQ(refusal(embed), "the token embedding has rows of 64 values, which is not a whole number of q6_k blocks");
    AttentionInSpec in = model_.attention_in(0);
    in.q_norm.weight.quant_type = QuantType::q8_0;
    EXPECT_EQ(refusal(in), "the query norm has rows of 16 values, which is not a whole number of q8_0 blocks");
}

TEST_F(OpChecks, RopeWiderThanAHead) {
    AttentionInSpec in = model_.attention_in(0);
    const std::vector<float> frequencies(9, 1.0f);
    in.rope.inverse_frequency = frequencies;
    EXPECT_EQ(refusal(in), "rope rotates 18 values of a head that has 16");
}

TEST_F(OpChecks, HeadsThatCannotShareKeys) {
    AttendSpec attend = model_.attend(0);
    attend.shape.heads = 7;
    EXPECT_EQ(refusal(attend), "7 query heads cannot share 2 key-value heads evenly");
    attend.shape.kv_heads = 0;
    EXPECT_EQ(refusal(attend), "7 query heads cannot share 0 key-value heads evenly");
}

TEST_F(OpChecks, TheCpuBackendRefusesVeryWideHeads) {
    TinyConfig config;
    config.shape = {.layers = 1, .d_model = 8, .heads = 1, .kv_heads = 1, .head_dim = 1025, .d_ff = 8, .vocab = 8};
    const TinyModel model(config);
    EXPECT_THROW(cpu_ops("portable", 1).prepare(model.attention_in(0)), Error);
    config.shape.head_dim = 1024;
    const TinyModel widest(config);
    TinyRun run(widest, cpu_ops("portable", 1), 1, 2), reference(widest, reference_ops(), 1, 2);
    Sequence a{{0}}, b{{0}};
    const auto found = feed(run, a, random_tokens(1, 2, 8), {2});
    const auto expected = feed(reference, b, random_tokens(1, 2, 8), {2});
    for (std::size_t i = 0; i < 8; ++i) EXPECT_NEAR(found[1].logits[i], expected[1].logits[i], 0.01);
}

// A batch that is right, to be made wrong in one way.
struct BatchParts {
    std::vector<std::int32_t> pages = {0, 1};
    std::vector<Row> rows = {{TokenRef::id(1), 5}, {TokenRef::id(2), 6}};
    std::vector<SequenceView> sequences = {{pages, 5}};
    std::vector<std::int32_t> logit_rows = {1};
    bool tree = false;

    Batch batch() const { return {RowClass::decode, tree, rows, sequences, logit_rows}; }
};

TEST(BatchChecksDeathTest, ABadBatchAborts) {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    Workspace workspace;
    workspace.max_rows = 3;
    workspace.max_logit_rows = 1;
    const auto begin = [&](auto change) {
        BatchParts parts;
        change(parts);
        check_batch(workspace, parts.batch());
    };
    begin([](BatchParts&) {});
    begin([](BatchParts& p) { p.rows[1].position = 127; });
    EXPECT_DEATH(begin([](BatchParts& p) { p.rows.clear(); }), "between one and max_rows");
    EXPECT_DEATH(begin([](BatchParts& p) { p.rows.resize(4, p.rows[0]); }), "between one and max_rows");
    EXPECT_DEATH(begin([](BatchParts& p) { p.logit_rows = {0, 1}; }), "too many logit rows");
    EXPECT_DEATH(begin([](BatchParts& p) { p.rows[1].sequence = 1; }), "unknown sequence");
    EXPECT_DEATH(begin([](BatchParts& p) { p.rows[1].sequence = -1; }), "unknown sequence");
    EXPECT_DEATH(begin([](BatchParts& p) { p.rows[1].position = 128; }), "no cell in the KV cache");
    EXPECT_DEATH(begin([](BatchParts& p) { p.rows[1].position = -1; }), "no cell in the KV cache");
    EXPECT_DEATH(begin([](BatchParts& p) { p.rows[1].cell = 128; }), "no cell in the KV cache");
    EXPECT_DEATH(begin([](BatchParts& p) { p.rows[1].parent = 1; }), "must follow its parent");
    EXPECT_DEATH(begin([](BatchParts& p) { p.rows[1].token = TokenRef::slot(kTokenSlots); }), "no such token slot");
    EXPECT_DEATH(begin([](BatchParts& p) { p.logit_rows = {2}; }), "logit row outside");
    EXPECT_DEATH(begin([](BatchParts& p) { p.logit_rows = {-1}; }), "logit row outside");
}

TEST(AttendedCells, AreThePrefixThenTheAncestors) {
    BatchParts parts;
    std::vector<std::int32_t> cells;
    attended_cells(parts.batch(), 1, 0, cells);
    EXPECT_EQ(cells, counting(7));
    attended_cells(parts.batch(), 1, 3, cells);
    EXPECT_EQ(cells, counting(3, 4));
    attended_cells(parts.batch(), 1, 100, cells);
    EXPECT_EQ(cells, counting(7));
    // Positions 5, 6 (twice), 7, in cells of their own.
    parts.tree = true;
    parts.rows = {{TokenRef::id(1), 5, 0, 5, -1},
                  {TokenRef::id(2), 6, 0, 9, 0},
                  {TokenRef::id(3), 6, 0, 6, 0},
                  {TokenRef::id(4), 7, 0, 70, 1}};
    attended_cells(parts.batch(), 3, 0, cells);
    EXPECT_EQ(cells, (std::vector<std::int32_t>{0, 1, 2, 3, 4, 5, 9, 70}));
    attended_cells(parts.batch(), 3, 2, cells);
    EXPECT_EQ(cells, (std::vector<std::int32_t>{9, 70}));
    attended_cells(parts.batch(), 2, 0, cells);
    EXPECT_EQ(cells, counting(7));
}

}  // namespace
}  // namespace foresay::test
