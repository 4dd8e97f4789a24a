// foresay doctor: what it finds right, and that its checks find a backend that breaks a law.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "app/doctor/laws.h"
#include "engine/engine.h"
#include "kernels/ops_decorator.h"
#include "tests/app/program.h"

namespace foresay::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using json = nlohmann::json;

// Adds to one logit of every row of a wide forward, as a kernel would whose sums depend on the number of rows.
class DependsOnWidth : public kernels::OpsDecorator {
public:
    explicit DependsOnWidth(std::unique_ptr<kernels::Ops> inner) : OpsDecorator(std::move(inner)) {}
    void begin(kernels::Workspace& workspace, const kernels::Batch& batch) override {
        wide_ = batch.row_class == kernels::RowClass::decode && batch.rows.size() > 4;
        OpsDecorator::begin(workspace, batch);
    }
    std::span<float> logits(kernels::Workspace& workspace, std::int32_t i) override {
        const std::span<float> row = OpsDecorator::logits(workspace, i);
        if (wide_) row[300] += 1e-3f;
        return row;
    }

private:
    bool wide_ = false;
};

// Makes verification prefer another token.
class DependsOnSpeculation : public kernels::OpsDecorator {
public:
    explicit DependsOnSpeculation(std::unique_ptr<kernels::Ops> inner) : OpsDecorator(std::move(inner)) {}
    void begin(kernels::Workspace& workspace, const kernels::Batch& batch) override {
        several_ = batch.row_class == kernels::RowClass::decode && batch.rows.size() > 1;
        OpsDecorator::begin(workspace, batch);
    }
    std::span<float> logits(kernels::Workspace& workspace, std::int32_t i) override {
        const std::span<float> row = OpsDecorator::logits(workspace, i);
        if (several_) row[300] += 100.0f;
        return row;
    }

private:
    bool several_ = false;
};

class Faultless : public kernels::OpsDecorator {
public:
    explicit Faultless(std::unique_ptr<kernels::Ops> inner) : OpsDecorator(std::move(inner)) {}
};

template <class Backend>
engine::Engine pair_on() {
    const std::string text = "target.model = \"" + source("models/python-coder/target-q4_k_m.gguf") +
                             "\"\ndraft.model = \"" + source("models/python-coder/draft-q8_0.gguf") +
                             "\"\ntarget.context = 256\nruntime.device = \"cpu\"\nruntime.threads = 1\n";
    engine::EngineOptions options;
    options.wrap_backend = [](std::unique_ptr<kernels::Ops> inner) -> std::unique_ptr<kernels::Ops> {
        return std::make_unique<Backend>(std::move(inner));
    };
    return engine::Engine::open(engine::load_config(write_scratch("pair.toml", text)), std::move(options));
}

TEST(Doctor, FindsRowsThatDependOnTheirNumber) {
    const engine::Engine engine = pair_on<DependsOnWidth>();
    int broken = 0;
    for (const app::LawCheck& check : app::check_rows(engine)) {
        if (check.holds) continue;
        ++broken;
        EXPECT_EQ(check.name, "rows alone and 16 together");
        EXPECT_THAT(check.detail, HasSubstr("row 0 differs"));
    }
    EXPECT_EQ(broken, 1);
}

TEST(Doctor, FindsTextThatDependsOnSpeculation) {
    const app::LawCheck check = app::check_speculation(pair_on<DependsOnSpeculation>());
    EXPECT_FALSE(check.holds);
    EXPECT_THAT(check.detail, AllOf(HasSubstr("mode fixed: token"), HasSubstr("differs")));
    EXPECT_TRUE(app::check_speculation(pair_on<Faultless>()).holds);
}

TEST(Doctor, FindsADeviceThatMakesAnotherText) {
    const app::Sample expected = app::take_sample(pair_on<Faultless>());
    EXPECT_EQ(expected.logits.size(), 17u);
    EXPECT_EQ(expected.text.size(), 64u);
    EXPECT_TRUE(app::check_same("cuda:0", expected, app::take_sample(pair_on<Faultless>())).holds);
    app::Sample other = expected;
    other.logits[3].back() = -other.logits[3].back();
    app::LawCheck check = app::check_same("cuda:0", expected, other);
    EXPECT_FALSE(check.holds);
    EXPECT_EQ(check.name, "the same as cuda:0 alone");
    EXPECT_EQ(check.detail, "17 rows: row 3 differs");
    other = expected;
    ++other.text[5];
    check = app::check_same("cuda:0", expected, other);
    EXPECT_FALSE(check.holds);
    EXPECT_THAT(check.detail, HasSubstr("token 5 differs"));
}

// Two ranks on the processor stand for two GPUs.
TEST(Doctor, ComparesDividedLayersWithOneDevice) {
    const Outcome page = run({"doctor", "--device", "cpu,cpu", "--split-mode", "row", "--threads", "1", "--json"});
    EXPECT_EQ(page.status, 0) << page.out << page.error;
    const json pair = json::parse(page.out).at("cpu,cpu, each layer divided");
    for (const char* cache : {"f16", "q8"}) {
        EXPECT_EQ(pair.at(std::string("the same as cpu alone, ") + cache), "ok, 17 rows, a text of 64 tokens");
    }
    EXPECT_THAT(pair.at("ways between the devices").get<std::string>(), HasSubstr("each layer divided over cpu"));
}

TEST(Doctor, PrintsAPage) {
    const Outcome page = run({"doctor", "--device", "cpu", "--threads", "1"});
    EXPECT_EQ(page.status, 0) << page.out << page.error;
    for (const char* part :
         {"processor", "read bandwidth", "ok, 16 rows", "tokens drafted", "model, decode", "no problem found"}) {
        EXPECT_THAT(page.out, HasSubstr(part));
    }
    const json report = json::parse(run({"doctor", "--device", "cpu", "--threads", "1", "--json"}).out);
    EXPECT_TRUE(report.at("healthy").get<bool>());
    EXPECT_GE(report.at("cpu").size(), 13u);
    EXPECT_TRUE(report.at("machine").contains("memory"));
    EXPECT_TRUE(report.at("build").contains("CUDA runtime"));
}

TEST(Doctor, CountsWhatCannotBeUsed) {
    const Outcome page = run({"doctor", "--device", "cuda:99"});
    EXPECT_EQ(page.status, 1);
    EXPECT_THAT(page.out, AllOf(HasSubstr("PROBLEM"), HasSubstr("cuda:99"), HasSubstr("2 problems")));
    EXPECT_THAT(run({"doctor", "--model", "none.gguf", "--device", "cpu"}).error, HasSubstr("none.gguf"));
}

}  // namespace
}  // namespace foresay::testing
