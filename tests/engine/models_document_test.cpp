// docs/models.md has the table of families, shapes and drafts that the program has.
#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>
#include <sstream>

#include "core/models/architecture.h"
#include "core/models/shapes.h"
#include "speculative/known_drafts.h"

namespace foresay::engine {
namespace {

constexpr double kGib = 1024.0 * 1024.0 * 1024.0;

std::string number(const char* format, double value) {
    char text[32];
    std::snprintf(text, sizeof text, format, value);
    return text;
}

std::string names(std::span<const std::string_view> list) {
    std::string text;
    for (const std::string_view name : list) text += (text.empty() ? "`" : ", `") + std::string(name) + "`";
    return text.empty() ? "(as llama)" : text;
}

std::string drafts_of(std::string_view target) {
    std::string text;
    for (const speculative::KnownDraft& pair : speculative::known_drafts()) {
        if (pair.target != target) continue;
        text += (text.empty() ? "" : ", ") + std::string(pair.draft);
        if (pair.acceptance > 0.0) text += " (" + number("%.0f", 100.0 * pair.acceptance) + " % right)";
    }
    return text;
}

std::string tables() {
    std::ostringstream out;
    out << "| family | in GGUF | in config.json |\n|---|---|---|\n";
    for (const core::Architecture* family : core::architectures()) {
        out << "| " << family->name << " | " << names(family->gguf_names) << " | " << names(family->hf_names) << " |\n";
    }
    out << "\n| model, `--shape` | family | parameters | used per token | weights in 4.85 bits | in 8.5 bits | "
           "published "
           "as | drafts |\n|---|---|---|---|---|---|---|---|\n";
    for (const core::Architecture* family : core::architectures()) {
        for (const core::PublishedShape& shape : family->shapes) {
            const core::ModelConfig config = core::published_shape(shape.name);
            const auto all = static_cast<double>(core::parameter_count(config));
            const auto active = static_cast<double>(core::active_parameter_count(config));
            out << "| " << shape.name << " | " << family->name << " | " << number("%.2f", all * 1e-9) << " B | "
                << number("%.2f", active * 1e-9) << " B | " << number("%.1f", all * 4.85 / 8.0 / kGib) << " GiB | "
                << number("%.1f", all * 8.5 / 8.0 / kGib) << " GiB | " << shape.repository << " | "
                << drafts_of(shape.name) << " |\n";
        }
    }
    return out.str();
}

TEST(ModelsDocument, HasTheProgramsTables) {
    std::ifstream file(std::string(FORESAY_SOURCE_DIR) + "/docs/models.md");
    std::ostringstream text;
    text << file.rdbuf();
    const std::string wanted = tables();
    if (text.str().find(wanted) != std::string::npos) return;
    const std::string path = ::testing::TempDir() + "foresay_models_tables.md";
    std::ofstream(path) << wanted;
    FAIL() << "docs/models.md differs from the program; its tables are now in " << path;
}

}  // namespace
}  // namespace foresay::engine
