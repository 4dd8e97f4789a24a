// server/service.h: what the server does with a request: checks who asks and from where, finds the route, and runs it.
//
// Life:     model, backend and keys outlive it; so does the HttpServer that calls it, until its run() has returned.
// Threads:  check(), handle() and problem() from the network thread; routes run on workers.
// Errors:   answered in the shape of the protocol.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "server/api/protocol.h"
#include "server/http/server.h"
#include "server/keys.h"
#include "server/metrics.h"
#include "server/model.h"
#include "server/workers.h"

namespace foresay::server {

struct ServiceOptions {
    std::string version;
    std::vector<std::string> hosts;    // further names in Host
    std::vector<std::string> origins;  // further values of Origin
    bool any_model = true;             // a model of another name is answered by ours
    bool foreign = false;              // an address is listened on that others reach
    bool page = true;                  // there is a page at "/"
    // Gets a line for each answer; may be null.
    std::function<void(const std::string&)> log;
};

class Service final : public Handler {
public:
    Service(Keys& keys, ServiceOptions options);
    ~Service() override;

    // Requests for the model are refused until it is here. Both outlive the service's workers.
    void serve(const ServedModel& model, Backend& backend);

    std::optional<HttpResponse> check(HttpRequest& head) override;
    void handle(HttpRequest request, std::shared_ptr<Exchange> exchange) override;
    HttpResponse problem(const HttpRequest& head, int status, const std::string& message) override;

    // New requests are refused from now on.
    void drain() { draining_ = true; }
    // Ends the workers; what they have not begun is dropped.
    void finish() { workers_.finish(); }
    // For the gauges of /metrics.
    void watch(const HttpServer& server) { server_ = &server; }

private:
    const Route* find(const HttpRequest& head, bool& other_method) const;
    void check_host(const HttpRequest& head) const;
    void check_origin(const HttpRequest& head) const;
    bool own_origin(const HttpRequest& head) const;
    HttpResponse refusal(const HttpRequest& head, const ApiError& error) const;
    void run(const Route& route, HttpRequest& request, const std::shared_ptr<Exchange>& exchange);

    Keys& keys_;
    ServiceOptions options_;
    Metrics metrics_;
    std::vector<Route> routes_;
    std::atomic<bool> draining_{false}, loaded_{false};
    const ServedModel* model_ = nullptr;  // these two count once loaded_ is true
    Backend* backend_ = nullptr;
    const HttpServer* server_ = nullptr;
    Workers workers_;
};

}  // namespace foresay::server
