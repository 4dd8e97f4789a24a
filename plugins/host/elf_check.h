// plugins/host/elf_check.h: reads a shared object as untrusted bytes, before the loader does.
//
// Errors:   none thrown. Every offset is checked before it is followed; nothing is allocated from a number in the file.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace foresay::plugins {

// Why these bytes are not a whole shared object of this machine that exports the data symbol `symbol` with at least
// `symbol_bytes` bytes; empty when they are.
std::string elf_problem(std::span<const std::byte> file, std::string_view symbol, std::size_t symbol_bytes);

// The names of the symbols that a file which passes elf_problem() exports.
std::vector<std::string> exported_symbols(std::span<const std::byte> file);

}  // namespace foresay::plugins
