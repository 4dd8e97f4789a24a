// server/service.h: what the server does with a request: checks who asks and from where, finds the route, and runs it.
//
// Life:     model, backend and keys outlive it; so does the HttpServer that calls it, until its run() has returned.
// Threads:  check(), handle() and problem() from the network thread; routes run on workers.
// Errors:   answered in the shape of the protocol.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "server/api/protocol.h"
#include "server/http/server.h"
#include "server/keys.h"
#include "server/metrics.h"
#include "server/model.h"
#include "server/workers.h"

namespace foresay::server {

// A model with what generates with it. Both are there as long as anything of a request is.
struct Loaded {
    Loaded(const engine::Engine& engine, std::string name, const std::vector<std::string>& aliases,
           std::unique_ptr<Backend> backend)
        : model(engine, std::move(name), aliases), backend(std::move(backend)) {}
    ServedModel model;
    std::unique_ptr<Backend> backend;
};

struct ServiceOptions {
    std::string version;
    std::vector<std::string> hosts;      // further names in Host
    std::vector<std::string> origins;    // further values of Origin
    bool any_model = true;               // a model of another name is answered by ours
    bool foreign = false;                // an address is listened on that others reach
    bool page = true;                    // there is a page at "/"
    std::size_t stored_responses = 256;  // that clients ask to be kept; 0: none
    // Gets a line for each answer, without a text of the request; may be null. Any thread.
    std::function<void(const std::string&)> log;
};

class Service final : public Handler {
public:
    Service(Keys& keys, ServiceOptions options);
    ~Service() override;

    // Requests for the model are refused until it is here; null: from now on. Those that have begun keep the one from
    // before.
    void serve(std::shared_ptr<Loaded> loaded);
    // Who changes the model, for routes that ask for it; outlives the service's workers.
    void manage(ModelManager& manager) { manager_ = &manager; }
    // Null: none is.
    std::shared_ptr<Loaded> loaded() const;

    std::optional<HttpResponse> check(HttpRequest& head) override;
    void handle(HttpRequest request, std::shared_ptr<Exchange> exchange) override;
    HttpResponse problem(const HttpRequest& head, int status, const std::string& message) override;

    // New requests are refused from now on.
    void drain() { draining_ = true; }
    // Ends the workers; what they have not begun is dropped.
    void finish() { workers_.finish(); }
    // For the gauges of /metrics.
    void watch(const HttpServer& server) { server_ = &server; }
    const Metrics& metrics() const { return metrics_; }

private:
    const Route* find(const HttpRequest& head, bool& other_method) const;
    ApiError no_model() const;
    void check_host(const HttpRequest& head) const;
    void check_origin(const HttpRequest& head) const;
    bool own_origin(const HttpRequest& head) const;
    HttpResponse refusal(const HttpRequest& head, const ApiError& error) const;
    void tell(const HttpRequest& head, const HttpResponse& response);
    class Counted;  // of service.cpp
    void run(const Route& route, HttpRequest& request, const std::shared_ptr<Counted>& exchange);
    Json read_body(const Route& route, HttpRequest& request) const;

    Keys& keys_;
    ServiceOptions options_;
    Metrics metrics_;
    std::vector<Route> routes_;
    std::atomic<bool> draining_{false};
    mutable std::mutex mutex_;
    std::shared_ptr<Loaded> loaded_;  // guarded by mutex_
    ModelManager* manager_ = nullptr;
    StoredResponses stored_;
    const HttpServer* server_ = nullptr;
    Workers workers_;
};

}  // namespace foresay::server
