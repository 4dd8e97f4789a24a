// app/files.h: reads the user's files, up to a limit, and finds the program's own files.
//
// Errors:   Error naming the file and the problem.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace foresay::app {

inline constexpr std::int64_t kMaxTextBytes = std::int64_t{64} << 20;

// The contents of `path`; Error if they are longer than `limit` bytes, or if the file would block
// (core/config/input_file.h). `what` names the file in errors ("the prompt").
std::string read_file(const std::filesystem::path& path, const std::string& what, std::int64_t limit = kMaxTextBytes);
// The contents of standard input.
std::string read_stdin(const std::string& what, std::int64_t limit = kMaxTextBytes);

// The prompt or text of a command: the contents of `file`, or of standard input if `file` is "-" or empty. If it is
// empty, standard input must not be a terminal. `otherwise` names another way to give the text: "-p TEXT"; may be
// empty.
std::string read_text(const std::string& file, const std::string& what, const std::string& otherwise = "");

// Finds a file of the program ("configs/python-coder.toml") in the folders above the executable, in share/foresay below
// them, and then in the source tree. Errors: not found.
std::filesystem::path data_file(const std::string& relative);

// $XDG_STATE_HOME/foresay or ~/.local/state/foresay, which need not exist; empty if neither variable is set.
std::filesystem::path state_place();
// The same folder, created if needed; empty if that fails.
std::filesystem::path state_folder();

}  // namespace foresay::app
