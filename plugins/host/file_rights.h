// plugins/host/file_rights.h: who can change the file of a plugin. A plugin is native code: those who can replace it
// run code as the user who loads it.
//
// Errors:   none: what cannot be looked at counts as safe, and opening it says why.
#pragma once

#include <filesystem>
#include <string>

namespace foresay::plugins {

// Why `file` must not be loaded: any user of the machine can change it, or a folder on the way to it. Empty: only its
// owner and group can.
std::string rights_problem(const std::filesystem::path& file);

}  // namespace foresay::plugins
