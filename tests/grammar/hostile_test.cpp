// Grammars that would take minutes or gigabytes: one sentence, at the same step on every machine, in bounded memory.
// What is asserted is steps and bytes: the clock depends on the machine.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <functional>
#include <new>

#include "base/error.h"
#include "tests/grammar/vocabulary.h"

namespace foresay::grammar {
namespace {

constexpr std::uint64_t kUsual = 2'000'000;  // what the stage `grammar` allows: about a tenth of a second

std::string many(int count, const std::function<std::string(int)>& piece) {
    std::string text;
    for (int i = 0; i < count; ++i) text += (i == 0 ? "" : ",") + piece(i);
    return text;
}
std::string times(int count, const std::function<std::string(int)>& piece) {
    std::string text;
    for (int i = 0; i < count; ++i) text += piece(i);
    return text;
}
std::string number(int i) { return std::to_string(i); }
std::string quoted(const std::string& text) { return '"' + text + '"'; }

struct Hostile {
    const char* name;
    Source source;
};

std::vector<Hostile> hostile() {
    using L = Language;
    // A different set of characters for each number.
    const auto set = [](int i) {
        std::string text = "[";
        for (int b = 0; b < 16; ++b) text += (i >> b & 1) != 0 ? std::string(1, static_cast<char>('a' + b)) : "";
        return text + "z]";
    };
    return {
        {"a literal of 2 MB", {L::regex, std::string(2'000'000, 'a')}},
        {"a million options", {L::regex, times(900'000, [](int) { return "a?"; })}},
        {"alternatives", {L::regex, times(200'000, [](int i) { return number(i) + "?|"; })}},
        {"sets", {L::regex, times(60'000, set)}},
        {"nested quantifiers", {L::regex, "((((a*)*)*b{0,1000}){0,1000}c?){0,1000}"}},
        {"counting in two ways", {L::regex, "(.*a.{200}|.*b.{100}c)"}},
        {"choices", {L::choices, times(200'000, [](int i) { return number(i * 7919 % 1'000'003) + "\n"; })}},
        {"recursive alternatives", {L::gbnf, "root ::= \"x\"" + times(90'000, [](int) { return " | root \"y\""; })}},
        {"a recursive repetition", {L::gbnf, "root ::= \"x\" | (root \"a\"){0,400000}"}},
        {"repetitions of repetitions", {L::gbnf, "root ::= \"x\" | ((root \"a\"){2000}){2000}"}},
        {"rules",
         {L::gbnf,
          "root ::= a0 root\n" +
              times(60'000, [](int i) { return "a" + number(i) + " ::= a" + number(i + 1) + " root | \"b\"\n"; }) +
              "a60000 ::= \"c\" root | \"d\"\n"}},
        {"properties",
         {L::json_schema,
          "{\"properties\":{" + many(100'000, [](int i) { return quoted("p" + number(i)) + ":{}"; }) + "}}"}},
        {"required names",
         {L::json_schema, "{\"required\":[" + many(100'000, [](int i) { return quoted("p" + number(i)); }) + "]}"}},
        {"references to a crowd",
         {L::json_schema, "{\"$defs\":{\"a\":{" + many(60'000, [](int i) { return quoted("x" + number(i)) + ":1"; }) +
                              "}},\"anyOf\":[" + many(40'000, [](int) { return "{\"$ref\":\"#/$defs/a\"}"; }) + "]}"}},
        {"oneOf",
         {L::json_schema, "{\"oneOf\":[" +
                              many(1'000,
                                   [](int i) {
                                       return "{\"properties\":{\"a\":{\"const\":" + number(i) +
                                              "}},\"required\":[\"a\"]}";
                                   }) +
                              "]}"}},
        {"patterns that overlap",
         {L::json_schema,
          "{\"patternProperties\":{" + many(30, [](int i) { return "\"^.*x.{" + number(10 + i) + "}$\":{}"; }) + "}}"}},
        {"patterns with sets",
         {L::json_schema, "{\"properties\":{" +
                              many(3'000,
                                   [&](int i) {
                                       return quoted("p" + number(i)) + ":{\"pattern\":\"^" + set(i) +
                                              "+$\",\"minLength\":3}";
                                   }) +
                              "}}"}},
        {"two enums",
         {L::json_schema, "{\"enum\":[" + many(80'000, [](int i) { return number(3 * i); }) +
                              "],\"allOf\":[{\"enum\":[" + many(80'000, [](int i) { return number(3 * i + 1); }) +
                              "]}]}"}},
        {"equal objects",
         {L::json_schema, "{\"allOf\":[" +
                              many(2,
                                   [](int) {
                                       return "{\"const\":{" +
                                              many(50'000, [](int i) { return quoted("p" + number(i)) + ":1"; }) + "}}";
                                   }) +
                              "]}"}},
        {"choices of choices",
         {L::json_schema, "{\"allOf\":[" +
                              many(16,
                                   [](int i) {
                                       return "{\"anyOf\":[{\"required\":[\"a" + number(i) + "\"]},{\"required\":[\"b" +
                                              number(i) + "\"]}]}";
                                   }) +
                              "]}"}},
        {"depth", {L::json_schema, std::string(1'000'000, '[')}},
    };
}

TEST(HostileGrammars, AreOneSentenceWithinTheUsualWork) {
    std::size_t refused = 0;
    const std::vector<Hostile> all = hostile();
    for (const Hostile& one : all) {
        try {
            const auto grammar = Grammar::compile(rich_vocabulary(), one.source, {.most_work = kUsual});
            EXPECT_LE(grammar->work(), kUsual) << one.name;
        } catch (const Error& error) {
            ++refused;
            const std::string why = error.what();
            EXPECT_LT(why.size(), 200u) << one.name;
            EXPECT_EQ(why.find('\n'), why.npos) << one.name;
        }
    }
    EXPECT_GE(refused, all.size() / 2);
}

#ifndef FORESAY_SANITIZED
// Of a new process, which may have 192 MiB more than it begins with. The sources are a part of that.
TEST(HostileGrammars, TakeBoundedMemory) {
    const auto vocabulary = rich_vocabulary();
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
        std::size_t pages = 0;
        std::ifstream("/proc/self/statm") >> pages;
        rlimit limit{};
        limit.rlim_cur = limit.rlim_max =
            pages * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE)) + (std::size_t{192} << 20);
        ::setrlimit(RLIMIT_AS, &limit);
        int result = 0;
        try {
            for (const Hostile& one : hostile()) {
                try {
                    Grammar::compile(vocabulary, one.source, {.most_work = kUsual});
                } catch (const Error&) {
                }
            }
        } catch (const std::bad_alloc&) {
            result = 1;
        }
        ::_exit(result);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
}
#endif

// Schemas that people use (the first four are of MaskBench), each with a text: its masks are within the usual work.
TEST(SlowGrammars, HaveAllTheirMasksWithinTheUsualWork) {
    const std::pair<std::string, std::string> kCases[] = {
        {R"~({"type":"string","pattern":"^$|(^(?:\\S+\\s+){0,99}\\S+$)","minLength":1,"maxLength":5000})~",
         R"~("so it goes on and on")~"},
        {R"~({"type":"string","pattern":"^[a-zA-Z0-9_.+-]+@[a-zA-Z0-9-]+\\.[a-zA-Z0-9-.]+$","minLength":5})~",
         R"~("a.b@c-d.org")~"},
        {R"~({"type":"string","pattern":"\\d+-[A-Fa-f0-9]*-[A-Fa-f0-9]{24}","minLength":35})~",
         R"~("12345678901-abc-0123456789abcdef01234567")~"},
        {R"~({"patternProperties":{"[A-Za-z0-9-_.:]{1,255}":{"type":"string","format":"uri"}}})~", R"~({"a1":"b:c"})~"},
        {R"~({"type":"string","allOf":[{"pattern":"a.{5}"},{"pattern":"a.{6}"},{"pattern":"a.{7}"}]})~",
         R"~("xaxxxaxxx")~"},
        {R"~({"type":"integer","minimum":5,"multipleOf":1234567})~", "12345670"},
    };
    for (const auto& [schema, text] : kCases) {
        const auto grammar = compile(Language::json_schema, schema, {.most_work = kUsual});
        std::vector<std::uint32_t> words(grammar->vocabulary().words());
        State state = Grammar::begin(grammar);
        for (const char c : text) {
            state.mask(words);
            ASSERT_EQ(state.failure(), "") << schema;
            ASSERT_TRUE(state.accept(std::string_view(&c, 1))) << schema << " at " << c;
        }
        EXPECT_TRUE(state.may_end()) << schema;
    }
}

TEST(HostileGrammars, AFirstMaskThatTakesTooLongIsARefusal) {
    const auto says = [](Language language, const std::string& text) {
        return refusal(language, text, {.most_work = kUsual});
    };
    const std::string options = times(1500, [](int) { return "[a-z]?"; }) + "x";
    EXPECT_NE(says(Language::regex, options).find("that may come next takes too long"), std::string::npos);
    const std::string multiples = R"({"type":"integer","multipleOf":65521,"allOf":[{"multipleOf":65519}]})";
    EXPECT_NE(refusal(Language::json_schema, multiples, {.most_work = 20'000}).find("that may come next takes too"),
              std::string::npos);
}

// What a text needs later is bounded in the same steps, whichever call needs it.
TEST(HostileGrammars, AStateThatTakesTooLongFails) {
    const std::string too_long = "to find the tokens that may come next takes too long";
    const std::string any_letters = times(26, [](int i) { return std::string(1, static_cast<char>('a' + i)) + "?"; });
    const auto inside = [&] {
        State state =
            Grammar::begin(compile(Language::regex, "={40}(" + any_letters + "){0,200}", {.most_work = 2'000}));
        EXPECT_TRUE(state.accept(std::string(40, '=')));
        return state;
    };
    const State whole = inside();
    const State masked = whole;
    std::vector<std::uint32_t> words(rich_vocabulary()->words(), ~0u);
    masked.mask(words);
    EXPECT_NE(masked.failure().find(too_long), std::string::npos) << masked.failure();
    for (const std::uint32_t word : words) ASSERT_EQ(word, 0u);
    EXPECT_EQ(whole.failure(), "") << "a state was changed through a copy";

    std::vector<std::int32_t> ids(static_cast<std::size_t>(rich_vocabulary()->size()));
    for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<std::int32_t>(i);
    std::vector<std::uint8_t> allowed(ids.size(), 1);
    const State tested = inside();
    tested.test(ids, allowed);
    EXPECT_NE(tested.failure().find(too_long), std::string::npos) << tested.failure();
    for (const std::uint8_t one : allowed) ASSERT_EQ(one, 0);

    const std::string readings = "root ::= \"=\" many\nmany ::= many many | [a-z]";
    State accepting = Grammar::begin(compile(Language::gbnf, readings, {.most_work = 20'000}));
    ASSERT_TRUE(accepting.accept("="));
    for (int i = 0; i < 5'000 && accepting.accept("a"); ++i) {
    }
    EXPECT_NE(accepting.failure().find(too_long), std::string::npos) << accepting.failure();
}

// The bound counts; it does not look at the clock.
TEST(HostileGrammars, TheBoundIsTheSameEachTime) {
    const Source source{Language::json_schema, R"({"properties":{"a":{"format":"date-time"},"b":{"maxLength":9}}})"};
    const std::uint64_t work = Grammar::compile(rich_vocabulary(), source)->work();
    EXPECT_EQ(Grammar::compile(rich_vocabulary(), source)->work(), work);
    EXPECT_NO_THROW(Grammar::compile(rich_vocabulary(), source, {.most_work = work}));
    EXPECT_THROW(Grammar::compile(rich_vocabulary(), source, {.most_work = work - 1}), Error);
}

}  // namespace
}  // namespace foresay::grammar
