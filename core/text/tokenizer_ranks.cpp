#include "core/text/tokenizer_ranks.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "core/text/base64.h"
#include "core/text/byte_alphabet.h"
#include "core/text/rank_vocabulary.h"

namespace foresay::core {
namespace {

constexpr std::size_t kMaxRankFileBytes = std::size_t{64} << 20;

// Rank files do not say how to cut a text. These are recognised by their number of ranks.
struct KnownRankFile {
    std::size_t ranks;
    std::string_view pretokenizer;          // of pretokenizers.h
    std::vector<std::string_view> special;  // from the first id after the ranks
    std::string_view bos, eos;
};

const std::vector<KnownRankFile>& known_rank_files() {
    static const std::vector<KnownRankFile> all = {
        {128000,
         "llama3",
         {"<|begin_of_text|>", "<|end_of_text|>", "<|reserved_special_token_0|>", "<|reserved_special_token_1|>",
          "<|finetune_right_pad_id|>", "<|step_id|>", "<|start_header_id|>", "<|end_header_id|>", "<|eom_id|>",
          "<|eot_id|>", "<|python_tag|>"},
         "<|begin_of_text|>",
         "<|end_of_text|>"},
        {151643, "deepseek-r1-qwen", {"<|endoftext|>", "<|im_start|>", "<|im_end|>"}, "", "<|endoftext|>"},
        {151329,
         "glm4",
         {"<|endoftext|>", "[MASK]", "[gMASK]", "[sMASK]", "<sop>", "<eop>", "<|system|>", "<|user|>", "<|assistant|>",
          "<|observation|>", "<|begin_of_image|>", "<|end_of_image|>", "<|begin_of_video|>", "<|end_of_video|>"},
         "",
         "<|endoftext|>"},
        {163584, "kimi-k2", {"[BOS]", "[EOS]", "<|im_end|>", "<|im_user|>", "<|im_assistant|>"}, "", "[EOS]"},
        {199998, "gpt-4o", {"", "<|endoftext|>"}, "", "<|endoftext|>"},
    };
    return all;
}

[[noreturn]] void refuse(const std::string& path, const std::string& what) {
    throw Error(path + ": " + what + "; get the model's rank file again");
}

struct Line {
    std::string bytes;
    std::int32_t rank;
};

// One line, "base64 rank"; nullopt when it is not.
std::optional<Line> parse_line(std::string_view line) {
    const std::size_t space = line.find(' ');
    if (space == std::string_view::npos || space == 0) return std::nullopt;
    const std::string_view number = line.substr(space + 1);
    Line out;
    const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), out.rank);
    if (error != std::errc() || end != number.data() + number.size() || out.rank < 0) return std::nullopt;
    auto bytes = from_base64(line.substr(0, space));
    if (!bytes || bytes->empty()) return std::nullopt;
    out.bytes = *std::move(bytes);
    return out;
}

std::string_view take_line(std::string_view& text) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    return line;
}

}  // namespace

bool is_tiktoken(std::string_view text) { return parse_line(take_line(text)).has_value(); }

bool is_tekken(std::string_view text) {
    return text.starts_with('{') && text.substr(0, 1 << 16).find("\"default_num_special_tokens\"") != text.npos;
}

TokenizerData parse_tiktoken(std::string_view ranks, const RankFileSettings& settings, std::string path) {
    if (ranks.size() > kMaxRankFileBytes) refuse(path, "it is larger than 64 MiB");
    RankVocabulary vocabulary(std::move(path), "rank file");
    std::size_t number = 0;
    while (!ranks.empty()) {
        const std::string_view text = take_line(ranks);
        ++number;
        if (text.empty()) continue;
        const std::optional<Line> line = parse_line(text);
        if (!line) refuse(vocabulary.source(), "line " + std::to_string(number) + " is not base64, a space and a rank");
        vocabulary.add(line->bytes, line->rank, line->rank);
    }
    const std::size_t count = vocabulary.size();
    const auto& all = known_rank_files();
    const auto known = std::find_if(all.begin(), all.end(), [&](const auto& each) { return each.ranks == count; });
    if (settings.pattern.empty() && known == all.end())
        throw Error(
            vocabulary.source() + ": it has " + std::to_string(count) +
            " ranks, which is no known tokenizer, and nothing says how to cut the text; put the expression into " +
            "'pattern' of the tokenizer_config.json beside it, or use the model's tokenizer.json");
    for (const RankFileSettings::Special& special : settings.special) vocabulary.add_special(special.id, special.text);
    if (settings.special.empty() && known != all.end())
        for (std::size_t i = 0; i < known->special.size(); ++i)
            vocabulary.add_special(static_cast<std::int32_t>(count + i), known->special[i]);
    Pretokenizer pretokenizer;
    if (settings.pattern.empty()) {
        pretokenizer = named_pretokenizer(known->pretokenizer, vocabulary.source()).pretokenizer;
    } else {
        pretokenizer.steps = {split_step(settings.pattern)};
    }
    pretokenizer.name = "tiktoken";
    for (SplitStep& step : pretokenizer.steps) step.anchors = RegexAnchors::text;
    TokenizerData data = vocabulary.finish(std::move(pretokenizer));
    if (known == all.end()) return data;
    const auto find = [&](std::string_view text) {
        const auto at = std::find(data.tokens.begin(), data.tokens.end(), text);
        return text.empty() || at == data.tokens.end() ? -1 : static_cast<std::int32_t>(at - data.tokens.begin());
    };
    data.special.bos = find(known->bos);
    data.special.eos = find(known->eos);
    if (data.special.bos >= 0) data.prefix = {data.special.bos};
    return data;
}

}  // namespace foresay::core
