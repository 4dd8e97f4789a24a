// foresay serve: the model for other programs, over HTTP, in the protocols that editors and clients speak
// (docs/server.md).
#include <signal.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <ctime>
#include <filesystem>
#include <memory>
#include <optional>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>

#include "app/command_line/command.h"
#include "app/command_line/parser.h"
#include "app/opened_engine.h"
#include "app/options.h"
#include "app/output.h"
#include "base/error.h"
#include "base/signals.h"
#include "core/config/layers.h"
#include "core/config/value.h"
#include "server/serving.h"

namespace foresay::app {

namespace {

constexpr std::int64_t kDefaultQueue = 256, kDefaultParallel = 16;
constexpr std::int64_t kDefaultDrainSeconds = 30, kDefaultStoredResponses = 256;
constexpr std::int64_t kDefaultPort = 8080;
constexpr std::int32_t kParkedTexts = 8;  // conversations whose beginnings stay in the cache, as far as it has room

// Loads models for admins: a configuration or a model of the server's folder in place of those of the command line.
// Its other options stay.
class Store final : public server::ModelStore {
public:
    Store(const Options& options, const EngineNeeds& needs) : options_(options), needs_(needs) {}

    const OpenedEngine& open() { return engine_.emplace(options_, needs_); }

    void load(const server::ModelChange& change, const std::function<void()>& release) override {
        Configuration next = configuration(change);
        before_.reset();
        if (engine_) {
            before_ = engine_->configuration();
            for (const std::string& note : engine_->reload(next, release)) spdlog::info("{}", note);
            return;
        }
        release();
        engine_.emplace(std::move(next), options_, needs_);
    }
    void go_back() override {
        if (!before_) return unload();
        for (const std::string& note : engine_->reload(*before_, [] {})) spdlog::info("{}", note);
    }
    void unload() override { engine_.reset(); }
    const engine::Engine* engine() const override { return engine_ ? &*engine_ : nullptr; }

private:
    Configuration configuration(const server::ModelChange& change) const {
        Options options = options_;
        options.fetch_models = false;  // a client makes the server open no URL
        std::string text;
        const auto say = [&](const char* key, const std::string& value) {
            text += std::string(key) + " = " + core::to_toml(core::ConfigValue(value)) + "\n";
        };
        if (!change.model.empty()) {
            std::erase_if(options.overrides, [](const core::ConfigLayer& layer) {
                return core::states(layer, "target.model") || core::states(layer, "draft.model");
            });
            if (change.model.extension() == ".toml") {
                options.config = change.model;
            } else {
                say("target.model", change.model);
                if (!change.draft) say("draft.model", "auto");
            }
        }
        if (change.draft) say("draft.model", *change.draft);
        if (change.prompt_template) say("chat.template", *change.prompt_template);
        if (change.prompt_template && !change.prompt_template->empty())
            say("chat.style", "auto");  // it replaces a style
        if (change.context > 0) text += "target.context = " + std::to_string(change.context) + "\n";
        if (!change.kv_format.empty()) say("runtime.kv_cache", change.kv_format);
        const std::string place = "the request that loads the model";
        if (!change.model.empty()) {
            // A layer from the start: a configuration that names no model begins with the bundled pair.
            std::error_code ignored;
            options.overrides.push_back({place, text, std::filesystem::current_path(ignored), true});
            return Configuration(options);
        }
        Configuration next = engine_->configuration();
        if (!text.empty()) next.set_text(text, place);
        return next;
    }

    Options options_;
    EngineNeeds needs_;
    std::optional<OpenedEngine> engine_;
    std::optional<Configuration> before_;  // of the model before the last load()
};

bool has_any(std::string_view text, std::string_view characters) {
    return text.find_first_of(characters) != std::string_view::npos;
}

// What a header Host may have before the port.
bool may_be_host(std::string_view host) {
    if (host.empty() || has_any(host, " \t/@*?#,")) return false;
    return !has_any(host, ":[]") || (host.front() == '[' && host.back() == ']');
}

// What a header Origin may have: of pages from files it is "null" or "file://".
bool may_be_origin(std::string_view origin) {
    if (origin == "null" || origin == "file://") return true;
    const std::size_t scheme = origin.find("://");
    if (scheme == std::string_view::npos || scheme == 0) return false;
    const std::string_view rest = origin.substr(scheme + 3);
    return !rest.empty() && !has_any(rest, " \t/@*?#,");
}

class Serve : public Command {
public:
    void declare(OptionParser& parser) override {
        add_common_options(parser, options_);
        refuse_shape(parser, options_);
        parser.over_hosts(options_);
        add_inflation_options(parser, options_);
        add_config_argument(parser, options_);
        parser.option_list("--listen", listen_,
                           {.value = "ADDRESS",
                            .doc = "HOST:PORT, unix:PATH or fd:NUMBER (repeatable) [default: 127.0.0.1:8080 and "
                                   "[::1]:8080]"});
        parser.option("--port", port_,
                      {.value = "PORT",
                       .doc = "another port of the default addresses; for others, use --listen",
                       .least = 0,
                       .most = 65535});
        parser.option("--keys", keys_,
                      {.value = "FILE", .doc = "who may use the server; see --new-key", .hint = ValueHint::file});
        parser.flag("--no-keys", no_keys_, "anyone who reaches the server may use it, from other machines too");
        parser.option("--new-key", new_key_,
                      {.value = "NAME", .doc = "print a new key and the line of --keys that knows it, and exit"});
        parser.flag("--admin", admin_, "the key of --new-key has the rights of an admin");
        parser.option("--name", name_,
                      {.value = "NAME", .doc = "what clients call the model [default: its file's name]"});
        parser.option_list("--alias", aliases_, {.value = "NAME", .doc = "another name of the model (repeatable)"});
        parser.flag("--only-model", only_model_, "refuse requests for models of other names");
        parser.option_list("--host", hosts_,
                           {.value = "NAME", .doc = "a name under which clients reach the server (repeatable)"});
        parser.option_list("--origin", origins_,
                           {.value = "URL", .doc = "web pages of this origin may use the server (repeatable)"});
        parser.option("--parallel", parallel_,
                      {.value = "N",
                       .doc = "texts that are generated at once; 1: one after the other, each as fast as it can be "
                              "[default: 16]",
                       .least = 1,
                       .most = 256});
        parser.flag("--batch-draft", batch_draft_,
                    "the draft model drafts for texts side by side, too [default: on a GPU, where it is small enough]");
        parser.flag("--no-batch-draft", no_batch_draft_, "it does not");
        parser.option("--queue", queue_, {.value = "N", .doc = "texts that may wait [default: 256]", .least = 1});
        parser.flag("--share-cache", share_cache_,
                    "texts of different keys share beginnings, too; the time to a first token then tells a key what "
                    "others have asked");
        parser.option("--drain-seconds", drain_seconds_,
                      {.value = "N", .doc = "how long answers may go on after SIGTERM [default: 30]"});
        parser.option("--models", models_,
                      {.value = "FOLDER",
                       .doc = "models and configurations that an admin may load by name while the server runs",
                       .hint = ValueHint::file});
        parser.option("--stored-responses", stored_responses_,
                      {.value = "N",
                       .doc = "answers of /v1/responses that are kept in memory when clients ask for it; 0: none "
                              "[default: 256]",
                       .most = 1'000'000});
        parser.flag("--no-page", no_page_, "serve no page at /");
        parser.flag("--dry-run", dry_run_, "check everything, say what would be served, and exit");
        parser.exclude("--keys", "--no-keys");
        parser.exclude("--batch-draft", "--no-batch-draft");
        parser.exclude("--listen", "--port");
        parser.after_parsing([this] {
            if (admin_ && !new_key_) throw UsageError("--admin needs --new-key NAME");
            // What llama-server's --host is.
            for (const std::string& host : hosts_) {
                if (host != "0.0.0.0" && host != "::" && host != "[::]") continue;
                throw UsageError("--host names the server as clients call it; to listen on " + host +
                                 ", use --listen " +
                                 (host.find(':') != std::string::npos && host[0] != '[' ? "[" + host + "]" : host) +
                                 ":" + std::to_string(port_.value_or(kDefaultPort)));
            }
            for (const std::string& host : hosts_) {
                if (may_be_host(host)) continue;
                throw UsageError("no client reaches the server as --host '" + host +
                                 "'; give the name alone, without a scheme or a port, and an IPv6 address in brackets");
            }
            for (const std::string& origin : origins_) {
                if (may_be_origin(origin)) continue;
                throw UsageError("no web page has the --origin '" + origin +
                                 "'; give its scheme and host, and its port if it has one, as "
                                 "http://localhost:3000");
            }
            for (const std::string& address : listen_) {
                try {
                    addresses_.push_back(server::parse_listen_address(address));
                } catch (const Error& problem) {
                    throw UsageError(std::string("--listen: ") + problem.what());
                }
            }
        });
    }

    int run() override {
        if (new_key_) return print_key();
        const bool chosen = !addresses_.empty();
        if (!chosen) {
            const std::string port = ":" + std::to_string(port_.value_or(kDefaultPort));
            addresses_ = {server::parse_listen_address("127.0.0.1" + port),
                          server::parse_listen_address("[::1]" + port)};
        }
        bool foreign = false;
        for (const server::ListenAddress& address : addresses_) {
            if (address.local()) continue;
            foreign = true;
            if (keys_ || no_keys_) continue;
            throw Error("other machines reach " + address.text() +
                        ", and the server has no keys; give --keys FILE (--new-key makes one), or --no-keys if anyone "
                        "may use it");
        }
        EngineNeeds needs;
        needs.branches = kParkedTexts;
        needs.speculating = true;
        needs.every_plugin = true;
        // Texts side by side share forwards already: where rows cost as much as on a CPU, a draft model, which takes
        // memory, seldom pays beside lookups (docs/experiments/batch-drafts.md).
        const bool beside = parallel_.value_or(kDefaultParallel) > 1;
        needs.draft = !beside || !no_batch_draft_;
        needs.draft_if_cheap = beside && !batch_draft_;
        needs.sequences = static_cast<std::int32_t>(parallel_.value_or(kDefaultParallel));
        if (dry_run_) {
            needs.weights = false;
            return report_dry_run(OpenedEngine(options_, needs));
        }
        server::ServingOptions options;
        options.addresses = addresses_;
        options.keys = keys_.value_or("");
        options.queue = static_cast<std::size_t>(queue_.value_or(kDefaultQueue));
        options.parallel = static_cast<std::size_t>(parallel_.value_or(kDefaultParallel));
        options.share_cache = share_cache_;
        options.name = name_.value_or("");
        options.aliases = aliases_;
        options.service.version = FORESAY_VERSION;
        options.service.hosts = hosts_;
        options.service.origins = origins_;
        options.service.any_model = !only_model_;
        options.service.foreign = foreign;
        options.service.page = !no_page_;
        options.service.stored_responses =
            static_cast<std::size_t>(stored_responses_.value_or(kDefaultStoredResponses));
        options.models = models_.value_or("");
        options.drain_time = std::chrono::seconds(drain_seconds_.value_or(kDefaultDrainSeconds));
        options.service.log = [](const std::string& line) { spdlog::info("{}", line); };
        options.complain = [](const std::string& problem) { spdlog::warn("{}", problem); };
        // It listens before the model is read, which may take long: until then clients are told to come again.
        Store store(options_, needs);
        options.store = &store;
        std::atomic<bool> ended{false}, waiting{false};
        std::unique_ptr<server::Serving> serving;
        Network network;
        {
            const SignalsBlocked blocked;
            serving = open(std::move(options), chosen);
            network.serving = serving.get();
            network.thread = std::thread([&] {
                serving->run();
                ended = true;
                if (waiting) ::kill(::getpid(), SIGTERM);  // wakes the wait below
            });
        }
        for (const server::ListenAddress& address : serving->addresses()) say_address(address, keys_.has_value());
        const OpenedEngine& engine = store.open();
        // From here on signals go to this thread alone, which waits for them.
        sigset_t signals;
        sigemptyset(&signals);
        for (const int signal : {SIGTERM, SIGINT, SIGHUP}) sigaddset(&signals, signal);
        pthread_sigmask(SIG_BLOCK, &signals, nullptr);
        {
            const std::shared_ptr<const server::Loaded> loaded = serving->load(engine);
            say("model " + loaded->model.name() + ", " + std::to_string(loaded->model.context_length()) +
                " tokens of context, " + loaded->model.fingerprint() + "\n");
        }
        waiting = true;
        wait(signals, *serving, ended);
        network.join();
        serving.reset();
        return 0;
    }

private:
    // The network thread, which ends with the command, also when the model cannot be loaded.
    struct Network {
        server::Serving* serving = nullptr;
        std::thread thread;
        ~Network() {
            if (!thread.joinable()) return;
            serving->stop();
            thread.join();
        }
        void join() { thread.join(); }
    };

    // A machine without IPv6 does not listen on the second of the two default addresses.
    static std::unique_ptr<server::Serving> open(server::ServingOptions options, bool chosen) {
        if (!chosen) {
            try {
                return std::make_unique<server::Serving>(options);
            } catch (const Error& problem) {
                spdlog::debug("{}", problem.what());
                options.addresses.pop_back();
            }
        }
        return std::make_unique<server::Serving>(std::move(options));
    }

    void wait(const sigset_t& signals, server::Serving& serving, const std::atomic<bool>& ended) const {
        using Clock = std::chrono::steady_clock;
        std::optional<Clock::time_point> deadline;
        while (!ended) {
            int signal = 0;
            if (!deadline) {
                if (::sigwait(&signals, &signal) != 0) continue;
            } else {
                const auto left =
                    std::chrono::duration_cast<std::chrono::nanoseconds>(*deadline - Clock::now()).count();
                const std::int64_t wait = std::max<std::int64_t>(left, 0);
                const timespec time{static_cast<std::time_t>(wait / 1'000'000'000),
                                    static_cast<long>(wait % 1'000'000'000)};
                signal = ::sigtimedwait(&signals, nullptr, &time);
            }
            if (ended) return;
            if (signal == SIGHUP) {
                serving.reload_keys();
            } else if (deadline) {  // asked twice, or the time is over
                serving.stop();
                return;
            } else {
                spdlog::info("stopping: answers may go on for {} s", drain_seconds_.value_or(kDefaultDrainSeconds));
                deadline = Clock::now() + std::chrono::seconds(drain_seconds_.value_or(kDefaultDrainSeconds));
                serving.drain();
            }
        }
    }

    static void say_address(const server::ListenAddress& address, bool keys) {
        const bool path = address.kind == server::ListenAddress::Kind::unix_path;
        say("listening on " + (path ? address.text() : "http://" + address.text()) +
            (keys              ? ", with keys\n"
             : address.local() ? ", for this machine\n"
                               : ", for anyone\n"));
    }

    int print_key() const {
        const server::NewKey made = server::make_key(*new_key_, admin_);
        print("key:  " + made.key + "\nline: " + made.line + "\n");
        return 0;
    }

    int report_dry_run(const OpenedEngine& engine) const {
        for (const server::ListenAddress& address : addresses_) say_address(address, keys_.has_value());
        say("context " + std::to_string(engine.context_length()) + " tokens, backend " + engine.backend() + "\n");
        return 0;
    }

    Options options_;
    std::vector<std::string> listen_, aliases_, hosts_, origins_;
    std::vector<server::ListenAddress> addresses_;
    std::optional<std::string> keys_, new_key_, name_, models_;
    std::optional<std::int64_t> parallel_, queue_, drain_seconds_, stored_responses_, port_;
    bool batch_draft_ = false, no_batch_draft_ = false, no_keys_ = false, admin_ = false, only_model_ = false,
         dry_run_ = false, no_page_ = false, share_cache_ = false;
};

const RegisterCommand<Serve> kServe("serve", "serve the model to editors and other clients over HTTP",
                                    CommandGroup::generate);

}  // namespace

}  // namespace foresay::app
