// The page at "/": a chat for people, from files that are embedded. It uses the same endpoints as any other client.
#include "server/page/page.h"

#include "server/api/openai.h"

namespace foresay::server {

namespace {

// Nothing may come from elsewhere or go elsewhere, and nothing that a model writes can become a script.
constexpr const char* kPolicy =
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'";

HttpResponse file_of(std::string_view name) {
    for (const PageFile& file : page_files()) {
        if (file.name != name) continue;
        HttpResponse response;
        response.body = file.bytes;
        response.type = name.ends_with(".html")  ? "text/html; charset=utf-8"
                        : name.ends_with(".css") ? "text/css; charset=utf-8"
                                                 : "text/javascript; charset=utf-8";
        response.headers = {{"content-security-policy", kPolicy},
                            {"x-content-type-options", "nosniff"},
                            {"referrer-policy", "no-referrer"},
                            {"cache-control", "no-cache"}};
        // It keeps "/" as well, which lies above it.
        if (name == "worker.js") response.headers.push_back({"service-worker-allowed", "/"});
        return response;
    }
    throw ApiError(Problem::not_found, "there is nothing at '/page/" + std::string(name) + "'", "unknown_url");
}

HttpResponse page(std::string_view) { return file_of("index.html"); }

}  // namespace

void add_page(std::vector<Route>& routes) {
    routes.push_back(
        {"GET", "/", Right::open, nullptr, nullptr, openai_error, "A page to use the model with.", true, page});
    routes.push_back({"GET", "/page/", Right::open, nullptr, nullptr, openai_error, "Its parts.", true, file_of});
}

}  // namespace foresay::server
