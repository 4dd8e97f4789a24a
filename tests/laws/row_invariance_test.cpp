// Law 1, a row is a row: the bits of a row's logits depend on its prefix only, whatever the width and the chunking of
// the forwards that computed them, and whatever was in the cache before.

#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <random>

#include "tests/kernels/kv_suffix.h"
#include "tests/laws/rows.h"
#include "tests/models/backends.h"
#include "tests/models/family_models.h"
#include "tests/support/format_folders.h"
#include "tests/support/goldens.h"

namespace foresay::test {
namespace {

void expect_same_bits(const Rows& expected, const Rows& found, const std::string& what) {
    ASSERT_EQ(expected.size(), found.size()) << what;
    for (std::size_t row = 0; row < expected.size(); ++row) {
        ASSERT_EQ(std::memcmp(expected[row].data(), found[row].data(), expected[row].size() * sizeof(float)), 0)
            << what << ", row " << row;
    }
}

constexpr std::string_view kFamily = "family ", kFile = "file ";

// Files below FORESAY_GOLDENS as the formats' own tools write them, which mix encodings from matrix to matrix: in GGUF
// those of rows that are multiples of 256 and of rows that are not, of attention and of experts.
std::vector<std::string> files() {
    std::vector<std::string> all = {"formats/mxfp4-gpt-oss", "families/qwen3_moe/qwen3_moe-MXFP4.gguf"};
    for (const std::string& folder : kFormatFolders) all.push_back("formats/" + folder);
    const auto add = [&](const std::string& family, std::initializer_list<const char*> types) {
        for (const std::string type : types) all.push_back("families/" + family + "/" + family + "-" + type + ".gguf");
    };
    add("llama", {"Q4_K_M", "Q5_0", "Q3_K_M", "Q2_K", "IQ4_XS", "IQ4_NL"});
    add("llama-192", {"Q4_K_M", "Q3_K_M", "IQ4_XS"});
    add("qwen3", {"Q4_K_M", "Q5_0", "Q3_K_M", "Q2_K", "IQ4_XS", "IQ4_NL"});
    return all;
}

struct Case {
    std::size_t backend;
    // A quantisation type, "target" and "draft" of the bundled pair, "family " and the name of a tiny random model, or
    // "file " and one of files().
    std::string model;
    kernels::KvFormat kv_format = kernels::KvFormat::f16;
};

std::string cache_suffix(const Case& c) {
    return c.kv_format == kernels::KvFormat::f16 ? "" : "_kv_" + cache_name(c.kv_format);
}

void PrintTo(const Case& c, std::ostream* out) {
    *out << backends()[c.backend].name << " " << c.model << cache_suffix(c);
}

class RowInvariance : public testing::TestWithParam<Case> {
protected:
    static constexpr std::size_t kTokens = 100;

    void SetUp() override {
        const Backend& backend = backends()[GetParam().backend];
        FORESAY_SKIP_WITHOUT_DEVICE(backend.name);
        const std::string& name = GetParam().model;
        if (name == "target" || name == "draft") {
            model_ = bundled(backend, name);
        } else if (name.starts_with(kFamily)) {
            const auto quant_type = backend.name == "reference" ? kernels::QuantType::f32 : kernels::QuantType::q8_0;
            model_ = random_model(config_of(family_json(name.substr(kFamily.size()))), quant_type, quant_type,
                                  backend.ops());
        } else if (name.starts_with(kFile)) {
            FORESAY_SKIP_WITHOUT_GOLDENS();
            model_ = core::Model::load(core::ModelSource::open(goldens_folder() / name.substr(kFile.size())),
                                       backend.ops(), {.context = 256});
        } else {
            const bool qwen = name.ends_with("+bias");
            const kernels::QuantType quant_type = core::quant_type_by_name(name.substr(0, name.find('+')));
            model_ =
                random_model(small_config(qwen, qwen), quant_type, core::head_quant_type(quant_type), backend.ops());
        }
        tokens_ = random_tokens(kTokens, model_->config().shape.vocab, 11);
    }

    core::Context context(std::int32_t sequences = 1) const {
        return core::Context(model_, {.length = 256,
                                      .prefill_rows = 64,
                                      .decode_rows = 64,
                                      .sequences = sequences,
                                      .kv_format = GetParam().kv_format});
    }
    Rows evaluate(kernels::RowClass row_class, const std::vector<std::size_t>& widths) const {
        core::Context c = context();
        Rows rows;
        feed(c, row_class, tokens_, widths, rows);
        return rows;
    }

    std::shared_ptr<const core::Model> model_;
    std::vector<std::int32_t> tokens_;
};

// Under FORESAY_LAWS=all, and on a device, every width to 17; elsewhere those around the kernels' tiles. The reference
// is slow, and computes rows one by one: fewer.
std::vector<std::size_t> widths_on(const std::string& backend) {
    const char* laws = std::getenv("FORESAY_LAWS");
    const bool reference = backend == "reference";
    if (backend != "cuda" && (laws == nullptr || std::string(laws) != "all")) {
        if (reference) return {2, 9, 28, 64};
        return {2, 3, 4, 5, 8, 9, 16, 17, 33, 63, 64};
    }
    std::vector<std::size_t> widths;
    for (std::size_t width = 2; width <= 64; width = width < 18 && !reference ? width + 1 : width * 3 / 2) {
        widths.push_back(width);
    }
    widths.push_back(63);
    widths.push_back(64);
    return widths;
}

TEST_P(RowInvariance, EveryWidthAndChunking) {
    for (const kernels::RowClass row_class : {kernels::RowClass::decode, kernels::RowClass::prefill}) {
        const Rows expected = evaluate(row_class, {1});
        for (const auto& row : expected) {
            for (const float logit : row) ASSERT_TRUE(std::isfinite(logit));
        }
        for (const std::size_t width : widths_on(backends()[GetParam().backend].name)) {
            expect_same_bits(expected, evaluate(row_class, {width}), "width " + std::to_string(width));
        }
        expect_same_bits(expected, evaluate(row_class, {7, 1, 30, 2, 5, 1, 1, 64}), "mixed widths");
        expect_same_bits(expected, evaluate(row_class, {33, 31, 1, 3}), "mixed widths");
    }
}

// On a host both classes are the same arithmetic.
TEST_P(RowInvariance, PrefillAndDecodeRowsAreEqualOnTheHost) {
    if (backends()[GetParam().backend].name == "cuda") GTEST_SKIP() << "a device computes the two classes differently";
    expect_same_bits(evaluate(kernels::RowClass::decode, {1}), evaluate(kernels::RowClass::prefill, {64}), "classes");
}

TEST_P(RowInvariance, TruncateAndAppendEqualsFresh) {
    const Rows expected = evaluate(kernels::RowClass::decode, {1});
    core::Context c = context();
    const std::vector<std::int32_t> wrong = random_tokens(80, model_->config().shape.vocab, 12);
    std::mt19937 random(13);
    Rows found;
    std::size_t done = 0;
    // Rounds of speculation: a draft of which a random part is right, then truncation to that part.
    while (done < kTokens) {
        const std::size_t right = std::min<std::size_t>(1 + random() % 6, kTokens - done);
        const std::size_t rejected = random() % 8;
        std::vector<std::int32_t> drafted(tokens_.begin() + static_cast<std::ptrdiff_t>(done),
                                          tokens_.begin() + static_cast<std::ptrdiff_t>(done + right));
        drafted.insert(drafted.end(), wrong.begin(), wrong.begin() + static_cast<std::ptrdiff_t>(rejected));
        Rows rows;
        feed(c, kernels::RowClass::decode, drafted, {64}, rows);
        rows.resize(right);
        found.insert(found.end(), rows.begin(), rows.end());
        done += right;
        c.truncate(static_cast<std::int32_t>(done));
    }
    expect_same_bits(expected, found, "after rejected drafts");
    c.truncate(0);
    Rows again;
    feed(c, kernels::RowClass::decode, tokens_, {64}, again);
    expect_same_bits(expected, again, "after truncation to nothing");
}

TEST_P(RowInvariance, ForkEqualsCopy) {
    core::Context c = context(2);
    Rows prefix;
    const std::size_t shared = 70;
    feed(c, kernels::RowClass::decode, std::span(tokens_).first(shared), {64}, prefix);
    const core::SequenceId copy = c.fork(0);
    ASSERT_GE(copy, 0);
    // The original continues with other tokens first; the copy must not change.
    Rows astray;
    feed(c, kernels::RowClass::decode, random_tokens(40, model_->config().shape.vocab, 14), {5}, astray, 0);
    Rows found = prefix;
    feed(c, kernels::RowClass::decode, std::span(tokens_).subspan(shared), {3}, found, copy);
    expect_same_bits(evaluate(kernels::RowClass::decode, {1}), found, "fork");
    // The original, truncated to the fork, continues as if nothing had happened.
    c.truncate(static_cast<std::int32_t>(shared), 0);
    Rows back = prefix;
    feed(c, kernels::RowClass::decode, std::span(tokens_).subspan(shared), {9}, back, 0);
    expect_same_bits(found, back, "original after the fork");
}

std::vector<Case> cases() {
    std::vector<Case> all;
    for (std::size_t backend = 0; backend < backends().size(); ++backend) {
        for (const char* model : {"f32", "f16", "bf16", "q4_0", "q8_0", "q4_k", "q5_k", "q6_k", "mxfp4", "q8_0+bias"}) {
            all.push_back({backend, model});
        }
        all.push_back({backend, "f32", kernels::KvFormat::q8});
        all.push_back({backend, "q8_0+bias", kernels::KvFormat::q8});
        all.push_back({backend, "q8_0+bias", kLowBits});
        all.push_back(
            {backend, std::string(kFamily) + "gemma4-e", kernels::kv_format(kernels::KvType::q4, kernels::KvType::q8)});
        for (const std::string& family : family_names()) {
            // The reference is slow, and computes rows one by one: some families with everything in them will do.
            const bool rich = family == "gpt_oss" || family == "gemma4-e" || family == "glm4_moe";
            if (backend == 0 && !rich) continue;
            const bool cuda = backends()[backend].name == "cuda";
            all.push_back({backend, std::string(kFamily) + family});
            // On a device the formats of the cache take different paths.
            if (cuda) all.push_back({backend, std::string(kFamily) + family, kernels::KvFormat::q8});
            if (cuda) all.push_back({backend, std::string(kFamily) + family, kLowBits});
        }
        if (backend == 0) continue;
        for (const std::string& file : files()) all.push_back({backend, std::string(kFile) + file});
        all.push_back({backend, "target", kernels::KvFormat::q8});
        all.push_back({backend, "target", kLowBits});
        all.push_back({backend, "target"});
        all.push_back({backend, "draft"});
    }
    return all;
}

INSTANTIATE_TEST_SUITE_P(Models, RowInvariance, testing::ValuesIn(cases()), [](const auto& info) {
    std::string name = backends()[info.param.backend].name + "_" + info.param.model + cache_suffix(info.param);
    for (char& c : name) {
        if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
    }
    return name;
});

}  // namespace
}  // namespace foresay::test
