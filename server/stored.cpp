#include "server/stored.h"

#include <algorithm>
#include <utility>

namespace foresay::server {

namespace {

std::size_t bytes_of(const StoredResponses::Entry& entry) {
    // A JSON value takes several times its text.
    std::size_t bytes = sizeof entry + entry.owner.size() + entry.response.size() + 4 * entry.input.dump().size();
    for (const Message& message : entry.messages) {
        bytes += sizeof message + message.content.size() + message.reasoning.size();
        for (const ToolCall& call : message.calls) bytes += sizeof call + call.name.size() + call.arguments.size();
    }
    return bytes;
}

}  // namespace

void StoredResponses::add(const std::string& id, Entry entry) {
    const std::size_t bytes = bytes_of(entry);
    if (most_ == 0 || bytes > most_bytes_) return;
    const std::lock_guard lock(mutex_);
    kept_.push_front({id, bytes, std::make_shared<const Entry>(std::move(entry))});
    bytes_ += bytes;
    while (kept_.size() > most_ || bytes_ > most_bytes_) {
        bytes_ -= kept_.back().bytes;
        kept_.pop_back();
    }
}

std::shared_ptr<const StoredResponses::Entry> StoredResponses::find(const std::string& id, const std::string& owner) {
    const std::lock_guard lock(mutex_);
    const auto found = std::find_if(kept_.begin(), kept_.end(),
                                    [&](const Kept& one) { return one.id == id && one.entry->owner == owner; });
    if (found == kept_.end()) return nullptr;
    kept_.splice(kept_.begin(), kept_, found);
    return kept_.front().entry;
}

bool StoredResponses::remove(const std::string& id, const std::string& owner) {
    const std::lock_guard lock(mutex_);
    const auto found = std::find_if(kept_.begin(), kept_.end(),
                                    [&](const Kept& one) { return one.id == id && one.entry->owner == owner; });
    if (found == kept_.end()) return false;
    bytes_ -= found->bytes;
    kept_.erase(found);
    return true;
}

std::size_t StoredResponses::count() const {
    const std::lock_guard lock(mutex_);
    return kept_.size();
}

std::size_t StoredResponses::bytes() const {
    const std::lock_guard lock(mutex_);
    return bytes_;
}

}  // namespace foresay::server
