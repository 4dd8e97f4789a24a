// Ranks that do not go on (kernels/divided_ops.h): a wait ends when none has for the limit, however long it has been,
// and names who is late; a link that has failed is mended for the next forward.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "kernels/divided_ops.h"
#include "tests/laws/listed_backends.h"
#include "tests/models/sharing_ops.h"
#include "tests/support/error_of.h"

namespace foresay::test {
namespace {

using kernels::DividedOps;
using kernels::DividedOptions;
using kernels::LayerShare;
using kernels::LinkedCall;
using kernels::LinkWay;
using kernels::QuantType;
using kernels::RowClass;
using kernels::Workspace;
using std::chrono::milliseconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using Clock = std::chrono::steady_clock;

std::shared_ptr<const core::Model> small(kernels::Ops& ops) {
    return load_whole_or_divided(core::ModelSource::random(small_config(), QuantType::q8_0, QuantType::q8_0), ops);
}

// ------------------------------------------------------------------------------------------------------------ limits

// The host as a device with a queue: what was started runs later, a mark in each `pace`, and from `stops` marks on
// nothing does.
class Queue final : public SharingOps {
public:
    explicit Queue(kernels::Ops& inner) : SharingOps(inner) {}
    bool idle() override { return unreached() == 0; }
    void give_up() override { ++given_up; }
    void mark() override {
        if (unreached() == 0) moved_ = Clock::now();
        ++made;
    }
    std::int64_t unreached() override {
        while (reached_ < std::min(made, stops) && Clock::now() >= moved_ + pace) {
            ++reached_;
            moved_ += pace;
        }
        return made - reached_;
    }
    // Nothing is copied, and the host waits for nothing.
    bool copy_values(const kernels::ValuesAt&, LayerShare&, const kernels::ValuesAt&, std::int64_t) override {
        return true;
    }
    void go_on() {
        stops = kNever;
        moved_ = Clock::now();
    }
    static constexpr std::int64_t kNever = 1 << 20;
    milliseconds pace{0};
    std::int64_t stops = kNever;
    std::int64_t made = 0;
    int given_up = 0;

private:
    std::int64_t reached_ = 0;
    Clock::time_point moved_ = Clock::now();
};

struct Queues {
    Queues(milliseconds limit, bool through_host)
        : ops({lent(first), lent(second)},
              {.names = {"cuda:0", "cuda:1"}, .through_host = through_host, .group_rows = 0, .limit = limit}),
          context(small(ops), options()) {}
    Queue first{host()}, second{host()};
    DividedOps ops;
    core::Context context;
    std::vector<std::int32_t> tokens = random_tokens(64, small_config().shape.vocab, 5);
};

TEST(RankLimits, AWaitLastsAsLongAsARankGoesOn) {
    Queues queues(milliseconds(70), false);
    queues.second.pace = milliseconds(50);
    queues.second.stops = 0;
    EXPECT_TRUE(queues.context.prefill(queues.tokens));
    EXPECT_EQ(queues.second.made, 2) << "a mark for each layer";
    queues.second.go_on();
    const auto start = Clock::now();
    EXPECT_EQ(error_of([&] { queues.context.logits(0); }), "no error");
    EXPECT_GT(Clock::now() - start, milliseconds(90)) << "longer than the limit";
}

TEST(RankLimits, ManyRowsAreNoReasonToWaitLonger) {
    Queues queues(milliseconds(60), true);
    queues.second.stops = 0;
    EXPECT_EQ(error_of([&] { queues.context.prefill(queues.tokens); }),
              "cuda:1 has not answered for 60 ms, so the answer ends here");
    EXPECT_EQ(queues.second.given_up, 1);
    EXPECT_EQ(queues.first.given_up, 0);
    // And the next forward comes when it goes on.
    queues.second.go_on();
    EXPECT_TRUE(queues.context.prefill(queues.tokens));
}

// Devices that hand over by themselves: the host enqueues the whole forward, and waits for nothing.
class Direct final : public SharingOps {
public:
    Direct(kernels::Ops& inner, bool stops) : SharingOps(inner), stops_(stops) {}
    bool idle() override { return !stops_ || made_ == 0; }
    void mark() override { ++made_; }
    std::int64_t unreached() override { return stops_ ? made_ : 0; }
    bool copy_values(const kernels::ValuesAt&, LayerShare&, const kernels::ValuesAt&, std::int64_t) override {
        ++copies;
        return true;
    }
    int copies = 0;

private:
    bool stops_;
    std::int64_t made_ = 0;
};

TEST(RankLimits, TheHostDoesNotRunAheadOfADeviceThatStops) {
    core::ModelConfig config = small_config();
    config.shape.layers = 12;
    const auto copies_until_the_end = [&](bool stops) {
        Direct first(host(), false), second(host(), stops);
        DividedOps ops({lent(first), lent(second)},
                       {.names = {"cuda:0", "cuda:1"}, .group_rows = 0, .limit = milliseconds(30)});
        const auto model =
            load_whole_or_divided(core::ModelSource::random(config, QuantType::q8_0, QuantType::q8_0), ops);
        core::Context context(model, options());
        const std::vector<std::int32_t> tokens = random_tokens(64, config.shape.vocab, 5);
        const std::string problem = error_of([&] { context.prefill(tokens); });
        EXPECT_EQ(problem, stops ? "cuda:1 has not answered for 30 ms, so the answer ends here" : "no error");
        return first.copies;
    };
    EXPECT_LE(copies_until_the_end(true), copies_until_the_end(false) / 2);
}

// ------------------------------------------------------------------------------------------------------------- links

// A rank that runs linked forwards without doing anything, and may not hear of others, or hang.
class Linking final : public SharingOps {
public:
    explicit Linking(kernels::Ops& inner) : SharingOps(inner) {}
    LinkWay link(std::span<LayerShare* const>) override { return LinkWay::peer_access; }
    bool can_run_linked(Workspace&, std::span<const LinkedCall>) override { return true; }
    void run_linked(Workspace&, std::span<const LinkedCall>) override {
        if (refuses) throw Error("no launch");
        if (deaf) gave_up_ = *deaf;
        hangs_ = hangs;
    }
    std::optional<std::uint32_t> gave_up_on() override { return gave_up_; }
    void mend_link(std::span<LayerShare* const> all) override {
        for (LayerShare* const one : all) dynamic_cast<Linking&>(*one).gave_up_.reset();
        ++mended;
    }
    bool idle() override { return !hangs_ || !hangs; }
    void give_up() override { ++given_up; }

    std::optional<std::uint32_t> deaf;  // the next forwards end without the values of these
    bool hangs = false;                 // in the next forward, until it does not
    bool refuses = false;
    int mended = 0;
    int given_up = 0;

private:
    bool hangs_ = false;
    std::optional<std::uint32_t> gave_up_;
};

struct Linked {
    explicit Linked(std::size_t count = 3) {
        std::vector<std::shared_ptr<kernels::Ops>> all;
        DividedOptions options{.names = {}, .link = true, .limit = milliseconds(100)};
        for (std::size_t r = 0; r < count; ++r) {
            each.push_back(std::make_shared<Linking>(host()));
            all.push_back(each.back());
            options.names.push_back("cuda:" + std::to_string(r));
        }
        options.notice = [this](const std::string& sentence) { notices.push_back(sentence); };
        ops = std::make_unique<DividedOps>(std::move(all), std::move(options));
        core::ModelConfig config = small_config();
        config.shape.kv_heads = 4;  // one for each rank
        const auto model =
            load_whole_or_divided(core::ModelSource::random(config, QuantType::q8_0, QuantType::q8_0), *ops);
        context = std::make_unique<core::Context>(model, test::options());
    }
    // What comes of a step of one row.
    std::string step(bool reads = true) const {
        const std::string problem = error_of([&] {
            EXPECT_TRUE(context->decode(std::vector<std::int32_t>{3}, 1));
            if (reads) context->logits(0);
        });
        if (reads) context->truncate(0);
        return problem;
    }
    void deafen(const std::vector<std::optional<std::uint32_t>>& whom) const {
        for (std::size_t r = 0; r < each.size(); ++r) each[r]->deaf = r < whom.size() ? whom[r] : std::nullopt;
    }
    std::vector<std::shared_ptr<Linking>> each;
    std::unique_ptr<DividedOps> ops;
    std::unique_ptr<core::Context> context;
    std::vector<std::string> notices;
};

constexpr std::uint32_t kUnknown = 0;

TEST(RankLimits, TheOneThatIsLateIsNamedAndNotThoseThatWaited) {
    Linked linked;
    EXPECT_EQ(linked.step(), "no error");
    // It still runs.
    linked.deafen({kUnknown, std::nullopt, kUnknown});
    linked.each[1]->hangs = true;
    EXPECT_EQ(linked.step(), "cuda:1 has not passed on its values in time, so the answer ends here");
    EXPECT_EQ(linked.each[1]->given_up, 1) << "so that its end does not wait either";
    EXPECT_EQ(linked.each[0]->given_up + linked.each[2]->given_up, 0);
    linked.each[1]->hangs = false;
    linked.deafen({});
    EXPECT_EQ(linked.step(), "no error");
    // It came in the end, and heard all.
    linked.deafen({kUnknown, kUnknown});
    EXPECT_EQ(linked.step(), "cuda:2 has not passed on its values in time, so the answer ends here");
    linked.deafen({});
    EXPECT_EQ(linked.step(), "no error");
    // One that waited knows for whom.
    linked.deafen({1u << 1, 1u << 2, kUnknown});
    EXPECT_EQ(linked.step(), "cuda:1, cuda:2 have not passed on their values in time, so the answer ends here");
    linked.deafen({});
    EXPECT_EQ(linked.step(), "no error");
    linked.deafen({kUnknown, kUnknown, kUnknown});
    EXPECT_EQ(linked.step(),
              "cuda:0, cuda:1, cuda:2 have waited for each other's values in vain, so the answer ends here");
}

TEST(RankLimits, ALinkThatFailedIsUsedAgain) {
    Linked linked(2);
    for (int round = 0; round < 3; ++round) {
        linked.deafen({kUnknown});
        EXPECT_THAT(linked.step(), StartsWith("cuda:1 has not passed on")) << round;
        linked.deafen({});
        EXPECT_EQ(linked.step(), "no error") << round;
        EXPECT_EQ(linked.each[0]->mended, round + 1);
        EXPECT_EQ(linked.ops->linked_forwards(), 2 * round + 2);
    }
    EXPECT_EQ(linked.notices,
              std::vector<std::string>(3, "the link of cuda:0, cuda:1 has failed once and is used again"));
    EXPECT_EQ(linked.ops->why_copies({}, kernels::KvFormat::f16), "");
}

TEST(RankLimits, OneThatFailsTwiceInARowIsGivenUp) {
    Linked linked(2);
    linked.deafen({kUnknown});
    EXPECT_THAT(linked.step(), StartsWith("cuda:1 has not passed on"));
    EXPECT_THAT(linked.step(), StartsWith("cuda:1 has not passed on"));
    EXPECT_EQ(linked.step(), "no error") << "by copies";
    EXPECT_EQ(linked.ops->linked_forwards(), 2);
    EXPECT_FALSE(linked.ops->linked());
    EXPECT_EQ(linked.ops->why_copies({}, kernels::KvFormat::f16),
              "the link of cuda:0, cuda:1 has failed twice in a row");
    EXPECT_THAT(linked.notices, ElementsAre(HasSubstr("failed once"),
                                            "the link of cuda:0, cuda:1 has failed twice in a row; decoding goes by "
                                            "copies until the program is started again"));
    // With the bytes of one device.
    const auto model = small(*linked.ops);
    EXPECT_TRUE(evaluate(model, RowClass::decode, {1}) == evaluate(small(host()), RowClass::decode, {1}));
}

TEST(RankLimits, AForwardThatNotAllHaveBegunIsNotLeftBehind) {
    Linked linked(2);
    linked.each[1]->refuses = true;
    EXPECT_EQ(linked.step(), "cuda:1: no launch");
    linked.each[1]->refuses = false;
    EXPECT_EQ(linked.each[0]->mended, 0);
    EXPECT_EQ(linked.step(), "no error");
    EXPECT_EQ(linked.each[0]->mended, 1);
}

// What it has written to the cache is of no use either.
TEST(RankLimits, AFailureThatNoneHasAskedForIsSaidByTheNextForward) {
    Linked linked(2);
    linked.deafen({kUnknown});
    EXPECT_EQ(linked.step(false), "no error");
    linked.deafen({});
    EXPECT_THAT(linked.step(), StartsWith("cuda:1 has not passed on"));
    EXPECT_EQ(linked.step(), "no error");
}

// -------------------------------------------------------------------------------------------------- what is said of it

class Choosy final : public SharingOps {
public:
    explicit Choosy(kernels::Ops& inner) : SharingOps(inner) {}
    LinkWay link(std::span<LayerShare* const>) override { return way; }
    std::string try_copies(std::span<LayerShare* const>) override { return problem; }
    std::string why_not_linked(const kernels::LinkFacts& facts, kernels::KvFormat cache) const override {
        return !facts.types.empty() && facts.types.front() == QuantType::bf16 ? "weights in bf16 are not linked"
               : cache != kernels::KvFormat::f16                              ? "a KV cache of that kind is not linked"
                                                                              : "";
    }
    LinkWay way = LinkWay::peer_access;
    std::string problem;
};

TEST(RankLimits, WhyForwardsGoByCopies) {
    Choosy first(host()), second(host());
    DividedOps ops({lent(first), lent(second)}, {.link = true});
    const kernels::LinkFacts plain = {.types = {QuantType::q4_0}}, other = {.types = {QuantType::bf16}},
                             mixture = {.types = {QuantType::q4_0}, .experts = true};
    constexpr auto kF16 = kernels::KvFormat::f16;
    EXPECT_EQ(ops.why_copies(plain, kF16), "");
    EXPECT_EQ(ops.why_copies(other, kF16), "weights in bf16 are not linked");
    EXPECT_EQ(ops.why_copies(mixture, kF16), "mixtures of experts are not linked");
    EXPECT_EQ(ops.why_copies(plain, kernels::KvFormat::q8), "a KV cache of that kind is not linked");
    // What could not be said before is seen when the first forward is refused.
    core::Context context(small(ops), options());
    EXPECT_TRUE(context.decode(std::vector<std::int32_t>{3}, 1));
    EXPECT_EQ(ops.why_copies(plain, kF16), "the layers of this model cannot be linked");
    const DividedOps unlinked({lent(first), lent(second)});
    EXPECT_EQ(unlinked.why_copies(mixture, kF16), "") << "nothing was to be linked";
}

TEST(RankLimits, CopiesThatDoNotArriveAreSaidOnce) {
    Choosy first(host()), second(host());
    first.problem = "values are lost between cuda:0 and cuda:1";
    std::vector<std::string> notices;
    DividedOptions options;
    options.notice = [&](const std::string& sentence) { notices.push_back(sentence); };
    const DividedOps ops({lent(first), lent(second)}, options);
    EXPECT_THAT(notices, ElementsAre(first.problem));
    options.through_host = true;
    const DividedOps through_host({lent(first), lent(second)}, options);
    EXPECT_EQ(notices.size(), 1u) << "there are none";
}

}  // namespace
}  // namespace foresay::test
