#include "server/service.h"

#include <algorithm>
#include <utility>

#include "base/lower_case.h"
#include "server/error.h"

namespace foresay::server {

namespace {

constexpr std::size_t kWorkers = 2;
constexpr std::size_t kWaiting = 1024;

// "localhost" of "localhost:8080", "[::1]" of "[::1]:8080".
std::string host_of(std::string_view text) {
    const std::size_t colon = text.rfind(':');
    const std::size_t bracket = text.rfind(']');
    const bool has_port = colon != text.npos && (bracket == text.npos || colon > bracket);
    return lower_case(has_port ? text.substr(0, colon) : text);
}

bool is_numeric_host(const std::string& host) {
    return host.starts_with('[') || host.find_first_not_of("0123456789.") == std::string::npos;
}

// "POST /v1/completions 400 ann: invalid_value "top_p"". `status` 0: it was told already.
std::string line_of(const HttpRequest& request, int status, const std::string& caller, const std::string& note) {
    std::string line = request.method.empty() ? std::string("no request") : request.method + " " + request.path;
    if (status != 0) line += " " + std::to_string(status);
    if (!caller.empty()) line += " " + caller;
    return note.empty() ? line : line + ": " + note;
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
      workers_(kWorkers, kWaiting) {
    // Those of requests are compared in lower case.
    for (std::string& host : options_.hosts) host = lower_case(host);
    for (std::string& origin : options_.origins) origin = lower_case(origin);
}
Service::~Service() = default;

void Service::serve(std::shared_ptr<Loaded> loaded) {
    const std::lock_guard lock(mutex_);
    loaded_.swap(loaded);  // the one from before is given up after the lock
}

std::shared_ptr<Loaded> Service::loaded() const {
    const std::lock_guard lock(mutex_);
    return loaded_;
}

// For a request that needs a model where none is.
ApiError Service::no_model() const {
    // A model that has come since the caller looked ended the change, too.
    if (manager_ != nullptr && !manager_->changing() && loaded() == nullptr)
        return {Problem::unavailable, "no model is loaded; an admin loads one with POST /v1/model/load",
                "model_not_loaded"};
    ApiError error(Problem::unavailable, "the model is being loaded; come again", "loading_model");
    error.retry_after = 2;
    return error;
}

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
    const std::string origin = lower_case(head.header("origin"));
    if (origin.empty()) return true;
    const std::size_t scheme = origin.find("://");
    return scheme != origin.npos && origin.substr(scheme + 3) == lower_case(head.header("host"));
}

void Service::check_origin(const HttpRequest& head) const {
    const std::string origin = lower_case(head.header("origin"));
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
    ErrorShape shape = route != nullptr ? route->error : error_shape_of(head.path);
    // A path that is asked with a method that it does not have is still one of its protocol.
    const auto of_path = std::ranges::find(routes_, std::string_view(head.path), &Route::path);
    if (route == nullptr && of_path != routes_.end()) shape = of_path->error;
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
                                   {"access-control-expose-headers", "x-request-id, retry-after"},
                                   {"vary", "origin"}};
        bool other_method = false;
        const Route* route = find(head, other_method);
        if (route == nullptr && other_method && head.method == "OPTIONS") {
            HttpResponse response{.status = 204};
            // SDKs in a browser send headers of their own. The origin is one that may use this server.
            const std::string_view wanted = head.header("access-control-request-headers");
            response.headers = {{"access-control-allow-methods", "GET, POST, DELETE"},
                                {"access-control-allow-headers",
                                 std::string(wanted.empty() ? "authorization, content-type, x-api-key" : wanted)},
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
            tell(head, response);
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
        if (route->manage == nullptr && loaded() == nullptr) throw no_model();
    } catch (const ApiError& error) {
        HttpResponse response = refusal(head, error);
        tell(head, response);
        return response;
    }
    return std::nullopt;
}

void Service::tell(const HttpRequest& head, const HttpResponse& response) {
    metrics_.count_response(response.status);
    if (options_.log) options_.log(line_of(head, response.status, {}, response.note));
}

HttpResponse Service::problem(const HttpRequest& head, int status, const std::string& message) {
    ApiError error(status == 408 ? Problem::timeout : status == 400 ? Problem::invalid : Problem::too_large, message);
    error.status = status;
    HttpResponse response = refusal(head, error);
    tell(head, response);
    return response;
}

// An answer is counted, and told to the log, with the status that it has in the end: that of a text comes long after
// its request was taken.
class Service::Counted final : public Exchange {
public:
    Counted(std::shared_ptr<Exchange> answer, std::shared_ptr<const HttpRequest> request, Service& service)
        : answer_(std::move(answer)), request_(std::move(request)), service_(service) {}
    // Whose request it is; before anything is sent.
    void belongs_to(std::string caller) { caller_ = std::move(caller); }

    void send(HttpResponse response) override {
        tell(response);
        answer_->send(std::move(response));
    }
    void begin(HttpResponse head, std::string ping) override {
        tell(head);
        answer_->begin(std::move(head), std::move(ping));
    }
    void write(std::string_view bytes) override { answer_->write(bytes); }
    void finish() override { answer_->finish(); }
    void failed(const std::string& note) override {
        if (service_.options_.log && !answer_->gone())
            service_.options_.log(line_of(*request_, 0, caller_, "failed after its beginning: " + note));
    }
    bool begun() const override { return answer_->begun(); }
    bool gone() const override { return answer_->gone(); }
    void on_gone(std::function<void()> callback) override { answer_->on_gone(std::move(callback)); }
    void on_pressure(std::function<void(bool)> callback) override { answer_->on_pressure(std::move(callback)); }

private:
    void tell(const HttpResponse& response) {
        if (told_.exchange(true)) return;
        const bool gone = answer_->gone();
        const int status = gone ? Metrics::kClientGone : response.status;
        service_.metrics_.count_response(status);
        if (service_.options_.log)
            service_.options_.log(line_of(*request_, status, caller_, gone ? "the client has gone" : response.note));
    }

    std::shared_ptr<Exchange> answer_;
    std::shared_ptr<const HttpRequest> request_;
    Service& service_;
    std::string caller_;
    std::atomic<bool> told_{false};
};

void Service::handle(HttpRequest request, std::shared_ptr<Exchange> exchange) {
    bool ignored = false;
    const Route* route = find(request, ignored);
    const auto shared = std::make_shared<HttpRequest>(std::move(request));
    const auto counted = std::make_shared<Counted>(std::move(exchange), shared, *this);
    const bool posted = workers_.post([this, route, shared, counted] {
        try {
            run(*route, *shared, counted);
        } catch (const ApiError& error) {
            counted->send(refusal(*shared, error));
        } catch (const std::exception& problem) {
            counted->send(refusal(*shared, ApiError(Problem::failed, problem.what(), "internal_error")));
        }
    });
    if (posted) return;
    ApiError busy(Problem::busy, "too many requests wait already; come again", "queue_full");
    busy.retry_after = 1;
    counted->send(refusal(*shared, busy));
}

void Service::run(const Route& route, HttpRequest& request, const std::shared_ptr<Counted>& exchange) {
    const Caller caller = keys_.check(request, route.right);
    exchange->belongs_to(caller.name);
    Json body = read_body(route, request);
    if (route.manage != nullptr) {
        if (manager_ == nullptr) throw no_model();
        ManageCall call{request, body, exchange, *manager_, caller, options_.version};
        return route.manage(call);
    }
    const std::shared_ptr<Loaded> loaded = this->loaded();
    if (loaded == nullptr) throw no_model();  // it went after check()
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
    call.gauges = {loaded->backend->running(),
                   loaded->backend->waiting(),
                   loaded->backend->most_running(),
                   server_ != nullptr ? server_->connections() : 0,
                   server_ != nullptr ? server_->stalled() : 0,
                   loaded->backend->cache()};
    route.run(call);
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
