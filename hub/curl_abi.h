// hub/curl_abi.h: the part of libcurl's binary interface that http.cpp uses.
//
// libcurl.so.4 has kept its interface since 2006, and programs that were compiled then still run, so these numbers are
// as fixed as the names of functions. They are written down here because libcurl is opened at run time: a build needs
// none of its packages. tests/hub compares each option with what the installed library says of it
// (curl_easy_option_by_name).
// Source:   https://curl.se/libcurl/c/libcurl.html
#pragma once

#include <array>
#include <cstddef>

namespace foresay::hub::curl_abi {

struct Easy;     // CURL
struct Multi;    // CURLM
struct Strings;  // struct curl_slist

struct Message {  // CURLMsg
    int kind = 0;
    Easy* easy = nullptr;
    union {
        void* whatever;
        int result;
    } data = {nullptr};
};
inline constexpr int kDone = 1;  // CURLMSG_DONE

struct Option {
    int number = 0;
    const char* name = "";
};
inline constexpr Option kWriteData{10001, "WRITEDATA"}, kUrl{10002, "URL"}, kErrorBuffer{10010, "ERRORBUFFER"},
    kWriteFunction{20011, "WRITEFUNCTION"}, kUserAgent{10018, "USERAGENT"}, kLowSpeedLimit{19, "LOW_SPEED_LIMIT"},
    kLowSpeedTime{20, "LOW_SPEED_TIME"}, kHeaders{10023, "HTTPHEADER"}, kHeaderData{10029, "HEADERDATA"},
    kHeaderFunction{20079, "HEADERFUNCTION"}, kVerifyPeer{64, "SSL_VERIFYPEER"}, kVerifyHost{81, "SSL_VERIFYHOST"},
    kCaFile{10065, "CAINFO"}, kCaFolder{10097, "CAPATH"}, kHttpVersion{84, "HTTP_VERSION"}, kNoSignal{99, "NOSIGNAL"},
    kConnectTimeoutMs{156, "CONNECTTIMEOUT_MS"}, kPrivate{10103, "PRIVATE"}, kProtocols{181, "PROTOCOLS"},
    kSuppressConnectHeaders{265, "SUPPRESS_CONNECT_HEADERS"}, kProxyCaFile{10246, "PROXY_CAINFO"};
inline constexpr std::array kOptions = {kWriteData,        kUrl,
                                        kErrorBuffer,      kWriteFunction,
                                        kUserAgent,        kLowSpeedLimit,
                                        kLowSpeedTime,     kHeaders,
                                        kHeaderData,       kHeaderFunction,
                                        kVerifyPeer,       kVerifyHost,
                                        kCaFile,           kCaFolder,
                                        kHttpVersion,      kNoSignal,
                                        kConnectTimeoutMs, kPrivate,
                                        kProtocols,        kSuppressConnectHeaders,
                                        kProxyCaFile};

inline constexpr long kHttp11 = 2;                      // CURL_HTTP_VERSION_1_1
inline constexpr long kHttpAndHttps = 1 | 2;            // CURLPROTO_HTTP | CURLPROTO_HTTPS
inline constexpr int kInfoStatus = 0x200000 + 2;        // CURLINFO_RESPONSE_CODE, a long
inline constexpr int kInfoPrivate = 0x100000 + 21;      // CURLINFO_PRIVATE, a pointer
inline constexpr int kInfoRedirectUrl = 0x100000 + 31;  // CURLINFO_REDIRECT_URL, a string that the handle owns
inline constexpr std::size_t kErrorBytes = 256;         // CURL_ERROR_SIZE
inline constexpr long kGlobalAll = 3;                   // CURL_GLOBAL_ALL

// CURLcode
inline constexpr int kOk = 0, kNoProxy = 5, kNoHost = 6, kNoConnection = 7, kPartialFile = 18, kTimeout = 28,
                     kTlsHandshake = 35, kBadCertificate = 60, kBadCaFile = 77;

// The functions, by their names in the library.
struct Functions {
    int (*global_init)(long flags);
    Easy* (*easy_init)();
    void (*easy_cleanup)(Easy*);
    int (*easy_setopt)(Easy*, int option, ...);
    int (*easy_getinfo)(Easy*, int info, ...);
    const char* (*easy_strerror)(int code);
    Strings* (*slist_append)(Strings*, const char*);
    void (*slist_free_all)(Strings*);
    Multi* (*multi_init)();
    int (*multi_cleanup)(Multi*);
    int (*multi_add_handle)(Multi*, Easy*);
    int (*multi_remove_handle)(Multi*, Easy*);
    int (*multi_perform)(Multi*, int* running);
    int (*multi_poll)(Multi*, void* extra, unsigned extra_count, int timeout_ms, int* count);
    Message* (*multi_info_read)(Multi*, int* left);
};

}  // namespace foresay::hub::curl_abi
