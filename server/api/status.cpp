// How the server is: for orchestrators, Prometheus, and those who write clients.
#include <map>
#include <mutex>
#include <utility>

#include "server/api/openai.h"

namespace foresay::server {

namespace {

HttpResponse live(std::string_view) { return {.body = Json::object({{"status", "ok"}}).dump()}; }

void ready(Call& call) {
    if (call.draining) {
        ApiError error(Problem::unavailable, "the server is stopping", "shutting_down");
        error.retry_after = 5;
        throw error;
    }
    call.send(Json::object({{"status", "ok"}}));
}

// Colons in names are vLLM's, and no tool that checks names likes them.
std::string without_aliases(const std::string& text) {
    std::string out;
    for (std::size_t at = 0; at < text.size();) {
        const std::size_t end = text.find('\n', at) + 1;
        const std::string_view line = std::string_view(text).substr(at, end - at);
        if (!line.starts_with("vllm:") && !line.starts_with("# HELP vllm:") && !line.starts_with("# TYPE vllm:"))
            out += line;
        at = end;
    }
    return out;
}

void metrics(Call& call) {
    HttpResponse response;
    response.type = "text/plain; version=0.0.4; charset=utf-8";
    response.body = call.metrics.text(call.model.name(), call.version, call.model.fingerprint(), call.gauges);
    if (call.request.query == "aliases=no") response.body = without_aliases(response.body);
    call.exchange->send(std::move(response));
}

std::string openapi_text(const Call& call) {
    Json paths = Json::object();
    for (const Route& route : call.routes) {
        std::string path(route.path);
        if (path.size() > 1 && path.ends_with('/')) path += "{name}";
        Json operation = Json::object({{"summary", route.doc}});
        if (path.ends_with("{name}")) {
            operation.set("parameters", Json::list({Json::object({{"name", "name"},
                                                                  {"in", "path"},
                                                                  {"required", true},
                                                                  {"schema", Json::object({{"type", "string"}})}})}));
        }
        if (route.body != nullptr) {
            const Json media = Json::object({{"schema", schema_of(*route.body)}});
            operation.set("requestBody",
                          Json::object({{"required", true}, {"content", Json::object({{"application/json", media}})}}));
        }
        if (route.right == Right::open) operation.set("security", Json::list());
        operation.set("responses", Json::object({{"200", Json::object({{"description", "The answer."}})},
                                                 {"default", Json::object({{"description", "An error."}})}}));
        std::string method(route.method);
        for (char& c : method) c = static_cast<char>(c | 0x20);
        Json methods = paths[path].is_object() ? paths[path] : Json::object();
        methods.set(method, std::move(operation));
        paths.set(path, std::move(methods));
    }
    const Json bearer = Json::object({{"type", "http"}, {"scheme", "bearer"}});
    return Json::object({{"openapi", "3.1.0"},
                         {"info", Json::object({{"title", "foresay"}, {"version", call.version}})},
                         {"components", Json::object({{"securitySchemes", Json::object({{"key", bearer}})}})},
                         {"security", Json::list({Json::object({{"key", Json::list()}})})},
                         {"paths", std::move(paths)}})
        .dump();
}

// Made once: it is long, and a stranger may ask for it often. The list of routes is that of all_routes(), with the page
// or without.
void openapi(Call& call) {
    static std::mutex mutex;
    static std::map<std::pair<std::string, std::size_t>, std::string> made;
    HttpResponse response;
    {
        const std::lock_guard lock(mutex);
        std::string& text = made[{call.version, call.routes.size()}];
        if (text.empty()) text = openapi_text(call);
        response.body = text;
    }
    call.exchange->send(std::move(response));
}

}  // namespace

void add_status(std::vector<Route>& routes) {
    routes.push_back(
        {"GET", "/live", Right::open, nullptr, nullptr, openai_error, "Whether the program runs.", true, live});
    routes.push_back({"GET", "/ready", Right::open, nullptr, ready, openai_error, "Whether it takes requests.", true});
    routes.push_back(
        {"GET", "/health", Right::open, nullptr, ready, openai_error, "The same, as llama.cpp has it.", true});
    routes.push_back({"GET", "/metrics", Right::api, nullptr, metrics, openai_error, "Counts, for Prometheus.", true});
    routes.push_back({"GET", "/openapi.json", Right::api, nullptr, openapi, openai_error, "This list."});
}

}  // namespace foresay::server
