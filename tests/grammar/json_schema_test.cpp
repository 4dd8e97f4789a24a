// JSON Schema: each keyword by hand, refusals by name, masks against a walk.
#include <gtest/gtest.h>

#include "base/error.h"
#include "grammar/json_value.h"
#include "tests/grammar/vocabulary.h"

namespace foresay::grammar {
namespace {

struct Case {
    std::string schema;
    std::vector<std::string> good;
    std::vector<std::string> bad;
};

void PrintTo(const Case& c, std::ostream* out) { *out << c.schema; }

class Keywords : public testing::TestWithParam<Case> {};

TEST_P(Keywords, HoldExactly) {
    const Case& c = GetParam();
    const auto grammar = compile(Language::json_schema, c.schema);
    for (const std::string& text : c.good) {
        State state = Grammar::begin(grammar);
        EXPECT_TRUE(state.accept(text) && state.may_end()) << c.schema << " should take " << text;
    }
    for (const std::string& text : c.bad)
        EXPECT_FALSE(accepts(grammar, text)) << c.schema << " should not take " << text;
}

INSTANTIATE_TEST_SUITE_P(
    Json, Keywords,
    testing::Values(
        Case{"true",
             {"null", "[1,{\"a\":[]}]", " { }", "-0.5e+7", "\"\\u00e9\\/\""},
             {"", "nul", "01", "1.", "[1,]", "{\"a\"}", "'a'"}},
        Case{R"({"type":["integer","null"]})", {"0", "-12", "3.0", "null"}, {"3.5", "1e2", "\"1\"", "true", "00"}},
        Case{R"({"enum":["a","b\n",1,null,[1,{"x":2}],1.5]})",
             {"\"a\"", "\"b\\n\"", "1", "1.0", "null", "[ 1, {\"x\" :2}]", "1.5"},
             {"\"b\"", "2", "[1]", "1.50"}},
        Case{R"({"const":{"a":1,"b":[]}})",
             {"{\"a\":1,\"b\":[]}", "{\"b\":[],\"a\":1}"},
             {"{\"a\":1}", "{\"a\":1,\"b\":[],\"c\":1}", "{}"}},
        Case{R"({"type":"object","properties":{"a":{"type":"integer"},"b":{"type":"string"}},"required":["b"]})",
             {"{\"b\":\"\"}", "{\"a\":1,\"b\":\"x\"}", "{\"b\":\"x\",\"a\":1,\"c\":null,\"c\":2}",
              "{ \"z\" : [] , \"b\" : \"\"}"},
             {"{}", "{\"a\":1}", "{\"b\":1}", "{\"b\":\"\",\"a\":\"\"}", "{\"b\":\"\",\"b\":\"\"}",
              "{\"b\":\"\",\"\\u0061\":\"\"}"}},
        Case{R"({"properties":{"a":false,"b":true},"additionalProperties":{"type":"integer"},"type":"object"})",
             {"{}", "{\"b\":[],\"c\":1}"},
             {"{\"a\":1}", "{\"c\":\"\"}"}},
        Case{
            R"({"type":"object","patternProperties":{"^n":{"type":"integer"},"s$":{"minimum":3}},"additionalProperties":false})",
            {"{\"n\":1,\"s\":\"x\",\"ns\":4}", "{\"s\":3}"},
            {"{\"n\":\"\"}", "{\"ns\":2}", "{\"ns\":\"\"}", "{\"x\":1}"}},
        Case{R"({"type":"object","minProperties":1,"maxProperties":2,"properties":{"a":{}},"required":["a"]})",
             {"{\"a\":1}", "{\"x\":1,\"a\":2}"},
             {"{}", "{\"x\":1}", "{\"x\":1,\"y\":1}", "{\"a\":1,\"b\":2,\"c\":3}"}},
        Case{
            R"({"type":"array","prefixItems":[{"type":"integer"},{"type":"null"}],"items":{"type":"string"},"minItems":1,"maxItems":4})",
            {"[1]", "[1,null]", "[1, null, \"a\", \"b\"]"},
            {"[]", "[null]", "[1,null,1]", "[1,null,\"\",\"\",\"\"]"}},
        Case{R"({"type":"array","items":{"type":"array","maxItems":1},"minItems":3})",
             {"[[],[1],[]]", "[[],[],[],[],[]]"},
             {"[[],[]]", "[[],[],[1,2]]"}},
        Case{R"({"type":"array","items":false})", {"[]"}, {"[1]"}},
        Case{R"({"type":"string","minLength":2,"maxLength":3})",
             {"\"ab\"", "\"\xC3\xA9\xF0\x9F\x98\x80\"", "\"\\n\\u0041\\ud83d\\ude00\""},
             {"\"a\"", "\"abcd\"", "\"\\ud83d\"", "\"a\\x\""}},
        Case{R"({"type":"string","pattern":"^a|b$"})", {"\"ax\"", "\"xb\"", "\"a\""}, {"\"xax\"", "\"\"", "\"bx\""}},
        Case{
            R"({"type":"string","pattern":"[\"\\n]","maxLength":2})", {"\"\\\"\"", "\"x\\n\""}, {"\"x\"", "\"xx\\n\""}},
        Case{R"({"type":"string","format":"date"})",
             {"\"2024-02-29\"", "\"2000-02-29\"", "\"1999-12-31\""},
             {"\"2023-02-29\"", "\"1900-02-29\"", "\"2024-04-31\"", "\"24-01-01\""}},
        Case{R"({"type":"string","format":"unknown-to-all"})", {"\"\"", "\"x\""}, {"1"}},
        Case{R"({"type":"number","minimum":-1.5,"exclusiveMaximum":10})",
             {"-1.5", "0", "9.99", "-1.50"},
             {"-1.51", "10", "10.0", "11", "-2", "1e0"}},
        Case{R"({"type":"integer","minimum":7,"maximum":120,"multipleOf":5})",
             {"10", "15.0", "120"},
             {"5", "7", "125", "12", "10.5"}},
        Case{R"({"type":"number","multipleOf":0.01})", {"4.35", "4", "0.5", "1.230"}, {"4.355", "0.001"}},
        Case{R"({"anyOf":[{"type":"integer"},{"type":"string","maxLength":1}],"minimum":3})",
             {"3", "\"a\"", "\"\""},
             {"2", "\"ab\"", "null"}},
        Case{
            R"({"oneOf":[{"type":"integer"},{"type":"string"},{"type":"object","required":["k"],"properties":{"k":{"const":1}}},
                 {"type":"object","required":["k"],"properties":{"k":{"const":2},"x":false}}]})",
            {"1", "\"\"", "{\"k\":1,\"x\":0}", "{\"k\":2}"},
            {"null", "{\"k\":2,\"x\":0}", "{\"k\":3}", "{}"}},
        Case{R"({"oneOf":[{"maximum":3,"type":"number"},{"minimum":4,"type":"number"}]})", {"3", "4"}, {"3.5"}},
        Case{
            R"({"allOf":[{"properties":{"a":{"minimum":2}}},{"properties":{"a":{"maximum":5},"b":{"type":"null"}},"required":["a"]}],"type":"object"})",
            {"{\"a\":2}", "{\"a\":5,\"b\":null}", "{\"a\":\"x\"}"},
            {"{}", "{\"a\":1}", "{\"a\":6}", "{\"a\":3,\"b\":1}"}},
        Case{
            R"({"allOf":[{"anyOf":[{"type":"integer"},{"type":"null"}]},{"anyOf":[{"type":"null"},{"type":"string"}]}]})",
            {"null"},
            {"1", "\"\""}},
        Case{
            R"({"$defs":{"t":{"type":"object","properties":{"v":{"type":"integer"},"l":{"$ref":"#/$defs/t"}},"required":["v"],"additionalProperties":false}},"$ref":"#/$defs/t"})",
            {"{\"v\":1}", "{\"v\":1,\"l\":{\"l\":{\"v\":3},\"v\":2}}"},
            {"{\"l\":{\"v\":1}}", "{\"v\":1,\"l\":{}}", "{\"v\":1,\"l\":1}"}},
        Case{
            R"({"$ref":"#/$defs/a","maximum":5,"$defs":{"a":{"type":"integer","minimum":2}}})", {"2", "5"}, {"1", "6"}},
        Case{
            R"({"$schema":"http://json-schema.org/draft-07/schema#","$ref":"#/definitions/a","maximum":5,"definitions":{"a":{"type":"integer"}}})",
            {"2", "6"},
            {"\"\""}},
        Case{R"({"$schema":"http://json-schema.org/draft-04/schema#","type":"integer"})", {"2"}, {"2.0"}},
        Case{R"({"type":"number","minimum":3,"exclusiveMinimum":true})", {"4"}, {"3"}},
        Case{R"({"type":"array","items":[{"type":"null"}],"additionalItems":false})",
             {"[]", "[null]"},
             {"[1]", "[null,null]"}},
        Case{
            R"({"enum":[1,"ab",[1],{"a":1}],"type":["string","object","array"],"maxLength":1,"minItems":1,"required":["a"]})",
            {"[1]", "{\"a\":1}"},
            {"1", "\"ab\""}},
        Case{R"({"title":"x","default":1,"examples":[],"$comment":"","x-own":{},"type":"null"})", {"null"}, {"1"}}));

TEST(JsonSchema, CompactHasNoWhitespace) {
    Options options;
    options.whitespace = Whitespace::compact;
    const auto grammar = compile(
        Language::json_schema,
        R"({"type":"object","properties":{"a":{"type":"array"}},"required":["a"],"additionalProperties":false})",
        options);
    EXPECT_TRUE(accepts(grammar, "{\"a\":[1,\"x y\"]}"));
    for (const char* bad : {" {\"a\":[]}", "{ \"a\":[]}", "{\"a\": []}", "{\"a\":[1, 2]}", "{\"a\":[]} "})
        EXPECT_FALSE(accepts(grammar, bad)) << bad;
    EXPECT_EQ(Grammar::begin(grammar).forced(), "{\"a\":[");
}

TEST(JsonSchema, MasksAreThoseOfAWalk) {
    expect_masks(compile(Language::json, ""), "{\"name\": \"Ren\xC3\xA9 5\", \"a\\n\":[-12.5e+10,true,null ,{}]}");
    const char* schema =
        R"({"type":"object","properties":{"name":{"type":"string","maxLength":9},"tags":{"type":"array","items":{"enum":["a","aaaa","ab"]}},
        "size":{"type":"number","minimum":-20},"date":{"format":"date","type":"string"},"code":{"type":"string","pattern":"^[a-z]{2,12}$"}},
        "required":["name"],"additionalProperties":{"type":"boolean"}})";
    expect_masks(
        compile(Language::json_schema, schema),
        R"({"size": -12.5, "tags":["a", "ab"],  "code":"ab", "name" :"a quick", "date":"2024-02-29","on":true})");
}

TEST(JsonSchema, NothingThatRestrictsIsIgnored) {
    for (const char* keyword :
         {"not", "if", "dependentRequired", "dependentSchemas", "dependencies", "propertyNames", "contains",
          "minContains", "maxContains", "uniqueItems", "unevaluatedItems", "unevaluatedProperties", "$dynamicRef"}) {
        const std::string schema = std::string("{\"properties\":{\"a\":{\"then\":{},\"") + keyword + "\":true}}}";
        EXPECT_EQ(refusal(Language::json_schema, schema),
                  std::string("the schema cannot be used: \"") + keyword + "\" at #/properties/a is not supported");
    }
    const auto says = [](const char* schema) { return refusal(Language::json_schema, schema); };
    EXPECT_EQ(says(R"({"items":{"format":"regex"}})"),
              "the schema cannot be used: \"format\" at #/items is \"regex\", which is not supported");
    EXPECT_NE(says(R"({"oneOf":[{"minimum":2},{"maximum":3}]})").find("entries 0 and 1"), std::string::npos);
    EXPECT_NE(says(R"({"$ref":"other.json"})").find("another document"), std::string::npos);
    EXPECT_NE(says(R"({"$ref":"#/$defs/x"})").find("names nothing"), std::string::npos);
    EXPECT_NE(says(R"({"type":"strin"})").find("names no type"), std::string::npos);
    EXPECT_NE(says(R"~({"pattern":"(?=a)","type":"string"})~").find("looking ahead"), std::string::npos);
    EXPECT_NE(says(R"({"minProperties":3,"type":"object"})").find("minProperties"), std::string::npos);
    EXPECT_NE(says("[1,2").find("a comma or ] is missing, in line 1, column 5"), std::string::npos);
    EXPECT_NE(says("[]").find("an object, true or false"), std::string::npos);
    EXPECT_NE(says(std::string(300, '[').c_str()).find("256 deep"), std::string::npos);
    EXPECT_NE(says("{\"a\":1}{").find("something follows"), std::string::npos);
    EXPECT_NE(says("{\"minimum\":\"x\"}").find("must be a number"), std::string::npos);
    // Schemas that no value satisfies.
    for (
        const char* schema :
        {R"({"type":"object","required":["a"],"properties":{"a":false}})",
         R"({"$defs":{"t":{"type":"object","properties":{"l":{"$ref":"#/$defs/t"}},"required":["l"]}},"$ref":"#/$defs/t"})",
         R"({"allOf":[{"type":"string"},{"type":"null"}]})", "false"})
        EXPECT_NE(says(schema).find("no text is valid"), std::string::npos) << schema;
}

TEST(JsonSchema, LargeOnesEndInOneSentence) {
    std::string all = "{\"allOf\":[";
    for (int i = 0; i < 20; ++i) {
        all += i > 0 ? "," : "";
        all +=
            "{\"anyOf\":[{\"minLength\":" + std::to_string(i) + "},{\"maxLength\":" + std::to_string(100 + i) + "}]}";
    }
    EXPECT_NE(refusal(Language::json_schema, all + "]}"), "");
    std::string many = "{\"type\":\"object\",\"properties\":{";
    for (int i = 0; i < 5000; ++i) many += (i > 0 ? ",\"p" : "\"p") + std::to_string(i) + "\":{\"type\":\"integer\"}";
    const auto grammar = compile(Language::json_schema, many + "}}");
    EXPECT_TRUE(accepts(grammar, "{\"p4999\": 3, \"p17\": 2}"));
    EXPECT_FALSE(accepts(grammar, "{\"p4999\": 3, \"p4999\": 2}"));
}

}  // namespace
}  // namespace foresay::grammar
