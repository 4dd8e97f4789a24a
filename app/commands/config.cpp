// foresay config: check configuration files, show the whole of one; the schema for editors and for people.
#include <exception>

#include "app/commands/commands.h"
#include "app/configuration.h"
#include "app/output.h"
#include "app/session.h"
#include "base/error.h"
#include "core/config/diagnostic.h"
#include "core/config/json_schema.h"
#include "core/config/reference.h"

namespace foresay::app {

int run_config_check(const Options& options) {
    int status = 0;
    for (const std::string& path : options.paths) {
        Options one = options;
        one.config = path;
        try {
            SessionNeeds needs;
            needs.tokenizer = false;
            needs.weights = false;
            const Session session(one, needs);  // the models' headers, whether they pair, plugins, chain and device
            print(path + ": ok\n");
        } catch (const core::ConfigError& problem) {
            complain(problem.what());
            status = 1;
        } catch (const Error& problem) {
            complain(std::string("foresay: ") + problem.what());
            status = 1;
        }
    }
    return status;
}

int run_config_show(const Options& options) {
    const Configuration configuration(options);
    std::string layers = "# layers, lowest first: default";
    for (const core::ConfigLayer& layer : configuration.layers()) {
        if (layer.place != core::Origin{}.place) layers += ", " + layer.place;
    }
    print(printable(layers) + "\n\n" + core::to_toml(configuration.config(), stage_schemas(), true));
    return 0;
}

int run_config_schema(const Options&) {
    print(core::to_json_schema(stage_schemas(), engine::source_schemas()));
    return 0;
}

int run_config_reference(const Options&) {
    print(core::to_markdown(stage_schemas(), engine::source_schemas()));
    return 0;
}

}  // namespace foresay::app
