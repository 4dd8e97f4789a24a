// server/serving.h: a whole server: model, backend, keys, protocols and sockets, made and ended in the right order.
//
// Life:     the engine of load() outlives it. run() returns when drain() or stop() has ended everything.
// Threads:  run() is the network thread; everything else may be called from any other.
// Errors:   the constructor throws Error: an address, the file of keys, the model.
#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/engine.h"
#include "server/http/server.h"
#include "server/model.h"
#include "server/service.h"

namespace foresay::server {

struct ServingOptions {
    std::vector<ListenAddress> addresses;
    HttpLimits limits;
    std::filesystem::path keys;  // empty: none
    // Texts that are generated at once. 1: one after the other, with the draft model; more: side by side, each drafted
    // from itself.
    std::size_t parallel = 16;
    std::size_t queue = 256;  // texts that may wait
    std::string name;         // of the model; empty: its file's
    std::vector<std::string> aliases;
    ServiceOptions service;
    std::function<void(const std::string&)> complain;  // gets a sentence when the keys' file becomes wrong
};

class Serving {
public:
    // Listens. Requests for the model are told to come again until load() has returned.
    explicit Serving(ServingOptions options);
    Serving(const engine::Engine& engine, ServingOptions options) : Serving(std::move(options)) { load(engine); }
    ~Serving();

    // Any thread, once, also while run() runs. The engine outlives this.
    void load(const engine::Engine& engine);

    void run();
    void drain();
    void stop();
    void reload_keys();

    const std::vector<ListenAddress>& addresses() const;
    // After load():
    const ServedModel& model() const { return *model_; }
    const Backend& backend() const { return *backend_; }

private:
    ServingOptions options_;
    Keys keys_;
    std::unique_ptr<ServedModel> model_;
    std::unique_ptr<Backend> backend_;
    std::unique_ptr<Service> service_;
    std::unique_ptr<HttpServer> http_;
};

}  // namespace foresay::server
