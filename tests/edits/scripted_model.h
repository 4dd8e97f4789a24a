// tests/edits/scripted_model.h: a GGUF file of a model that converses in ChatML and gives the same answer each time.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace foresay::testing {

struct ScriptedModel {
    std::vector<std::string> answer;  // its tokens, at most 250; each different, and none a single byte
    bool converses = true;            // false: no chat template, and the end of text ends the answer
    std::string chat_template =
        "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
        "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";
};

// One layer that adds nothing, so that a token follows from the one before it: the first of the answer from any token
// of a prompt, and each other one from the one before it. Greedy sampling gives exactly the answer.
void write_scripted_model(const std::filesystem::path& path, const ScriptedModel& script);

// A text in tokens of a few words, each different from the others.
std::vector<std::string> tokens_of(const std::string& text);

}  // namespace foresay::testing
