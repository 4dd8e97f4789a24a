// Where layers come from: extends, the standard files, the environment.
#include "core/config/layers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

#include "core/config/diagnostic.h"
#include "core/config/preset_files.h"
#include "core/config/presets.h"

namespace foresay::core {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

namespace fs = std::filesystem;

class LayersTest : public ::testing::Test {
protected:
    LayersTest() : folder_(fs::temp_directory_path() / ("foresay_extends_" + std::to_string(::getpid()))) {
        fs::remove_all(folder_);
        fs::create_directories(folder_ / "sub");
    }
    ~LayersTest() override { fs::remove_all(folder_); }

    std::string write(const std::string& name, const std::string& text) const {
        std::ofstream(folder_ / name) << text;
        return (folder_ / name).string();
    }
    std::vector<std::string> order(const std::string& path) const {
        std::vector<std::string> names;
        for (const ConfigLayer& layer : read_config_layers(path)) names.push_back(fs::path(layer.place).filename());
        return names;
    }
    std::string error(const std::string& path) const {
        try {
            read_config_layers(path);
        } catch (const Error& problem) {
            return problem.what();
        }
        return "no error";
    }

    fs::path folder_;
};

TEST_F(LayersTest, BasesComeFirstAndOnce) {
    write("base.toml", "");
    write("sub/left.toml", "extends = \"../base.toml\"\n");
    write("right.toml", "extends = [\"base.toml\"]\n[sampling]\nseed = 1\n");
    const std::string top = write("top.toml", "extends = [\"sub/left.toml\", \"right.toml\"]\n");
    EXPECT_THAT(order(top), ElementsAre("base.toml", "left.toml", "right.toml", "top.toml"));
    // Relative paths of a base start where the base lies.
    EXPECT_EQ(read_config_layers(top)[1].directory, folder_ / "sub");
    EXPECT_THAT(order((folder_ / "base.toml").string()), ElementsAre("base.toml"));
}

TEST_F(LayersTest, WhatCannotBeExtendedIsOneSentenceWithItsPlace) {
    const std::string self = write("self.toml", "# me\nextends = \"./self.toml\"\n");
    EXPECT_THAT(error(self), AllOf(StartsWith(self + ":2:11: 'extends' forms a cycle: " + self + " -> " + self),
                                   HasSubstr("\n    extends = \"./self.toml\"\n              ^")));
    write("a.toml", "extends = \"b.toml\"\n");
    write("b.toml", "extends = \"c.toml\"\n");
    write("c.toml", "extends = \"a.toml\"\n");
    const std::string a = (folder_ / "a.toml").string();
    EXPECT_THAT(error(a), AllOf(StartsWith((folder_ / "c.toml").string() + ":1:11: "),
                                HasSubstr(a + " -> " + (folder_ / "b.toml").string() + " -> ")));
    const std::string none = write("none.toml", "extends = [\"nothing.toml\"]\n");
    EXPECT_THAT(error(none), AllOf(StartsWith(none + ":1:12: 'extends': "), HasSubstr("nothing.toml: cannot read")));
    for (const std::string value : {"5", "\"\"", "[1]", "{}", "\"a\\u0000b\""}) {
        const std::string path = write("bad.toml", "extends = " + value + "\n");
        EXPECT_THAT(error(path), AllOf(StartsWith(path + ":1:1"), HasSubstr("must be the path of a configuration")));
    }
    const std::string folder = write("folder.toml", "extends = \"sub\"\n");
    EXPECT_THAT(error(folder), HasSubstr("is a directory, not a configuration file"));
}

// A configuration that is kept in another folder and linked is the file there, with what lies beside it.
TEST_F(LayersTest, ALinkIsTheFileThatItLeadsTo) {
    fs::create_directories(folder_ / "kept");
    write("kept/base.toml", "");
    write("kept/config.toml", "extends = \"base.toml\"\n[target]\nmodel = \"m.gguf\"\n");
    write("kept/m.gguf", "x");
    fs::create_symlink(folder_ / "kept/config.toml", folder_ / "sub/config.toml");
    const std::string link = (folder_ / "sub/config.toml").string();
    const std::vector<ConfigLayer> layers = read_config_layers(link);
    ASSERT_EQ(layers.size(), 2u);
    EXPECT_EQ(layers[1].place, link) << "messages name the file as the user did";
    EXPECT_EQ(layers[1].directory, fs::canonical(folder_ / "kept"));
    ConfigRequest request;
    const std::vector<StageSchema> stages = {
        {"penalties", "", {}}, {"top_k", "", {}}, {"top_p", "", {}}, {"temperature", "", {}}};
    request.stages = stages;
    request.layers = layers;
    EXPECT_EQ(load_config(request).target_model, fs::canonical(folder_ / "kept") / "m.gguf");
    // So does a link to a link; a linked folder changes nothing.
    fs::create_symlink(folder_ / "sub/config.toml", folder_ / "again.toml");
    EXPECT_EQ(read_config_layers(folder_ / "again.toml").size(), 2u);
    fs::create_directory_symlink(folder_ / "kept", folder_ / "linked");
    EXPECT_EQ(read_config_layers(folder_ / "linked/config.toml")[1].directory, folder_ / "linked");
}

TEST_F(LayersTest, DepthAndNumberAreBounded) {
    for (int i = 0; i < 12; ++i) {
        write("d" + std::to_string(i) + ".toml", "extends = \"d" + std::to_string(i + 1) + ".toml\"\n");
    }
    write("d12.toml", "");
    EXPECT_THAT(error((folder_ / "d0.toml").string()), HasSubstr("goes more than 8 files deep"));
    EXPECT_EQ(read_config_layers(folder_ / "d4.toml").size(), 9u);
    std::string list;
    for (int i = 0; i < 40; ++i) {
        write("n" + std::to_string(i) + ".toml", "");
        list += "\"n" + std::to_string(i) + ".toml\", ";
    }
    EXPECT_THAT(error(write("wide.toml", "extends = [" + list + "]\n")), HasSubstr("leads to more than 32 files"));
}

TEST_F(LayersTest, AFileThatIsNotTomlIsLeftToTheLoader) {
    const std::string path = write("broken.toml", "extends = \n");
    EXPECT_EQ(read_config_layers(path).size(), 1u);
    // An override cannot extend.
    ConfigRequest request;
    const std::vector<StageSchema> stages = {
        {"penalties", "", {}}, {"top_k", "", {}}, {"top_p", "", {}}, {"temperature", "", {}}};
    request.stages = stages;
    request.layers = {override_layer("extends=\"x.toml\"", "--set #1")};
    request.need_target = false;
    try {
        load_config(request);
        ADD_FAILURE() << "no error";
    } catch (const ConfigError& problem) {
        EXPECT_THAT(problem.what(), HasSubstr("--set #1: 'extends' belongs in a configuration file"));
    }
}

TEST(StandardFiles, FollowTheXdgConvention) {
    std::vector<std::pair<std::string, std::string>> set;
    const Variables variables = [&](const std::string& name) -> std::optional<std::string> {
        for (const auto& [known, value] : set) {
            if (known == name) return value;
        }
        return std::nullopt;
    };
    EXPECT_THAT(standard_config_files(variables), ElementsAre("/etc/xdg/foresay/config.toml"));
    set = {{"HOME", "/h"}};
    EXPECT_THAT(standard_config_files(variables),
                ElementsAre("/etc/xdg/foresay/config.toml", "/h/.config/foresay/config.toml"));
    set = {{"HOME", "/h"}, {"XDG_CONFIG_HOME", "/c"}, {"XDG_CONFIG_DIRS", "/first:relative::/second"}};
    EXPECT_THAT(standard_config_files(variables),
                ElementsAre("/second/foresay/config.toml", "/first/foresay/config.toml", "/c/foresay/config.toml"));
    EXPECT_THAT(preset_folders(variables),
                ElementsAre("/c/foresay/presets", "/first/foresay/presets", "/second/foresay/presets"));
    set = {{"HOME", "/h"}, {"XDG_CONFIG_HOME", "relative"}, {"XDG_CONFIG_DIRS", ""}};
    EXPECT_THAT(standard_config_files(variables),
                ElementsAre("/etc/xdg/foresay/config.toml", "/h/.config/foresay/config.toml"));
}

TEST(EnvironmentLayers, AreOverridesByName) {
    const std::vector<std::string> environment = {"PATH=/bin", "FORESAY_LOG=info", "FORESAY_SAMPLING__TOP_K__K=5",
                                                  "FORESAY_CHAT__STYLE=llama3", "FORESAY_"};
    const auto layers = environment_layers(environment);
    ASSERT_EQ(layers.size(), 2u);
    EXPECT_EQ(layers[0].place, "FORESAY_CHAT__STYLE");
    EXPECT_EQ(layers[0].text, "chat.style = \"llama3\"");
    EXPECT_EQ(layers[1].text, "sampling.top_k.k = 5");
    EXPECT_TRUE(layers[1].flag);
    const std::vector<std::string> slip = {"FORESAY_TARGET_MODEL=x"};
    EXPECT_THROW(environment_layers(slip), UsageError);
    const std::vector<std::string> none;
    EXPECT_THAT(environment_layers(none), IsEmpty());
}

TEST(States, LooksAlongTheDots) {
    const ConfigLayer layer{"f", "target.model = \"x\"\n[sampling.top_k]\nk = 1\n", {}, false};
    EXPECT_TRUE(states(layer, "target.model"));
    EXPECT_TRUE(states(layer, "sampling.top_k"));
    EXPECT_TRUE(states(layer, "sampling.top_k.k"));
    EXPECT_FALSE(states(layer, "sampling.seed"));
    EXPECT_FALSE(states(layer, "target.model.x"));
    EXPECT_FALSE(states({"f", "target = [", {}, false}, "target"));
}

// A preset lies right below the layer that names it, and keeps the stages that are not built in.
TEST_F(LayersTest, PresetsLieBelowTheLayerThatNamesThem) {
    const std::vector<StageSchema> stages = {{"top_k", {}, {}}, {"temperature", {}, {}}};
    const ConfigLayer low{"low", "sampling.chain = [\"words\", \"top_k\"]", {}, false};
    const ConfigLayer high{"high", "sampling.preset = \"mine\"\nsampling.temperature.value = 0.7", {}, false};
    write("mine.toml", "[sampling]\nchain = [\"temperature\"]\n[sampling.temperature]\nvalue = 0.1\n");
    const std::vector<fs::path> folders = {folder_ / "sub", folder_};
    const std::vector<ConfigLayer> all = with_presets({low, high}, folders, stages);
    ASSERT_EQ(all.size(), 3u);
    EXPECT_EQ(all[0].place, "low");
    EXPECT_EQ(all[1].place, (folder_ / "mine.toml").string());
    EXPECT_THAT(all[1].first_stages, ElementsAre("words"));
    EXPECT_EQ(all[2].place, "high");
    // Without one, and with none, nothing is added; one of the user's own goes before a built-in one.
    EXPECT_EQ(with_presets({low, {"none", "sampling.preset = \"\"", {}, false}}, folders, stages).size(), 2u);
    EXPECT_EQ(with_presets({{"x", "sampling.preset = \"code\"", {}, false}}, folders, stages)[0].place,
              "preset 'code'");
    write("code.toml", "sampling.temperature.value = 0.5");
    EXPECT_EQ(with_presets({{"x", "sampling.preset = \"code\"", {}, false}}, folders, stages)[0].place,
              (folder_ / "code.toml").string());
}

// What it keeps of the chain does not move its own lines.
TEST_F(LayersTest, MistakesInAPresetAreReportedInItsFile) {
    const std::vector<StageSchema> stages = {{"top_k", {}, {}}, {"temperature", {}, {}}};
    const std::string low = "[sampling]\nchain = [\"words\", \"top_k\"]\n[[plugin]]\nname = \"words\"\n";
    const auto loaded = [&](const std::string& preset) {
        write("mine.toml", preset);
        ConfigRequest request;
        const std::vector<fs::path> folders = {folder_};
        request.layers =
            with_presets({{"low", low, {}, false}, {"high", "sampling.preset = \"mine\"", {}, false}}, folders, stages);
        request.stages = stages;
        request.need_target = false;
        return load_config(request);
    };
    const std::string place = (folder_ / "mine.toml").string();
    try {
        loaded("[sampling]\nchain = [\"temperature\", \"nope\"]\n\nseeed = 1\n");
        ADD_FAILURE();
    } catch (const ConfigError& problem) {
        EXPECT_THAT(problem.what(), HasSubstr(place + ":4:1: unknown key 'seeed' in [sampling]; did you mean "
                                                      "'seed'?\n    seeed = 1\n    ^"));
        EXPECT_THAT(problem.what(),
                    HasSubstr(place + ":2:9: 'sampling.chain' names 'nope', which is not a stage; known are "));
        EXPECT_THAT(problem.what(), HasSubstr("\n    chain = [\"temperature\", \"nope\"]\n            ^"));
    }
    const Config config = loaded("[sampling]\n\n\nchain = [\"temperature\"]\n");
    EXPECT_THAT(config.chain, ElementsAre("words", "temperature"));
    EXPECT_EQ(config.setting("sampling.chain").origin.text(), place + ":4:1");
}

// The program has the files of configs/presets in it, byte for byte.
TEST_F(LayersTest, TheFilesOfTheFolderAreBuiltIn) {
    std::size_t files = 0;
    for (const auto& file : fs::directory_iterator(FORESAY_SOURCE_DIR "/configs/presets")) {
        const std::string name = file.path().stem().string();
        const ConfigLayer layer{"x", "sampling.preset = \"" + name + "\"", {}, false};
        const std::vector<ConfigLayer> all = with_presets({layer}, {}, {});
        EXPECT_EQ(all[0].place, "preset '" + name + "'");
        EXPECT_EQ(all[0].text, read_config_file(file.path()).text);
        ++files;
    }
    EXPECT_EQ(files, preset_files().size());
    EXPECT_EQ(files, 3u);
}

TEST_F(LayersTest, PresetsThatCannotBe) {
    const std::vector<fs::path> folders = {folder_};
    const auto refused = [&](const std::string& text) -> std::string {
        try {
            with_presets({{"f.toml", text, {}, false}}, folders, {});
        } catch (const ConfigError& problem) {
            return problem.what();
        }
        return {};
    };
    EXPECT_THAT(refused("[sampling]\npreset = \"cod\""),
                HasSubstr("f.toml:2:10: 'sampling.preset' is 'cod', but the presets are code, exact and prose, and "
                          "files of your own go to " +
                          folder_.string() + "; did you mean 'code'?"));
    write("mine.toml", "");
    write("code.toml", "");
    write("no name.toml", "");
    EXPECT_THAT(refused("sampling.preset = \"min\""),
                AllOf(HasSubstr("the presets are code, exact, mine and prose, "), HasSubstr("did you mean 'mine'?")));
    EXPECT_THAT(refused("sampling.preset = \"nonesuch\""), Not(HasSubstr("did you mean")));
    EXPECT_THAT(refused("sampling.preset = \"../code\""), HasSubstr("must be a name of letters"));
    write("models.toml", "target.model = \"x.gguf\"");
    EXPECT_THAT(refused("sampling.preset = \"models\""), HasSubstr("'target' belongs in a configuration file"));
    write("deep.toml", "sampling.preset = \"code\"");
    EXPECT_THAT(refused("sampling.preset = \"deep\""), HasSubstr("a preset cannot set 'sampling.preset'"));
    write("broken.toml", "[sampling");
    EXPECT_THAT(refused("sampling.preset = \"broken\""), HasSubstr("broken.toml:1"));
}

}  // namespace
}  // namespace foresay::core
