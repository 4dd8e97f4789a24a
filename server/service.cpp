#include "server/service.h"

#include <algorithm>
#include <cctype>
#include <utility>

#include "server/error.h"

namespace foresay::server {

namespace {

constexpr std::size_t kWorkers = 2;
constexpr std::size_t kWaiting = 1024;

std::string lower(std::string_view text) {
    std::string out(text);
    std::transform(out.begin(), out.end(), out.begin(), [](unsigned char c) { return std::tolower(c); });
    return out;
}

// "localhost" of "localhost:8080", "[::1]" of "[::1]:8080".
std::string host_of(std::string_view text) {
    const std::size_t colon = text.rfind(':');
    const std::size_t bracket = text.rfind(']');
    const bool has_port = colon != text.npos && (bracket == text.npos || colon > bracket);
    return lower(has_port ? text.substr(0, colon) : text);
}

bool is_numeric_host(const std::string& host) {
    return host.starts_with('[') || host.find_first_not_of("0123456789.") == std::string::npos;
}

}  // namespace

int status_of(Problem problem) {
    switch (problem) {
        case Problem::invalid:
            return 400;
        case Problem::authentication:
            return 401;
        case Problem::permission:
            return 403;
        case Problem::not_found:
            return 404;
        case Problem::method:
            return 405;
        case Problem::timeout:
            return 408;
        case Problem::too_large:
            return 413;
        case Problem::misdirected:
            return 421;
        case Problem::busy:
            return 429;
        case Problem::failed:
            return 500;
        case Problem::unsupported:
            return 501;
        case Problem::unavailable:
            return 503;
    }
    return 500;
}

Service::Service(Keys& keys, ServiceOptions options)
    : keys_(keys),
      options_(std::move(options)),
      routes_(all_routes(options_.page)),
      stored_(options_.stored_responses),
      workers_(kWorkers, kWaiting) {}
Service::~Service() = default;

void Service::serve(std::shared_ptr<Loaded> loaded) {
    const std::lock_guard lock(mutex_);
    loaded_.swap(loaded);  // the one from before is given up after the lock
}

std::shared_ptr<Loaded> Service::loaded() const {
    const std::lock_guard lock(mutex_);
    return loaded_;
}

namespace {

ApiError loading() {
    ApiError error(Problem::unavailable, "the model is being loaded; come again", "loading_model");
    error.retry_after = 2;
    return error;
}

}  // namespace

const Route* Service::find(const HttpRequest& head, bool& other_method) const {
    const Route* best = nullptr;
    const std::string_view method = head.method == "HEAD" ? std::string_view("GET") : std::string_view(head.method);
    for (const Route& route : routes_) {
        const bool whole = head.path == route.path;
        const bool begins = route.path.size() > 1 && route.path.ends_with('/') && head.path.starts_with(route.path) &&
                            head.path.size() > route.path.size();
        if (!whole && !begins) continue;
        if (route.method != method) {
            other_method = true;
            continue;
        }
        if (best == nullptr || route.path.size() > best->path.size()) best = &route;
    }
    return best;
}

// A web page whose name an attacker has pointed at this machine comes with that name.
void Service::check_host(const HttpRequest& head) const {
    const std::string host = host_of(head.header("host"));
    if (!head.from_network || host.empty()) return;
    if (host == "localhost" || host == "127.0.0.1" || host == "[::1]" || host == host_of(head.listen_address)) return;
    if (options_.foreign && is_numeric_host(host)) return;
    if (std::find(options_.hosts.begin(), options_.hosts.end(), host) != options_.hosts.end()) return;
    throw ApiError(Problem::misdirected,
                   "this server does not answer to the host '" + host + "'; start it with --host " + host,
                   "unknown_host");
}

bool Service::own_origin(const HttpRequest& head) const {
    const std::string origin = lower(head.header("origin"));
    if (origin.empty()) return true;
    const std::size_t scheme = origin.find("://");
    return scheme != origin.npos && origin.substr(scheme + 3) == lower(head.header("host"));
}

void Service::check_origin(const HttpRequest& head) const {
    const std::string origin = lower(head.header("origin"));
    if (own_origin(head) ||
        std::find(options_.origins.begin(), options_.origins.end(), origin) != options_.origins.end())
        return;
    throw ApiError(Problem::permission,
                   "web pages of '" + origin + "' may not use this server; start it with --origin " + origin,
                   "unknown_origin");
}

HttpResponse Service::refusal(const HttpRequest& head, const ApiError& error) const {
    bool ignored = false;
    const Route* route = find(head, ignored);
    const ErrorShape shape = route != nullptr ? route->error : error_shape_of(head.path);
    HttpResponse response = shape(error, head.id);
    add_error_headers(error, response);
    return response;
}

std::optional<HttpResponse> Service::check(HttpRequest& head) {
    try {
        check_host(head);
        check_origin(head);
        if (!head.header("origin").empty() && !own_origin(head))
            head.answer_headers = {{"access-control-allow-origin", std::string(head.header("origin"))},
                                   {"vary", "origin"}};
        bool other_method = false;
        const Route* route = find(head, other_method);
        if (route == nullptr && other_method && head.method == "OPTIONS") {
            HttpResponse response{.status = 204};
            response.headers = {{"access-control-allow-methods", "GET, POST, DELETE"},
                                {"access-control-allow-headers", "authorization, content-type, x-api-key"},
                                {"access-control-max-age", "600"}};
            return response;
        }
        if (route == nullptr && other_method) {
            ApiError error(Problem::method, "'" + head.path + "' does not know the method " + head.method,
                           "method_not_allowed");
            HttpResponse response = refusal(head, error);
            std::string allowed;
            for (const Route& one : routes_) {
                if (head.path == one.path) allowed += (allowed.empty() ? "" : ", ") + std::string(one.method);
            }
            response.headers.push_back({"allow", allowed});
            metrics_.count_response(response.status);
            return response;
        }
        if (route == nullptr)
            throw ApiError(Problem::not_found, "there is nothing at '" + head.path + "'", "unknown_url");
        keys_.check(head, route->right);
        if (draining_ && !route->while_draining) {
            ApiError error(Problem::unavailable, "the server is stopping; come again", "shutting_down");
            error.retry_after = 5;
            throw error;
        }
        if (route->alone != nullptr) {
            metrics_.count_response(200);
            return route->alone(std::string_view(head.path).substr(route->path.size()));
        }
        if (route->manage == nullptr && loaded() == nullptr) throw loading();
    } catch (const ApiError& error) {
        HttpResponse response = refusal(head, error);
        metrics_.count_response(response.status);
        if (options_.log) options_.log(head.method + " " + head.path + " " + std::to_string(response.status));
        return response;
    }
    return std::nullopt;
}

HttpResponse Service::problem(const HttpRequest& head, int status, const std::string& message) {
    ApiError error(status == 408 ? Problem::timeout : status == 400 ? Problem::invalid : Problem::too_large, message);
    error.status = status;
    metrics_.count_response(status);
    return refusal(head, error);
}

void Service::handle(HttpRequest request, std::shared_ptr<Exchange> exchange) {
    bool ignored = false;
    const Route* route = find(request, ignored);
    const auto shared = std::make_shared<HttpRequest>(std::move(request));
    const bool posted = workers_.post([this, route, shared, exchange] {
        try {
            run(*route, *shared, exchange);
        } catch (const ApiError& error) {
            exchange->send(refusal(*shared, error));
            metrics_.count_response(error.status);
            if (options_.log)
                options_.log(shared->method + " " + shared->path + " " + std::to_string(error.status) + ": " +
                             error.what());
        } catch (const std::exception& problem) {
            exchange->send(refusal(*shared, ApiError(Problem::failed, problem.what(), "internal_error")));
            metrics_.count_response(500);
            if (options_.log) options_.log(shared->method + " " + shared->path + " 500: " + problem.what());
        }
    });
    if (posted) return;
    ApiError busy(Problem::busy, "too many requests wait already; come again", "queue_full");
    busy.retry_after = 1;
    exchange->send(refusal(*shared, busy));
}

void Service::run(const Route& route, HttpRequest& request, const std::shared_ptr<Exchange>& exchange) {
    const Caller caller = keys_.check(request, route.right);
    Json body = read_body(route, request);
    if (route.manage != nullptr) {
        if (manager_ == nullptr) throw loading();
        ManageCall call{request, body, exchange, *manager_, caller, options_.version};
        route.manage(call);
        return count(request, caller);
    }
    const std::shared_ptr<Loaded> loaded = this->loaded();
    if (loaded == nullptr) throw loading();  // it went after check()
    Call call{.request = request,
              .body = std::move(body),
              .exchange = exchange,
              .model = loaded->model,
              .backend = *loaded->backend,
              .metrics = metrics_,
              .caller = caller,
              .lease = route.body != nullptr ? keys_.begin(caller) : nullptr,
              .routes = routes_,
              .version = options_.version,
              .any_model = options_.any_model,
              .draining = draining_,
              .gauges = {},
              .tail = std::string_view(request.path).substr(std::min(route.path.size(), request.path.size())),
              .keep = loaded,
              .stored = &stored_};
    call.gauges = {loaded->backend->running(), loaded->backend->waiting(), loaded->backend->most_running(),
                   server_ != nullptr ? server_->connections() : 0, server_ != nullptr ? server_->stalled() : 0};
    route.run(call);
    count(request, caller);
}

void Service::count(const HttpRequest& request, const Caller& caller) {
    metrics_.count_response(200);
    if (options_.log)
        options_.log(request.method + " " + request.path + " 200" + (caller.name.empty() ? "" : " " + caller.name));
}

// The body, checked against the route's table; null where the route reads none.
Json Service::read_body(const Route& route, HttpRequest& request) const {
    Json body;
    if (route.body != nullptr) {
        try {
            body = parse_json(request.body);
        } catch (const Error& problem) {
            throw ApiError(Problem::invalid, std::string("the body is no JSON: ") + problem.what(), "invalid_json");
        }
        std::string().swap(request.body);
        std::vector<std::string> unknown;
        check_shape(*route.body, body, {}, &unknown);
        if (options_.log && !unknown.empty()) {
            std::string all;
            for (std::size_t i = 0; i < std::min<std::size_t>(unknown.size(), 8); ++i)
                all += (i == 0 ? "" : ", ") + json_quoted(unknown[i].substr(0, 64));
            options_.log(request.path + ": fields that are not known, and ignored: " + all);
        }
    }
    return body;
}

}  // namespace foresay::server
