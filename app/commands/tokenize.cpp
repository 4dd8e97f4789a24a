// foresay tokenize: token ids of a text. Reads no weights.
#include <filesystem>
#include <nlohmann/json.hpp>

#include "app/commands/commands.h"
#include "app/configuration.h"
#include "app/files.h"
#include "app/output.h"
#include "base/error.h"
#include "core/text/tokenizer.h"

namespace foresay::app {

int run_tokenize(const Options& options) {
    if (options.model.empty()) throw UsageError("a shape has no tokenizer; name a model with --model PATH");
    const Configuration configuration(options);
    const core::Tokenizer tokenizer = core::Tokenizer::open(configuration.config().target_model);
    const std::string text = read_text(options.file, "the text");
    const bool special = !options.no_special;
    const std::vector<std::int32_t> ids = tokenizer.encode(text, {special, special});
    if (options.json) {
        print(nlohmann::json({{"token_ids", ids}}).dump() + "\n");
        return 0;
    }
    std::string out;
    for (const std::int32_t id : ids) {
        if (!out.empty()) out += ' ';
        out += std::to_string(id);
    }
    print(out + "\n");
    return 0;
}

}  // namespace foresay::app
