#include "hub/digest.h"

#include <openssl/evp.h>

#include <array>

#include "base/error.h"

namespace foresay::hub {

namespace {
constexpr std::size_t kSha256Digits = 64, kGitDigits = 40;
}

struct Digest::State {
    std::unique_ptr<EVP_MD_CTX, void (*)(EVP_MD_CTX*)> context{EVP_MD_CTX_new(), EVP_MD_CTX_free};
    bool fine = true;
};

Digest::Digest(std::string_view oid, std::int64_t size) : state_(std::make_unique<State>()) {
    const bool git = oid.size() == kGitDigits;
    State& s = *state_;
    s.fine = s.context && EVP_DigestInit_ex(s.context.get(), git ? EVP_sha1() : EVP_sha256(), nullptr) == 1;
    if (git) {
        const std::string head = "blob " + std::to_string(size);
        add({head.c_str(), head.size() + 1});
    }
}

Digest::~Digest() = default;
Digest::Digest(Digest&&) noexcept = default;
Digest& Digest::operator=(Digest&&) noexcept = default;

void Digest::add(std::string_view bytes) {
    State& s = *state_;
    s.fine = s.fine && EVP_DigestUpdate(s.context.get(), bytes.data(), bytes.size()) == 1;
}

std::string Digest::finish() {
    State& s = *state_;
    std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
    unsigned int size = 0;
    s.fine = s.fine && EVP_DigestFinal_ex(s.context.get(), digest.data(), &size) == 1;
    if (!s.fine) throw Error("OpenSSL cannot compute a checksum; its policy may forbid SHA-1");
    std::string digits;
    for (unsigned int i = 0; i < size; ++i) {
        constexpr std::string_view kHexadecimal = "0123456789abcdef";
        digits += kHexadecimal[digest[i] >> 4];
        digits += kHexadecimal[digest[i] & 15];
    }
    return digits;
}

bool is_oid(std::string_view oid) {
    return (oid.size() == kSha256Digits || oid.size() == kGitDigits) &&
           oid.find_first_not_of("0123456789abcdef") == oid.npos;
}

}  // namespace foresay::hub
