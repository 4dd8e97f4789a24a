// The numbers of hub/curl_abi.h, as the installed libcurl knows them.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <string>

#include "hub/curl_abi.h"
#include "hub/http.h"

namespace foresay::hub {
namespace {

// struct curl_easyoption
struct EasyOption {
    const char* name;
    int number;
    int type;
    unsigned flags;
};

TEST(CurlAbi, HasTheNumbersOfTheInstalledLibrary) {
    if (const std::string why = missing_libcurl(); !why.empty()) GTEST_SKIP() << why;
    void* library = ::dlopen("libcurl.so.4", RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) library = ::dlopen("libcurl-gnutls.so.4", RTLD_NOW | RTLD_LOCAL);
    ASSERT_NE(library, nullptr);
    const auto by_name =
        reinterpret_cast<const EasyOption* (*)(const char*)>(::dlsym(library, "curl_easy_option_by_name"));
    if (by_name == nullptr) GTEST_SKIP() << "this libcurl is older than 7.73 and cannot say its options";
    for (const curl_abi::Option& option : curl_abi::kOptions) {
        const EasyOption* const known = by_name(option.name);
        ASSERT_NE(known, nullptr) << option.name;
        EXPECT_EQ(known->number, option.number) << option.name;
    }
}

}  // namespace
}  // namespace foresay::hub
