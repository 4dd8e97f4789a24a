#include "server/serving.h"

#include <utility>

#include "server/generator_backend.h"
#include "server/loop_backend.h"

namespace foresay::server {

namespace {

std::unique_ptr<Backend> make_backend(const engine::Engine& engine, const ServingOptions& options) {
    if (options.parallel <= 1) return std::make_unique<GeneratorBackend>(engine, options.queue);
    return std::make_unique<LoopBackend>(engine, options.parallel, options.queue);
}

}  // namespace

Serving::Serving(ServingOptions options) : options_(std::move(options)), keys_(options_.keys, options_.complain) {
    service_ = std::make_unique<Service>(keys_, options_.service);
    http_ = std::make_unique<HttpServer>(options_.addresses, options_.limits, options_.service.version, *service_);
    service_->watch(*http_);
}

void Serving::load(const engine::Engine& engine) {
    model_ = std::make_unique<ServedModel>(engine, options_.name, options_.aliases);
    backend_ = make_backend(engine, options_);
    service_->serve(*model_, *backend_);
}

// Answers that are still being made hold exchanges of the sockets, so the backend ends before them.
Serving::~Serving() {
    service_->finish();
    backend_.reset();
}

void Serving::run() { http_->run(); }
void Serving::drain() {
    service_->drain();
    http_->drain();
}
void Serving::stop() { http_->stop(); }
void Serving::reload_keys() { keys_.reload(); }
const std::vector<ListenAddress>& Serving::addresses() const { return http_->addresses(); }

}  // namespace foresay::server
