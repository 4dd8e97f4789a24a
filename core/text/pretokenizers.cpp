#include "core/text/pretokenizers.h"

#include <algorithm>
#include <iterator>
#include <unordered_set>

#include "base/error.h"

namespace foresay::core {
namespace {

// Expressions that the file formats' documentation gives are copied unchanged.

constexpr std::string_view kGpt2 = R"re('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)re";

constexpr std::string_view kLlama3 =
    R"re((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*)re"
    R"re(|\s*[\r\n]+|\s+(?!\S)|\s+)re";

constexpr std::string_view kQwen2 =
    R"re((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*)re"
    R"re(|\s*[\r\n]+|\s+(?!\S)|\s+)re";

constexpr std::string_view kQwen35 =
    R"re((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*)re"
    R"re(|\s*[\r\n]+|\s+(?!\S)|\s+)re";

constexpr std::string_view kMinicpm5 =
    R"re((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}+| ?[^\s\p{L}\p{N}]+[\r\n]*)re"
    R"re(|\s*[\r\n]+|\s+(?!\S)|\s+)re";

constexpr std::string_view kJais2 =
    R"re((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+)re"
    R"re(|\s{512}(?!\S)|\s{256}(?!\S)|\s{128}(?!\S)|\s{64}(?!\S)|\s{32}(?!\S)|\s{16}(?!\S)|\s{8}(?!\S)|\s{4}(?!\S))re"
    R"re(|\s{1,2}(?!\S)|\s{1})re";

constexpr std::string_view kSeedCoder =
    R"re((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+)re"
    R"re(|\s*[\r\n]+|\s+(?!\S)|\s+)re";

constexpr std::string_view kBailing =
    R"re('(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*)re"
    R"re(|\s*[\r\n]|\s+(?!\S)|\s+)re";

// The word part is written without its nested repetition, (?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+, which matches the same.
constexpr std::string_view kExaoneMoe =
    R"re((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}[\p{L}\p{M}]*+(?: \p{L}[\p{L}\p{M}]*+)*+|\p{N})re"
    R"re(| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+)re";

constexpr std::string_view kTekken =
    R"re([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)re"
    R"re(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*)re"
    R"re(|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)re";

constexpr std::string_view kGpt4o =
    R"re([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?)re"
    R"re(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?)re"
    R"re(|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)re";

constexpr std::string_view kYoutu =
    R"re([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?)re"
    R"re(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?)re"
    R"re(|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)re";

// Class intersections with [^\p{Han}] are written as complements: PCRE has no intersection.
constexpr std::string_view kKimiK2 = R"re(\p{Han}+)re"
                                     R"re(|[^\r\n\p{L}\p{N}]?[^\p{Han}\p{Ll}\p{N}\p{P}\p{S}\p{Z}\p{C}]*)re"
                                     R"re([^\p{Han}\p{Lu}\p{Lt}\p{N}\p{P}\p{S}\p{Z}\p{C}]+)re"
                                     R"re((?i:'s|'t|'re|'ve|'m|'ll|'d)?)re"
                                     R"re(|[^\r\n\p{L}\p{N}]?[^\p{Han}\p{Ll}\p{N}\p{P}\p{S}\p{Z}\p{C}]+)re"
                                     R"re([^\p{Han}\p{Lu}\p{Lt}\p{N}\p{P}\p{S}\p{Z}\p{C}]*)re"
                                     R"re((?i:'s|'t|'re|'ve|'m|'ll|'d)?)re"
                                     R"re(|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)re";

constexpr std::string_view kDeepseek3Words =
    R"re([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*)re"
    R"re(|\s*[\r\n]+|\s+(?!\S)|\s+)re";

constexpr std::string_view kDeepseekLetters =
    R"re(\s?[A-Za-z\x{b5}\x{c0}-\x{d6}\x{d8}-\x{f6}\x{f8}-\x{1ba}\x{1bc}-\x{1bf}\x{1c4}-\x{293}\x{295}-)re"
    R"re(\x{2af}\x{370}-\x{373}\x{376}\x{377}\x{37b}-\x{37d}\x{37f}\x{386}\x{388}-\x{38a}\x{38c}\x{38e}-)re"
    R"re(\x{3a1}\x{3a3}-\x{3f5}\x{3f7}-\x{481}\x{48a}-\x{52f}\x{531}-\x{556}\x{10a0}-\x{10c5}\x{13a0}-)re"
    R"re(\x{13f5}\x{13f8}-\x{13fd}\x{1c90}-\x{1cba}\x{1cbd}-\x{1cbf}\x{1d00}-\x{1d2b}\x{1d6b}-\x{1d77})re"
    R"re(\x{1d79}-\x{1d9a}\x{1e00}-\x{1f15}\x{1f18}-\x{1f1d}\x{1f20}-\x{1f45}\x{1f48}-\x{1f4d}\x{1f50}-)re"
    R"re(\x{1f57}\x{1f59}\x{1f5b}\x{1f5d}\x{1f5f}-\x{1f7d}\x{1f80}-\x{1fb4}\x{1fb6}-\x{1fbc}\x{1fbe})re"
    R"re(\x{1fc2}-\x{1fc4}\x{1fc6}-\x{1fcc}\x{1fd0}-\x{1fd3}\x{1fd6}-\x{1fdb}\x{1fe0}-\x{1fec}\x{1ff2}-)re"
    R"re(\x{1ff4}\x{1ff6}-\x{1ffc}\x{2102}\x{2107}\x{210a}-\x{2113}\x{2115}\x{2119}-\x{211d}\x{2124})re"
    R"re(\x{2126}\x{2128}\x{212a}-\x{212d}\x{212f}-\x{2134}\x{2139}\x{213c}-\x{213f}\x{2145}-\x{2149})re"
    R"re(\x{214e}\x{2183}\x{2184}\x{2c00}-\x{2c7b}\x{2c7e}-\x{2ce4}\x{2ceb}-\x{2cee}\x{2cf2}\x{2cf3})re"
    R"re(\x{a640}-\x{a66d}\x{a680}-\x{a69b}\x{a722}-\x{a76f}\x{a771}-\x{a787}\x{a78b}-\x{a78e}\x{ab70}-)re"
    R"re(\x{abbf}\x{fb00}-\x{fb06}\x{fb13}-\x{fb17}\x{ff21}-\x{ff3a}\x{ff41}-\x{ff5a}\x{10400}-\x{1044f})re"
    R"re(\x{104b0}-\x{104d3}\x{104d8}-\x{104fb}\x{10c80}-\x{10cb2}\x{10cc0}-\x{10cf2}\x{118a0}-\x{118df})re"
    R"re(\x{1e900}-\x{1e943}]+)re";

constexpr std::string_view kDeepseekPunctuation =
    R"re(\s?[!-/:-~\x{ff01}-\x{ff0f}\x{ff1a}-\x{ff5e}\x{2018}-\x{201f}\x{3000}-\x{3002}]+)re";

constexpr std::string_view kCjk = R"re([\x{4e00}-\x{9fa5}\x{800}-\x{4e00}\x{ac00}-\x{d7ff}]+)re";

constexpr std::string_view kCjkKana = R"re([\x{4e00}-\x{9fa5}\x{3040}-\x{309f}\x{30a0}-\x{30ff}]+)re";

constexpr std::string_view kYoutuCjk =
    R"re([\x{ac00}-\x{d7a3}\x{3131}-\x{318e}]+|[\x{ff01}\x{2026}\x{201c}\x{201d}\x{2018}\x{2019}\x{2014})re"
    R"re(\x{ff1a}\x{ff1b}\x{ff0c}\x{3001}-\x{303f}\x{fe30}-\x{fe4f}]+|[\x{3105}-\x{312f}]+|[\x{4e00}-)re"
    R"re(\x{9fa5}\x{3040}-\x{309f}\x{30a0}-\x{30ff}]+)re";

constexpr std::string_view kAfmoeScripts =
    R"re([\x{4e00}-\x{9fff}\x{3400}-\x{4dbf}\x{8c48}-\x{faff}\x{3040}-\x{309f}\x{30a0}-\x{30ff}\x{ff65}-)re"
    R"re(\x{ff9f}\x{2f00}-\x{2fdf}\x{e40}-\x{e7f}\x{e80}-\x{eff}\x{1780}-\x{17ff}\x{1000}-\x{109f})re"
    R"re(\x{aa60}-\x{aa7f}\x{a9e0}-\x{a9ff}\x{ac00}-\x{d7af}\x{1100}-\x{11ff}]+)re";

constexpr std::string_view kBloomWords = R"re( ?[^(\s|.,!?\x{2026}\x{3002}\x{ff0c}\x{3001}\x{964}\x{6d4}\x{60c})]+)re";
constexpr std::string_view kDigitTriple = R"re([0-9][0-9][0-9])re";
constexpr std::string_view kLines = R"re([^\n]+|[\n]+)re";
constexpr std::string_view kNewline = R"re([\r\n])re";
constexpr std::string_view kNumber = R"re(\p{N})re";
constexpr std::string_view kNumbers = R"re(\p{N}+)re";
constexpr std::string_view kNumbersUpTo3 = R"re(\p{N}{1,3})re";

// Slow expressions, which look ahead to the end of a number from each of its digits, and fast ones that replace them:
// digits in groups of three from the right; the first kind only where the number does not touch a letter.
constexpr std::string_view kSlowThousands = R"re(\d{1,3}(?=(?:\d{3})*\b))re";
constexpr std::string_view kSlowThousandsCuts = R"re((?=(\d{3})+(?!\d)))re";
constexpr std::string_view kThousands = R"re(\p{Nd}++(?:(?=[\p{L}\p{M}\p{N}\p{Pc}])(*SKIP)(*F))?+)re";
constexpr std::string_view kThousandsCuts = R"re(\p{Nd}++)re";

struct Recipe {
    std::vector<std::string_view> names;
    std::vector<SplitStep> steps;
    bool ignore_merges = false;
    bool add_bos = false;
    bool literal = false;
};

SplitStep step(std::string_view regex, SplitStep::Match match = SplitStep::Match::piece) {
    SplitStep made;
    made.regex = regex;
    made.match = match;
    return made;
}

// As published files write what the table writes otherwise: tiktoken's, and single steps of tokenizer.json.
constexpr std::string_view kVariants[] = {
    // cl100k, in two versions of tiktoken
    R"re('(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$)re"
    R"re(|\s*[\r\n]|\s+(?!\S)|\s)re",
    R"re('(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*)re"
    R"re(|\s*[\r\n]|\s+(?!\S)|\s+)re",
    // r50k
    R"re('(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s)re",
    R"re(\p{N})re",
    R"re(\p{N}+)re",
    R"re([\p{P}!-/:-@\[-`{-~])re",
    R"re([\p{P}!-/:-@\[-`{-~]+)re",
    R"re(\s+)re",
};

const std::vector<Recipe>& recipes() {
    using Match = SplitStep::Match;
    static const std::vector<Recipe> all = {
        {{"default"}, {step(R"re([\p{P}\$\+<=>\^~\|]+)re"), step(kGpt2), step(kNumbers), step(kDigitTriple)}},
        {{"gpt-2", "phi-2", "jina-es", "jina-de", "jina-v1-en", "jina-v2-es", "jina-v2-de", "jina-v2-code",
          "roberta-bpe", "gigachat", "a.x-4.0", "mellum", "modern-bert", "mpt", "olmo", "jais", "exaone4", "trillion",
          "granite-docling"},
         {step(kGpt2)}},
        {{"llama3", "llama-v3", "llama-bpe", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2", "jina-v5-nano"},
         {step(kLlama3)},
         true,
         true},
        {{"dbrx", "smaug-bpe", "glm4", "chatglm-bpe"}, {step(kLlama3)}},
        {{"minicpm5"}, {step(kNumbersUpTo3), step(kMinicpm5)}, true},
        {{"jais-2"}, {step(kJais2)}},
        {{"qwen2", "deepseek-r1-qwen", "kormo", "f2llmv2", "stablelm2", "megrez", "hunyuan", "solar-open", "grok-2"},
         {step(kQwen2)}},
        {{"qwen35"}, {step(kQwen35)}},
        {{"laguna"}, {step(kLines), step(kQwen2)}},
        {{"seed-coder"}, {step(kSeedCoder)}},
        {{"bailingmoe", "bailingmoe2", "llada-moe"}, {step(kBailing)}},
        {{"exaone-moe"}, {step(kExaoneMoe)}},
        {{"tekken"}, {step(kTekken)}, true, true},
        {{"gpt-4o", "llama4", "kanana2", "talkie", "minimax-m2"}, {step(kGpt4o)}},
        {{"granite-embed-multi-97m"}, {step(kGpt4o)}, true},
        {{"tiny_aya", "cohere2moe"}, {step(kThousands, Match::thousands), step(kGpt4o)}},
        {{"youtu"}, {step(kYoutuCjk), step(kYoutu)}, true},
        {{"kimi-k2"}, {step(kKimiK2)}},
        {{"deepseek-llm"},
         {step(kNewline), step(kDeepseekLetters), step(kDeepseekPunctuation), step(R"re(\s+$)re"), step(kCjk),
          step(kNumbers)}},
        {{"deepseek-coder"},
         {step(kNewline), step(R"re(\s?\p{L}+)re"), step(R"re(\s?\p{P}+)re"), step(kCjk), step(kNumber)}},
        {{"deepseek-v3", "hunyuan-dense", "joyai-llm"}, {step(kNumbersUpTo3), step(kCjkKana), step(kDeepseek3Words)}},
        {{"afmoe"}, {step(kNumbers, Match::thousands), step(kAfmoeScripts), step(kDeepseek3Words)}},
        {{"falcon"}, {step(R"re([\p{P}\$\+<=>\^~\|`]+)re"), step(kGpt2), step(kDigitTriple)}},
        {{"starcoder", "refact", "command-r", "smollm", "codeshell", "exaone", "minerva-7b", "mellum2"},
         {step(kNumber), step(kGpt2)}},
        {{"poro-chat", "bloom", "gpt3-finnish"}, {step(kBloomWords)}},
        {{"viking"}, {step(kBloomWords), step(kNumber)}},
        {{"superbpe"}, {step(kNumbers), step(kThousandsCuts, Match::cuts_only)}},
        {{"chameleon"},
         {step(R"re(<sentinel:[0-9]+>)re"), step(R"re((IMGIMG)((A|B|C|D|E|F|G|H|I){1,4})Z)re"),
          step(R"re(([\t\n]|    |  ))re"), step(kNumber), step(R"re([\p{P}!-/:-@\[-`{-~])re"), step(kGpt2)},
         false,
         true},
        {{"gemma4"}, {step(kLines)}, false, true, true},
    };
    return all;
}

}  // namespace

NamedPretokenizer named_pretokenizer(std::string_view name, const std::string& source) {
    for (const Recipe& recipe : recipes())
        if (std::find(recipe.names.begin(), recipe.names.end(), name) != recipe.names.end())
            return {{std::string(name), recipe.steps}, recipe.ignore_merges, recipe.add_bos, recipe.literal};
    std::string known;
    for (std::string_view other : pretokenizer_names()) known.append(known.empty() ? "" : ", ").append(other);
    throw Error(source + ": unknown pre-tokenizer '" + std::string(name.substr(0, 64)) +
                "' in tokenizer.ggml.pre; convert the model again with one of the pre-tokenizers that are " +
                "known (" + known + "), or use the model's tokenizer.json");
}

std::vector<std::string_view> pretokenizer_names() {
    std::vector<std::string_view> names;
    for (const Recipe& recipe : recipes()) names.insert(names.end(), recipe.names.begin(), recipe.names.end());
    std::sort(names.begin(), names.end());
    return names;
}

SplitStep split_step(std::string_view regex) {
    if (regex == kSlowThousands) return step(kThousands, SplitStep::Match::thousands);
    if (regex == kSlowThousandsCuts) return step(kThousandsCuts, SplitStep::Match::cuts_only);
    return step(regex);
}

RegexTrust trust_of(std::string_view regex) {
    static const std::unordered_set<std::string_view> known = [] {
        std::unordered_set<std::string_view> all(std::begin(kVariants), std::end(kVariants));
        for (const Recipe& recipe : recipes())
            for (const SplitStep& part : recipe.steps) all.insert(part.regex);
        return all;
    }();
    return known.contains(regex) ? RegexTrust::trusted : RegexTrust::bounded;
}

std::string_view gpt2_regex() { return kGpt2; }

}  // namespace foresay::core
