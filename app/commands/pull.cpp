// foresay pull: fetches a model from the hub.
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "app/command_line/command.h"
#include "app/command_line/parser.h"
#include "app/hub_models.h"
#include "app/interrupt.h"
#include "app/output.h"
#include "base/error.h"

namespace foresay::app {

namespace {

class Pull : public Command {
public:
    void declare(OptionParser& parser) override {
        parser.argument(name_, {.value = "MODEL", .doc = "ORG/NAME[@REVISION][:QUANT] on the hub", .required = true});
        parser.flag("--json", json_, "print lines of JSON: what is fetched, the progress, and where the model is");
        parser.details(
            "Prints the path of the model: a GGUF file, or a folder of safetensors. It lies in\n"
            "the hub's own cache, which other programs share. `foresay chat hf:MODEL` uses it.\n"
            "QUANT is a quantisation as in the name of a file (Q4_K_M, in any case), the file\n"
            "itself, or safetensors. A pull that was interrupted continues where it stopped.\n"
            "Reads HF_TOKEN, HF_ENDPOINT, HF_HOME, HF_HUB_CACHE, HF_HUB_OFFLINE, https_proxy,\n"
            "no_proxy and SSL_CERT_FILE. Needs libcurl, which it looks for when it starts.\n");
    }

    int run() override {
        const hub::ModelName name = hub::parse_model_name(name_);
        const hub::Settings settings = hub_settings();
        const hub::PulledModel pulled = [&] {
            ShownPull shown(name, json_);  // its line is gone before the path is printed
            return hub::pull(settings, name, shown);
        }();
        if (json_) {
            print(nlohmann::json({{"event", "done"},
                                  {"path", pulled.path.string()},
                                  {"commit", pulled.commit},
                                  {"choice", pulled.model.choice},
                                  {"fetched", pulled.fetched}})
                      .dump() +
                  "\n");
        } else {
            print(pulled.path.string() + "\n");
        }
        return 0;
    }

private:
    std::string name_;
    bool json_ = false;
};

const RegisterCommand<Pull> kPull("pull", "fetch a model from the hub", CommandGroup::models);

}  // namespace

}  // namespace foresay::app
