#include "core/text/special_names.h"

#include <algorithm>

#include "base/error.h"

namespace foresay::core {
namespace {

using Names = std::vector<std::string_view>;

// Texts that end a turn, in order of preference.
const Names& turn_ends() {
    static const Names names = {"<|eot_id|>",        "<|im_end|>", "<|end|>", "<end_of_turn>", "<|endoftext|>",
                                "<|end_of_text|>",   "<EOT>",      "_<EOT>",  "[EOT]",         "<｜end▁of▁sentence｜>",
                                "<end_of_utterance>"};
    return names;
}

const Names& other_ends() {
    static const Names names = {"<|return|>", "<|call|>", "<|calls|>", "<|flush|>", "</s>",
                                "<|eom_id|>", "[EOS]",    "<eos>",     "[e~["};
    return names;
}

void complete(const FindControl& find, const Names& names, std::int32_t& id) {
    for (std::size_t i = 0; i < names.size() && id < 0; ++i) id = find(names[i]);
}

}  // namespace

void complete_special_tokens(const FindControl& find, SpecialTokens& special) {
    complete(find, turn_ends(), special.eot);
    complete(find, {"<|eom_id|>"}, special.eom);
    complete(find,
             {"<|fim_prefix|>", "<fim-prefix>", "<fim_prefix>", "<｜fim▁begin｜>", "<PRE>", "▁<PRE>", "<|code_prefix|>",
              "<|prefix|>"},
             special.fim_prefix);
    complete(find,
             {"<|fim_suffix|>", "<fim-suffix>", "<fim_suffix>", "<｜fim▁hole｜>", "<SUF>", "▁<SUF>", "<|code_suffix|>",
              "<|suffix|>"},
             special.fim_suffix);
    complete(find,
             {"<|fim_middle|>", "<fim-middle>", "<fim_middle>", "<｜fim▁end｜>", "<MID>", "▁<MID>", "<|code_middle|>",
              "<|middle|>"},
             special.fim_middle);
    complete(find, {"<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>"}, special.fim_pad);
    complete(find, {"<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>"}, special.fim_repo);
    complete(find, {"<|file_sep|>"}, special.fim_file);
}

std::vector<std::int32_t> end_of_text_ids(const FindControl& find, const SpecialTokens& special,
                                          const std::vector<std::int32_t>& named) {
    std::vector<std::int32_t> ids = named;
    // A model that starts the next file or repository has finished the current one.
    ids.insert(ids.end(), {special.eos, special.eot, special.eom, special.fim_pad, special.fim_repo, special.fim_file});
    for (const std::string_view text : turn_ends()) ids.push_back(find(text));
    for (const std::string_view text : other_ends()) ids.push_back(find(text));
    // Where <|return|> or <|flush|> ends a turn, <|end|> only ends one of its messages.
    const bool calls = find("<|call|>") >= 0 || find("<|calls|>") >= 0;
    if (calls && (find("<|return|>") >= 0 || find("<|flush|>") >= 0)) std::erase(ids, find("<|end|>"));
    std::sort(ids.begin(), ids.end());
    ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
    std::erase(ids, -1);
    return ids;
}

void check_token_id(std::int64_t id, std::int64_t vocabulary, const std::string& source, const std::string& key) {
    if (id >= 0 && id < vocabulary) return;
    throw Error(source + ": " + key + " is " + std::to_string(id) + ", but the vocabulary has " +
                std::to_string(vocabulary) + " tokens; get or convert the model again");
}

}  // namespace foresay::core
