// Forwards of few decode rows that ranks run together (LayerShare::run_linked): which ops each is given, what becomes
// of forwards that cannot be linked, and, where there are two GPUs, that linked ones have the bytes of one.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "kernels/cuda_info.h"
#include "kernels/divided_ops.h"
#include "kernels/kv_format.h"
#include "kernels/kv_names.h"
#include "tests/laws/listed_backends.h"
#include "tests/models/backends.h"
#include "tests/models/family_models.h"
#include "tests/models/sharing_ops.h"
#include "tests/support/error_of.h"

namespace foresay::test {
namespace {

using kernels::DividedOps;
using kernels::LinkedCall;
using kernels::LinkWay;
using kernels::RowClass;
using Shares = std::vector<std::int32_t>;

std::shared_ptr<const core::Model> family(const std::string& name, kernels::QuantType type, kernels::Ops& ops) {
    return load_whole_or_divided(core::ModelSource::random(config_of(family_json(name)), type, type), ops);
}

#ifdef FORESAY_HAVE_CUDA
// A family that two ranks can run linked: several layers, and a part of each matrix for both.
std::shared_ptr<const core::Model> linkable(const std::string& name, kernels::QuantType type, kernels::Ops& ops) {
    nlohmann::json config = nlohmann::json::parse(family_json(name));
    const auto at_least = [&](const char* key, int value) { config[key] = std::max(config[key].get<int>(), value); };
    at_least("num_hidden_layers", 3);
    at_least("intermediate_size", 96);
    return load_whole_or_divided(core::ModelSource::random(config_of(config.dump()), type, type), ops);
}
#endif

// A rank of the host that says it can be linked, and refuses each forward after it has looked at its ops.
class Refusing final : public SharingOps {
public:
    explicit Refusing(kernels::Ops& inner) : SharingOps(inner) {}
    LinkWay link(std::span<kernels::LayerShare* const>) override { return way; }
    bool can_run_linked(kernels::Workspace&, std::span<const LinkedCall> calls) override {
        ++asked;
        last.assign(calls.begin(), calls.end());
        return !refuses;
    }
    LinkWay way = LinkWay::peer_access;
    bool refuses = true;
    int asked = 0;
    std::vector<LinkedCall> last;
};

struct Ranks {
    explicit Ranks(const Shares& shares) {
        std::vector<std::shared_ptr<kernels::Ops>> all;
        for (std::size_t r = 0; r < shares.size(); ++r) {
            each.push_back(std::make_shared<Refusing>(host()));
            all.push_back(each.back());
        }
        ops = std::make_unique<DividedOps>(std::move(all), kernels::DividedOptions{.shares = shares, .link = true});
    }
    std::vector<std::shared_ptr<Refusing>> each;
    std::unique_ptr<DividedOps> ops;
};

TEST(LinkedRanks, TheWayIsWhatTheRanksCanIfItIsWanted) {
    const auto way_of = [](LinkWay possible, bool link) {
        std::vector<std::shared_ptr<kernels::Ops>> ranks;
        for (int r = 0; r < 2; ++r) {
            const auto rank = std::make_shared<Refusing>(host());
            rank->way = possible;
            ranks.push_back(rank);
        }
        const DividedOps ops(std::move(ranks), {.link = link});
        EXPECT_EQ(ops.linked(), ops.link_way() != LinkWay::none);
        return ops.link_way();
    };
    EXPECT_EQ(way_of(LinkWay::peer_access, true), LinkWay::peer_access);
    EXPECT_EQ(way_of(LinkWay::host_memory, true), LinkWay::host_memory);
    EXPECT_EQ(way_of(LinkWay::host_memory, false), LinkWay::none);
    EXPECT_EQ(way_of(LinkWay::none, true), LinkWay::none);
}

TEST(LinkedRanks, WhatIsRefusedRunsByCopies) {
    for (const char* name : {"qwen3", "gemma3", "starcoder2", "gemma4-e", "mixtral", "glm4_moe", "gemma4-moe"}) {
        Ranks ranks({1, 2});
        const auto whole = family(name, kernels::QuantType::q8_0, host());
        const auto divided = family(name, kernels::QuantType::q8_0, *ranks.ops);
        EXPECT_TRUE(evaluate(divided, RowClass::decode, {1}) == evaluate(whole, RowClass::decode, {1})) << name;
        EXPECT_TRUE(evaluate(divided, RowClass::prefill, {64}) == evaluate(whole, RowClass::prefill, {64})) << name;
    }
}

TEST(LinkedRanks, OnlyFewDecodeRowsAreAskedFor) {
    Ranks ranks({1, 1});
    const auto model = family("qwen3", kernels::QuantType::q8_0, *ranks.ops);
    const auto asked = [&](RowClass row_class, std::size_t width) {
        ranks.each[0]->asked = 0;
        evaluate(model, row_class, {width});
        return ranks.each[0]->asked;
    };
    EXPECT_EQ(asked(RowClass::decode, 1), 80);
    EXPECT_EQ(asked(RowClass::decode, 16), 5);
    EXPECT_EQ(asked(RowClass::decode, 20), 0);
    EXPECT_EQ(asked(RowClass::prefill, 10), 0);
    // Refused by the first, so the second is not asked.
    EXPECT_EQ(ranks.each[1]->asked, 0);
}

TEST(LinkedRanks, MixturesAreNotAskedFor) {
    for (const char* name : {"mixtral", "glm4_moe"}) {
        Ranks ranks({1, 1});
        ranks.each[0]->refuses = ranks.each[1]->refuses = false;  // and would run nothing
        const auto divided = family(name, kernels::QuantType::q8_0, *ranks.ops);
        EXPECT_TRUE(evaluate(divided, RowClass::decode, {1}) ==
                    evaluate(family(name, kernels::QuantType::q8_0, host()), RowClass::decode, {1}))
            << name;
        EXPECT_EQ(ranks.each[0]->asked, 0) << name;
        EXPECT_EQ(ranks.ops->linked_forwards(), 0) << name;
    }
}

TEST(LinkedRanks, EachIsGivenItsPartOfEveryLayer) {
    using Op = kernels::ForwardOp;
    for (const std::string name : {"qwen3", "gemma2"}) {
        Ranks ranks({1, 1});
        const auto model = family(name, kernels::QuantType::q8_0, *ranks.ops);
        const kernels::ModelShape& shape = model->config().shape;
        evaluate(model, RowClass::decode, {1});
        const std::vector<LinkedCall>& calls = ranks.each[0]->last;
        const bool norms_branches = name == "gemma2";
        const std::size_t of_layer = norms_branches ? 7 : 5;
        ASSERT_EQ(calls.size(), 2 + static_cast<std::size_t>(shape.layers) * of_layer);
        EXPECT_EQ(calls.front().op, Op::embed);
        EXPECT_EQ(calls.back().op, Op::lm_head);
        std::vector<Op> ops;
        for (std::size_t i = 1; i < 1 + of_layer; ++i) ops.push_back(calls[i].op);
        EXPECT_EQ(ops, norms_branches
                           ? std::vector({Op::attention_in, Op::attend, Op::attention_out, Op::mlp_out, Op::mlp_in,
                                          Op::mlp_out, Op::mlp_out})
                           : std::vector({Op::attention_in, Op::attend, Op::attention_out, Op::mlp_in, Op::mlp_out}));
        for (const LinkedCall& call : calls) {
            EXPECT_EQ(call.kv != nullptr, call.op == Op::attention_in || call.op == Op::attend);
            EXPECT_EQ(call.heads, call.op == Op::attend ? shape.heads : 0);
        }
        EXPECT_EQ(calls[3].sums, norms_branches);
        // The second rank: no embedding, and the second half of each row.
        ranks.each[0]->refuses = false;
        evaluate(model, RowClass::decode, {1});
        const std::vector<LinkedCall>& second = ranks.each[1]->last;
        ASSERT_EQ(second.size(), calls.size() - 1);
        const std::size_t mlp_in = norms_branches ? 4 : 3;
        EXPECT_EQ(second[1].first, shape.heads * shape.head_dim / 2);
        EXPECT_EQ(second[2].first, shape.d_model / 2);
        EXPECT_EQ(second[mlp_in].first, shape.d_ff / 2);
        EXPECT_EQ(second[mlp_in + 1].first, shape.d_model / 2);
    }
}

#ifdef FORESAY_HAVE_CUDA
// Two GPUs, and two halves of one, by either way. Linked forwards must have been used: a link that is refused would
// give the same bytes.
class LinkedOnDevices : public testing::TestWithParam<std::tuple<int, LinkWay>> {
protected:
    void SetUp() override {
        const std::vector<kernels::CudaDevice> found = kernels::cuda_devices(nullptr);
        const auto wanted = static_cast<std::size_t>(std::get<0>(GetParam()));
        if (way() == LinkWay::host_memory) setenv("FORESAY_NO_PEER_ACCESS", "1", 1);
        if (found.size() < wanted) GTEST_SKIP() << "not run on " << wanted << " GPUs: there are " << found.size();
        if (wanted == 2 && way() == LinkWay::peer_access &&
            !kernels::cuda_peer_access(found[0].index, found[1].index)) {
            GTEST_SKIP() << "not run by peer access: the first two GPUs have none";
        }
        whole_ = kernels::make_cuda_ops({.device = found.front().index});
        for (std::int32_t rank = 0; rank < 2; ++rank) {
            devices_.push_back(wanted == 2
                                   ? kernels::make_cuda_ops({.device = found[static_cast<std::size_t>(rank)].index})
                                   : kernels::make_cuda_ops({.device = found.front().index, .part = rank, .parts = 2}));
        }
    }
    void TearDown() override { unsetenv("FORESAY_NO_PEER_ACCESS"); }
    static LinkWay way() { return std::get<1>(GetParam()); }
    std::unique_ptr<DividedOps> linked(const Shares& shares) const {
        auto ops = std::make_unique<DividedOps>(devices_, kernels::DividedOptions{.shares = shares, .link = true});
        EXPECT_EQ(ops->link_way(), way());
        return ops;
    }
    static Rows logits(const std::shared_ptr<const core::Model>& model, const std::vector<std::size_t>& widths,
                       kernels::KvFormat format = kernels::KvFormat::f16) {
        return evaluate(model, RowClass::decode, widths, format).logits;
    }
    std::shared_ptr<kernels::Ops> whole_;
    std::vector<std::shared_ptr<kernels::Ops>> devices_;
};

TEST_P(LinkedOnDevices, cuda_families_and_types) {
    using kernels::QuantType;
    const auto compare = [&](const std::string& what, const auto& make) {
        const Rows expected = logits(make(*whole_), {1});
        for (const Shares& shares : {Shares{1, 1}, Shares{1, 2}}) {
            const auto ops = linked(shares);
            const auto divided = make(*ops);
            for (const std::vector<std::size_t>& widths :
                 {std::vector<std::size_t>{1}, std::vector<std::size_t>{7, 1, 16, 2, 9, 1, 30, 8, 6}}) {
                EXPECT_TRUE(logits(divided, widths) == expected)
                    << what << ", 1:" << shares.back() << ", " << widths.size();
            }
            EXPECT_GT(ops->linked_forwards(), 0) << what;
        }
    };
    for (const std::string name : {"qwen3", "glm4", "granite", "smollm3", "phi3"}) {
        compare(name, [&](kernels::Ops& ops) { return linkable(name, QuantType::q8_0, ops); });
    }
    for (const QuantType type : {QuantType::q4_0, QuantType::q8_0, QuantType::q4_k, QuantType::q5_k, QuantType::q6_k}) {
        compare(std::string(kernels::info(type).name), [&](kernels::Ops& ops) {
            return load_whole_or_divided(core::ModelSource::random(small_config(true), type, type), ops);
        });
    }
}

TEST_P(LinkedOnDevices, cuda_caches_and_the_bundled_target) {
    const auto target = [](kernels::Ops& ops) {
        return load_whole_or_divided(core::ModelSource::open(bundled_path("target")), ops);
    };
    const auto ops = linked({1, 2});
    const auto whole = target(*whole_), divided = target(*ops);
    for (const kernels::KvFormat format : kernels::all_kv_formats()) {
        const std::int64_t before = ops->linked_forwards();
        EXPECT_TRUE(logits(divided, {5, 1, 1, 1, 16, 33}, format) == logits(whole, {5, 1, 1, 1, 16, 33}, format))
            << kernels::name(format);
        EXPECT_EQ(ops->linked_forwards() > before, !kernels::has_low_bits(format)) << kernels::name(format);
        EXPECT_EQ(ops->why_copies({.types = {kernels::QuantType::q4_k}}, format).empty(),
                  !kernels::has_low_bits(format))
            << kernels::name(format);
    }
}

// The experts of a mixture are chosen while it runs, so its forwards go by copies, also where ranks are linked.
TEST_P(LinkedOnDevices, cuda_mixtures_by_copies) {
    using kernels::QuantType;
    const auto compare = [&](const std::string& what, const auto& make, const Shares& shares) {
        const auto ops = linked(shares);
        std::shared_ptr<const core::Model> divided;
        const std::string problem = error_of([&] { divided = make(*ops); });
        if (other_order(problem)) return;
        ASSERT_EQ(problem, "no error") << what;
        const auto whole = make(*whole_);
        for (const std::vector<std::size_t>& widths :
             {std::vector<std::size_t>{1}, std::vector<std::size_t>{7, 1, 16, 2, 9, 1, 30, 8, 6},
              std::vector<std::size_t>{64}}) {
            EXPECT_TRUE(logits(divided, widths) == logits(whole, widths))
                << what << ", 1:" << shares.back() << ", " << widths.size();
        }
        for (int round = 0; round < 3; ++round) {
            EXPECT_TRUE(evaluate(divided, RowClass::prefill, {64}).logits ==
                        evaluate(whole, RowClass::prefill, {64}).logits)
                << what << ", 1:" << shares.back() << ", prompt " << round;
        }
        EXPECT_EQ(ops->linked_forwards(), 0) << what;
    };
    for (const QuantType type : {QuantType::f32, QuantType::q4_0, QuantType::q4_k, QuantType::mxfp4}) {
        for (const Shares& shares : {Shares{1, 1}, Shares{1, 2}, Shares{1, 40}}) {
            compare(
                std::string(kernels::info(type).name),
                [&](kernels::Ops& ops) {
                    return load_whole_or_divided(core::ModelSource::random(mixture_config(), type, type), ops);
                },
                shares);
        }
    }
    for (const std::string name : {"qwen3_moe", "gpt_oss", "granitemoe", "glm4_moe", "gemma4-moe"}) {
        compare(name, [&](kernels::Ops& ops) { return family(name, QuantType::q8_0, ops); }, {1, 1});
    }
}

// Prompts and other models of the same device come between: they use the words of the device, not of the link.
TEST_P(LinkedOnDevices, cuda_other_forwards_between) {
    const auto ops = linked({1, 1});
    const auto divided = linkable("qwen3", kernels::QuantType::q4_0, *ops);
    const auto other = linkable("qwen3", kernels::QuantType::q4_0, *whole_);
    const Rows expected = logits(other, {1});
    for (int round = 0; round < 20; ++round) {
        EXPECT_TRUE(logits(divided, {1}) == expected) << round;
        EXPECT_TRUE(logits(other, {3}) == expected) << round;
        evaluate(divided, RowClass::prefill, {64});
    }
    EXPECT_GE(ops->linked_forwards(), 20);
}
INSTANTIATE_TEST_SUITE_P(Gpus, LinkedOnDevices,
                         testing::Combine(testing::Values(1, 2),
                                          testing::Values(LinkWay::peer_access, LinkWay::host_memory)),
                         [](const auto& given) {
                             return std::to_string(std::get<0>(given.param)) +
                                    (std::get<1>(given.param) == LinkWay::host_memory ? "_through_host" : "");
                         });
#endif

}  // namespace
}  // namespace foresay::test
