// hub/download.h: brings one file into the cache, as OID.incomplete.
//
// A large file comes in segments over several connections. They are written in order, so that OID.incomplete is always
// a beginning of the file: any program can continue it, and the checksum is computed as it is written.
// Errors:   Error if the hub, or what stands between, does not deliver what it lists: length, range, checksum. What has
//           arrived stays for the next time, unless the checksum is wrong.
#pragma once

#include <filesystem>
#include <functional>
#include <string>

#include "hub/choice.h"
#include "hub/client.h"

namespace foresay::hub {

// Fetches `file` of `commit` into `incomplete`, or continues it. `progress` is called with the bytes that are here.
void download(Client& client, const std::string& commit, const HubFile& file, const std::filesystem::path& incomplete,
              const std::function<void(std::int64_t)>& progress);

}  // namespace foresay::hub
