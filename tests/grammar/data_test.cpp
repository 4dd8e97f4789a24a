// The official JSON Schema test suite, and the schemas of MaskBench with a vocabulary of 128,256 tokens. Both are
// public and not part of this repository; the folders are named by the environment:
//   FORESAY_JSON_SCHEMA_SUITE   a clone of json-schema-org/JSON-Schema-Test-Suite
//   FORESAY_MASKBENCH           the folder maskbench/data of guidance-ai/jsonschemabench
// Times are printed and never asserted.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <set>

#include "base/error.h"
#include "core/text/tokenizer.h"
#include "grammar/characters.h"
#include "grammar/json_value.h"
#include "tests/grammar/vocabulary.h"

namespace foresay::grammar {
namespace {

namespace fs = std::filesystem;

// Processor time of this thread, in microseconds: other programs on the machine do not count.
double now() {
    timespec time{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) * 1e6 + static_cast<double>(time.tv_nsec) * 1e-3;
}

std::string read_file(const fs::path& path) {
    std::ifstream stream(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
}

void write_string(std::string& out, const std::string& text) {
    out += '"';
    for (const char c : text) {
        static constexpr std::string_view kNames = "\"\\\b\f\n\r\t";
        const std::size_t name = kNames.find(c);
        if (name != kNames.npos) {
            out += {'\\', "\"\\bfnrt"[name]};
        } else if (static_cast<unsigned char>(c) < 0x20) {
            char escape[8];
            std::snprintf(escape, sizeof escape, "\\u%04x", static_cast<unsigned>(c));
            out += escape;
        } else {
            out += c;
        }
    }
    out += '"';
}

// As Python's json.dumps(value, ensure_ascii=False) writes it.
void write_json(std::string& out, const JsonValue& value) {
    switch (value.kind) {
        case JsonValue::Kind::null:
            out += "null";
            break;
        case JsonValue::Kind::boolean:
            out += value.truth ? "true" : "false";
            break;
        case JsonValue::Kind::number:
            out += value.text;
            break;
        case JsonValue::Kind::string:
            write_string(out, value.text);
            break;
        case JsonValue::Kind::array:
            out += '[';
            for (std::size_t i = 0; i < value.items.size(); ++i) {
                if (i > 0) out += ", ";
                write_json(out, value.items[i]);
            }
            out += ']';
            break;
        case JsonValue::Kind::object:
            out += '{';
            for (std::size_t i = 0; i < value.members.size(); ++i) {
                if (i > 0) out += ", ";
                write_string(out, value.members[i].first);
                out += ": ";
                write_json(out, value.members[i].second);
            }
            out += '}';
    }
}

std::string text_of(const JsonValue& value) {
    std::string text;
    write_json(text, value);
    return text;
}

// 128,256 tokens: those of GPT-2 and of DeepSeek Coder, then the same words in other spellings, numbers of up to three
// digits, runs of spaces and line ends, and characters of other scripts.
std::shared_ptr<const Vocabulary> large_vocabulary() {
    constexpr std::size_t kSize = 128'256;
    std::vector<std::string> tokens;
    std::set<std::string> known;
    const auto add = [&](const std::string& text) {
        if (!text.empty() && tokens.size() < kSize - 1 && known.insert(text).second) tokens.push_back(text);
    };
    for (int b = 0; b < 256; ++b) add(std::string(1, static_cast<char>(b)));
    for (const char* name : {"gpt-2", "deepseek-coder"}) {
        const auto tokenizer = core::Tokenizer::open(fs::path(FORESAY_UNPACKED_GOLDENS) / "vocab" /
                                                     ("ggml-vocab-" + std::string(name) + ".gguf"));
        for (std::int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
            if (!tokenizer.is_control(id)) add(std::string(tokenizer.bytes(id)));
        }
    }
    for (int n = 0; n < 1000; ++n) {
        char digits[8];
        for (const char* format : {"%d", "%02d", "%03d"}) {
            std::snprintf(digits, sizeof digits, format, n);
            add(digits);
        }
    }
    for (std::size_t n = 1; n <= 80; ++n) {
        for (const char* c : {" ", "\t", "\n", "\r\n", "-", "="}) {
            std::string run;
            for (std::size_t i = 0; i < n; ++i) run += c;
            add(run);
            add("\n" + run);
            add(run + "\n");
        }
    }
    for (std::uint32_t c = 0x80; c < 0x3400; ++c) {
        if (c >= 0x2000 && c < 0x2E80) continue;
        std::string text;
        append_utf8(text, c);
        add(text);
    }
    for (std::uint32_t c = 0x4E00; c < 0x6800; ++c) {
        std::string text;
        append_utf8(text, c);
        add(text);
    }
    const std::vector<std::string> words = tokens;
    for (const auto& [before, upper] :
         {std::pair{" ", false}, {"", true}, {"_", false}, {".", false}, {"(", false}, {"\"", false}}) {
        for (const std::string& word : words) {
            if (word.size() < 3 || (word[0] | 32) < 'a' || (word[0] | 32) > 'z') continue;
            std::string other = before + word;
            if (upper) other[0] = static_cast<char>(other[0] & ~32);
            add(other);
        }
    }
    EXPECT_EQ(tokens.size(), kSize - 1);
    return std::make_shared<const Vocabulary>(static_cast<std::int32_t>(kSize), [&](std::int32_t id) {
        const auto i = static_cast<std::size_t>(id);
        return i < tokens.size() ? TokenText{TokenText::Kind::text, tokens[i]} : TokenText{TokenText::Kind::end, ""};
    });
}

// The tokens of a text, the longest one each time.
std::vector<std::int32_t> tokenize(const Vocabulary& vocabulary, std::string_view text) {
    std::vector<std::int32_t> ids;
    const std::vector<TrieNode>& nodes = vocabulary.all().nodes();
    while (!text.empty()) {
        std::uint32_t node = vocabulary.all().first(static_cast<std::uint8_t>(text[0]));
        std::int32_t best = -1;
        std::size_t size = 1;
        for (std::size_t depth = 1;; ++depth) {
            if (nodes[node].token >= 0) best = nodes[node].token, size = depth;
            std::uint32_t child = node + 1;
            while (depth < text.size() && child < nodes[node].end &&
                   nodes[child].byte != static_cast<std::uint8_t>(text[depth]))
                child = nodes[child].end;
            if (depth == text.size() || child >= nodes[node].end) break;
            node = child;
        }
        ids.push_back(best);
        text.remove_prefix(size);
    }
    return ids;
}

// Of the suite at 44401e0 (2026-08-22): the groups whose schemas are refused, by what they need.
const std::set<std::string> kRefused = {
    // keywords that docs/grammars.md does not list
    "additionalProperties: additionalProperties with propertyNames",
    "additionalProperties: dependentSchemas with additionalProperties",
    "ref: ref creates new scope when adjacent to keywords",
    // oneOf whose entries a value may satisfy at once
    "oneOf: oneOf",
    "oneOf: oneOf with base schema",
    "oneOf: oneOf with boolean schemas, all true",
    "oneOf: oneOf with boolean schemas, more than one true",
    "oneOf: oneOf complex types",
    "oneOf: oneOf with empty schema",
    "oneOf: oneOf with required",
    "oneOf: oneOf with missing optional property",
    // properties of characters
    "pattern: pattern with Unicode property escape requires unicode mode",
    "patternProperties: patternProperties with Unicode property escape",
    // other documents, or names that an $id makes
    "anchor: Location-independent identifier with absolute URI",
    "anchor: Location-independent identifier with base URI change in subschema",
    "anchor: same $anchor with different base uri",
    "defs: validate definition against metaschema",
    "ref: remote ref, containing refs itself",
    "ref: Recursive references between schemas",
    "ref: refs with relative uris and defs",
    "ref: relative refs with absolute uris and defs",
    "ref: $id must be resolved against nearest parent, not just immediate parent",
    "ref: order of evaluation: $id and $ref",
    "ref: order of evaluation: $id and $ref on nested schema",
    "ref: URN ref with nested pointer ref",
    "ref: ref to if",
    "ref: ref to then",
    "ref: ref to else",
    "ref: ref with absolute-path-reference",
};
constexpr std::size_t kJudged = 1013;  // tests of the other groups
// Valid instances that are refused all the same: host names in encoded Unicode, which are left out because whether one
// can still become valid is no matter of its next characters alone.
const std::set<std::string> kLeftOut = {
    "\"xn--9n2bp8q.xn--9t4b11yi5a\"",
    "\"xn--zca29lwxobi7a\"",
    "\"xn--qmbc\"",
    "\"xn--ll-0ea\"",
    "\"xn--wva3je\"",
    "\"xn--4dbc5h\"",
    "\"xn--4dbc8h\"",
    "\"xn--k8j5u\"",
    "\"xn--bck0j\"",
    "\"xn--vek778f\"",
    "\"xn--ngba1o\"",
    "\"xn--0-gyc\"",
    "\"xn--11b2ezcw70k\"",
    "\"xn--11b2ezcs70k\"",
    "\"xn--ngba5hb2804a\"",
};

TEST(JsonSchemaSuite, EveryGroupIsJudgedRightlyOrRefusedByName) {
    const char* folder = std::getenv("FORESAY_JSON_SCHEMA_SUITE");
    if (folder == nullptr) GTEST_SKIP() << "FORESAY_JSON_SCHEMA_SUITE names no folder";
    std::size_t groups = 0, tests = 0;
    std::set<std::string> refused, left_out;
    for (const std::string name : {"additionalProperties",
                                   "allOf",
                                   "anchor",
                                   "anyOf",
                                   "boolean_schema",
                                   "const",
                                   "default",
                                   "defs",
                                   "enum",
                                   "exclusiveMaximum",
                                   "exclusiveMinimum",
                                   "infinite-loop-detection",
                                   "items",
                                   "maxItems",
                                   "maxLength",
                                   "maxProperties",
                                   "maximum",
                                   "minItems",
                                   "minLength",
                                   "minProperties",
                                   "minimum",
                                   "multipleOf",
                                   "oneOf",
                                   "pattern",
                                   "patternProperties",
                                   "prefixItems",
                                   "properties",
                                   "ref",
                                   "required",
                                   "type",

                                   "optional/bignum",
                                   "optional/format/date-time",
                                   "optional/format/date",
                                   "optional/format/time",
                                   "optional/format/duration",
                                   "optional/format/email",
                                   "optional/format/hostname",
                                   "optional/format/ipv4",
                                   "optional/format/ipv6",
                                   "optional/format/uuid",
                                   "optional/format/uri",
                                   "optional/format/unknown"}) {
        const JsonValue file = read_json(read_file(fs::path(folder) / "tests/draft2020-12" / (name + ".json")));
        for (const JsonValue& group : file.items) {
            ++groups;
            const std::string what = name + ": " + group.find("description")->text;
            const std::string schema = text_of(*group.find("schema"));
            std::shared_ptr<const Grammar> grammar;
            std::string why;
            try {
                grammar = Grammar::compile(rich_vocabulary(), {Language::json_schema, schema});
            } catch (const Error& error) {
                why = error.what();
            }
            if (!grammar && why.find("no text is valid") == why.npos) {
                refused.insert(what);
                EXPECT_EQ(kRefused.count(what), 1u) << "newly refused: " << what << "\n" << why;
                continue;
            }
            for (const JsonValue& test : group.find("tests")->items) {
                ++tests;
                const std::string text = text_of(*test.find("data"));
                const bool accepted = grammar && accepts(grammar, text);
                if (!accepted && kLeftOut.count(text) != 0) {
                    left_out.insert(text);
                    continue;
                }
                EXPECT_EQ(accepted, test.find("valid")->truth) << what << ": " << test.find("description")->text << "\n"
                                                               << schema << "\n"
                                                               << text;
            }
        }
    }
    std::printf("%zu groups, %zu refused by name; %zu tests of the others, of which %zu valid texts are left out\n",
                groups, refused.size(), tests, left_out.size());
    EXPECT_EQ(refused, kRefused);
    EXPECT_EQ(left_out, kLeftOut);
    EXPECT_GE(tests, kJudged) << "a later suite may have more";
}

constexpr std::uint64_t kUsual = 2'000'000;  // what the stage `grammar` allows

double percentile(std::vector<float>& values, double share) {
    if (values.empty()) return 0;
    const auto place = values.begin() + static_cast<std::ptrdiff_t>(share * static_cast<double>(values.size() - 1));
    std::nth_element(values.begin(), place, values.end());
    return *place;
}

TEST(MaskBench, NoInvalidInstanceIsAccepted) {
    const char* folder = std::getenv("FORESAY_MASKBENCH");
    if (folder == nullptr) GTEST_SKIP() << "FORESAY_MASKBENCH names no folder";
    const char* part = std::getenv("FORESAY_MASKBENCH_PART");  // one schema of so many
    const std::size_t step = part != nullptr ? std::strtoul(part, nullptr, 10) : 1;
    const auto vocabulary = large_vocabulary();
    std::vector<fs::path> files;
    for (const auto& entry : fs::directory_iterator(folder)) files.push_back(entry.path());
    std::sort(files.begin(), files.end());
    std::map<std::string, std::size_t> refused;
    std::vector<float> masks, ready, work;  // us, us, thousands of steps
    std::size_t schemas = 0, compiled = 0, valid = 0, valid_refused = 0, invalid = 0, invalid_accepted = 0, tokens = 0;
    double slowest_refusal = 0, accept_us = 0;
    std::size_t failed = 0;
    std::vector<std::uint32_t> words(vocabulary->words());
    const auto since = [](double begin) { return now() - begin; };
    for (std::size_t f = 0; f < files.size(); f += step) {
        const JsonValue file = read_json(read_file(files[f]));
        const std::string schema = text_of(*file.find("schema"));
        ++schemas;
        std::shared_ptr<const Grammar> grammar;
        const auto begin = now();
        try {
            grammar = Grammar::compile(vocabulary, {Language::json_schema, schema}, {.most_work = kUsual});
        } catch (const Error& error) {
            slowest_refusal = std::max(slowest_refusal, since(begin));
            const std::string why = error.what();
            const std::size_t at = why.find("\" at #");
            const std::size_t reason = at == why.npos ? at : why.find(' ', at + 5);
            ++refused[at == why.npos ? why.substr(0, 60)
                                     : why.substr(27, at - 26) + (reason == why.npos ? "" : why.substr(reason, 50))];
            continue;
        }
        ++compiled;
        work.push_back(static_cast<float>(static_cast<double>(grammar->work()) / 1000));
        if (grammar->work() > 1'000'000)
            std::printf("%.1f million steps, %.0f ms: %s\n", work.back() / 1000, since(begin) / 1000,
                        files[f].filename().c_str());
        Grammar::begin(grammar).mask(words);
        ready.push_back(static_cast<float>(since(begin)));
        if (ready.back() > 50'000)
            std::printf("ready after %.0f ms: %s\n", ready.back() / 1000, files[f].filename().c_str());
        for (const JsonValue& test : file.find("tests")->items) {
            const std::string text = text_of(*test.find("data"));
            State state = Grammar::begin(grammar);
            bool accepted = true;
            std::size_t place = 0;
            for (const std::int32_t id : tokenize(*vocabulary, text)) {
                const auto start = now();
                state.mask(words);
                masks.push_back(static_cast<float>(since(start)));
                if (masks.back() > 20'000)
                    std::printf("a mask of %.0f ms: %s after %zu bytes\n", masks.back() / 1000,
                                files[f].filename().c_str(), place);
                const bool allowed = (words[static_cast<std::size_t>(id) / 32] >> (id % 32) & 1) != 0;
                const auto stepped = now();
                accepted = state.accept(id);
                accept_us += since(stepped);
                ++tokens;
                ASSERT_EQ(accepted, allowed) << files[f];
                if (!accepted) break;
                place += vocabulary->token(id).bytes.size();
            }
            accepted = accepted && state.may_end();
            if (!state.failure().empty()) {
                ++failed;
                std::printf("failed: %s at %zu: %s\n", files[f].filename().c_str(), place,
                            std::string(state.failure()).c_str());
            }
            if (test.find("valid")->truth) {
                ++valid;
                if (!accepted && ++valid_refused <= 60)
                    std::printf("valid and refused: %s at %zu: %s\n", files[f].filename().c_str(), place,
                                text.substr(place < 20 ? 0 : place - 20, 60).c_str());
            } else {
                ++invalid;
                if (accepted) {
                    ++invalid_accepted;
                    ADD_FAILURE() << "invalid and accepted: " << files[f] << "\n" << text.substr(0, 300);
                }
            }
        }
    }
    std::vector<std::pair<std::size_t, std::string>> reasons;
    for (const auto& [why, n] : refused) reasons.emplace_back(n, why);
    std::sort(reasons.rbegin(), reasons.rend());
    for (const auto& [n, why] : reasons) std::printf("%6zu refused: %s\n", n, why.c_str());
    const auto mean = [](const std::vector<float>& v) {
        double sum = 0;
        for (const float x : v) sum += x;
        return v.empty() ? 0 : sum / static_cast<double>(v.size());
    };
    std::printf("states that failed: %zu\n", failed);
    std::printf("schemas %zu, compiled %zu (%.1f %%); valid %zu, refused %zu (%.2f %%); invalid %zu, accepted %zu\n",
                schemas, compiled, 100.0 * static_cast<double>(compiled) / static_cast<double>(schemas), valid,
                valid_refused,
                100.0 * static_cast<double>(valid_refused) / static_cast<double>(std::max<std::size_t>(valid, 1)),
                invalid, invalid_accepted);
    std::printf("mask: mean %.1f us, p50 %.1f, p90 %.1f, p99 %.1f, max %.1f ms, of %zu; accept: mean %.2f us\n",
                mean(masks), percentile(masks, 0.5), percentile(masks, 0.9), percentile(masks, 0.99),
                percentile(masks, 1) / 1000, masks.size(),
                accept_us / static_cast<double>(std::max<std::size_t>(tokens, 1)));
    std::printf("ready: mean %.2f ms, p50 %.2f, p99 %.2f, max %.1f; slowest refusal %.1f ms\n", mean(ready) / 1000,
                percentile(ready, 0.5) / 1000, percentile(ready, 0.99) / 1000, percentile(ready, 1) / 1000,
                slowest_refusal / 1000);
    std::printf("work: mean %.0f thousand steps, p50 %.0f, p99 %.0f, max %.0f\n", mean(work), percentile(work, 0.5),
                percentile(work, 0.99), percentile(work, 1));
    EXPECT_LE(valid_refused * 200, valid) << "more than 0.5 % of the valid instances were refused";
    EXPECT_GE(compiled * 10, schemas * 7) << "less than 70 % of the schemas compile";
}

}  // namespace
}  // namespace foresay::grammar
