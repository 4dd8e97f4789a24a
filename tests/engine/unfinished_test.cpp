// Why an answer ends before its grammar does, as the program and the server say it.
#include "engine/unfinished.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace foresay::engine {
namespace {

using ::testing::HasSubstr;

TEST(Unfinished, NamesWhatCameFirst) {
    EXPECT_EQ(unfinished_text("", 256, 256, "-n"), "") << "no grammar, or one whose text may end here";
    EXPECT_EQ(unfinished_text("form", 256, 256, "-n"),
              "the answer ends before the grammar of sampler 'form' does: it has the 256 tokens that it may have; -n "
              "allows more");
    for (const std::int64_t limit : {0, 300})
        EXPECT_THAT(unfinished_text("form", 256, limit, "-n"), HasSubstr("the context is full"));
    EXPECT_EQ(unfinished_by_time("", "time"), "");
    EXPECT_THAT(unfinished_by_time("form", "time"),
                HasSubstr("it has taken the time that it may take; time allows more"));
}

}  // namespace
}  // namespace foresay::engine
