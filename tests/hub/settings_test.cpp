// What the environment says, and names of models.
#include "hub/settings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <map>

#include "base/error.h"
#include "hub/http.h"
#include "hub/name.h"
#include "tests/weights/temporary_directory.h"

namespace foresay::hub {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

using Environment = std::map<std::string, std::string>;

Settings settings(const Environment& environment) {
    return settings_from([&](const std::string& name) {
        const auto found = environment.find(name);
        return found == environment.end() ? std::nullopt : std::optional<std::string>(found->second);
    });
}

std::string refusal(const Environment& environment) {
    try {
        settings(environment);
    } catch (const Error& problem) {
        return problem.what();
    }
    return "";
}

TEST(HubSettings, FindTheCacheAsTheHubsProgramsDo) {
    EXPECT_EQ(settings({{"HOME", "/u"}}).cache, "/u/.cache/huggingface/hub");
    EXPECT_EQ(settings({{"HOME", "/u"}, {"XDG_CACHE_HOME", "/c"}}).cache, "/c/huggingface/hub");
    EXPECT_EQ(settings({{"HOME", "/u"}, {"XDG_CACHE_HOME", "/c"}, {"HF_HOME", "~/hf"}}).cache, "/u/hf/hub");
    EXPECT_EQ(settings({{"HOME", "/u"}, {"HF_HOME", "/h"}, {"HF_HUB_CACHE", "/k"}}).cache, "/k");
    EXPECT_EQ(settings({{"HOME", "/u"}, {"HUGGINGFACE_HUB_CACHE", "/old"}}).cache, "/old");
    EXPECT_THAT(refusal({}), HasSubstr("set HOME, or HF_HUB_CACHE"));
}

TEST(HubSettings, FindTheHub) {
    EXPECT_EQ(settings({{"HOME", "/u"}}).endpoint, "https://huggingface.co");
    EXPECT_EQ(settings({{"HOME", "/u"}, {"HF_ENDPOINT", "http://mirror:8080/hf/"}}).endpoint, "http://mirror:8080/hf");
    for (const char* bad : {"mirror", "ftp://mirror", "https://", "https://ann:secret@mirror", "file:///etc"}) {
        EXPECT_THAT(refusal({{"HOME", "/u"}, {"HF_ENDPOINT", bad}}), HasSubstr("HF_ENDPOINT must be an address"))
            << bad;
    }
    EXPECT_FALSE(settings({{"HOME", "/u"}}).offline);
    EXPECT_TRUE(settings({{"HOME", "/u"}, {"HF_HUB_OFFLINE", "1"}}).offline);
    EXPECT_TRUE(settings({{"HOME", "/u"}, {"HF_HUB_OFFLINE", "yes"}}).offline);
    EXPECT_FALSE(settings({{"HOME", "/u"}, {"HF_HUB_OFFLINE", "0"}}).offline);
    EXPECT_EQ(settings({{"HOME", "/u"}, {"SSL_CERT_FILE", "/ca.pem"}}).ca_file, "/ca.pem");
    EXPECT_EQ(settings({{"HOME", "/u"}, {"SSL_CERT_FILE", "/a"}, {"CURL_CA_BUNDLE", "/b"}}).ca_file, "/b");
    EXPECT_EQ(settings({{"HOME", "/u"}, {"HF_HUB_DOWNLOAD_TIMEOUT", "7"}}).stall_timeout, std::chrono::seconds(7));
    EXPECT_THAT(refusal({{"HOME", "/u"}, {"HF_HUB_DOWNLOAD_TIMEOUT", "soon"}}), HasSubstr("a number of seconds"));
}

TEST(HubSettings, FindTheToken) {
    const core::testing::TemporaryDirectory folder;
    const std::string home = folder.path().string();
    EXPECT_EQ(settings({{"HF_HOME", home}}).token, "");
    folder.write("token", "hf_file\n");
    EXPECT_EQ(settings({{"HF_HOME", home}}).token, "hf_file");
    EXPECT_EQ(settings({{"HF_HOME", home}, {"HF_HUB_DISABLE_IMPLICIT_TOKEN", "1"}}).token, "");
    EXPECT_EQ(settings({{"HF_HOME", home}, {"HF_TOKEN", " hf_variable "}}).token, "hf_variable");
    folder.write("other", "hf_other");
    EXPECT_EQ(settings({{"HF_HOME", home}, {"HF_TOKEN_PATH", home + "/other"}}).token, "hf_other");
    // A token becomes a line of a request.
    EXPECT_THAT(refusal({{"HF_HOME", home}, {"HF_TOKEN", "hf_secret\r\nHost: evil"}}),
                AllOf(HasSubstr("HF_TOKEN holds no token"), Not(HasSubstr("secret"))));
    folder.write("token", std::string(100'000, 'a'));
    EXPECT_THAT(refusal({{"HF_HOME", home}}), HasSubstr("/token holds no token"));
}

TEST(HubNames, AreReadAsPeopleWriteThem) {
    const auto text = [](const char* name) {
        const ModelName read = parse_model_name(name);
        return read.repo + "|" + read.revision + "|" + read.choice;
    };
    EXPECT_EQ(text("Qwen/Qwen3-0.6B-GGUF"), "Qwen/Qwen3-0.6B-GGUF|main|");
    EXPECT_EQ(text("hf:Qwen/Qwen3-0.6B-GGUF:q8_0"), "Qwen/Qwen3-0.6B-GGUF|main|q8_0");
    EXPECT_EQ(text("gpt2"), "gpt2|main|");
    EXPECT_EQ(text("a/b@v1.0:Q4_0"), "a/b|v1.0|Q4_0");
    EXPECT_EQ(text("a/b:Q4_0@refs/pr/1"), "a/b|refs/pr/1|Q4_0");
    EXPECT_EQ(text("a/b:folder/b-Q4_0.gguf"), "a/b|main|folder/b-Q4_0.gguf");
    EXPECT_EQ(text("https://huggingface.co/a/b"), "a/b|main|");
    EXPECT_EQ(text("hf.co/a/b:Q4_0"), "a/b|main|Q4_0");
    EXPECT_EQ(parse_model_name("hf:a/b@v1:Q4_0").text(), "a/b@v1:Q4_0");
    for (const char* bad : {"", "hf:", "a/b/c", "a//b", "/a", "a/", "../b", "a/..", "a/b c", "a--x/b", "-a/b", "a/b:",
                            "a/b@", "a/b:x:y", "a/b@x@y", "a/b@../x", "a/b:../x", "a/b\n", "https://evil/a/b"}) {
        EXPECT_THROW(parse_model_name(bad), UsageError) << bad;
    }
}

TEST(HubUrls, HaveOrigins) {
    EXPECT_EQ(origin_of("HTTPS://Hub:443/a?b"), "https://hub");
    EXPECT_EQ(origin_of("http://hub:80"), "http://hub");
    EXPECT_EQ(origin_of("http://hub:8080?x"), "http://hub:8080");
    EXPECT_NE(origin_of("http://hub"), origin_of("https://hub"));
    EXPECT_EQ(origin_of("https://hub@evil/"), "");
    EXPECT_EQ(origin_of("https://hub\\@evil/"), "https://hub");
    EXPECT_EQ(origin_of("/relative"), "");
    EXPECT_EQ(url_encoded("refs/pr/1"), "refs%2Fpr%2F1");
    EXPECT_EQ(url_encoded("a b/\xC3\xA9#?%", "/"), "a%20b/%C3%A9%23%3F%25");
}

}  // namespace
}  // namespace foresay::hub
