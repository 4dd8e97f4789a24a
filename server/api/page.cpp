// The page at "/": a chat for people, from files that are embedded. It uses the same endpoints as any other client.
#include "server/page/page.h"

#include "server/api/openai.h"

namespace foresay::server {

namespace {

// Nothing may come from elsewhere or go elsewhere, and nothing that a model writes can become a script.
constexpr const char* kPolicy =
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'";

void send_file(const Call& call, std::string_view name) {
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
        call.exchange->send(std::move(response));
        return;
    }
    throw ApiError(Problem::not_found, "there is nothing at '" + call.request.path + "'", "unknown_url");
}

void page(Call& call) { send_file(call, "index.html"); }
void part(Call& call) { send_file(call, call.tail); }

}  // namespace

void add_page(std::vector<Route>& routes) {
    routes.push_back({"GET", "/", Right::open, nullptr, page, openai_error, "A page to use the model with.", true});
    routes.push_back({"GET", "/page/", Right::open, nullptr, part, openai_error, "Its parts.", true});
}

}  // namespace foresay::server
