// server/stored.h: answers that clients asked to be kept, so that a later request may go on from them by their id. In
// memory alone, and bounded: the oldest go first.
//
// Threads:  any.
// Cost:     a look-up by id; text is counted in bytes as it is kept.
#pragma once

#include <cstddef>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "server/request.h"

namespace foresay::server {

class StoredResponses {
public:
    struct Entry {
        std::string owner;              // the name of the key; others do not see the entry
        std::string response;           // as JSON
        Json input;                     // the items that the request brought
        std::vector<Message> messages;  // the conversation, the answer included
    };

    explicit StoredResponses(std::size_t most, std::size_t most_bytes = std::size_t{64} << 20)
        : most_(most), most_bytes_(most_bytes) {}

    bool keeps() const { return most_ > 0; }
    void add(const std::string& id, Entry entry);
    // Null: it is not here, or not this owner's.
    std::shared_ptr<const Entry> find(const std::string& id, const std::string& owner);
    bool remove(const std::string& id, const std::string& owner);
    std::size_t count() const;
    std::size_t bytes() const;

private:
    struct Kept {
        std::string id;
        std::size_t bytes = 0;
        std::shared_ptr<const Entry> entry;
    };

    const std::size_t most_, most_bytes_;
    mutable std::mutex mutex_;
    std::list<Kept> kept_;  // the last one used in front
    std::size_t bytes_ = 0;
};

}  // namespace foresay::server
