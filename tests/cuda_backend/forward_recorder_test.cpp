// The recorder of forwards (kernels/cuda/forward/forward_recorder.h) with a target that launches nothing.

#include "kernels/cuda/forward/forward_recorder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>
#include <string>

namespace foresay::test {
namespace {

using namespace kernels;
using cuda::OpCall;
using testing::ElementsAre;
using testing::IsEmpty;

struct FakeGraph {
    std::vector<std::uint64_t> ids;  // of the calls in it
    bool empty() const { return ids.empty(); }
    void reset() { ids.clear(); }
};

// Keeps what it is told to do, and fails on demand.
struct FakeTarget {
    std::vector<std::string>* log;
    std::string fail = {};  // at which step

    void step(const std::string& name, std::span<const OpCall> calls) {
        std::string line = name;
        for (const OpCall& call : calls) line += ' ' + std::to_string(call.prepared_id);
        log->push_back(line);
        if (fail == name) throw std::runtime_error(name + " fails");
    }
    void enqueue(std::span<const OpCall> calls) { step("enqueue", calls); }
    void capture(FakeGraph& graph, std::span<const OpCall> calls) {
        step("capture", calls);
        for (const OpCall& call : calls) graph.ids.push_back(call.prepared_id);
    }
    void launch(const FakeGraph& graph) { step("launch " + std::to_string(graph.ids.size()), {}); }
    void wait() { step("wait", {}); }
    void abandon() noexcept { log->push_back("abandon"); }
};

class ForwardRecorder : public testing::Test {
protected:
    void note(std::initializer_list<std::uint64_t> ids) {
        for (const std::uint64_t id : ids) recorder_.note({.op = ForwardOp::mlp_in, .prepared_id = id});
    }
    // What the target was told to do.
    std::vector<std::string> run(const std::string& fail = {}, std::int32_t rows = 1,
                                 RowClass row_class = RowClass::decode, bool part = false) {
        log_.clear();
        FakeTarget target{&log_, fail};
        cuda::ForwardShape shape;
        shape.row_class = row_class;
        shape.layout.rows = rows;
        if (fail.empty()) {
            recorder_.run(shape, target, part);
        } else {
            EXPECT_THROW(recorder_.run(shape, target, part), std::runtime_error);
        }
        return log_;
    }

    cuda::ForwardRecorder<FakeGraph> recorder_{16};
    std::vector<std::string> log_;
};

TEST_F(ForwardRecorder, ASecondTimeIsAGraph) {
    EXPECT_THAT(run(), IsEmpty());
    note({1, 2});
    EXPECT_FALSE(recorder_.empty());
    EXPECT_THAT(run(), ElementsAre("enqueue 1 2"));
    EXPECT_TRUE(recorder_.empty());
    note({1, 2});
    EXPECT_THAT(run(), ElementsAre("capture 1 2", "launch 2"));
    note({1, 2});
    EXPECT_THAT(run(), ElementsAre("launch 2"));
    note({1, 3});
    EXPECT_THAT(run(), ElementsAre("enqueue 1 3")) << "other ops";
    note({1, 2});
    EXPECT_THAT(run({}, 2), ElementsAre("enqueue 1 2")) << "another width";
    recorder_.forget_graphs();
    note({1, 2});
    EXPECT_THAT(run(), ElementsAre("capture 1 2", "launch 2"));
}

// Calls that must not be launched one by one: a graph before they are noted, and nothing runs until then.
TEST_F(ForwardRecorder, PreparedCallsAreAGraphTheFirstTime) {
    cuda::ForwardShape shape;
    shape.layout.rows = 1;
    const std::vector<OpCall> calls = {{.op = ForwardOp::mlp_in, .prepared_id = 1},
                                       {.op = ForwardOp::mlp_in, .prepared_id = 2}};
    const auto prepare = [&](const std::string& fail = {}) {
        log_.clear();
        FakeTarget target{&log_, fail};
        if (fail.empty()) {
            recorder_.prepare(calls, shape, target);
        } else {
            EXPECT_THROW(recorder_.prepare(calls, shape, target), std::runtime_error);
        }
        return log_;
    };
    EXPECT_THAT(prepare("capture"), ElementsAre("capture 1 2", "abandon"));
    EXPECT_THAT(prepare(), ElementsAre("capture 1 2"));
    EXPECT_THAT(prepare(), IsEmpty());
    EXPECT_TRUE(recorder_.empty());
    note({1, 2});
    EXPECT_THAT(run(), ElementsAre("launch 2"));
    recorder_.forget_graphs();
    EXPECT_THAT(prepare(), ElementsAre("capture 1 2"));
}

TEST_F(ForwardRecorder, PrefillAndWideForwardsAreNeverGraphs) {
    for (int i = 0; i < 3; ++i) {
        note({1});
        EXPECT_THAT(run({}, 1, RowClass::prefill), ElementsAre("enqueue 1"));
        note({1});
        EXPECT_THAT(run({}, cuda::kGraphRows + 1), ElementsAre("enqueue 1"));
    }
}

// Nor are they remembered: whole forwards keep their places.
TEST_F(ForwardRecorder, PartsBetweenHandOversAreNeverGraphs) {
    note({1, 2});
    run();
    for (std::uint64_t i = 0; i < 2 * cuda::kKnownForwards; ++i) {
        note({3 + i % 200});
        EXPECT_THAT(run({}, 1, RowClass::decode, true), ElementsAre("enqueue " + std::to_string(3 + i % 200)));
    }
    note({4});
    EXPECT_THAT(run("enqueue", 1, RowClass::decode, true), ElementsAre("enqueue 4", "abandon"));
    note({1, 2});
    EXPECT_THAT(run(), ElementsAre("capture 1 2", "launch 2"));
}

TEST_F(ForwardRecorder, AForwardThatFailsLeavesNothingBehind) {
    note({1, 2});
    EXPECT_THAT(run("enqueue"), ElementsAre("enqueue 1 2", "abandon"));
    EXPECT_TRUE(recorder_.empty());
    note({3});
    EXPECT_THAT(run(), ElementsAre("enqueue 3")) << "what failed must not run with the next forward";
    // Nor does it count as seen, because not all of it was enqueued.
    note({1, 2});
    EXPECT_THAT(run(), ElementsAre("enqueue 1 2"));
}

TEST_F(ForwardRecorder, ACaptureThatFailsIsTriedAgain) {
    for (int i = 0; i < 2; ++i) {
        note({1});
        run(i == 0 ? "" : "capture");
    }
    EXPECT_THAT(log_, ElementsAre("capture 1", "abandon"));
    EXPECT_TRUE(recorder_.empty());
    note({1});
    EXPECT_THAT(run(), ElementsAre("capture 1", "launch 1"));
}

TEST_F(ForwardRecorder, ALaunchThatFailsLeavesItsGraph) {
    for (int i = 0; i < 2; ++i) {
        note({1});
        run();
    }
    note({1});
    EXPECT_THAT(run("launch 1"), ElementsAre("launch 1", "abandon"));
    note({1});
    EXPECT_THAT(run(), ElementsAre("launch 1"));
}

TEST_F(ForwardRecorder, TheForwardThatWasNotUsedForLongestGoes) {
    for (int i = 0; i < 2; ++i) {
        note({7});
        run();
    }
    for (std::uint64_t id = 100; id < 100 + cuda::kKnownForwards - 1; ++id) {
        note({id});
        run();
    }
    note({7});
    EXPECT_THAT(run(), ElementsAre("launch 1")) << "all of them fit";
    for (std::uint64_t id = 300; id < 300 + cuda::kKnownForwards - 1; ++id) {
        note({id});
        run();
    }
    note({8});
    EXPECT_THAT(run(), ElementsAre("enqueue 8", "wait")) << "a graph that goes may be running";
}

}  // namespace
}  // namespace foresay::test
