// Tokenizers against the ids and texts that the libraries they were written for give: small ones with one part of
// tokenizer.json each, and the vectors of FORESAY_GOLDENS.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "core/text/stream_decoder.h"
#include "core/text/tokenizer_ranks.h"
#include "core/text/utf8.h"
#include "support.h"
#include "tests/support/goldens.h"

namespace foresay::core {
namespace {

using nlohmann::json;
using Ids = std::vector<std::int32_t>;

json parse_file(const std::string& path) { return json::parse(read_file(path)); }

std::string shown(const std::string& text) { return json(text).dump(-1, ' ', false, json::error_handler_t::replace); }

std::string streamed(const Tokenizer& tokenizer, const Ids& ids) {
    StreamDecoder decoder(tokenizer, true, true);
    std::string out;
    for (const std::int32_t id : ids) {
        const std::string_view part = decoder.push(id);
        EXPECT_TRUE(is_valid_utf8(part));
        out += part;
    }
    return out.append(decoder.flush());
}

TEST(Library, EveryPartOfTokenizerJson) {
    const json golden = parse_file(source_path("tests/golden/tokenizers/cases.json"));
    ASSERT_GT(golden["cases"].size(), 90u);
    for (const json& each : golden["cases"]) {
        SCOPED_TRACE(each["name"].get<std::string>());
        json document = each["parts"];
        document["model"] = golden["models"][each["model"].get<std::string>()];
        const Tokenizer tokenizer = Tokenizer::from_json(document.dump(), "t.json");
        for (std::size_t i = 0; i < golden["texts"].size(); ++i) {
            const std::string text = golden["texts"][i];
            const Ids expected = each["ids"][i].get<Ids>();
            EXPECT_EQ(tokenizer.encode(text), expected) << shown(text);
            const std::string whole = tokenizer.whole_text(expected, true);
            EXPECT_EQ(streamed(tokenizer, expected), to_valid_utf8(whole)) << shown(text);
            const std::string key = std::to_string(i);
            const std::string decoded = each["decoded"].contains(key) ? each["decoded"][key].get<std::string>() : text;
            // The library shows every byte of a broken character as U+FFFD; here they stay what they are.
            if (decoded.find(kReplacementCharacter) != std::string::npos) continue;
            EXPECT_EQ(shown(whole), shown(decoded)) << shown(text);
        }
    }
}

struct Vectors {
    const char* name;  // of the test
    const char* folder;
    const char* file;
};

class Families : public testing::TestWithParam<Vectors> {
protected:
    static std::string path(const std::string& name) {
        return (test::goldens_folder() / "families/tokenizers" / GetParam().folder / name).string();
    }

    // The first and last tokens of `ids` that frame every text are left out: the vectors have none.
    static Ids encode(const Tokenizer& tokenizer, const std::string& text, bool special) {
        const Ids frame = tokenizer.encode("", {.add_special = true, .parse_special = special});
        Ids ids = tokenizer.encode(text, {.add_special = true, .parse_special = special});
        EXPECT_GE(ids.size(), frame.size());
        EXPECT_LE(frame.size(), 1u);
        if (frame.empty()) return ids;
        if (tokenizer.adds_bos()) {
            ids.erase(ids.begin());
        } else {
            ids.pop_back();
        }
        return ids;
    }
};

TEST_P(Families, GiveTheIdsOfTheLibrary) {
    FORESAY_SKIP_WITHOUT_GOLDENS();
    const json golden = parse_file(path("vectors.json"));
    const std::string file = GetParam().file, text_of_file = read_file(path(file));
    const bool is_json = file.ends_with(".json") && file != "tekken.json";
    RankFileSettings settings;
    if (file.ends_with(".tiktoken")) settings.pattern = golden["pattern"];
    const Tokenizer tokenizer = is_json                       ? Tokenizer::from_json(text_of_file, file)
                                : file == "tekken.json"       ? Tokenizer::from_tekken(text_of_file, file)
                                : file.ends_with(".tiktoken") ? Tokenizer(parse_tiktoken(text_of_file, settings, file))
                                                              : Tokenizer::from_sentencepiece(text_of_file, file);
    const json notes = golden.contains("json") && golden["json"].contains(file) ? golden["json"][file] : json::object();
    const json differs = notes.value("differs", json::object()),
               decoded = notes.value("decoded_differs", json::object());
    ASSERT_GT(golden["ids"].size(), 150u);
    for (std::size_t i = 0; i < golden["ids"].size(); ++i) {
        const std::string text = golden["ids"][i][0], key = std::to_string(i);
        const Ids expected = (differs.contains(key) ? differs[key] : golden["ids"][i][1]).get<Ids>();
        EXPECT_EQ(encode(tokenizer, text, is_json), expected) << shown(text);
        EXPECT_EQ(streamed(tokenizer, expected), to_valid_utf8(tokenizer.whole_text(expected, true))) << shown(text);
        const bool has_text = !notes.empty() || file == "tekken.json" || file.ends_with(".tiktoken");
        if (!has_text) continue;
        EXPECT_EQ(shown(tokenizer.whole_text(expected, true)), shown(decoded.value(key, text))) << shown(text);
    }
}

INSTANTIATE_TEST_SUITE_P(Vectors, Families,
                         testing::Values(Vectors{"SentencePieceBpe", "spm-bpe", "tokenizer.model"},
                                         Vectors{"SentencePieceBpeAsMetaspace", "spm-bpe", "tokenizer.json"},
                                         Vectors{"SentencePieceBpeAsPrepend", "spm-bpe", "tokenizer-prepend.json"},
                                         Vectors{"SentencePieceUnigram", "spm-unigram", "tokenizer.model"},
                                         Vectors{"SentencePieceUnigramAsJson", "spm-unigram", "tokenizer.json"},
                                         Vectors{"Tekken", "tekken", "tekken.json"},
                                         Vectors{"Tiktoken", "tiktoken", "ranks.tiktoken"},
                                         Vectors{"TiktokenAsJson", "tiktoken", "tokenizer.json"},
                                         Vectors{"AddedTokens", "added", "tokenizer.json"}),
                         [](const auto& info) { return std::string(info.param.name); });

// Each tiny model comes with a tokenizer of its own.
TEST(FamilyFolders, AllTokenizersOpen) {
    FORESAY_SKIP_WITHOUT_GOLDENS();
    std::size_t opened = 0;
    for (const auto& folder : std::filesystem::directory_iterator(test::goldens_folder() / "families")) {
        if (!std::filesystem::exists(folder.path() / "tokenizer.json")) continue;
        const Tokenizer tokenizer = Tokenizer::from_directory(folder.path());
        EXPECT_EQ(tokenizer.decode(tokenizer.encode("def f(x): return 1  # \u00e9", kPlain)),
                  "def f(x): return 1  # \u00e9")
            << folder.path();
        ++opened;
    }
    EXPECT_GT(opened, 10u);
}

}  // namespace
}  // namespace foresay::core
