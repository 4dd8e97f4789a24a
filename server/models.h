// server/models.h: the models that a server may load by name, and what loads them.
//
// Errors:   ApiError for a name that is wrong or unknown, or leads out of the folder; Error otherwise.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "server/error.h"

namespace foresay::server {

// A folder of models: NAME.toml (a configuration), NAME.gguf, or a directory NAME with a model of safetensors; and of
// chat templates: templates/NAME.jinja. A name is never a path, and links are no models: what a client names lies in
// the folder.
// Threads:  any; the folder is read each time.
class ModelsFolder {
public:
    // Throws Error where there is no such folder.
    explicit ModelsFolder(std::filesystem::path folder);

    // Names, sorted.
    std::vector<std::string> models() const;
    std::vector<std::string> templates() const;
    // The file or directory of a name. `param`: the field that has the name.
    std::filesystem::path model(const std::string& name, const std::string& param) const;
    std::filesystem::path prompt_template(const std::string& name, const std::string& param) const;

private:
    std::filesystem::path folder_;
};

// Another model, or the same with another template. Files, not names.
struct ModelChange {
    std::string name;                                      // what clients call it from then on; empty: as before
    std::filesystem::path model;                           // empty: the one that is loaded
    std::optional<std::filesystem::path> draft;            // an empty path: no draft; none: as configured, or found
    std::optional<std::filesystem::path> prompt_template;  // an empty path: the model's own
    std::int64_t context = 0;                              // tokens; 0: as configured
    std::string kv_format;                                 // "f16", "q8", "q6", "q4"; empty: as configured
};

// Opens models for a server: the program implements it.
// Threads:  one caller at a time.
class ModelStore {
public:
    virtual ~ModelStore() = default;
    // Checks all that it can, then calls `release`, which destroys what uses the engine, and only then changes it. On
    // error the engine is as before, or, where there was none, there is none.
    virtual void load(const ModelChange& change, const std::function<void()>& release) = 0;
    // Nothing uses the engine yet, as what load() loaded cannot be served: what was there before it comes back.
    virtual void go_back() = 0;
    // What uses the engine is destroyed already.
    virtual void unload() = 0;
    // Valid until the next load() or unload(). Null: no model is loaded.
    virtual const engine::Engine* engine() const = 0;
};

// Changes the model of a running server, one change at a time.
// Threads:  any.
class ModelManager {
public:
    // Called on a thread of the manager's own. `began`: requests are refused from now on; checks have passed, as far as
    // they were possible before. Then `done`: null, or what went wrong, after which the model from before is there.
    struct Report {
        std::function<void()> began;
        std::function<void(const ApiError* problem)> done;
    };
    virtual ~ModelManager() = default;
    // Throws ApiError: another change is being made, or the server can make none.
    virtual void change(ModelChange change, Report report) = 0;
    virtual void unload(Report report) = 0;
    // Throws ApiError where the server was started without a folder of models.
    virtual const ModelsFolder& folder() const = 0;
    // What clients call the loaded model; empty: none is.
    virtual std::string loaded() const = 0;
    // A model is being loaded or unloaded, so that a client does well to come again.
    virtual bool changing() const = 0;
};

}  // namespace foresay::server
