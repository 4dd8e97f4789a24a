// JsonConfig: typed access by path, and untrusted text.

#include "core/weights/json_config.h"

#include <gtest/gtest.h>

#include "tests/weights/expect_error.h"

namespace foresay::core {
namespace {

using ::testing::ElementsAre;
using testing::expect_error;

constexpr std::string_view kText = R"({
    "model_type": "llama", "num_hidden_layers": 12, "theta": 5e5, "tie": true, "none": null,
    "big": 18446744073709551615, "negative": -3, "half": 0.5, "eos": [1, 2], "bos": 7,
    "architectures": ["LlamaForCausalLM"], "mixed": [1, "x"],
    "rope": {"type": "llama3", "inner": {"factor": 8.0}}
})";

TEST(JsonConfig, TypedGettersByPath) {
    const JsonConfig config = JsonConfig::parse(kText, "config.json");
    EXPECT_EQ(config.get_string("model_type"), "llama");
    EXPECT_EQ(config.get_int("num_hidden_layers"), 12);
    EXPECT_EQ(config.get_int("theta"), 500000);
    EXPECT_EQ(config.get_int("negative"), -3);
    EXPECT_EQ(config.get_float("theta"), 5e5);
    EXPECT_EQ(config.get_float("num_hidden_layers"), 12.0);
    EXPECT_TRUE(config.get_bool("tie"));
    EXPECT_EQ(config.get_string("rope.type"), "llama3");
    EXPECT_EQ(config.get_float("rope.inner.factor"), 8.0);
    EXPECT_THAT(config.get_ints("eos"), ElementsAre(1, 2));
    EXPECT_THAT(config.get_ints("bos"), ElementsAre(7));
    EXPECT_THAT(config.get_floats("eos"), ElementsAre(1.0, 2.0));
    EXPECT_THAT(config.get_strings("architectures"), ElementsAre("LlamaForCausalLM"));
    EXPECT_TRUE(config.is_array("eos"));
    EXPECT_FALSE(config.is_array("bos"));
}

TEST(JsonConfig, NullAndMissingAreAbsent) {
    const JsonConfig config = JsonConfig::parse(kText, "config.json");
    EXPECT_TRUE(config.has("rope.inner"));
    for (const char* member : {"none", "absent", "rope.absent", "model_type.x", "", ".", "rope.", "none.x", "eos.0"}) {
        EXPECT_FALSE(config.has(member)) << member;
        EXPECT_EQ(config.get_int_or(member, 5), 5) << member;
    }
    EXPECT_EQ(config.get_string_or("none", "x"), "x");
    EXPECT_EQ(config.get_float_or("none", 0.5), 0.5);
    EXPECT_FALSE(config.get_bool_or("none", false));
    expect_error([&] { config.get_int("rope.absent"); }, "config.json: 'rope.absent' is missing");
    EXPECT_FALSE(JsonConfig().has("anything"));
}

TEST(JsonConfig, WrongTypesNameFileAndMember) {
    const JsonConfig config = JsonConfig::parse(kText, "config.json");
    expect_error([&] { config.get_int("model_type"); }, "config.json: 'model_type' is a string, not an integer");
    expect_error([&] { config.get_int("half"); }, "'half' is a float, not an integer");
    expect_error([&] { config.get_int("big"); }, "not an integer");
    expect_error([&] { config.get_int_or("tie", 1); }, "'tie' is a boolean, not an integer");
    expect_error([&] { config.get_float("tie"); }, "not a number");
    expect_error([&] { config.get_bool("bos"); }, "not true or false");
    expect_error([&] { config.get_string("rope"); }, "'rope' is an object, not a string");
    expect_error([&] { config.get_ints("mixed"); }, "'mixed' is a string, not an integer");
    expect_error([&] { config.get_strings("eos"); }, "not a string");
}

TEST(JsonConfig, UntrustedText) {
    for (const char* text : {"", "{", "{\"a\":}", "{\"a\":1e999}", "\xff\xfe", "{\"a\":\"\xff\"}", "{} {}"}) {
        expect_error([&] { JsonConfig::parse(text, "config.json"); }, "config.json: not valid JSON: ");
    }
    for (const char* text : {"[]", "3", "null", "\"x\""}) {
        expect_error([&] { JsonConfig::parse(text, "config.json"); }, "holds no JSON object");
    }
    expect_error([&] { JsonConfig::parse(std::string(kMaxJsonConfigBytes + 1, ' '), "config.json"); }, "too many");
}

TEST(JsonConfig, DepthIsLimitedAndStringsDoNotCount) {
    const auto nested = [](int depth) {
        return "{\"a\":" + std::string(static_cast<std::size_t>(depth - 1), '[') +
               std::string(static_cast<std::size_t>(depth - 1), ']') + "}";
    };
    EXPECT_TRUE(JsonConfig::parse(nested(kMaxJsonDepth), "config.json").has("a"));
    expect_error([&] { JsonConfig::parse(nested(kMaxJsonDepth + 1), "config.json"); }, "nests deeper than 64 levels");
    const std::string brackets(1000, '[');
    EXPECT_EQ(JsonConfig::parse("{\"a\":\"\\\"" + brackets + "\"}", "config.json").get_string("a"), "\"" + brackets);
    EXPECT_NO_THROW(check_json_depth("]]]]", "x"));
}

}  // namespace
}  // namespace foresay::core
