// samplers/parameter_file.h: reads the file that a parameter names.
#pragma once

#include <cstddef>
#include <string>

namespace foresay::samplers {

inline constexpr std::size_t kMaxParameterFile = std::size_t{16} << 20;

// Its contents. Throws Error, which begins with `key`, for what is no regular file, cannot be read, or has more than
// kMaxParameterFile bytes.
std::string read_parameter_file(const std::string& path, const std::string& key);

// Reads it now, so that read_parameter_file() has it later: for a process that is about to lose its files. One thread
// at a time with all of these calls. Errors: as read_parameter_file().
void keep_parameter_file(const std::string& path, const std::string& key);

}  // namespace foresay::samplers
