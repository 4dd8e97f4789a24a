// app/hub_models.h: models that are named as on the hub, "hf:ORG/NAME:QUANT".
//
// A model that is in the cache is used as it is, without asking the hub, so that the same name means the same bytes
// until `foresay pull`.
// Errors:   Error with one sentence.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "hub/pull.h"

namespace foresay::app {

class TransferProgress;

// From the environment.
hub::Settings hub_settings();

// Shows what a pull does: a line with the rate and the time left on a terminal, or lines of JSON on standard output.
class ShownPull : public hub::Observer {
public:
    ShownPull(const hub::ModelName& name, bool json);
    ~ShownPull() override;
    void plan(const hub::ModelFiles& model, const std::string& commit, std::int64_t missing) override;
    void progress(std::int64_t done, std::int64_t all) override;
    void note(const std::string& sentence) override;
    bool cancelled() override;

private:
    const std::string repo_, title_;
    const bool json_;
    std::int64_t missing_ = 0;
    std::unique_ptr<TransferProgress> shown_;
};

// For configurations (core::FindModel): the path of a model in the cache, which is fetched if it is not there.
std::filesystem::path find_or_pull_model(const std::string& name);
// The same, but a model that is not there is an error.
std::filesystem::path find_local_model(const std::string& name);

}  // namespace foresay::app
