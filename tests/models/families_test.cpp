// Tiny models of every family against the logits and greedy tokens that Hugging Face transformers computed from the
// same numbers in float32: from folders in both dialects of config.json, and from GGUF files.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "base/error.h"
#include "kernels/cpu/isa_select.h"
#include "tests/models/backends.h"
#include "tests/models/checked_ops.h"
#include "tests/support/format_folders.h"
#include "tests/support/goldens.h"
#include "tests/weights/folder_image.h"
#include "tests/weights/temporary_directory.h"

namespace foresay::test {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

// A file or folder below FORESAY_GOLDENS, and the golden beside it.
struct Golden {
    std::string folder;  // "families/qwen3"
    std::string model;   // "config.json", "config.published.json", or a GGUF file
    std::string golden = "golden.json";
    std::int32_t context = 0;  // that the model is loaded for; 0: all that it supports
    bool quantised = false;    // int8 inputs meet its weights on the CPU
    bool decoded = false;      // the weights are dequantised to float32 first
    // Where two experts nearly tie, rounding before the router changes the choice, and everything after it: this one of
    // the golden's positions is not compared on backends that round. No op of gpt_oss with decoded weights differs from
    // the reference by more than 1 % at any position.
    std::int32_t near_tie = -1;
    double greedy_tolerance = 0.0;  // of backends that round, as a share of the range; 0: as for the logits
};

void PrintTo(const Golden& g, std::ostream* out) { *out << g.folder << " " << g.model; }

std::vector<Golden> goldens() {
    std::vector<Golden> all;
    for (const char* tiny :
         {"llama2", "llama3", "qwen2", "qwen3", "qwen3moe", "mistral", "mixtral", "gemma2", "gemma3", "phi3"}) {
        all.push_back({std::string("tiny/") + tiny, "config.json"});
    }
    for (const char* family :
         {"llama",      "qwen3",        "qwen3_moe", "gemma2",   "gemma3",  "gemma4-e",   "gemma4-moe",
          "gpt_oss",    "gpt_oss-bf16", "phi3",      "mistral3", "glm4",    "glm4_moe",   "granite",
          "granitemoe", "smollm3",      "mixtral",   "olmo2",    "cohere2", "starcoder2", "seed_oss"}) {
        const std::string folder = std::string("families/") + family;
        for (const char* config : {"config.json", "config.published.json"}) {
            if (folder != "families/gpt_oss") all.push_back({.folder = folder, .model = config});
            // Row 68 has a near tie, which later rows see through keys and values.
            if (folder == "families/gpt_oss-bf16") all.back().greedy_tolerance = 0.05;
        }
    }
    for (const char* config : {"config.json", "config.published.json"}) {
        all.push_back({.folder = "families/phi3", .model = config, .golden = "golden-short.json", .context = 200});
    }
    all.push_back(
        {.folder = "families/phi3", .model = "phi3-BF16.gguf", .golden = "golden-short.json", .context = 256});
    for (const char* family : {"gemma3", "phi3", "glm4", "granite"}) {
        all.push_back({.folder = std::string("families/") + family, .model = std::string(family) + "-BF16.gguf"});
    }
    for (const char* file : {"config.json", "config.published.json", "gpt_oss-BF16.gguf"}) {
        const Golden gpt_oss{.folder = "families/gpt_oss", .model = file};
        all.push_back(gpt_oss);
        all.back().decoded = true;
        all.push_back(gpt_oss);
        all.back().quantised = true;
        all.back().near_tie = 40;
        all.back().greedy_tolerance = 0.12;
    }
    all.push_back({.folder = "families/llama-128", .model = "llama-128-F32.gguf"});
    // As llama-quantize writes them: it mixes types, and narrow rows get others than the name says.
    const auto add_types = [&](const std::string& family, std::initializer_list<const char*> types) {
        for (const std::string type : types) {
            const std::string name = family + "-" + type;
            all.push_back({"families/" + family, name + ".gguf", name + ".golden.json", 0, true});
        }
    };
    add_types("llama", {"Q4_K_M", "Q5_0", "Q3_K_M", "Q2_K", "IQ4_XS", "IQ4_NL"});
    add_types("llama-192", {"Q4_K_M", "Q3_K_M", "IQ4_XS"});
    add_types("qwen3", {"Q4_K_M", "Q5_0", "Q3_K_M", "Q2_K", "IQ4_XS", "IQ4_NL"});
    add_types("qwen3_moe", {"MXFP4"});
    // As the tools of quantised safetensors publish them. The draft's golden has no whole logits.
    for (const std::string& folder : kFormatFolders) {
        if (folder == "exl2-draft-4.0") continue;
        all.push_back({.folder = "formats/" + folder, .model = "config.json", .quantised = true});
    }
    all.push_back({.folder = "formats/mxfp4-gpt-oss", .model = "config.json", .quantised = true});
    return all;
}

// The model's path: the GGUF file, or a folder whose config.json is the wanted one.
class OpenedGolden {
public:
    explicit OpenedGolden(const Golden& golden) {
        const fs::path from = goldens_folder() / golden.folder;
        path_ = from / golden.model;
        if (golden.model.ends_with(".gguf")) return;
        path_ = from;
        if (golden.model == "config.json") return;
        made_ = path_ = fs::path(testing::TempDir()) /
                        ("foresay_golden_" + std::to_string(::getpid()) + "_" + from.filename().string());
        fs::create_directories(made_);
        fs::copy(from / golden.model, made_ / "config.json", fs::copy_options::overwrite_existing);
        fs::create_symlink(from / "model.safetensors", made_ / "model.safetensors");
    }
    ~OpenedGolden() {
        if (!made_.empty()) fs::remove_all(made_);
    }
    const fs::path& path() const { return path_; }

private:
    fs::path path_, made_;
};

std::int32_t argmax(std::span<const float> logits) {
    return static_cast<std::int32_t>(std::ranges::max_element(logits) - logits.begin());
}

// What a backend may differ by, as a share of the range of the logits. Sums of the reference are in double precision;
// the golden is float32 and has five decimals. The CPU keeps K and V in float16, and 8-bit inputs meet quantised
// weights.
double tolerance(const Backend& backend, const Golden& golden) {
    if (backend.name == "reference") return 2e-5;
    return golden.quantised ? 0.04 : backend.range_tolerance;
}

class Families : public testing::TestWithParam<std::tuple<std::size_t, Golden>> {
protected:
    void SetUp() override {
        FORESAY_SKIP_WITHOUT_GOLDENS();
        FORESAY_SKIP_WITHOUT_DEVICE(backends()[std::get<0>(GetParam())].name);
    }
};

// `ops`: the backend's own, or other ones that must agree as well as those. `name`: for the line that is printed.
void expect_golden(const Backend& backend, kernels::Ops& ops, const std::string& name, const Golden& golden) {
    std::ifstream file(goldens_folder() / golden.folder / golden.golden);
    ASSERT_TRUE(file) << golden.folder;
    const json expected = json::parse(file);
    const OpenedGolden opened(golden);
    auto source = core::ModelSource::open(opened.path());
    if (golden.decoded) source = core::ModelSource::decoded(std::move(source));
    const auto model = core::Model::load(std::move(source), ops, {.context = golden.context});
    core::Context context(model, {.length = golden.context > 0 ? golden.context : 128, .prefill_rows = 128});
    const std::vector<std::int32_t> ids = expected["input_ids"], positions = expected["positions"];
    std::vector<kernels::TokenRef> refs;
    for (const std::int32_t id : ids) refs.push_back(kernels::TokenRef::id(id));
    ASSERT_TRUE(context.evaluate(kernels::RowClass::prefill, refs, positions));
    const bool exact = backend.name == "reference";
    double worst = 0.0, range = 0.0;
    for (std::size_t p = 0; p < positions.size(); ++p) {
        const std::vector<double> wanted = expected["logits"][p];
        const std::span<const float> found = context.logits(static_cast<std::int32_t>(p));
        ASSERT_EQ(wanted.size(), found.size());
        const auto [low, high] = std::ranges::minmax(wanted);
        range = std::max(range, high - low);
        if (!exact && positions[p] == golden.near_tie) continue;
        for (std::size_t i = 0; i < wanted.size(); ++i) {
            const double apart = std::abs(static_cast<double>(found[i]) - wanted[i]);
            worst = std::max(worst, std::isfinite(apart) ? apart : 1e30);
        }
    }
    std::printf("%s %s %s: worst logit difference %.6f, %.5f %% of the range\n", name.c_str(), golden.folder.c_str(),
                golden.model.c_str(), worst, 100.0 * worst / range);
    const double allowed = tolerance(backend, golden) * range;
    ASSERT_LE(worst, allowed);

    const double share = exact || golden.greedy_tolerance == 0.0 ? tolerance(backend, golden) : golden.greedy_tolerance;
    const double greedy_allowed = share * range;
    const std::vector<std::int32_t> greedy = expected["greedy_next"];
    const std::vector<double> margins = expected["greedy_margin"];
    context.truncate(0);
    ASSERT_TRUE(context.prefill(ids));
    int compared = 0;
    for (std::size_t step = 0; step < greedy.size(); ++step) {
        const std::span<const float> logits = context.logits(0);
        if (margins[step] > 2.0 * greedy_allowed) {
            ASSERT_EQ(argmax(logits), greedy[step]) << "greedy step " << step;
            std::vector<float> others(logits.begin(), logits.end());
            others.erase(others.begin() + greedy[step]);
            const float best = logits[static_cast<std::size_t>(greedy[step])];
            EXPECT_NEAR(best - *std::ranges::max_element(others), margins[step], 2.0 * greedy_allowed)
                << "greedy step " << step;
            ++compared;
        }
        ASSERT_TRUE(context.decode(std::span(&greedy[step], 1)));
    }
    if (golden.near_tie < 0 || exact) {
        EXPECT_GT(compared, 0);
    }
}

TEST_P(Families, LogitsAndGreedyTokens) {
    const Backend& backend = backends()[std::get<0>(GetParam())];
    expect_golden(backend, backend.ops(), backend.name, std::get<1>(GetParam()));
}

std::string test_name(const std::string& backend, const Golden& golden) {
    std::string name = backend + "_" + golden.folder + "_" + golden.model + (golden.context > 0 ? "_short" : "") +
                       (golden.decoded ? "_decoded" : "");
    for (char& c : name) {
        if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
    }
    return name;
}

INSTANTIATE_TEST_SUITE_P(Backends, Families,
                         testing::Combine(testing::Range<std::size_t>(0, backends().size()),
                                          testing::ValuesIn(goldens())),
                         [](const auto& info) {
                             return test_name(backends()[std::get<0>(info.param)].name, std::get<1>(info.param));
                         });

// The kernels of the CPU for the instruction sets that this processor has beside its best one, which Families runs.
std::vector<std::string> other_sets() {
    std::vector<std::string> sets = kernels::cpu::usable_isas();
    sets.erase(sets.begin());
    return sets;
}

std::vector<Golden> quantised_goldens() {
    std::vector<Golden> some = goldens();
    std::erase_if(some, [](const Golden& golden) { return !golden.quantised; });
    return some;
}

class InstructionSets : public testing::TestWithParam<std::tuple<std::string, Golden>> {};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(InstructionSets);

TEST_P(InstructionSets, LogitsAndGreedyTokens) {
    FORESAY_SKIP_WITHOUT_GOLDENS();
    const std::string& set = std::get<0>(GetParam());
    const auto ops = kernels::make_cpu_ops({.isa = set});
    ASSERT_NE(ops->describe().detail.find(set), std::string::npos) << ops->describe().detail;
    expect_golden(backends()[1], *ops, "cpu (" + set + ")", std::get<1>(GetParam()));
}

INSTANTIATE_TEST_SUITE_P(Sets, InstructionSets,
                         testing::Combine(testing::ValuesIn(other_sets()), testing::ValuesIn(quantised_goldens())),
                         [](const auto& info) { return test_name(std::get<0>(info.param), std::get<1>(info.param)); });

// The same numbers in a GGUF file and in a folder: the reference computes the same logits. Granite's rows of Q and K
// are in another order, so its sums may round otherwise.
TEST(FamilyFiles, GgufAndFolderAgree) {
    FORESAY_SKIP_WITHOUT_GOLDENS();
    for (const std::string family : {"gemma3", "gpt_oss", "phi3", "glm4", "granite"}) {
        const fs::path folder = goldens_folder() / "families" / family;
        std::vector<std::vector<float>> rows;
        for (const fs::path& path : {folder, folder / (family + "-BF16.gguf")}) {
            core::Context context(core::Model::load(core::ModelSource::open(path), backends().front().ops()),
                                  {.length = 64, .prefill_rows = 64});
            std::vector<std::int32_t> ids;
            for (std::int32_t i = 0; i < 40; ++i) ids.push_back(i * 37 % 512);
            ASSERT_TRUE(context.prefill(ids));
            const std::span<const float> logits = context.logits(0);
            rows.emplace_back(logits.begin(), logits.end());
        }
        for (std::size_t i = 0; i < rows[0].size(); ++i) ASSERT_NEAR(rows[0][i], rows[1][i], 2e-5f) << family;
    }
}

// Tools that quantise split matrices that a family keeps together: Phi's Q, K and V, gate and up.
TEST(FamilyFiles, MatricesThatBelongTogetherMayBeSplit) {
    FORESAY_SKIP_WITHOUT_GOLDENS();
    const fs::path together = goldens_folder() / "families/phi3";
    const core::SafetensorsDir folder = core::SafetensorsDir::open(together);
    const kernels::ModelShape shape = core::ModelSource::open(together)->config().shape;
    const std::int64_t q = shape.heads * shape.head_dim, kv = shape.kv_heads * shape.head_dim;
    core::testing::FolderImage image;
    int split = 0;
    for (const core::TensorInfo& tensor : folder.tensors().list()) {
        std::int64_t first = 0;
        const auto add = [&](const std::string& name, std::int64_t rows) {
            const std::int64_t row = tensor.bytes / tensor.shape.front();
            const auto* const bytes = reinterpret_cast<const char*>(tensor.data) + first * row;
            std::vector<std::int64_t> own = tensor.shape;
            own.front() = rows;
            image.tensors[name] = {tensor.type, own, std::string(bytes, static_cast<std::size_t>(rows * row))};
            first += rows;
        };
        const std::string stem = tensor.name.substr(0, tensor.name.rfind('.', tensor.name.rfind('.') - 1) + 1);
        if (tensor.name.ends_with("qkv_proj.weight")) {
            for (const auto& [part, rows] : {std::pair{"q", q}, {"k", kv}, {"v", kv}}) {
                add(stem + part + "_proj.weight", rows);
            }
            ++split;
        } else if (tensor.name.ends_with("gate_up_proj.weight")) {
            for (const char* part : {"gate", "up"}) add(stem + part + "_proj.weight", shape.d_ff);
            ++split;
        } else {
            add(tensor.name, tensor.shape.front());
        }
    }
    EXPECT_EQ(split, 2 * shape.layers);
    const core::testing::TemporaryDirectory apart;
    apart.write("model.safetensors", image.file());
    fs::copy(together / "config.json", apart.path() / "config.json");
    std::vector<std::vector<float>> rows;
    for (const fs::path& path : {together, apart.path()}) {
        core::Context context(core::Model::load(core::ModelSource::open(path), backends().front().ops()),
                              {.length = 64, .prefill_rows = 64});
        std::vector<std::int32_t> ids;
        for (std::int32_t i = 0; i < 40; ++i) ids.push_back(i * 37 % 512);
        ASSERT_TRUE(context.prefill(ids));
        rows.emplace_back(context.logits(0).begin(), context.logits(0).end());
    }
    EXPECT_EQ(rows[0], rows[1]);
}

// What a file holds beside the text model is left out, and the configuration says so.
TEST(FamilyFiles, SaysWhatIsNotUsed) {
    FORESAY_SKIP_WITHOUT_GOLDENS();
    const auto notes = [](const char* family) {
        return core::ModelSource::open(goldens_folder() / "families" / family)->config().notes;
    };
    EXPECT_THAT(notes("mistral3"), testing::ElementsAre("the parts for images and sound are not used"));
    EXPECT_THAT(notes("glm4_moe"), testing::ElementsAre("the layers for multi-token prediction are not used"));
    EXPECT_THAT(notes("qwen3"), testing::IsEmpty());
}

// The bundled draft in EXL2: a head of its own although config.json says tied, in two files without an index. Its
// golden has the largest logits of each position.
TEST(FamilyFiles, TheDraftInExl2HasItsLargestLogits) {
    FORESAY_SKIP_WITHOUT_GOLDENS();
    const fs::path folder = goldens_folder() / "formats/exl2-draft-4.0";
    const json expected = json::parse(std::ifstream(folder / "golden.json"));
    for (const Backend& backend : backends()) {
        if (backend.name == "cuda") continue;
        core::Context context(core::Model::load(core::ModelSource::open(folder), backend.ops()),
                              {.length = 128, .prefill_rows = 128});
        const std::vector<std::int32_t> ids = expected["input_ids"], positions = expected["positions"];
        std::vector<kernels::TokenRef> refs;
        for (const std::int32_t id : ids) refs.push_back(kernels::TokenRef::id(id));
        ASSERT_TRUE(context.evaluate(kernels::RowClass::prefill, refs, positions));
        for (std::size_t p = 0; p < positions.size(); ++p) {
            const std::span<const float> found = context.logits(static_cast<std::int32_t>(p));
            for (const auto& pair : expected["logits_top"][p]) {
                // On the processor inputs are int8 codes; 0.17 is the worst found.
                EXPECT_NEAR(found[pair[0].get<std::size_t>()], pair[1].get<double>(),
                            backend.name == "reference" ? 1e-3 : 0.35)
                    << backend.name << ", position " << positions[p];
            }
        }
    }
}

// A context that the model was not loaded for would need the other list of rope factors.
TEST(FamilyFiles, ALongContextNeedsTheLongFactors) {
    FORESAY_SKIP_WITHOUT_GOLDENS();
    const auto model = core::Model::load(core::ModelSource::open(goldens_folder() / "families/phi3"),
                                         backends().front().ops(), {.context = 100});
    EXPECT_EQ(model->longest_context(), 256);
    EXPECT_NO_THROW(core::Context(model, {.length = 256}));
    EXPECT_THROW(core::Context(model, {.length = 257}), Error);
}

}  // namespace
}  // namespace foresay::test
