// Devices with whole layers that do not go on (kernels/split_ops.h): a wait ends when the device has not gone on for
// the limit, however long it has been, and names it; the next answer is whole.

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <vector>

#include "core/models/layer_split.h"
#include "kernels/split_ops.h"
#include "tests/laws/listed_backends.h"
#include "tests/models/sharing_ops.h"
#include "tests/support/error_of.h"

namespace foresay::test {
namespace {

using kernels::QuantType;
using kernels::RowClass;
using kernels::SplitOps;
using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

// The host as a device with a queue: what was enqueued runs later, each part of it in `pace`, and nothing runs while it
// hangs. A call that would wait for it must not come before it has run.
class Queued final : public SharingOps {
public:
    explicit Queued(kernels::Ops& inner) : SharingOps(inner) {}
    bool hangs = false;
    milliseconds pace{0};
    int layers = 0;  // that were called
    int given_up = 0;

    void flush() override {
        if (!std::exchange(called_, false)) return;
        if (idle()) moved_ = Clock::now();
        ++made_;
    }
    void start(kernels::Workspace&) override { flush(); }
    bool idle() override {
        while (done_ < made_ && !hangs && Clock::now() >= moved_ + pace) {
            ++done_;
            moved_ += pace;
        }
        return done_ == made_;
    }
    void give_up() override { ++given_up; }
    void mark() override { marks_.push_back(made_); }
    std::int64_t unreached() override {
        idle();
        return std::ranges::count_if(marks_, [&](int mark) { return mark > done_; });
    }

    void begin(kernels::Workspace& workspace, const kernels::Batch& batch) override {
        would_wait();
        inner().begin(workspace, batch);
    }
    void attention_in(const kernels::PreparedOp& op, kernels::Workspace& workspace, kernels::KvPages& kv,
                      std::int32_t layer) override {
        called_ = true;
        ++layers;
        inner().attention_in(op, workspace, kv, layer);
    }
    std::span<float> logits(kernels::Workspace& workspace, std::int32_t i) override {
        would_wait();
        return inner().logits(workspace, i);
    }
    void read_rows(kernels::Workspace& workspace, std::span<float> to) override {
        would_wait();
        inner().read_rows(workspace, to);
    }
    void write_rows(kernels::Workspace& workspace, std::span<const float> from) override {
        would_wait();
        inner().write_rows(workspace, from);
    }
    void read_page(kernels::KvPages& kv, std::int32_t page, std::span<std::byte> to) override {
        would_wait();
        inner().read_page(kv, page, to);
    }
    void wait(kernels::Workspace& workspace) override {
        would_wait();
        inner().wait(workspace);
    }

private:
    void would_wait() {
        EXPECT_FALSE(called_) << "work that was called is not enqueued";
        EXPECT_TRUE(idle()) << "a call that waits without a limit";
    }

    bool called_ = false;
    int made_ = 0, done_ = 0;
    std::vector<int> marks_;
    Clock::time_point moved_ = Clock::now();
};

std::shared_ptr<const core::Model> model_of(kernels::Ops& ops, std::int32_t layers, const core::LayerSplit& split) {
    core::ModelConfig config = small_config();
    config.shape.layers = layers;
    std::shared_ptr<core::ModelSource> source = core::ModelSource::random(config, QuantType::q8_0, QuantType::q8_0);
    if (!split.empty()) source->place_layers(core::devices_of(split));
    return core::Model::load(std::move(source), ops);
}

struct Two {
    explicit Two(milliseconds limit, std::int32_t layers = 4, std::int32_t rows = 64)
        : ops({lent(first), lent(second)}, {"cuda:0", "cuda:1"}, limit),
          context(model_of(ops, layers, {layers / 2, layers - layers / 2}),
                  {.length = 256, .prefill_rows = rows, .decode_rows = 64, .sequences = 2}) {}
    // What comes of a step of one row.
    std::string step() {
        const std::int32_t start = context.length();
        const std::string problem = error_of([&] {
            EXPECT_TRUE(context.decode(std::vector<std::int32_t>{3}, 1));
            row.assign(context.logits(0).begin(), context.logits(0).end());
        });
        context.truncate(start);
        return problem;
    }
    std::string prompt(std::size_t tokens) {
        return error_of([&] {
            EXPECT_TRUE(context.prefill(random_tokens(tokens, small_config().shape.vocab, 5)));
            context.logits(0);
        });
    }
    Queued first{host()}, second{host()};
    SplitOps ops;
    core::Context context;
    std::vector<float> row;
};

TEST(LayerLimits, ADeviceThatHangsIsNamedAndTheNextAnswerIsWhole) {
    for (const bool is_first : {true, false}) {
        Two two(milliseconds(40));
        EXPECT_EQ(two.step(), "no error");
        const std::vector<float> expected = two.row;
        Queued& device = is_first ? two.first : two.second;
        device.hangs = true;
        const std::string sentence =
            std::string(is_first ? "cuda:0" : "cuda:1") + " has not answered for 40 ms, so the answer ends here";
        const auto start = Clock::now();
        EXPECT_EQ(two.step(), sentence);
        EXPECT_EQ(two.step(), sentence) << "found again";
        EXPECT_LT(Clock::now() - start, milliseconds(2000));
        EXPECT_EQ(device.given_up, 2) << "so that its end does not wait either";
        EXPECT_EQ(two.first.given_up + two.second.given_up, 2);
        device.hangs = false;
        EXPECT_EQ(two.step(), "no error");
        EXPECT_EQ(two.row, expected);
    }
}

TEST(LayerLimits, PagesAndTheEndOfAForwardAreNotWaitedForWithoutALimit) {
    Two two(milliseconds(30));
    two.second.hangs = true;
    EXPECT_TRUE(two.context.decode(std::vector<std::int32_t>{3}, 1));
    const std::string sentence = "cuda:1 has not answered for 30 ms, so the answer ends here";
    EXPECT_EQ(error_of([&] { pages_of(two.context, 0); }), sentence);
    EXPECT_EQ(error_of([&] { two.ops.wait(two.context.workspace()); }), sentence);
    EXPECT_EQ(error_of([&] { two.context.logits(0); }), sentence);
    two.second.hangs = false;
    EXPECT_EQ(error_of([&] { pages_of(two.context, 0); }), "no error");
}

TEST(LayerLimits, AWaitLastsAsLongAsADeviceGoesOn) {
    for (const bool is_first : {true, false}) {
        Two two(milliseconds(80), 20, 100);
        (is_first ? two.first : two.second).pace = milliseconds(25);
        const auto start = Clock::now();
        EXPECT_EQ(two.prompt(100), "no error");
        EXPECT_GT(Clock::now() - start, milliseconds(200)) << "longer than the limit";
    }
}

TEST(LayerLimits, TheHostDoesNotRunAheadOfADeviceThatHangs) {
    Two two(milliseconds(30), 120, 100);
    two.first.hangs = true;
    EXPECT_EQ(two.prompt(100), "cuda:0 has not answered for 30 ms, so the answer ends here");
    EXPECT_EQ(two.first.layers, kernels::kMostMarksOfLayers + 1);
    EXPECT_EQ(two.second.layers, 0);
}

// The last device computes a chunk of a prompt while the first one has the next.
TEST(LayerLimits, ADeviceMayBeBusyWithTheChunkBefore) {
    Two two(milliseconds(30), 8, 100);
    two.second.hangs = true;
    EXPECT_EQ(two.prompt(200), "cuda:1 has not answered for 30 ms, so the answer ends here");
    EXPECT_EQ(two.first.layers, 8) << "of both chunks";
    EXPECT_EQ(two.second.layers, 4);
    two.second.hangs = false;
    two.context.truncate(0);
    EXPECT_EQ(two.prompt(200), "no error");
}

}  // namespace
}  // namespace foresay::test
