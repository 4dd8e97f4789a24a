// foresay list: the models in the hub's cache on this disk.
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "app/command_line/command.h"
#include "app/command_line/parser.h"
#include "app/hub_models.h"
#include "app/interrupt.h"
#include "app/journal/store.h"
#include "app/options.h"
#include "app/output.h"
#include "app/pager.h"
#include "base/error.h"
#include "core/models/model_source.h"
#include "core/weights/gguf.h"
#include "core/weights/safetensors.h"
#include "hub/cache.h"
#include "speculative/memory_estimate.h"

namespace foresay::app {

namespace {

namespace fs = std::filesystem;

struct LocalModel {
    std::string name;  // as `foresay chat hf:NAME` and `foresay remove NAME` take it
    std::string repo, revision, commit, choice;
    fs::path path;
    std::int64_t bytes = 0, used_s = 0;
    std::size_t files = 0;
    std::string family, quant;
    std::string problem;  // why it cannot run here; empty if its header says nothing against it
};

// The revision that a person would name: main, another branch or tag, or the beginning of the commit.
std::string revision_of(const std::vector<std::pair<std::string, std::string>>& refs, const std::string& commit) {
    std::string found;
    for (const auto& [ref, at] : refs) {
        if (at == commit && (found.empty() || ref == "main")) found = ref;
    }
    return found.empty() ? commit.substr(0, 12) : found;
}

// When it was last read, as far as the file system notes it: most do once a day.
std::int64_t last_used(const fs::path& folder, const hub::ModelFiles& model) {
    std::int64_t last = 0;
    for (const hub::HubFile& file : model.files) {
        struct stat status {};
        if (::stat((folder / file.path).c_str(), &status) != 0) continue;
        last = std::max({last, static_cast<std::int64_t>(status.st_atime), static_cast<std::int64_t>(status.st_mtime)});
    }
    return last;
}

// What the model's header says. The files are from anywhere.
void read_header(LocalModel& model, bool gguf) {
    try {
        const auto source = core::ModelSource::open(model.path);
        model.family = source->config().architecture;
        model.quant = source->config().file_type;
        return;
    } catch (const Error& problem) {
        model.problem = problem.what();
    }
    try {
        model.family = gguf ? core::GgufFile::open(model.path).get_string_or("general.architecture", "")
                            : core::SafetensorsDir::open(model.path).config().get_string_or("model_type", "");
    } catch (const Error&) {
        return;  // said already
    }
}

std::vector<LocalModel> local_models(const hub::Cache& cache) {
    std::vector<LocalModel> models;
    for (const std::string& repo : cache.repos()) {
        const auto refs = cache.refs(repo);
        for (const std::string& commit : cache.commits(repo)) {
            const std::vector<hub::ModelFiles> found = hub::complete_models(cache, repo, commit);
            const fs::path folder = cache.snapshot(repo, commit);
            for (const hub::ModelFiles& files : found) {
                if (interrupted()) throw Error("cancelled");
                LocalModel& model = models.emplace_back();
                model.repo = repo;
                model.commit = commit;
                model.revision = revision_of(refs, commit);
                model.choice = files.choice;
                const bool only_folder = !files.gguf && found.size() == 1;
                model.name = hub::ModelName{repo, model.revision, only_folder ? "" : files.choice}.text();
                model.path = files.path.empty() ? folder : folder / files.path;
                model.bytes = files.bytes();
                model.files = files.files.size();
                model.used_s = last_used(folder, files);
                read_header(model, files.gguf);
                if (model.quant.empty()) model.quant = files.quant;
            }
        }
    }
    return models;
}

std::string cell(const std::string& text, std::size_t width) {
    return text + std::string(text.size() < width ? width - text.size() : 0, ' ') + "  ";
}

std::string table(const std::vector<LocalModel>& models) {
    std::vector<std::vector<std::string>> rows = {{"NAME", "SIZE", "WEIGHTS", "FAMILY", "LAST USED"}};
    for (const LocalModel& model : models) {
        rows.push_back({model.name, speculative::format_bytes(model.bytes), model.quant.empty() ? "-" : model.quant,
                        model.family.empty() ? "-" : model.family, utc_time(model.used_s)});
    }
    std::vector<std::size_t> widths(rows.front().size(), 0);
    for (auto& row : rows) {
        for (std::size_t i = 0; i < row.size(); ++i) {
            row[i] = printable(row[i]);
            widths[i] = std::max(widths[i], row[i].size());
        }
    }
    std::string out;
    for (std::size_t i = 0; i < rows.size(); ++i) {
        std::string line;
        for (std::size_t j = 0; j < rows[i].size(); ++j) line += cell(rows[i][j], widths[j]);
        out += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
        if (i > 0 && !models[i - 1].problem.empty())
            out += "    cannot run: " + printable(models[i - 1].problem) + "\n";
    }
    return out;
}

nlohmann::json object_of(const LocalModel& model) {
    nlohmann::json object = {{"name", model.name},
                             {"repo", model.repo},
                             {"revision", model.revision},
                             {"commit", model.commit},
                             {"choice", model.choice},
                             {"path", model.path.string()},
                             {"bytes", model.bytes},
                             {"files", model.files},
                             {"family", model.family},
                             {"weights", model.quant},
                             {"last_used", utc_time(model.used_s)}};
    if (!model.problem.empty()) object["problem"] = model.problem;
    return object;
}

class List : public Command {
public:
    void declare(OptionParser& parser) override {
        add_json_flag(parser, json_);
        add_no_pager_flag(parser);
        parser.details(
            "A NAME is what `foresay chat hf:NAME` and `foresay remove NAME` take. LAST USED is\n"
            "as exact as the file system notes it, on most by the day. The cache is shared with\n"
            "the hub's other programs; models that are not complete, and other formats, are not\n"
            "listed.\n");
    }

    int run() override {
        const hub::Settings settings = hub_settings();
        const std::vector<LocalModel> models = local_models(hub::Cache(settings.cache));
        if (json_) {
            nlohmann::json list = nlohmann::json::array();
            for (const LocalModel& model : models) list.push_back(object_of(model));
            print(nlohmann::json({{"cache", settings.cache.string()}, {"models", std::move(list)}})
                      .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) +
                  "\n");
            return 0;
        }
        if (models.empty()) {
            say("No models are in " + printable(settings.cache.string()) +
                " yet; `foresay pull ORG/NAME:QUANT` fetches one.\n");
            return 0;
        }
        page(table(models));
        return 0;
    }

private:
    bool json_ = false;
};

const RegisterCommand<List> kList("list", "list the models that are here", CommandGroup::models);

}  // namespace

}  // namespace foresay::app
