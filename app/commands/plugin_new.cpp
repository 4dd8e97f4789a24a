// foresay plugin new: a folder with a sampler of one's own, which builds, checks itself and runs.
#include <algorithm>
#include <array>
#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "app/command_line/command.h"
#include "app/command_line/parser.h"
#include "app/files.h"
#include "app/output.h"
#include "base/error.h"
#include "samplers/stage.h"

namespace foresay::app {

namespace {

namespace fs = std::filesystem;

// In the files below, @NAME@ is the sampler's name and @TYPE@ that of its struct.
constexpr std::string_view kTest = R"(// @NAME@: keeps tokens with certain letters out of the text.
#include "samplers/sdk/sampler.hpp"

#include <stdexcept>

struct @TYPE@ {
    static constexpr foresay::Info info{"@NAME@", "0.1.0", "Keeps letters out of the text.", "Apache-2.0"};
    struct Parameters { std::string letters = "e"; };
    static auto parameters() {
        return foresay::parameters(foresay::text("letters", &Parameters::letters, "Letters that may not occur."));
    }
    @TYPE@(Parameters p, foresay::Host host) : letters_(p.letters), host_(host) {}

    // Whether this token may follow, judged by itself.
    bool test(const foresay::Context&, std::int32_t token) const { return allows(host_.token_text(token)); }
    bool allows(std::string_view text) const { return text.find_first_of(letters_) == text.npos; }

    static void self_test(foresay::Host host) {
        const @TYPE@ sampler({"xyz"}, host);
        if (sampler.allows("exit") || !sampler.allows("return")) throw std::runtime_error("'exit' has a letter of xyz");
    }

    std::string letters_;
    foresay::Host host_;
};

FORESAY_EXPORT_SAMPLERS(@TYPE@)
)";

constexpr std::string_view kMask = R"(// @NAME@: keeps every token that is not plain ASCII out of the text.
#include "samplers/sdk/sampler.hpp"

#include <stdexcept>

struct @TYPE@ {
    static constexpr foresay::Info info{"@NAME@", "0.1.0", "Keeps the text in plain ASCII.", "Apache-2.0"};

    // Whatever can be computed once is computed here: words of 32 tokens.
    explicit @TYPE@(foresay::Host host) : words_((host.vocabulary_size() + 31) / 32) {
        foresay::Bits allowed(words_.data(), words_.size());
        bool any = false;
        for (std::int32_t token = 0; token < host.vocabulary_size(); ++token) {
            if (!host.ends_text(token) && !(host.is_text(token) && is_plain(host.token_text(token)))) continue;
            allowed.allow(token);
            any = true;
        }
        if (!any) throw std::runtime_error("no token of this model is plain ASCII");
    }

    // Sets the bits of the tokens that may follow. A mask runs where the logits are, on a GPU too.
    void mask(const foresay::Context&, foresay::Bits& bits) const { bits.copy(words_); }

    static bool is_plain(std::string_view text) {
        for (const char c : text) {
            if (static_cast<unsigned char>(c) >= 0x80) return false;
        }
        return true;
    }

    static void self_test(foresay::Host) {
        if (!is_plain("return x") || is_plain("caf\xc3\xa9")) throw std::runtime_error("'caf\xc3\xa9' is not ASCII");
    }

    std::vector<std::uint32_t> words_;
};

FORESAY_EXPORT_SAMPLERS(@TYPE@)
)";

constexpr std::string_view kProcess = R"(// @NAME@: makes tokens that begin with a certain text more likely.
#include "samplers/sdk/sampler.hpp"

#include <stdexcept>

struct @TYPE@ {
    static constexpr foresay::Info info{"@NAME@", "0.1.0", "Makes some tokens more likely.", "Apache-2.0"};
    struct Parameters {
        std::string prefix = " ";
        double nats = 1.0;
    };
    static auto parameters() {
        return foresay::parameters(
            foresay::text("prefix", &Parameters::prefix, "How the tokens begin that become more likely."),
            foresay::real("nats", &Parameters::nats, -20.0, 20.0, "What their logits rise by."));
    }
    @TYPE@(Parameters p, foresay::Host host) : parameters_(p), host_(host) {}

    // Sees the 512 best candidates, best first, and may change their logits or drop some.
    // With foresay::Mask in place of Candidates it can only drop.
    void process(const foresay::Context&, foresay::Candidates& candidates) const {
        for (std::size_t i = 0; i < candidates.size(); ++i) {
            if (is_meant(host_.token_text(candidates[i].id))) {
                candidates.logit(i) += static_cast<float>(parameters_.nats);
            }
        }
    }
    bool is_meant(std::string_view text) const {
        return text.substr(0, parameters_.prefix.size()) == parameters_.prefix;
    }

    static void self_test(foresay::Host host) {
        const @TYPE@ sampler({"re", 2.0}, host);
        if (!sampler.is_meant("return") || sampler.is_meant("are")) {
            throw std::runtime_error("'return' begins with re, and 'are' does not");
        }
    }

    Parameters parameters_;
    foresay::Host host_;
};

FORESAY_EXPORT_SAMPLERS(@TYPE@)
)";

constexpr std::string_view kState = R"(// @NAME@: no token comes more than a few times in a row.
#include "samplers/sdk/sampler.hpp"

#include <stdexcept>

struct @TYPE@ {
    static constexpr foresay::Info info{"@NAME@", "0.1.0", "Ends runs of one token.", "Apache-2.0"};
    struct Parameters {
        std::int64_t times = 3;
    };
    static auto parameters() {
        return foresay::parameters(
            foresay::integer("times", &Parameters::times, 1, 1000, "How often a token may come in a row."));
    }
    @TYPE@(Parameters p, foresay::Host) : parameters_(p) {}

    // What the text so far amounts to. It is copied for each draft, so it owns what it has.
    struct State {
        std::int32_t token = -1;
        std::int64_t run = 0;
    };

    // A token follows, of the prompt or of the answer.
    void accept(State& state, std::int32_t token) const {
        state.run = token == state.token ? state.run + 1 : 1;
        state.token = token;
    }

    bool test(const State& state, const foresay::Context&, std::int32_t token) const {
        return token != state.token || state.run < parameters_.times;
    }

    static void self_test(foresay::Host host) {
        const @TYPE@ sampler({2}, host);
        State state;
        sampler.accept(state, 7);
        const bool once = sampler.test(state, foresay::Context(nullptr), 7);
        sampler.accept(state, 7);
        if (!once || sampler.test(state, foresay::Context(nullptr), 7)) throw std::runtime_error("7 may come twice");
    }

    Parameters parameters_;
};

FORESAY_EXPORT_SAMPLERS(@TYPE@)
)";

constexpr std::array<std::pair<std::string_view, std::string_view>, 4> kKinds = {
    {{"test", kTest}, {"mask", kMask}, {"process", kProcess}, {"state", kState}}};

constexpr std::string_view kCMake = R"(cmake_minimum_required(VERSION 3.18)
project(@NAME@ LANGUAGES CXX)
@SDK@
add_sampler_plugin(@NAME@ @NAME@.cpp)    # build/plugins/@NAME@.so

# ctest: whether it keeps the contract, and its self_test().
enable_testing()
find_program(FORESAY foresay HINTS "@PROGRAM@" REQUIRED)
add_test(NAME check COMMAND ${FORESAY} plugin check $<TARGET_FILE:@NAME@>)
)";

constexpr std::string_view kInstalledSdk = R"(find_package(foresay REQUIRED COMPONENTS SamplerSDK HINTS "@ROOT@")
)";

constexpr std::string_view kSourceSdk = R"(
# The SDK of a source tree. Of an installed foresay: find_package(foresay REQUIRED COMPONENTS SamplerSDK)
add_library(foresay::sampler_sdk INTERFACE IMPORTED)
set_target_properties(foresay::sampler_sdk PROPERTIES INTERFACE_INCLUDE_DIRECTORIES "@ROOT@")
include("@ROOT@/cmake/foresay_plugin.cmake")
)";

constexpr std::string_view kPresets = R"({
  "version": 6,
  "configurePresets": [
    {"name": "default", "binaryDir": "${sourceDir}/build", "cacheVariables": {"CMAKE_BUILD_TYPE": "Release"}}
  ],
  "buildPresets": [{"name": "default", "configurePreset": "default"}],
  "testPresets": [{"name": "default", "configurePreset": "default", "output": {"outputOnFailure": true}}],
  "workflowPresets": [
    {"name": "default", "steps": [
      {"type": "configure", "name": "default"},
      {"type": "build", "name": "default"},
      {"type": "test", "name": "default"}
    ]}
  ]
}
)";

std::string filled(std::string_view text, const std::vector<std::pair<std::string, std::string>>& values) {
    std::string out(text);
    for (const auto& [name, value] : values) {
        for (std::size_t at = 0; (at = out.find(name, at)) != out.npos; at += value.size())
            out.replace(at, name.size(), value);
    }
    return out;
}

void check_name(const std::string& name) {
    const auto fits = [](char c) {
        const auto byte = static_cast<unsigned char>(c);
        return std::islower(byte) != 0 || std::isdigit(byte) != 0 || c == '_';
    };
    const bool begins_well = !name.empty() && std::islower(static_cast<unsigned char>(name[0])) != 0;
    if (!begins_well || !std::all_of(name.begin(), name.end(), fits) || name.size() > 60)
        throw Error(
            "a sampler's name has lower-case letters, digits and _, and begins with a letter, as in 'no_tabs'; '" +
            name + "' does not");
    // What CMake and CTest call their own targets.
    constexpr std::array<std::string_view, 5> kTaken = {"test", "all", "clean", "help", "install"};
    if (samplers::find_builtin(name) != nullptr || std::ranges::find(kTaken, name) != kTaken.end())
        throw Error("the name '" + name + "' is taken; choose another");
}

// no_e: NoE
std::string type_name(const std::string& name) {
    std::string type;
    bool begins = true;
    for (const char c : name) {
        if (c != '_') type += begins ? static_cast<char>(std::toupper(static_cast<unsigned char>(c))) : c;
        begins = c == '_';
    }
    return type;
}

// How the folder finds the SDK: that of the package that this program belongs to, or of its source tree.
std::string sdk_lines(const fs::path& program) {
    const fs::path root = program.parent_path();
    std::error_code ignored;
    for (const char* below : {"lib", "lib64", "lib/x86_64-linux-gnu", "lib/aarch64-linux-gnu"}) {
        if (fs::exists(root / below / "cmake" / "foresay" / "foresayConfig.cmake", ignored))
            return filled(kInstalledSdk, {{"@ROOT@", root.string()}});
    }
    try {
        const fs::path script = data_file("cmake/foresay_plugin.cmake");
        return filled(kSourceSdk, {{"@ROOT@", script.parent_path().parent_path().string()}});
    } catch (const Error&) {
        throw Error("the headers for plugins are not installed; install foresay-dev, or the component `development`");
    }
}

void write_new(const fs::path& path, const std::string& text) {
    std::ofstream file(path, std::ios::binary);
    file << text;
    file.close();
    if (!file) throw Error("cannot write " + path.string());
}

class New : public Command {
public:
    void declare(OptionParser& parser) override {
        parser.argument(name_, {.value = "NAME", .doc = "the sampler's name, and the folder's", .required = true});
        std::vector<std::string> kinds;
        for (const auto& [kind, text] : kKinds) kinds.emplace_back(kind);
        parser.option(
            "--kind", kind_,
            {.value = "KIND", .doc = "what it shows: test (default), mask, process or state", .words = kinds});
        parser.details(
            "Makes the folder NAME with a sampler that works, its CMake files and a test:\n"
            "  test     says of a token whether it may follow\n"
            "  mask     a bit for each token, which a GPU can use\n"
            "  process  changes the logits of the best candidates\n"
            "  state    remembers the text so far\n"
            "`cmake --workflow --preset default` in the folder builds and tests it.\n");
    }

    int run() override {
        check_name(name_);
        const auto kind = std::ranges::find(kKinds, kind_, &std::pair<std::string_view, std::string_view>::first);
        if (kind == kKinds.end()) throw UsageError("--kind must be test, mask, process or state, not '" + kind_ + "'");
        std::error_code ignored;
        const fs::path program = fs::read_symlink("/proc/self/exe", ignored).parent_path();
        const fs::path folder(name_);
        const std::string sdk = sdk_lines(program);
        std::error_code problem;
        if (!fs::create_directory(folder, problem)) {
            throw Error(problem ? "cannot make the folder " + name_ + ": " + problem.message()
                                : name_ + " exists already; choose another name or remove it");
        }
        const std::vector<std::pair<std::string, std::string>> values = {
            {"@SDK@", sdk}, {"@PROGRAM@", program.string()}, {"@NAME@", name_}, {"@TYPE@", type_name(name_)}};
        write_new(folder / (name_ + ".cpp"), filled(kind->second, values));
        write_new(folder / "CMakeLists.txt", filled(kCMake, values));
        write_new(folder / "CMakePresets.json", std::string(kPresets));
        write_new(folder / ".gitignore", "build/\n");
        print("Made " + name_ + ". To build and test it:\n  cd " + name_ +
              "\n  cmake --workflow --preset default\nTo use it, in a conversation (foresay chat):\n  /plugin load "
              "build/plugins/" +
              name_ + ".so\n");
        return 0;
    }

private:
    std::string name_;
    std::string kind_ = "test";
};

const RegisterCommand<New> kNew("plugin new", "make a folder for a sampler of your own", CommandGroup::models);

}  // namespace

}  // namespace foresay::app
