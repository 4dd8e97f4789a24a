// foresay remove: deletes a model from the hub's cache on this disk.
#include <string>

#include "app/command_line/command.h"
#include "app/command_line/parser.h"
#include "app/hub_models.h"
#include "app/interrupt.h"
#include "app/output.h"
#include "app/question.h"
#include "base/error.h"
#include "hub/cache.h"
#include "speculative/memory_estimate.h"

namespace foresay::app {

namespace {

class Remove : public Command {
public:
    void declare(OptionParser& parser) override {
        parser.argument(name_,
                        {.value = "MODEL", .doc = "ORG/NAME[@REVISION][:QUANT] as in the list", .required = true});
        parser.flag("--yes,-y", yes_, "do not ask");
        parser.details(
            "Without QUANT it removes all that is here of the repository, or of the REVISION.\n"
            "What another revision needs stays. Nothing outside the cache is ever removed.\n");
    }

    int run() override {
        const hub::ModelName name = hub::parse_model_name(name_);
        const hub::Cache cache(hub_settings().cache);
        const hub::Removal removal = hub::plan_removal(cache, name);
        const std::string what = name.text() + ": " + std::to_string(removal.links.size()) +
                                 (removal.links.size() == 1 ? " file, " : " files, ") +
                                 speculative::format_bytes(removal.bytes);
        if (!yes_ && !allowed("Remove " + what + " from " + cache.folder().string() + "? [y/N] ")) {
            if (interrupted()) return kCancelled;
            say("Nothing was removed.\n");
            return 1;
        }
        hub::remove(cache, removal);
        print("removed " + printable(what) + "\n");
        return 0;
    }

private:
    static bool allowed(const std::string& question) {
        if (!stdin_is_terminal() || !stderr_is_terminal()) {
            throw UsageError("there is no terminal to ask at; --yes removes the model without a question");
        }
        return ask(printable(question));
    }

    std::string name_;
    bool yes_ = false;
};

const RegisterCommand<Remove> kRemove("remove", "delete a model that is here", CommandGroup::models);

}  // namespace

}  // namespace foresay::app
