#include "app/hub_models.h"

#include <spdlog/spdlog.h>

#include <nlohmann/json.hpp>

#include "app/interrupt.h"
#include "app/output.h"
#include "app/transfer_progress.h"
#include "base/error.h"
#include "core/config/layers.h"
#include "hub/cache.h"
#include "speculative/memory_estimate.h"

namespace foresay::app {

namespace fs = std::filesystem;
using nlohmann::json;

namespace {

void print_line(const json& object) { print(object.dump(-1, ' ', false, json::error_handler_t::replace) + "\n"); }

std::string files_text(std::size_t count) { return std::to_string(count) + (count == 1 ? " file" : " files"); }

}  // namespace

hub::Settings hub_settings() {
    hub::Settings settings = hub::settings_from(core::read_variable);
    settings.user_agent = "foresay/" FORESAY_VERSION;
    return settings;
}

ShownPull::ShownPull(const hub::ModelName& name, bool json)
    : repo_(name.repo), title_(name.text()), json_(json), shown_(std::make_unique<TransferProgress>(title_)) {}
ShownPull::~ShownPull() = default;

void ShownPull::plan(const hub::ModelFiles& model, const std::string& commit, std::int64_t missing) {
    missing_ = missing;
    if (json_) {
        json files = json::array();
        for (const hub::HubFile& file : model.files) files.push_back({{"path", file.path}, {"bytes", file.size}});
        print_line({{"event", "plan"},
                    {"repo", repo_},
                    {"commit", commit},
                    {"choice", model.choice},
                    {"files", std::move(files)},
                    {"bytes", model.bytes()},
                    {"missing", missing}});
        return;
    }
    if (missing == 0) return;
    const std::string text =
        repo_ + ":" + model.choice + ": " + files_text(model.files.size()) + ", " +
        speculative::format_bytes(model.bytes()) +
        (missing < model.bytes() ? ", of which " + speculative::format_bytes(missing) + " to fetch" : "");
    shown_->clear();
    if (stderr_is_terminal()) {
        say(dim(printable(text)) + "\n");
    } else {
        spdlog::info("{}", printable(text));
    }
}

void ShownPull::progress(std::int64_t done, std::int64_t all) {
    if (missing_ == 0) return;  // nothing is fetched, or only an index, which is small
    if (!json_) return shown_->update(done, all);
    const bool due = shown_->due();
    if (!due) return;
    shown_->update(done, all);
    const TransferRate& rate = shown_->rate();
    json line = {{"event", "progress"}, {"done", done}, {"bytes", all}};
    if (const auto speed = rate.bytes_per_second()) line["bytes_per_second"] = static_cast<std::int64_t>(*speed);
    if (const auto left = rate.seconds_left(all)) line["seconds_left"] = static_cast<std::int64_t>(*left + 0.5);
    print_line(line);
}

void ShownPull::note(const std::string& sentence) {
    if (json_) return print_line({{"event", "note"}, {"text", sentence}});
    shown_->clear();
    if (stderr_is_terminal()) {
        say(dim(printable(sentence)) + "\n");
    } else {
        spdlog::info("{}", printable(sentence));
    }
}

bool ShownPull::cancelled() { return interrupted(); }

fs::path find_or_pull_model(const std::string& text) {
    const hub::ModelName name = hub::parse_model_name(text);
    const hub::Settings settings = hub_settings();
    if (const auto path = hub::find_model(hub::Cache(settings.cache), name)) return *path;
    ShownPull shown(name, false);
    return hub::pull(settings, name, shown).path;
}

fs::path find_local_model(const std::string& text) {
    const hub::ModelName name = hub::parse_model_name(text);
    const hub::Settings settings = hub_settings();
    if (const auto path = hub::find_model(hub::Cache(settings.cache), name)) return *path;
    throw Error(name.text() + " is not in " + settings.cache.string() + "; get it with `foresay pull " + name.text() +
                "`");
}

}  // namespace foresay::app
