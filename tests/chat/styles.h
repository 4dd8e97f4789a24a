// tests/chat/styles.h: small templates in the styles of published ones (tests/chat/styles), and tokenizers with the
// special tokens that they need.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/text/tokenizer.h"
#include "tests/text/support.h"

namespace foresay::test {

struct Style {
    std::string name;
    std::vector<std::string> control;       // special tokens
    std::vector<std::string> user_defined;  // added ones, which tokenizers recognise in every text
    std::string bos, eos;
    std::string end;  // of an answer
};

inline const std::vector<Style>& styles() {
    static const std::vector<Style> all = {
        {"chatml",
         {"<|endoftext|>", "<|im_start|>", "<|im_end|>"},
         {"<think>", "</think>", "<tool_call>"},
         "",
         "<|endoftext|>",
         "<|im_end|>"},
        {"llama3",
         {"<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"},
         {},
         "<|begin_of_text|>",
         "<|end_of_text|>",
         "<|eot_id|>"},
        // Some files of Gemma call the marks of turns user-defined.
        {"gemma", {"<bos>", "<eos>"}, {"<start_of_turn>", "<end_of_turn>", "\n\n"}, "<bos>", "<eos>", "<end_of_turn>"},
        {"mistral", {"<s>", "</s>", "[INST]", "[/INST]"}, {}, "<s>", "</s>", "</s>"},
        {"phi",
         {"<|endoftext|>", "<|system|>", "<|user|>", "<|assistant|>", "<|end|>"},
         {},
         "",
         "<|endoftext|>",
         "<|end|>"},
        {"harmony",
         {"<|start|>", "<|end|>", "<|message|>", "<|channel|>", "<|constrain|>", "<|return|>", "<|call|>"},
         {},
         "",
         "<|return|>",
         "<|return|>"},
    };
    return all;
}

inline std::string style_source(const Style& style) {
    return core::read_file(core::source_path("tests/chat/styles/" + style.name + ".jinja"));
}

// Bytes, a few merges, and the tokens of the style.
inline core::TokenizerData style_data(const Style& style) {
    core::TokenizerData data =
        core::small_data({{"h", "e"}, {"l", "l"}, {"he", "ll"}, {"hell", "o"}, {" ", "a"}, {"\n", "\n"}});
    for (const std::string& text : style.control) {
        const std::int32_t id = core::add_token(data, text, core::TokenType::control);
        if (text == style.bos) data.special.bos = id;
        if (text == style.eos) data.special.eos = id;
    }
    for (const std::string& text : style.user_defined) core::add_token(data, text, core::TokenType::user_defined);
    data.set_chat_template("default", style_source(style));
    return data;
}

}  // namespace foresay::test
