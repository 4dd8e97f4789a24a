// Every status in every protocol: each has its own shape of errors, which its clients read.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "server/json.h"
#include "tests/server/direct.h"

namespace foresay::testing {
namespace {

using server::Json;
using server::parse_json;

enum class Protocol { openai, anthropic, ollama, llama };

Protocol protocol_of(const std::string& path) {
    if (path == "/v1/messages") return Protocol::anthropic;
    if (path.starts_with("/api/")) return Protocol::ollama;
    return path == "/completion" || path == "/infill" ? Protocol::llama : Protocol::openai;
}

struct Status {
    int status;
    const char *openai, *anthropic, *llama;  // what they call it; Ollama's clients get the sentence alone
    const char* retry;                       // x-should-retry; empty: there is no such header
};

const std::vector<Status>& statuses() {
    static const std::vector<Status> table = {
        {400, "invalid_request_error", "invalid_request_error", "invalid_request_error", ""},
        {401, "authentication_error", "authentication_error", "authentication_error", ""},
        {403, "permission_error", "permission_error", "permission_error", ""},
        {404, "not_found_error", "not_found_error", "not_found_error", ""},
        {405, "invalid_request_error", "invalid_request_error", "invalid_request_error", ""},
        {413, "invalid_request_error", "request_too_large", "invalid_request_error", ""},
        {421, "invalid_request_error", "invalid_request_error", "invalid_request_error", ""},
        {429, "rate_limit_error", "overloaded_error", "rate_limit_error", "true"},
        {431, "invalid_request_error", "request_too_large", "invalid_request_error", ""},
        {500, "server_error", "api_error", "server_error", "false"},
        {503, "unavailable_error", "overloaded_error", "unavailable_error", "true"},
    };
    return table;
}

std::string header_of(const server::HttpResponse& response, const std::string& name) {
    for (const server::Header& header : response.headers) {
        if (header.name == name) return header.value;
    }
    return "";
}

server::HttpResponse make(Direct& direct, const std::string& key, const Asked& request, int status) {
    const server::Header known{"x-api-key", key};
    const std::string path = request.path, body = request.with(false);
    server::HttpRequest head;
    head.method = "POST";
    head.path = path;
    head.id = "req_0123456789abcdef";
    ScriptedBackend& backend = direct.backend();
    backend.full = status == 429;
    backend.finish = status == 500   ? server::BackendEnd::Finish::failed
                     : status == 503 ? server::BackendEnd::Finish::cancelled
                                     : server::BackendEnd::Finish::stop;
    switch (status) {
        case 400:
            return direct.ask("POST", path, "{", {known});
        case 401:
            return direct.ask("POST", path, body);
        case 403:
            return direct.ask("POST", path, body, {known, {"origin", "http://evil.example"}});
        case 404:
            return direct.ask("POST", path, R"({"model":"nonesuch",)" + body.substr(1), {known});
        case 405:
            return direct.ask("PUT", path, "", {known});
        case 413:
        case 431:
            return direct.service().problem(head, status, "it is too large");
        case 421:
            return direct.ask("POST", path, body, {known, {"host", "evil.example"}});
        default:
            return direct.ask("POST", path, body, {known});
    }
}

TEST(Shapes, EveryStatusInEachProtocol) {
    const auto file = std::filesystem::temp_directory_path() / ("foresay_shapes_" + std::to_string(::getpid()));
    const server::NewKey key = server::make_key("ann", false);
    std::ofstream(file) << key.line << "\n";
    server::ServiceOptions options;
    options.any_model = false;
    Direct direct(bundled(), file.string(), std::move(options));
    for (const Asked& request : asked()) {
        const Protocol protocol = protocol_of(request.path);
        for (const Status& expected : statuses()) {
            const server::HttpResponse answer = make(direct, key.key, request, expected.status);
            const std::string what = request.path + (" " + std::to_string(expected.status)) + ": " + answer.body;
            const bool overloaded = expected.status == 429 && protocol == Protocol::anthropic;
            EXPECT_EQ(answer.status, overloaded ? 529 : expected.status) << what;
            EXPECT_EQ(header_of(answer, "x-should-retry"), expected.retry) << what;
            EXPECT_EQ(header_of(answer, "retry-after").empty(), std::string_view(expected.retry) != "true") << what;
            EXPECT_EQ(header_of(answer, "www-authenticate"), expected.status == 401 ? "Bearer" : "") << what;
            EXPECT_EQ(header_of(answer, "allow"), expected.status == 405 ? "POST" : "") << what;
            const Json json = parse_json(answer.body);
            const Json& error = json["error"];
            if (protocol == Protocol::ollama) {
                EXPECT_EQ(json.members().size(), 1u) << what;
                EXPECT_FALSE(json.text("error").empty()) << what;
                continue;
            }
            EXPECT_FALSE(error.text("message").empty()) << what;
            if (protocol == Protocol::anthropic) {
                EXPECT_EQ(json.text("type"), "error") << what;
                EXPECT_EQ(error.text("type"), expected.anthropic) << what;
                EXPECT_EQ(json.text("request_id"), "req_0123456789abcdef") << what;
                EXPECT_EQ(header_of(answer, "request-id"), "req_0123456789abcdef") << what;
            } else if (protocol == Protocol::llama) {
                EXPECT_EQ(error.text("type"), expected.llama) << what;
                ASSERT_TRUE(error["code"].is(Json::Kind::integer)) << what;
                EXPECT_EQ(error["code"].integer(), expected.status) << what;
            } else {
                EXPECT_EQ(error.text("type"), expected.openai) << what;
                EXPECT_EQ(error.members().size(), 4u) << "message, type, param, code: " << what;
                EXPECT_FALSE(error["code"].is(Json::Kind::integer)) << what;
            }
        }
    }
    std::filesystem::remove(file);
}

}  // namespace
}  // namespace foresay::testing
