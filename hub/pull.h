// hub/pull.h: fetches a model from the hub into the cache.
//
// Nothing is visible in the cache before all of it is there and its checksums are right: contents first, then the
// snapshot's links, the revision last. Ended at any moment, it continues at the next call.
// Threads:  one caller at a time for one Observer; several programs may pull the same model.
// Errors:   Error, one sentence; Cancelled when the observer says so.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "hub/choice.h"
#include "hub/client.h"
#include "hub/name.h"
#include "hub/settings.h"

namespace foresay::hub {

struct PulledModel {
    std::filesystem::path path;  // a GGUF file or a folder
    ModelFiles model;
    std::string commit;
    std::int64_t fetched = 0;  // bytes that were not here
};

// Asks the hub which commit the revision is now. With Settings::offline, finds what is in the cache.
PulledModel pull(const Settings& settings, const ModelName& name, Observer& observer);

// The files of a revision as the hub lists them.
struct Listing {
    std::string commit;
    std::vector<HubFile> files;
};
Listing list_files(Client& client);

}  // namespace foresay::hub
