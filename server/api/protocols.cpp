// The list of protocols.
#include "server/api/openai.h"
#include "server/api/protocol.h"

namespace foresay::server {

void add_openai(std::vector<Route>& routes);
void add_responses(std::vector<Route>& routes);
void add_anthropic(std::vector<Route>& routes);
void add_ollama(std::vector<Route>& routes);
void add_llama(std::vector<Route>& routes);
void add_tabby(std::vector<Route>& routes);
void add_status(std::vector<Route>& routes);
void add_page(std::vector<Route>& routes);
HttpResponse anthropic_error(const ApiError& error, const std::string& id);
HttpResponse ollama_error(const ApiError& error, const std::string& id);

std::vector<Route> all_routes(bool with_page) {
    std::vector<Route> routes;
    add_openai(routes);
    add_responses(routes);
    add_anthropic(routes);
    add_ollama(routes);
    add_llama(routes);
    add_tabby(routes);
    add_status(routes);
    if (with_page) add_page(routes);
    return routes;
}

ErrorShape error_shape_of(std::string_view path) {
    if (path.starts_with("/v1/messages")) return anthropic_error;
    if (path.starts_with("/api/")) return ollama_error;
    return openai_error;
}

}  // namespace foresay::server
