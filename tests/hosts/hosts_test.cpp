// The program on several hosts: processes of this machine, connected by a double of NCCL (nccl_double.cpp). The text is
// that of one process, byte for byte; ranks that are killed, stopped or started otherwise are named.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "tests/app/program.h"
#include "tests/hosts/free_port.h"

namespace foresay::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

using Environment = std::vector<std::pair<std::string, std::string>>;

std::string host_name() {
    char name[64] = {};
    ::gethostname(name, sizeof(name) - 1);
    return name;
}

// As torchrun sets them. The limits are those of a machine that may be busy.
Environment of_rank(int rank, int size, const std::string& port) {
    return {{"RANK", std::to_string(rank)}, {"WORLD_SIZE", std::to_string(size)},  {"MASTER_ADDR", "127.0.0.1"},
            {"MASTER_PORT", port},          {"FORESAY_NCCL", FORESAY_NCCL_DOUBLE}, {"FORESAY_HOST_WAIT", "50"},
            {"FORESAY_LOG", "info"}};
}

std::vector<Call> calls_of(int size, const std::vector<std::string>& arguments) {
    const std::string port = std::to_string(free_port());
    std::vector<Call> calls(static_cast<std::size_t>(size));
    for (int rank = 0; rank < size; ++rank) {
        calls[static_cast<std::size_t>(rank)].arguments = arguments;
        calls[static_cast<std::size_t>(rank)].environment = of_rank(rank, size, port);
    }
    return calls;
}

std::vector<Outcome> run_all(const std::vector<Call>& calls) {
    scratch();
    std::vector<Outcome> outcomes(calls.size());
    std::vector<std::thread> threads;
    for (std::size_t rank = 0; rank < calls.size(); ++rank) {
        threads.emplace_back([&, rank] { outcomes[rank] = run(calls[rank]); });
    }
    for (std::thread& thread : threads) thread.join();
    return outcomes;
}

std::vector<std::string> with(std::vector<std::string> arguments, const std::vector<std::string>& more) {
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
}

std::vector<std::string> completion(const std::string& layers = "", const std::vector<std::string>& more = {}) {
    std::vector<std::string> arguments = {"complete", "-p",  "def add(a, b):\n", "-n", "48",
                                          "--device", "cpu", "--threads",        "1"};
    if (!layers.empty()) arguments = with(arguments, {"--set", "runtime.host_layers=" + layers});
    return with(arguments, more);
}

// The layers of the bundled target are 12.
const std::string kTwo = "[5, 7]", kThree = "[4, 3, 5]";

void expect_text_of_one(const std::string& layers, int size, const std::vector<std::string>& more) {
    const Outcome alone = run(completion("", more));
    ASSERT_EQ(alone.status, 0) << alone.error;
    ASSERT_FALSE(alone.out.empty());
    const std::vector<Outcome> ranks = run_all(calls_of(size, completion(layers, more)));
    EXPECT_EQ(ranks[0].out, alone.out);
    for (const Outcome& rank : ranks) EXPECT_EQ(rank.status, 0) << rank.error;
    for (std::size_t rank = 1; rank < ranks.size(); ++rank) {
        EXPECT_EQ(ranks[rank].out, "");
        EXPECT_THAT(ranks[rank].error, HasSubstr("serves rank 0"));
    }
}

TEST(Hosts, TwoGiveTheTextOfOne) {
    expect_text_of_one(kTwo, 2, {"--speculation", "off"});
    expect_text_of_one(kTwo, 2, {"--temperature", "0.8", "--seed", "11"});
}

TEST(Hosts, TwoGiveTheTextOfOneWithSpeculation) {
    expect_text_of_one(kTwo, 2, {"--speculation", "auto", "--temperature", "0"});
}

TEST(Hosts, ThreeGiveTheTextOfOne) { expect_text_of_one(kThree, 3, {"--temperature", "0.8", "--seed", "3"}); }

// The memory of a conversation: turns, a branch, and pages that leave the cache.
TEST(Hosts, TwoHoldTheSameConversation) {
    const std::vector<std::string> chat = {"chat", "--lines", "-n", "10", "--device", "cpu", "--threads", "1"};
    const std::string entries = "def add(a, b):\n/undo\ndef sub(a, b):\n/retry\nclass A:\n/quit\n";
    const auto talk = [&](int size, const std::vector<std::string>& arguments) {
        std::vector<Call> calls = calls_of(size, arguments);
        calls[0].input = entries;
        if (size == 1) calls[0].environment.clear();
        return run_all(calls);
    };
    const std::vector<Outcome> alone = talk(1, chat);
    ASSERT_EQ(alone[0].status, 0) << alone[0].error;
    const std::vector<Outcome> ranks = talk(2, with(chat, {"--set", "runtime.host_layers=" + kTwo}));
    EXPECT_EQ(ranks[0].out, alone[0].out);
    EXPECT_EQ(ranks[1].status, 0) << ranks[1].error;
}

TEST(Hosts, SayWhatLiesWhere) {
    const std::vector<Outcome> ranks =
        run_all(calls_of(2, {"inspect", source("models/python-coder/target-q4_k_m.gguf"), "--device", "cpu",
                             "--threads", "1", "--set", "runtime.host_layers=" + kTwo, "--json"}));
    ASSERT_EQ(ranks[0].status, 0) << ranks[0].error;
    EXPECT_EQ(ranks[1].status, 0) << ranks[1].error;
    const auto devices = nlohmann::json::parse(ranks[0].out).at("devices");
    ASSERT_EQ(devices.size(), 2u);
    EXPECT_EQ(devices[0].at("device"), "cpu");
    EXPECT_EQ(devices[0].at("layers"), 5);
    EXPECT_THAT(devices[1].at("device").get<std::string>(), AllOf(HasSubstr("cpu of rank 1"), Not(HasSubstr("()"))));
    EXPECT_EQ(devices[1].at("layers"), 7);
}

TEST(Hosts, MeasureTheirHandOver) {
    const std::vector<Outcome> ranks =
        run_all(calls_of(2, {"bench", "exchange", "--device", "cpu", "--runs", "1", "--json"}));
    ASSERT_EQ(ranks[0].status, 0) << ranks[0].error;
    const auto crossings = nlohmann::json::parse(ranks[0].out).at("crossings");
    ASSERT_EQ(crossings.size(), 8u);
    EXPECT_EQ(crossings[0].at("bytes"), 4096 * 4);
    EXPECT_GT(crossings[0].at("us"), 0.0);
    EXPECT_EQ(crossings[0].at("way"), "NCCL 2.27.3");
}

// ---------------------------------------------------------------------------------------------------------- failure

// What follows the first word of rank 0: the rest of a long answer.
std::vector<Call> long_answer(int size, const std::string& layers, const std::string& limit) {
    std::vector<Call> calls = calls_of(size, completion(layers, {"-n", "1500", "--ignore-eos"}));
    for (Call& call : calls) call.environment.emplace_back("FORESAY_HOST_WAIT", limit);
    return calls;
}

// Calls act(pid of rank `rank`) once rank 0 has begun its answer.
void when_it_answers(std::vector<Call>& calls, std::size_t rank, const std::function<void(pid_t)>& act,
                     std::atomic<pid_t>& process) {
    if (rank == 0) {
        calls[0].on_output = act;
        return;
    }
    calls[rank].on_error = [&process](pid_t pid) { process = pid; };
    calls[0].on_output = [&process, act](pid_t) {
        ASSERT_GT(process, 0) << "a rank that serves has said so";
        act(process);
    };
}

TEST(Hosts, NameARankThatIsKilled) {
    std::atomic<pid_t> process = 0;
    std::vector<Call> calls = long_answer(3, kThree, "50");
    when_it_answers(
        calls, 2, [](pid_t pid) { ::kill(pid, SIGKILL); }, process);
    const std::vector<Outcome> ranks = run_all(calls);
    EXPECT_EQ(ranks[0].status, 1);
    EXPECT_THAT(ranks[0].error, HasSubstr("the connection to rank 2 (" + host_name() + ") is lost"));
    EXPECT_THAT(ranks[0].error, HasSubstr("start all ranks again to go on"));
    // The one that is left hears that rank 0 has ended.
    EXPECT_EQ(ranks[1].status, 1);
    EXPECT_THAT(ranks[1].error, HasSubstr("rank 0 (" + host_name() + ")"));
    EXPECT_EQ(ranks[2].status, 128 + SIGKILL);
}

TEST(Hosts, NameARankThatHangs) {
    std::atomic<pid_t> process = 0;
    std::vector<Call> calls = long_answer(2, kTwo, "3");
    when_it_answers(
        calls, 1, [](pid_t pid) { ::kill(pid, SIGSTOP); }, process);
    std::vector<Outcome> ranks(2);
    std::thread worker([&] { ranks[1] = run(calls[1]); });
    ranks[0] = run(calls[0]);
    ::kill(process, SIGKILL);
    worker.join();
    EXPECT_EQ(ranks[0].status, 1);
    EXPECT_THAT(ranks[0].error, HasSubstr("rank 1 (" + host_name() + ") has not answered for 3 seconds"));
}

TEST(Hosts, EndWhenRankZeroIsKilled) {
    std::atomic<pid_t> process = 0;
    std::vector<Call> calls = long_answer(2, kTwo, "50");
    when_it_answers(
        calls, 0, [](pid_t pid) { ::kill(pid, SIGKILL); }, process);
    const std::vector<Outcome> ranks = run_all(calls);
    EXPECT_EQ(ranks[0].status, 128 + SIGKILL);
    EXPECT_EQ(ranks[1].status, 1);
    EXPECT_THAT(ranks[1].error, HasSubstr("the connection to rank 0 (" + host_name() + ") is lost"));
}

TEST(Hosts, EndWhenRankZeroHangs) {
    std::atomic<pid_t> process = 0;
    std::vector<Call> calls = long_answer(2, kTwo, "3");
    when_it_answers(
        calls, 0,
        [&process](pid_t pid) {
            process = pid;
            ::kill(pid, SIGSTOP);
        },
        process);
    std::vector<Outcome> ranks(2);
    std::thread first([&] { ranks[0] = run(calls[0]); });
    ranks[1] = run(calls[1]);
    ::kill(process, SIGKILL);
    first.join();
    EXPECT_EQ(ranks[1].status, 1);
    EXPECT_THAT(ranks[1].error, HasSubstr("rank 0 (" + host_name() + ") has not answered for 3 seconds"));
}

// The conversation goes on: each further answer is the sentence, and what was said is there to be saved.
TEST(Hosts, ASessionOutlivesARank) {
    std::atomic<pid_t> process = 0;
    std::vector<Call> calls = calls_of(2, {"chat", "--lines", "-n", "12", "--device", "cpu", "--threads", "1", "--set",
                                           "runtime.host_layers=" + kTwo});
    const std::string saved = (scratch() / "saved.json").string();
    for (int i = 0; i < 60; ++i) calls[0].input += "def function_" + std::to_string(i) + "(a):\n";
    calls[0].input += "/save " + saved + "\n/quit\n";
    calls[1].on_error = [&process](pid_t pid) { process = pid; };
    // Some turns are done by then.
    calls[0].on_more = [&process](pid_t, const Outcome& outcome) {
        if (outcome.out.size() > 200) ::kill(process, SIGKILL);
    };
    const std::vector<Outcome> ranks = run_all(calls);
    const std::string sentence = "the connection to rank 1 (" + host_name() + ") is lost";
    const std::size_t once = ranks[0].error.find(sentence);
    ASSERT_NE(once, std::string::npos) << ranks[0].error;
    EXPECT_NE(ranks[0].error.find(sentence, once + 1), std::string::npos) << ranks[0].error;
    EXPECT_TRUE(std::filesystem::exists(saved)) << ranks[0].error;
}

// ---------------------------------------------------------------------------------------------------- wrong starts

TEST(Hosts, RefuseAnotherModel) {
    std::vector<Call> calls = calls_of(2, completion(kTwo));
    calls[1].arguments = with(calls[1].arguments, {"--model", source("models/python-coder/draft-q8_0.gguf")});
    const std::vector<Outcome> ranks = run_all(calls);
    EXPECT_EQ(ranks[0].status, 1);
    EXPECT_THAT(ranks[0].error, AllOf(HasSubstr("rank 1 (" + host_name() + "): its model, "),
                                      HasSubstr("draft-q8_0.gguf, is not that of rank 0; name the same model")));
    EXPECT_EQ(ranks[1].status, 0) << "rank 0 has ended it";
}

TEST(Hosts, RefuseLayersThatDoNotAddUp) {
    for (const std::string layers : {"[5, 8]", "[4, 4, 4]"}) {
        const std::vector<Outcome> ranks = run_all(calls_of(2, completion(layers)));
        EXPECT_EQ(ranks[0].status, 1);
        EXPECT_THAT(ranks[0].error, HasSubstr("and the model has 12 layers for 2 hosts"));
    }
}

TEST(Hosts, RefuseOtherDivisions) {
    std::vector<Outcome> ranks = run_all(
        calls_of(2, {"complete", "-p", "a", "--device", "cpu,reference", "--set", "runtime.device_layers=[6, 6]"}));
    EXPECT_THAT(ranks[0].error, HasSubstr("name the layers of each with runtime.host_layers"));
    ranks = run_all(calls_of(2, {"complete", "-p", "a", "--device", "cpu,cpu", "--split-mode", "row"}));
    EXPECT_THAT(ranks[0].error, HasSubstr("row is for the devices of one host"));
    EXPECT_THAT(ranks[1].error, HasSubstr("row is for the devices of one host"));
}

Outcome start_with(const Environment& environment) {
    return run(Call{.arguments = {"complete", "-p", "a", "-n", "1", "--device", "cpu"}, .environment = environment});
}

TEST(Hosts, SayWhatIsMissingAtTheStart) {
    const Environment both = of_rank(0, 2, std::to_string(free_port()));
    EXPECT_THAT(start_with({{"WORLD_SIZE", "2"}}).error, HasSubstr("WORLD_SIZE is 2, and RANK is not set"));
    Environment other = both;
    other.emplace_back("FORESAY_NCCL", "/no/such/libnccl.so");
    EXPECT_THAT(start_with(other).error,
                AllOf(HasSubstr("several hosts need NCCL, and it cannot be opened (/no/such/libnccl.so"),
                      HasSubstr("name the library with FORESAY_NCCL=PATH")));
    other = both;
    other.emplace_back("FORESAY_NCCL", "libm.so.6");
    EXPECT_THAT(start_with(other).error, HasSubstr("libm.so.6 has no ncclGetVersion"));
    other = both;
    other.emplace_back("FORESAY_HOST_START", "1");
    EXPECT_THAT(start_with(other).error, HasSubstr("of 2 ranks, number 1 did not come to 127.0.0.1:"));
    other.emplace_back("RANK", "1");
    EXPECT_THAT(start_with(other).error, HasSubstr("rank 1 did not reach rank 0 at 127.0.0.1:"));
    EXPECT_EQ(start_with(other).status, 1);
}

// One that waits for the others, as its log says.
TEST(Hosts, AnInterruptEndsTheWaitForOtherRanks) {
    for (const int rank : {0, 1}) {
        Call call{.arguments = {"complete", "-p", "a", "-n", "1", "--device", "cpu"},
                  .environment = of_rank(rank, 2, std::to_string(free_port()))};
        call.environment.emplace_back("FORESAY_HOST_START", "50");
        call.on_error = [](pid_t pid) { ::kill(pid, SIGINT); };
        const auto start = std::chrono::steady_clock::now();
        const Outcome outcome = run(call);
        EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(25)) << rank;
        EXPECT_EQ(outcome.status, 130) << rank;
        EXPECT_THAT(outcome.error, HasSubstr("foresay: interrupted while rank " + std::to_string(rank) +
                                             " waited for the other ranks"));
    }
}

// A rank 1 that comes, as engine/hosts/rendezvous.cpp has it, and does not join by NCCL.
void come_and_stay_away(int port) {
    struct {
        char magic[8] = {'f', 'o', 'r', 'e', 's', 'a', 'y', '1'};
        std::int32_t rank = 1, size = 2;
        char host[64] = {};
    } greeting;
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<std::uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    for (int tries = 0; tries < 500; ++tries, ::usleep(20'000)) {
        const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        const bool there = ::connect(socket, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0;
        char reply = 0;
        const bool met = there && ::send(socket, &greeting, sizeof(greeting), MSG_NOSIGNAL) == sizeof(greeting) &&
                         ::recv(socket, &reply, 1, 0) == 1;
        ::close(socket);
        if (met) return;
    }
    ADD_FAILURE() << "rank 0 did not listen";
}

TEST(Hosts, AnInterruptEndsTheWaitForNccl) {
    const int port = free_port();
    Call call{.arguments = {"complete", "-p", "a", "-n", "1", "--device", "cpu"},
              .environment = of_rank(0, 2, std::to_string(port))};
    call.environment.emplace_back("FORESAY_HOST_START", "50");
    call.on_error = [port](pid_t pid) {
        come_and_stay_away(port);
        ::usleep(300'000);
        ::kill(pid, SIGINT);
    };
    const auto start = std::chrono::steady_clock::now();
    const Outcome outcome = run(call);
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(25));
    EXPECT_EQ(outcome.status, 130);
    EXPECT_THAT(outcome.error, HasSubstr("foresay: interrupted while rank 0 waited for the other ranks"));
}

TEST(Hosts, AreOfOneSize) {
    std::vector<Call> calls = calls_of(2, completion(kTwo));
    calls[1].environment.emplace_back("WORLD_SIZE", "3");
    const std::vector<Outcome> ranks = run_all(calls);
    EXPECT_THAT(ranks[0].error, HasSubstr("started as one of 3, and rank 0 as one of 2"));
    EXPECT_THAT(ranks[1].error, HasSubstr("started as one of 3, and rank 0 as one of 2"));
}

// A command without a model needs no other rank.
TEST(Hosts, OtherCommandsRunAlone) {
    const Outcome outcome = run(Call{.arguments = {"tokenize", "--json", "-p", "a"},
                                     .environment = of_rank(0, 2, std::to_string(free_port()))});
    EXPECT_THAT(outcome.error, Not(HasSubstr("rank")));
}

}  // namespace
}  // namespace foresay::testing
