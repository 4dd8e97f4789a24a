// --inflate as users meet it: senseless uses are refused in one sentence, and every number from an inflated model says
// so.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/app/program.h"

namespace foresay::testing {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

std::string target() { return source("models/python-coder/target-q4_k_m.gguf"); }
std::string draft() { return source("models/python-coder/draft-q8_0.gguf"); }

struct Refusal {
    std::vector<std::string> call;
    int status;
    std::string sentence;
};

TEST(Inflate, RefusesInOneSentence) {
    const std::vector<Refusal> refusals = {
        {{"complete", "-p", "x", "--inflate", "llama-3.1-8b", "--shape", "llama-3.1-8b"}, 2, "use one or the other"},
        {{"complete", "-p", "x", "--draft-quant", "q8_0"}, 2, "--draft-quant needs --inflate-draft"},
        {{"complete", "-p", "x", "--draft-encoding", "q8_0"}, 2, "--draft-quant needs --inflate-draft"},
        {{"complete", "-p", "x", "--quant", "q8_0"}, 2, "--inflate"},
        {{"chat", "--inflate", "llama-3.1-8b"}, 2, "--inflate"},
        {{"bench", "repl", "--inflate", "llama-3.1-8b"}, 2, "bench repl runs `foresay chat`"},
        {{"bench", "inflation"}, 2, "name a shape with --inflate"},
        {{"inspect", target(), "--inflate-draft", "llama-3.1-8b"}, 2, "inspect takes one model"},
        {{"complete", "-p", "x", "--inflate", "llama-3.1-9b"}, 1, "llama-3.1-8b"},
        {{"complete", "-p", "x", "--inflate", "llama-3.1-8b", "--quant", "q3"}, 1, "'q3' is not known"},
        {{"bench", "decode", "--inflate", "llama-3.2-3b"}, 1, "a head of its own"},
        {{"complete", "-p", "x", "--model", target(), "--inflate-draft", "llama-3.2-1b"}, 1, "no draft model"},
        {{"complete", "-p", "x", "--inflate", "llama-3.2-1b", "--context", "4096"}, 1, "longer than the 2048"},
    };
    for (const Refusal& refusal : refusals) {
        const Outcome outcome = run(refusal.call, "x");
        EXPECT_EQ(outcome.status, refusal.status) << ::testing::PrintToString(refusal.call);
        EXPECT_EQ(outcome.out, "");
        EXPECT_THAT(outcome.error, AllOf(StartsWith("foresay: "), HasSubstr(refusal.sentence)));
    }
}

TEST(Inflate, InspectTellsWhatAModelWouldTake) {
    const Outcome one = run({"inspect", target(), "--inflate", "llama-3.1-8b", "--quant", "q8_0", "--device", "cpu"});
    EXPECT_EQ(one.status, 0) << one.error;
    EXPECT_THAT(one.out,
                AllOf(HasSubstr("inflated to llama-3.1-8b in q8_0"), HasSubstr("32, 4096, 14336"),
                      HasSubstr("memory with a context of 2048 positions"), HasSubstr("GiB: weights 7.4 GiB")));
    const Outcome pair = run({"inspect", target(), draft(), "--inflate", "llama-3.1-70b", "--inflate-draft",
                              "llama-3.2-1b", "--device", "cpu"});
    EXPECT_EQ(pair.status, 0) << pair.error;
    EXPECT_THAT(pair.out, AllOf(HasSubstr("inflated to llama-3.1-70b in q4_0"), HasSubstr("they can pair"),
                                HasSubstr("inflated to llama-3.2-1b in q4_0"), HasSubstr("80, 8192, 28672")));
}

// The smallest shape that holds the pair has more than a billion weights: seconds, and 2 GB of memory.
TEST(Inflate, ABillionWeightsAreControlledAndLabelled) {
    const std::string prompts =
        write_scratch("one.jsonl", "{\"id\": \"a\", \"kind\": \"code\", \"prompt\": \"def fib(n):\\n    \"}\n");
    Call call{.arguments = {"bench", "inflation", "--inflate", "llama-3.2-1b", "--prompts", prompts, "-n", "16",
                            "--runs", "1", "--temperature", "0", "--json"}};
    call.patience = std::chrono::minutes(5);
    const Outcome outcome = run(call);
    ASSERT_EQ(outcome.status, 0) << outcome.error;
    const json out = json::parse(outcome.out);
    EXPECT_EQ(out.at("inflated"), "target llama-3.2-1b in q4_0");
    EXPECT_GE(out.at("target").at("agreement"), 0.9);  // of some twenty rows
    EXPECT_GE(out.at("target").at("rows"), 16);
    EXPECT_GT(out.at("target").at("tokens_per_second"), 0.0);
    EXPECT_GT(out.at("target").at("shape_tokens_per_second"), 0.0);
    EXPECT_FALSE(out.contains("draft"));
    call.arguments = {"complete", "--inflate", "llama-3.2-1b", "-p", "x = ", "-n", "2", "--json"};
    const Outcome text = run(call);
    ASSERT_EQ(text.status, 0) << text.error;
    EXPECT_EQ(json::parse(text.out).at("inflated"), "target llama-3.2-1b in q4_0");
    ASSERT_EQ(out.at("acceptance").size(), 1u);
    EXPECT_NEAR(out.at("acceptance")[0].at("small").get<double>(), out.at("acceptance")[0].at("inflated").get<double>(),
                0.1);
}

}  // namespace
}  // namespace foresay::testing
