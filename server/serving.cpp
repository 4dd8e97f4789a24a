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

Serving::Serving(const engine::Engine& engine, ServingOptions options)
    : keys_(options.keys, options.complain),
      model_(engine, options.name, options.aliases),
      backend_(make_backend(engine, options)) {
    const std::string version = options.service.version;
    service_ = std::make_unique<Service>(model_, *backend_, keys_, std::move(options.service));
    http_ = std::make_unique<HttpServer>(options.addresses, options.limits, version, *service_);
    service_->watch(*http_);
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
