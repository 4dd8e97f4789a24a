// hub/digest.h: the checksum by which the hub lists a file, computed piece by piece.
//
// Large files have their SHA-256. Small ones, which lie in the repository itself, have git's id of a blob: the SHA-1 of
// "blob SIZE", a zero byte and the contents.
// Cost:     0.4 to 2 GB/s.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace foresay::hub {

class Digest {
public:
    // The digest of a file of `size` bytes that is listed as `oid`: 64 digits of a SHA-256, or 40 of git.
    Digest(std::string_view oid, std::int64_t size);
    ~Digest();
    Digest(Digest&&) noexcept;
    Digest& operator=(Digest&&) noexcept;

    void add(std::string_view bytes);
    // The digits, in lower case. Called once, at the end.
    std::string finish();

private:
    struct State;
    std::unique_ptr<State> state_;
};

// Whether `oid` has the form of one of the two.
bool is_oid(std::string_view oid);

}  // namespace foresay::hub
