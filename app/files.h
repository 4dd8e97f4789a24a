// app/files.h: reading what the user names, whole and bounded, and finding what belongs to the program.
//
// Errors:   Error naming the file and what is wrong with it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace foresay::app {

inline constexpr std::int64_t kMaxTextBytes = std::int64_t{64} << 20;

// The bytes of `path`, at most `limit` of them; `what` names the file in errors ("the prompt").
std::string read_file(const std::filesystem::path& path, const std::string& what, std::int64_t limit = kMaxTextBytes);
// The bytes of standard input up to its end.
std::string read_stdin(const std::string& what, std::int64_t limit = kMaxTextBytes);

// The prompt or text of a command: `file` if it is not empty, else standard input, which must not be a terminal.
std::string read_text(const std::string& file, const std::string& what);

// A file that belongs to the program ("configs/python-coder.toml"), looked for in the folders above the program and in
// share/foresay beside it, then in the source tree. Errors: none of them has it.
std::filesystem::path data_file(const std::string& relative);

// $XDG_STATE_HOME/foresay or ~/.local/state/foresay, made if it is not there; empty when that cannot be.
std::filesystem::path state_folder();

}  // namespace foresay::app
