// A model each of whose layers is divided over several backends by outputs: the bits of logits, keys and values are
// those of one, for every family, number of ranks, share, width, type of weights and of the KV cache. A hand-over with
// a fault shows, and so does a split of inputs. A rank that fails or hangs is named, and the next forward is whole.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "kernels/divided_ops.h"
#include "kernels/kv_names.h"
#include "tests/laws/listed_backends.h"
#include "tests/models/sharing_ops.h"
#include "tests/support/error_of.h"

namespace foresay::test {
namespace {

using kernels::DividedOps;
using kernels::RowClass;
using ::testing::HasSubstr;

using Shares = std::vector<std::int32_t>;

// As many ranks as shares, all of them `ops`.
std::unique_ptr<DividedOps> ranks_of(kernels::Ops& ops, const Shares& shares, bool through_host = false) {
    std::vector<std::shared_ptr<kernels::Ops>> ranks(shares.size(), lent(ops));
    return std::make_unique<DividedOps>(std::move(ranks),
                                        kernels::DividedOptions{.shares = shares, .through_host = through_host});
}
DividedOps& hosts(const Shares& shares) {
    static std::map<Shares, std::unique_ptr<DividedOps>> all;
    std::unique_ptr<DividedOps>& ops = all[shares];
    if (ops == nullptr) ops = ranks_of(host(), shares);
    return *ops;
}

std::shared_ptr<const core::Model> random(const core::ModelConfig& config, kernels::QuantType type, kernels::Ops& ops) {
    return load_whole_or_divided(core::ModelSource::random(config, type, type), ops);
}
std::shared_ptr<const core::Model> family(const std::string& name, kernels::Ops& ops) {
    return random(config_of(family_json(name)), kernels::QuantType::q8_0, ops);
}
std::shared_ptr<const core::Model> target(kernels::Ops& ops) {
    return load_whole_or_divided(core::ModelSource::open(bundled_path("target")), ops);
}

class Families : public testing::TestWithParam<std::string> {};

TEST_P(Families, SharesGiveTheBytesOfOneBackend) {
    const auto whole = family(GetParam(), host());
    const Outcome expected = evaluate(whole, RowClass::decode, {1});
    for (const Shares& shares : {Shares{1, 1}, Shares{1, 2}, Shares{5, 1, 2}, Shares{1, 1, 1, 1}, Shares(8, 1)}) {
        std::shared_ptr<const core::Model> divided;
        const std::string problem = error_of([&] { divided = family(GetParam(), hosts(shares)); });
        if (GetParam().starts_with("olmo")) {
            EXPECT_THAT(problem, HasSubstr("its heads cannot be divided; use runtime.split_mode = \"layer\""));
            continue;
        }
        ASSERT_EQ(problem, "no error");
        EXPECT_TRUE(evaluate(divided, RowClass::decode, {7, 1, 30, 2, 5, 1, 1, 64}) == expected) << shares.size();
        EXPECT_TRUE(evaluate(divided, RowClass::prefill, {64}) == expected) << shares.size();
    }
}

INSTANTIATE_TEST_SUITE_P(Models, Families, testing::ValuesIn(family_names()), [](const auto& info) {
    std::string name = info.param;
    std::ranges::replace(name, '-', '_');
    return name;
});

TEST(Divided, EveryWidth) {
    const auto whole = family("qwen3", host()), divided = family("qwen3", hosts({1, 2}));
    const Outcome expected = evaluate(whole, RowClass::decode, {1});
    for (std::size_t width = 1; width <= 64; ++width) {
        EXPECT_TRUE(evaluate(divided, RowClass::decode, {width}) == expected) << width;
    }
    const Outcome of_target = evaluate(target(host()), RowClass::decode, {1});
    for (const Shares& shares : {Shares{1, 1}, Shares{1, 2}}) {
        const auto pair = target(hosts(shares));
        for (const std::size_t width : {1, 5, 17, 64}) {
            EXPECT_TRUE(evaluate(pair, RowClass::decode, {width}) == of_target) << width;
        }
    }
}

TEST(Divided, EveryTypeOfWeights) {
    using kernels::QuantType;
    const core::ModelConfig config = small_config(true);
    for (const QuantType type : {QuantType::f32, QuantType::f16, QuantType::bf16, QuantType::q4_0, QuantType::q8_0,
                                 QuantType::q4_k, QuantType::q5_k, QuantType::q6_k, QuantType::mxfp4}) {
        const auto whole = random(config, type, host());
        const Outcome expected = evaluate(whole, RowClass::decode, {1});
        for (const Shares& shares : {Shares{1, 1}, Shares{1, 2}}) {
            const auto divided = random(config, type, hosts(shares));
            for (const RowClass row_class : {RowClass::decode, RowClass::prefill}) {
                EXPECT_TRUE(evaluate(divided, row_class, {7, 1, 30, 2, 64}) == expected) << kernels::info(type).name;
            }
        }
    }
}

TEST(Divided, MixturesOfEveryType) {
    using kernels::QuantType;
    for (const QuantType type : {QuantType::f32, QuantType::q4_0, QuantType::q4_k, QuantType::mxfp4}) {
        const auto whole = random(mixture_config(), type, host());
        const Outcome expected = evaluate(whole, RowClass::decode, {1});
        for (const Shares& shares : {Shares{1, 2}, kSharesWithoutExperts}) {
            const auto divided = random(mixture_config(), type, hosts(shares));
            for (const RowClass row_class : {RowClass::decode, RowClass::prefill}) {
                EXPECT_TRUE(evaluate(divided, row_class, {7, 1, 30, 2, 64}) == expected) << kernels::info(type).name;
            }
        }
    }
}

// Ranks that take the outputs of each other's experts by themselves. DividedOps then reads none.
class Gathering final : public SharingOps {
public:
    explicit Gathering(kernels::Ops& inner) : SharingOps(inner) {}
    int gathered = 0, read = 0;
    bool agrees = false;

    void agree(std::span<kernels::PreparedOp* const> experts) override { agrees = experts.size() == 3; }
    void begin(kernels::Workspace& workspace, const kernels::Batch& batch) override {
        rows_ = batch.rows.size();
        inner().begin(workspace, batch);
    }
    void read_values(kernels::Workspace& workspace, kernels::Values values, std::int64_t width,
                     std::span<float> to) override {
        read += values == kernels::Values::expert_outputs ? 1 : 0;
        SharingOps::read_values(workspace, values, width, to);
    }
    bool gather_experts(std::span<kernels::LayerShare* const> all, std::span<kernels::Workspace* const> workspaces,
                        std::span<const kernels::Part> experts) override {
        ++gathered;
        const kernels::ModelShape& shape = workspaces.front()->shape;
        const auto width = static_cast<std::size_t>(shape.d_model);
        std::vector<float> whole(rows_ * static_cast<std::size_t>(shape.experts_used) * width), own(whole.size());
        for (std::size_t r = 0; r < all.size(); ++r) {
            if (experts[r].count == 0) continue;
            of(all[r]).read_values(*workspaces[r], kernels::Values::expert_outputs, shape.d_model, own);
            for (std::size_t i = 0; i < whole.size(); ++i) whole[i] += own[i];
        }
        for (std::size_t r = 0; r < all.size(); ++r) {
            of(all[r]).write_values(*workspaces[r], kernels::Values::expert_outputs, shape.d_model, whole);
        }
        return true;
    }

private:
    static kernels::LayerShare& of(kernels::LayerShare* rank) { return dynamic_cast<Gathering&>(*rank).shared(); }
    std::size_t rows_ = 0;
};

TEST(Divided, RanksTakeTheOutputsOfExpertsFromEachOther) {
    const auto whole = family("glm4_moe", host());
    const Outcome expected = evaluate(whole, RowClass::decode, {1});
    for (const bool through_host : {false, true}) {
        Gathering first(host()), second(host()), third(host());
        DividedOps ops({lent(first), lent(second), lent(third)},
                       {.shares = kSharesWithoutExperts, .through_host = through_host});
        const auto divided = family("glm4_moe", ops);
        EXPECT_TRUE(first.agrees);
        for (const RowClass row_class : {RowClass::decode, RowClass::prefill}) {
            EXPECT_TRUE(evaluate(divided, row_class, {7, 1, 30, 2, 64}) == expected);
        }
        EXPECT_EQ(first.gathered > 0, !through_host);
        EXPECT_EQ(first.read > 0, through_host);
        EXPECT_EQ(second.gathered, 0) << "the first one is asked";
    }
}

TEST(Divided, EveryTypeOfTheCache) {
    const auto whole = target(host()), divided = target(hosts({1, 2}));
    for (const kernels::KvFormat format : kernels::all_kv_formats()) {
        EXPECT_TRUE(evaluate(divided, RowClass::decode, {5, 1, 33}, format) ==
                    evaluate(whole, RowClass::decode, {5, 1, 33}, format))
            << kernels::name(format);
    }
}

TEST(Divided, TruncatedForkedAndRestoredTexts) {
    EXPECT_TRUE(forked_and_restored(target(hosts({1, 2}))) == forked_and_restored(target(host())));
}

// A token slot that is filled is a token that a later row embeds, and sampling is that of one backend.
TEST(Divided, SlotsAreEmbedded) { EXPECT_EQ(slots_embedded(target(hosts({2, 1}))), slots_embedded(target(host()))); }

// A model that one rank has whole, as a draft.
TEST(Divided, AModelOfOneRank) {
    const Outcome expected = evaluate(target(host()), RowClass::decode, {1});
    for (const std::int32_t rank : {0, 1}) {
        std::shared_ptr<core::ModelSource> source = core::ModelSource::open(bundled_path("target"));
        source->place_layers(std::vector<std::int32_t>(static_cast<std::size_t>(source->config().shape.layers), rank));
        const auto model = core::Model::load(std::move(source), hosts({1, 2}));
        EXPECT_TRUE(evaluate(model, RowClass::decode, {17, 1, 40}) == expected) << rank;
    }
}

TEST(Divided, OfThreadsOfTheirOwn) {
    const auto one = kernels::make_cpu_ops({.threads = 1}), two = kernels::make_cpu_ops({.threads = 2});
    DividedOps ops({lent(*one), lent(*two)}, {.shares = {2, 3}});
    EXPECT_TRUE(evaluate(target(ops), RowClass::decode, {9, 1, 30}) == evaluate(target(host()), RowClass::decode, {1}));
}

TEST(Divided, ABackendThatCannotShareIsRefused) {
    EXPECT_EQ(error_of([] {
                  DividedOps({lent(host()), lent(backends()[0].ops())}, {.names = {"cpu", "reference"}});
              }),
              "reference cannot share layers with other devices; use split_mode \"layer\"");
}

#ifdef FORESAY_HAVE_CUDA
// Two ranks on one device, handing over on the device and through host memory: the bits of the device.
class DividedOnADevice : public testing::TestWithParam<std::string> {};

TEST_P(DividedOnADevice, cuda_and_cuda) {
    FORESAY_SKIP_WITHOUT_DEVICE(std::string("cuda"));
    kernels::Ops& cuda = backends()[2].ops();
    const auto load_on = [&](kernels::Ops& ops) {
        return GetParam() == "target" ? target(ops) : family(GetParam(), ops);
    };
    const auto whole = load_on(cuda);
    for (const bool through_host : {false, true}) {
        for (const Shares& shares : {Shares{1, 1}, Shares{1, 2}}) {
            const auto ops = ranks_of(cuda, shares, through_host);
            const auto divided = load_on(*ops);
            const auto says = [&](const char* what) {
                return std::string(what) + (through_host ? " through the host, 1:" : ", 1:") +
                       std::to_string(shares.back());
            };
            const Rows expected = evaluate(whole, RowClass::decode, {1}).logits;
            for (const std::vector<std::size_t>& widths :
                 {std::vector<std::size_t>{7, 1, 30, 2, 5, 1, 1, 64}, std::vector<std::size_t>{64}}) {
                EXPECT_EQ(evaluate(divided, RowClass::decode, widths).logits, expected) << says("decode rows");
            }
            EXPECT_EQ(evaluate(divided, RowClass::prefill, {64}).logits,
                      evaluate(whole, RowClass::prefill, {64}).logits)
                << says("prefill rows");
        }
    }
}

INSTANTIATE_TEST_SUITE_P(Models, DividedOnADevice,
                         testing::Values("target", "gemma3", "qwen3", "starcoder2", "cohere2", "phi3", "mixtral",
                                         "qwen3_moe", "gpt_oss", "granitemoe", "glm4_moe", "gemma4-moe"));

TEST(DividedOnADeviceToo, cuda_and_mixtures_of_every_type) {
    FORESAY_SKIP_WITHOUT_DEVICE(std::string("cuda"));
    using kernels::QuantType;
    kernels::Ops& cuda = backends()[2].ops();
    for (const QuantType type : {QuantType::f32, QuantType::f16, QuantType::bf16, QuantType::q4_0, QuantType::q8_0,
                                 QuantType::q4_k, QuantType::q5_k, QuantType::q6_k, QuantType::mxfp4}) {
        const auto whole = random(mixture_config(), type, cuda);
        const Rows decoded = evaluate(whole, RowClass::decode, {1}).logits;
        const Rows prefilled = evaluate(whole, RowClass::prefill, {64}).logits;
        for (const bool through_host : {false, true}) {
            for (const Shares& shares : {Shares{1, 1}, Shares{1, 2}, kSharesWithoutExperts}) {
                const auto ops = ranks_of(cuda, shares, through_host);
                std::shared_ptr<const core::Model> divided;
                const std::string problem = error_of([&] { divided = random(mixture_config(), type, *ops); });
                if (other_order(problem)) continue;
                ASSERT_EQ(problem, "no error");
                const std::string says = std::string(kernels::info(type).name) +
                                         (through_host ? " through the host, " : ", ") + std::to_string(shares.size()) +
                                         " ranks, 1:" + std::to_string(shares.back());
                for (const std::vector<std::size_t>& widths :
                     {std::vector<std::size_t>{7, 1, 30, 2, 5, 1, 1, 16}, std::vector<std::size_t>{64}}) {
                    EXPECT_EQ(evaluate(divided, RowClass::decode, widths).logits, decoded) << says << ", decode rows";
                }
                EXPECT_EQ(evaluate(divided, RowClass::prefill, {64}).logits, prefilled) << says << ", prefill rows";
                EXPECT_EQ(evaluate(divided, RowClass::prefill, {33, 1, 9}).logits,
                          evaluate(whole, RowClass::prefill, {33, 1, 9}).logits)
                    << says << ", short prompts";
            }
        }
    }
}

TEST(DividedOnADeviceToo, cuda_and_every_cache) {
    FORESAY_SKIP_WITHOUT_DEVICE(std::string("cuda"));
    kernels::Ops& cuda = backends()[2].ops();
    const auto ops = ranks_of(cuda, {1, 2});
    const auto whole = target(cuda), divided = target(*ops);
    for (const kernels::KvFormat format : kernels::all_kv_formats()) {
        for (const RowClass row_class : {RowClass::decode, RowClass::prefill}) {
            EXPECT_EQ(evaluate(divided, row_class, {5, 1, 33}, format).logits,
                      evaluate(whole, row_class, {5, 1, 33}, format).logits)
                << kernels::name(format);
        }
    }
}
#endif

// ---------------------------------------------------------------------------------------------------------- faults

enum class Fault { none, last_row, one_value, attended, page };

class Faulty final : public SharingOps {
public:
    Faulty(kernels::Ops& inner, Fault fault) : SharingOps(inner), fault_(fault) {}
    void write_values(kernels::Workspace& workspace, kernels::Values values, std::int64_t width,
                      std::span<const float> from) override {
        std::vector<float> rows(from.begin(), from.end());
        const bool stream = values == kernels::Values::residual;
        if (fault_ == Fault::last_row && stream) std::fill_n(rows.rbegin(), width, 0.0f);
        if (fault_ == Fault::one_value && stream) rows.back() += 1.0f;
        if (fault_ == Fault::attended && values == kernels::Values::inner) rows.front() += 1.0f;
        SharingOps::write_values(workspace, values, width, rows);
    }
    void copy_page(kernels::KvPages& kv, std::int32_t from, std::int32_t to) override {
        if (fault_ != Fault::page) inner().copy_page(kv, from, to);
    }

private:
    Fault fault_;
};

TEST(Divided, AFaultyHandOverShows) {
    const Outcome expected = forked(target(host()));
    for (const Fault fault : {Fault::none, Fault::last_row, Fault::one_value, Fault::attended, Fault::page}) {
        Faulty faulty(host(), fault);
        DividedOps ops({lent(host()), lent(faulty)});
        EXPECT_EQ(forked(target(ops)) == expected, fault == Fault::none) << static_cast<int>(fault);
    }
}

// Adds the sums of the two halves of the inputs of O and down, as others divide a layer. The numbers are the same but
// for rounding, and that shows.
class SplitsInputs final : public kernels::OpsDecorator {
public:
    explicit SplitsInputs(kernels::Ops& inner) : OpsDecorator(inner) {}
    std::unique_ptr<kernels::PreparedOp> prepare(const kernels::MlpOutSpec& spec) override {
        auto op = std::make_unique<Halves>();
        const std::int64_t blocks = spec.down.cols / 256, half = blocks / 2 * 256;
        for (const bool second : {false, true}) {
            // All columns stay; those of the other half are zeros.
            std::vector<float> values(static_cast<std::size_t>(spec.down.elements()));
            for (std::int64_t r = 0; r < spec.down.rows; ++r) {
                const auto row = std::span(values).subspan(static_cast<std::size_t>(r * spec.down.cols),
                                                           static_cast<std::size_t>(spec.down.cols));
                kernels::dequantize_row(spec.down, r, row);
                for (std::int64_t i = 0; i < spec.down.cols; ++i) {
                    if ((i >= half) != second) row[static_cast<std::size_t>(i)] = 0.0f;
                }
            }
            kernels::MlpOutSpec part = spec;
            part.down = {kernels::QuantType::f32, spec.down.rows, spec.down.cols,
                         reinterpret_cast<const std::byte*>(values.data())};
            (second ? op->second : op->first) = inner().prepare(part);
        }
        return op;
    }
    void mlp_out(const kernels::PreparedOp& op, kernels::Workspace& workspace) override {
        inner().mlp_out(*static_cast<const Halves&>(op).first, workspace);
        inner().mlp_out(*static_cast<const Halves&>(op).second, workspace);
    }

private:
    struct Halves final : kernels::PreparedOp {
        std::unique_ptr<kernels::PreparedOp> first, second;
    };
};

TEST(Divided, ASplitOfInputsShows) {
    const core::ModelConfig config = small_config();
    const auto whole = random(config, kernels::QuantType::f32, host());
    const Rows expected = evaluate(whole, RowClass::decode, {16}).logits;
    EXPECT_EQ(evaluate(random(config, kernels::QuantType::f32, hosts({1, 1})), RowClass::decode, {16}).logits,
              expected);
    SplitsInputs splits(host());
    const Rows other = evaluate(random(config, kernels::QuantType::f32, splits), RowClass::decode, {16}).logits;
    EXPECT_NE(other, expected);
    for (std::size_t t = 0; t < expected.size(); ++t) {
        for (std::size_t i = 0; i < expected[t].size(); ++i) EXPECT_NEAR(other[t][i], expected[t][i], 0.05);
    }
}

// Fails, or hangs, at one of the calls of a forward.
class FailingRank final : public Failing<SharingOps> {
public:
    using Failing::Failing;
    bool hangs = false;

    void read_values(kernels::Workspace& workspace, kernels::Values values, std::int64_t width,
                     std::span<float> to) override {
        count();
        SharingOps::read_values(workspace, values, width, to);
    }
    void write_values(kernels::Workspace& workspace, kernels::Values values, std::int64_t width,
                      std::span<const float> from) override {
        count();
        SharingOps::write_values(workspace, values, width, from);
    }
    bool idle() override { return !hangs; }
};

TEST(Divided, ARankThatFailsIsNamedAndLeavesNothing) {
    const auto whole = random(small_config(), kernels::QuantType::q8_0, host());
    for (const bool first : {true, false}) {
        FailingRank failing(host());
        DividedOps ops({first ? lent(failing) : lent(host()), first ? lent(host()) : lent(failing)},
                       {.names = {first ? "failing" : "other", first ? "other" : "failing"}});
        core::Context context(random(small_config(), kernels::QuantType::q8_0, ops), options());
        EXPECT_GE(failures_that_leave_nothing(failing, context, whole), 20)
            << "begin, the ops of two layers, their hand-overs, and logits";
    }
}

TEST(Divided, AnInterruptDoesNotWaitForTheChunk) {
    const auto whole = random(small_config(), kernels::QuantType::q8_0, host());
    FailingRank rank(host());
    DividedOps ops({lent(host()), lent(rank)});
    core::Context context(random(small_config(), kernels::QuantType::q8_0, ops), options());
    EXPECT_GE(interrupts_that_leave_nothing(rank, context, whole), 10) << "the ops of two layers, and their hand-overs";
}

TEST(Divided, ARankThatHangsIsNamedAndTheSessionLives) {
    FailingRank failing(host());
    DividedOps ops({lent(host()), lent(failing)},
                   {.names = {"cuda:0", "cuda:1"}, .limit = std::chrono::milliseconds(30)});
    const auto model = random(small_config(), kernels::QuantType::q8_0, ops);
    core::Context context(model, options());
    const std::vector<std::int32_t> tokens = random_tokens(16, model->config().shape.vocab, 5);
    Rows expected, again;
    feed(context, RowClass::decode, tokens, {4}, expected);
    context.truncate(0);
    failing.hangs = true;
    EXPECT_EQ(error_of([&] { feed(context, RowClass::decode, tokens, {4}, again); }),
              "cuda:1 has not answered for 30 ms, so the answer ends here");
    EXPECT_EQ(context.length(), 0);
    failing.hangs = false;
    feed(context, RowClass::decode, tokens, {4}, again);
    EXPECT_EQ(again, expected);
}

}  // namespace
}  // namespace foresay::test
