// core/models/scratch.h: memory for the matrices of one op while it is prepared, used again for the next op.
//
// Life:     until give_back(), which is called when the model is loaded, since its source stays.
// Cost:     pages that the system has to clear take a third of the time of loading a packed format, so one piece is
//           kept. It is as large as the largest op so far; what an op needs beyond it is allocated by itself.
// Threads:  one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace foresay::core {

class Scratch {
public:
    // Bytes that are not set, until reset().
    std::byte* take(std::int64_t bytes) {
        constexpr std::int64_t kAlign = 64;
        const std::int64_t size = (bytes + kAlign - 1) / kAlign * kAlign;
        needed_ += size;
        if (used_ == 0 && size > size_) grow(size);
        if (used_ + size > size_) {
            more_.emplace_back(allocate(size), size);
            return more_.back().first.get();
        }
        used_ += size;
        return kept_.get() + used_ - size;
    }
    // Where a matrix goes, and whether it is there already. One that stays does so whatever is reset.
    std::pair<std::byte*, bool> place(bool stays, const std::string& name, std::int64_t bytes) {
        if (!stays) return {take(bytes), false};
        Piece& piece = staying_[name];
        const bool filled = piece != nullptr;
        if (!filled) piece = allocate(bytes);
        return {piece.get(), filled};
    }
    // Where `data` may be written to, if it lies in what was taken since reset(); else null.
    std::byte* writable(const std::byte* data) const {
        const auto at = [data](const Piece& piece, std::int64_t size) -> std::byte* {
            const std::less<> before;
            const std::byte* const begin = piece.get();
            const bool within = begin != nullptr && !before(data, begin) && before(data, begin + size);
            return within ? piece.get() + (data - begin) : nullptr;
        };
        if (std::byte* const found = at(kept_, used_)) return found;
        for (const auto& [piece, size] : more_) {
            if (std::byte* const found = at(piece, size)) return found;
        }
        return nullptr;
    }
    // What was taken is not needed any more.
    void reset() {
        if (!more_.empty()) {
            more_.clear();
            grow(needed_);
        }
        used_ = needed_ = 0;
    }
    // The same, and all that does not stay goes.
    void give_back() {
        more_.clear();
        kept_.reset();
        size_ = used_ = needed_ = 0;
    }

private:
    using Piece = std::unique_ptr<std::byte[]>;
    static Piece allocate(std::int64_t bytes) {
        return std::make_unique_for_overwrite<std::byte[]>(static_cast<std::size_t>(bytes));
    }
    void grow(std::int64_t bytes) {
        kept_.reset();  // first, so that both are never there at once
        size_ = 0;
        kept_ = allocate(bytes);
        size_ = bytes;
    }

    Piece kept_;
    std::vector<std::pair<Piece, std::int64_t>> more_;  // and its bytes
    std::map<std::string, Piece> staying_;
    std::int64_t size_ = 0, used_ = 0, needed_ = 0;  // of kept_, its part that is taken, and of the present op
};

}  // namespace foresay::core
