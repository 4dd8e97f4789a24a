#include "server/serving.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "base/error.h"
#include "base/signals.h"
#include "server/loop_backend.h"

namespace foresay::server {

namespace {

using namespace std::chrono_literals;

std::unique_ptr<Backend> make_backend(const engine::Engine& engine, const ServingOptions& options) {
    const std::size_t parallel = std::max<std::size_t>(options.parallel, 1);
    return std::make_unique<LoopBackend>(engine, parallel, options.queue, options.share_cache);
}

}  // namespace

Serving::Serving(ServingOptions options) : options_(std::move(options)), keys_(options_.keys, options_.complain) {
    if (!options_.models.empty()) folder_ = std::make_unique<ModelsFolder>(options_.models);
    service_ = std::make_unique<Service>(keys_, options_.service);
    service_->manage(*this);
    http_ = std::make_unique<HttpServer>(options_.addresses, options_.limits, options_.service.version, *service_);
    service_->watch(*http_);
}

std::shared_ptr<const Loaded> Serving::load(const engine::Engine& engine) {
    serve(engine, options_.name);
    std::shared_ptr<const Loaded> loaded = service_->loaded();
    const std::lock_guard lock(mutex_);
    changing_ = false;
    return loaded;
}

void Serving::serve(const engine::Engine& engine, std::string name) {
    auto loaded = std::make_shared<Loaded>(engine, std::move(name), options_.aliases, make_backend(engine, options_));
    name_ = loaded->model.name();
    service_->serve(std::move(loaded));
}

// Answers that are still being made hold exchanges of the sockets, so the backend ends before them.
Serving::~Serving() {
    {
        const std::lock_guard lock(mutex_);
        ending_ = true;
    }
    service_->finish();
    if (changer_.joinable()) changer_.join();
    if (const auto loaded = service_->loaded()) loaded->backend->stop();
    service_->serve(nullptr);
}

void Serving::run() { http_->run(); }
void Serving::drain() {
    service_->drain();
    http_->drain();
}
void Serving::stop() { http_->stop(); }
void Serving::reload_keys() { keys_.reload(); }
const std::vector<ListenAddress>& Serving::addresses() const { return http_->addresses(); }

// ---------------------------------------------------------------------------------------------------- another model

const ModelsFolder& Serving::folder() const {
    if (folder_ == nullptr)
        throw ApiError(Problem::unsupported,
                       "this server keeps its model; start it with --models FOLDER to load others", "unsupported");
    return *folder_;
}

std::string Serving::loaded() const {
    const auto loaded = service_->loaded();
    return loaded != nullptr ? loaded->model.name() : std::string();
}

bool Serving::changing() const {
    const std::lock_guard lock(mutex_);
    return changing_;
}

// What uses the engine: new requests are refused, answers may go on for a while, and then nothing refers to it.
void Serving::release() {
    std::shared_ptr<Loaded> loaded = service_->loaded();
    if (loaded == nullptr) return;
    service_->serve(nullptr);
    const auto deadline = std::chrono::steady_clock::now() + options_.drain_time;
    const auto ending = [this] {
        const std::lock_guard lock(mutex_);
        return ending_;
    };
    while (loaded->backend->running() + loaded->backend->waiting() > 0 && !ending() &&
           std::chrono::steady_clock::now() < deadline)
        std::this_thread::sleep_for(2ms);
    loaded->backend->stop();
    // Routes that have begun end by themselves, and so do the callbacks of clients that have gone.
    while (loaded.use_count() > 1) std::this_thread::sleep_for(1ms);
}

void Serving::begin(std::function<void(const Report& report)> work, Report report) {
    folder();
    check(options_.store != nullptr, "a folder of models comes with what loads them");
    const std::lock_guard lock(mutex_);
    if (ending_) throw stopping();
    if (changing_) {
        ApiError busy(Problem::busy, "another model is being loaded; come again", "model_changing");
        busy.retry_after = 2;
        throw busy;
    }
    if (changer_.joinable()) changer_.join();  // it has ended
    changing_ = true;
    const SignalsBlocked blocked;
    changer_ = std::thread([this, work = std::move(work), report = std::move(report)] {
        std::unique_ptr<ApiError> problem;
        try {
            work(report);
        } catch (const ApiError& error) {
            problem = std::make_unique<ApiError>(error);
        } catch (const std::exception& error) {
            problem = std::make_unique<ApiError>(Problem::invalid, error.what(), "model_not_loaded");
        }
        {
            const std::lock_guard done(mutex_);
            changing_ = false;
        }
        report.done(problem.get());
    });
}

void Serving::change(ModelChange change, Report report) {
    begin(
        [this, change = std::move(change)](const Report& told) {
            bool released = loaded().empty();
            if (change.model.empty() && released)
                throw ApiError(Problem::invalid, "no model is loaded; load one first", "model_not_loaded");
            const std::string before = name_;
            const auto restore = [&](const std::string& name) {
                if (released && options_.store->engine() != nullptr) serve(*options_.store->engine(), name);
            };
            const auto check_ending = [this] {
                const std::lock_guard lock(mutex_);
                if (ending_) throw stopping();
            };
            check_ending();
            try {
                options_.store->load(change, [&] {
                    check_ending();
                    if (told.began) told.began();
                    release();
                    released = true;
                });
            } catch (...) {
                restore(before);
                throw;
            }
            try {
                restore(change.name.empty() ? before : change.name);
            } catch (...) {
                options_.store->go_back();
                restore(before);
                throw;
            }
        },
        std::move(report));
}

void Serving::unload(Report report) {
    begin(
        [this](const Report&) {
            release();
            options_.store->unload();
        },
        std::move(report));
}

}  // namespace foresay::server
