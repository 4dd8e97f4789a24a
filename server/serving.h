// server/serving.h: a whole server: model, backend, keys, protocols and sockets, made and ended in the right order.
//
// Life:     the engine of load() and the store outlive it. run() returns when drain() or stop() has ended everything.
// Threads:  run() is the network thread; everything else may be called from any other.
// Errors:   the constructor throws Error: an address, the file of keys, the model.
#pragma once

#include <chrono>
#include <cstddef>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <thread>
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
    // Texts that are generated at once. 1: one after the other; more: side by side. The draft model drafts, too, where
    // the engine has one.
    std::size_t parallel = 16;
    std::size_t queue = 256;   // texts that may wait
    bool share_cache = false;  // texts of different keys share beginnings, too
    std::string name;          // of the model; empty: its file's
    std::vector<std::string> aliases;
    ServiceOptions service;
    std::function<void(const std::string&)> complain;  // gets a sentence when the keys' file becomes wrong
    // Models that an admin may load, and what loads them; empty and null: the model stays.
    std::filesystem::path models;
    ModelStore* store = nullptr;
    // How long answers may go on when another model is to be loaded.
    std::chrono::milliseconds drain_time{30'000};
};

class Serving final : public ModelManager {
public:
    // Listens. Requests for the model are told to come again until load() has returned.
    explicit Serving(ServingOptions options);
    Serving(const engine::Engine& engine, ServingOptions options) : Serving(std::move(options)) { load(engine); }
    ~Serving() override;

    // Any thread, once, also while run() runs. The engine outlives this; with a store, it is the store's, and no other
    // model can be loaded before this has returned. As long as what it returns is kept, the model stays.
    std::shared_ptr<const Loaded> load(const engine::Engine& engine);

    void run();
    void drain();
    void stop();
    void reload_keys();

    const std::vector<ListenAddress>& addresses() const;
    // After load(), as long as no other model is loaded:
    const ServedModel& model() const { return service_->loaded()->model; }
    const Backend& backend() const { return *service_->loaded()->backend; }

    // ---- ModelManager
    void change(ModelChange change, Report report) override;
    void unload(Report report) override;
    const ModelsFolder& folder() const override;
    std::string loaded() const override;
    bool changing() const override;

private:
    void serve(const engine::Engine& engine, std::string name);
    void release();
    void begin(std::function<void(const Report& report)> work, Report report);

    ServingOptions options_;
    Keys keys_;
    std::unique_ptr<ModelsFolder> folder_;
    std::unique_ptr<Service> service_;
    std::unique_ptr<HttpServer> http_;
    mutable std::mutex mutex_;  // of the next two
    bool changing_ = true;      // from the beginning, until the first model is there
    bool ending_ = false;
    std::thread changer_;
    std::string name_;  // of the last model that was loaded; of the changer's thread
};

}  // namespace foresay::server
