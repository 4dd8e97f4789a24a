// Which rank a process is, by the variables of mpirun, srun, torchrun and others.
#include "engine/hosts/launch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "tests/support/error_of.h"

namespace foresay::engine {
namespace {

using ::testing::HasSubstr;

using Variables = std::map<std::string, std::string>;

std::optional<Launch> launch(const Variables& variables) {
    return read_launch([&](const char* name) {
        const auto found = variables.find(name);
        return found == variables.end() ? nullptr : found->second.c_str();
    });
}

std::string problem(const Variables& variables) {
    return test::error_of([&] { launch(variables); });
}

TEST(Launch, AloneWithoutVariablesAndWithOneProcess) {
    EXPECT_FALSE(launch({}));
    EXPECT_FALSE(launch({{"WORLD_SIZE", "1"}}));
    EXPECT_FALSE(launch({{"OMPI_COMM_WORLD_SIZE", "1"}, {"OMPI_COMM_WORLD_RANK", "0"}}));
}

TEST(Launch, Torchrun) {
    Variables set = {{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"LOCAL_RANK", "1"}, {"MASTER_ADDR", "node-a"}};
    EXPECT_EQ(launch(set)->rank, 1);
    EXPECT_EQ(launch(set)->size, 2);
    EXPECT_EQ(launch(set)->local_rank, 1);
    EXPECT_EQ(launch(set)->host, "node-a");
    EXPECT_EQ(launch(set)->port, 29500);
    set["MASTER_PORT"] = "1234";
    EXPECT_EQ(launch(set)->port, 1234);
    set["TORCHELASTIC_USE_AGENT_STORE"] = "True";  // its agent has that port
    EXPECT_EQ(launch(set)->port, 1235);
}

TEST(Launch, Mpirun) {
    Variables set = {{"OMPI_COMM_WORLD_RANK", "2"},
                     {"OMPI_COMM_WORLD_SIZE", "3"},
                     {"OMPI_COMM_WORLD_LOCAL_RANK", "2"},
                     {"OMPI_COMM_WORLD_LOCAL_SIZE", "3"}};
    EXPECT_EQ(launch(set)->rank, 2);
    EXPECT_EQ(launch(set)->host, "127.0.0.1");
    set["OMPI_COMM_WORLD_LOCAL_SIZE"] = "1";
    EXPECT_THAT(problem(set), HasSubstr("set MASTER_ADDR"));
    set["MASTER_ADDR"] = "10.0.0.1";
    EXPECT_EQ(launch(set)->host, "10.0.0.1");
}

TEST(Launch, Srun) {
    Variables set = {{"SLURM_PROCID", "1"}, {"SLURM_NTASKS", "2"}, {"SLURM_LOCALID", "0"}, {"SLURM_JOB_ID", "7"}};
    EXPECT_FALSE(launch(set)) << "the batch script has them, too";
    set["SLURM_STEP_ID"] = "0";
    for (const auto& [nodes, first] : Variables{{"gpu[03-05,9],other", "gpu03"},
                                                {"gpu[7,9]", "gpu7"},
                                                {"one,two", "one"},
                                                {"alone", "alone"},
                                                {"a[1-2]-x,b", "a1-x"}}) {
        set["SLURM_STEP_NODELIST"] = nodes;
        EXPECT_EQ(launch(set)->host, first) << nodes;
    }
    set["SLURM_NNODES"] = "1";
    EXPECT_EQ(launch(set)->host, "127.0.0.1");
}

TEST(Launch, LeaderWorkerSet) {
    const auto found = launch({{"LWS_WORKER_INDEX", "1"}, {"LWS_GROUP_SIZE", "2"}, {"LWS_LEADER_ADDRESS", "lead"}});
    EXPECT_EQ(found->rank, 1);
    EXPECT_EQ(found->host, "lead");
}

TEST(Launch, Limits) {
    const Variables two = {{"PMI_RANK", "0"}, {"PMI_SIZE", "2"}, {"MASTER_ADDR", "a"}};
    EXPECT_EQ(launch(two)->seconds, 4.0);
    EXPECT_EQ(launch(two)->start_seconds, 120.0);
    Variables longer = two;
    longer["FORESAY_HOST_WAIT"] = "0.5";
    longer["FORESAY_HOST_START"] = "900";
    EXPECT_EQ(launch(longer)->seconds, 0.5);
    EXPECT_EQ(launch(longer)->start_seconds, 900.0);
}

TEST(Launch, SaysWhatIsWrong) {
    EXPECT_THAT(problem({{"WORLD_SIZE", "2"}}), HasSubstr("WORLD_SIZE is 2, and RANK is not set"));
    EXPECT_THAT(problem({{"WORLD_SIZE", "2"}, {"RANK", "0"}}), HasSubstr("set MASTER_ADDR to its host on every rank"));
    EXPECT_THAT(problem({{"WORLD_SIZE", "2"}, {"RANK", "2"}}), HasSubstr("RANK is '2', and must be a number (0 to 1)"));
    EXPECT_THAT(problem({{"WORLD_SIZE", "two"}, {"RANK", "0"}}), HasSubstr("WORLD_SIZE is 'two'"));
    EXPECT_THAT(problem({{"WORLD_SIZE", "33"}, {"RANK", "0"}}), HasSubstr("at most 32 hosts"));
    const Variables two = {{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "a"}};
    for (const auto& [name, value] : Variables{{"MASTER_PORT", "70000"}, {"FORESAY_HOST_WAIT", "0"}}) {
        Variables wrong = two;
        wrong[name] = value;
        EXPECT_THAT(problem(wrong), HasSubstr(name + " is '" + value + "'"));
    }
}

}  // namespace
}  // namespace foresay::engine
