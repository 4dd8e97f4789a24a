// The seed of an answer: told in every protocol, streamed or not, and the number that was sent, to the last bit.
#include <gtest/gtest.h>

#include <sstream>

#include "server/json.h"
#include "tests/server/direct.h"

namespace foresay::testing {
namespace {

using server::Json;
using server::parse_json;

// The parts of an answer: itself, the events of a stream, or its lines.
std::vector<Json> parts_of(const std::string& path, bool stream, const std::string& body) {
    std::vector<Json> all;
    if (stream && !path.starts_with("/api/")) {
        for (const std::string& data : data_of(body)) {
            if (data != "[DONE]") all.push_back(parse_json(data));
        }
        return all;
    }
    std::istringstream lines(body);
    for (std::string line; std::getline(lines, line);) all.push_back(parse_json(line));
    return all;
}

// The object of a part that has the seed as its member, and the fingerprint.
const Json& teller(const std::string& path, const Json& part) {
    if (path.starts_with("/api/")) return part["foresay"];
    if (path == "/v1/messages")
        return part.text("type") == "message_start" ? part["message"]["foresay"] : part["foresay"];
    return part["response"].is_object() ? part["response"] : part;
}

std::string with_seed(const Asked& request, bool stream, const std::string& seed) {
    const std::string body = request.with(stream);
    if (seed.empty()) return body;
    const bool ollama = std::string_view(request.path).starts_with("/api/");
    return (ollama ? "{\"options\":{\"seed\":" + seed + "}," : "{\"seed\":" + seed + ",") + body.substr(1);
}

struct Told {
    std::size_t seeds = 0, parts = 0;
    std::string first;  // the first one
};

Told told_by(Direct& direct, const Asked& request, bool stream, const std::string& seed) {
    Told told;
    const std::string path = request.path;
    const server::HttpResponse answer = direct.post(path, with_seed(request, stream, seed));
    EXPECT_EQ(answer.status, 200) << path << answer.body;
    for (const Json& part : parts_of(path, stream, answer.body)) {
        ++told.parts;
        const Json& holder = teller(path, part);
        const Json& one = holder.has("generation_settings") ? holder["generation_settings"]["seed"] : holder["seed"];
        if (one.is_null()) continue;
        if (told.seeds++ == 0) told.first = one.dump();
        EXPECT_EQ(one.dump(), told.first) << path << ": " << part.dump();
        EXPECT_EQ(holder.text("system_fingerprint"), direct.model().fingerprint()) << path << ": " << part.dump();
    }
    return told;
}

TEST(Seeds, AreToldInEachProtocolStreamedOrNot) {
    Direct direct;
    direct.backend().tokens = bundled().tokenizer().encode("y = 2", {.add_special = false});
    for (const Asked& request : asked()) {
        for (const bool stream : {false, true}) {
            const Told told = told_by(direct, request, stream, "");
            const std::string what = std::string(request.path) + (stream ? ", streamed" : "");
            ASSERT_GE(told.seeds, 1u) << what;
            EXPECT_EQ(told.first, std::to_string(direct.backend().seed.load())) << what;
            EXPECT_LT(direct.backend().seed.load(), std::uint64_t{1} << 53) << "JavaScript would change a larger one";
            // Whatever piece a client looks at.
            const std::string_view path = request.path;
            if (stream && path.ends_with("/completions")) {
                EXPECT_EQ(told.seeds, told.parts) << what;
            }
        }
    }
}

TEST(Seeds, KeepEveryBit) {
    Direct direct;
    struct Case {
        const char* sent;
        std::uint64_t seed;
    };
    for (const Case& one :
         {Case{"0", 0}, Case{"9007199254740993", 9007199254740993u}, Case{"9223372036854775807", 9223372036854775807u},
          Case{"9223372036854775808", 9223372036854775808u}, Case{"18446744073709551615", 18446744073709551615u},
          Case{"-2", static_cast<std::uint64_t>(-2)},
          Case{"-9007199254740993", static_cast<std::uint64_t>(-9007199254740993)}}) {
        for (const Asked& request : asked()) {
            for (const bool stream : {false, true}) {
                const Told told = told_by(direct, request, stream, one.sent);
                EXPECT_EQ(told.first, one.sent) << request.path;
                EXPECT_EQ(direct.backend().seed.load(), one.seed) << request.path << ": " << one.sent;
            }
        }
    }
    const std::string mistral = R"({"prompt":"x = ","suffix":"\n","random_seed":18446744073709551615})";
    EXPECT_EQ(parse_json(direct.post("/v1/fim/completions", mistral).body)["seed"].dump(), "18446744073709551615");
}

TEST(Seeds, BeyondThemAreRefused) {
    Direct direct;
    for (const char* sent : {"18446744073709551616", "-9223372036854775809", "1.5", "1e19", "\"7\""}) {
        const server::HttpResponse answer =
            direct.post("/v1/completions", std::string(R"({"prompt":"x","seed":)") + sent + "}");
        EXPECT_EQ(answer.status, 400) << sent << answer.body;
        EXPECT_EQ(parse_json(answer.body)["error"].text("param"), "seed") << answer.body;
    }
    // Other fields are not as wide.
    const server::HttpResponse wide = direct.post("/v1/completions", R"({"prompt":"x","n":18446744073709551615})");
    EXPECT_EQ(wide.status, 400) << wide.body;
}

// -1 is llama.cpp's and Ollama's word for one that the server chooses; elsewhere it is a seed.
TEST(Seeds, BelowZero) {
    Direct direct;
    for (const Asked& request : asked()) {
        const std::string path = request.path;
        const bool chosen = path.starts_with("/api/") || path == "/completion" || path == "/infill";
        const Told told = told_by(direct, request, false, "-1");
        EXPECT_EQ(told.first == "-1", !chosen) << path << " " << told.first;
    }
}

}  // namespace
}  // namespace foresay::testing
