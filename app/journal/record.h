// app/journal/record.h: what a saved session is made of, as lines of text. docs/sessions.md describes the format.
//
// Layout:   a line is the CRC-32 of its JSON text as eight hexadecimal digits, a space, the JSON text, a newline. A
//           line that was cut off by a crash has no newline or another checksum.
// Errors:   parse_record() throws Error for a line that is whole but says what it must not: lines are untrusted.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>

#include "app/conversation/turn_tree.h"

namespace foresay::app {

inline constexpr int kSessionVersion = 1;
inline constexpr std::size_t kMaxRecordBytes = std::size_t{64} << 20;

// The first record of a file.
struct SessionHeader {
    int version = kSessionVersion;
    std::string created;  // UTC, ISO 8601
};

// Who draws from here on.
struct EngineRecord {
    std::string model;     // its path
    std::string identity;  // of the weights, see model_identity()
    std::int64_t vocabulary = 0;
    std::string backend;  // "cpu (avx512, 2 threads)": bits are promised for each backend and instruction set
    bool operator==(const EngineRecord&) const = default;
};

// The configuration from here on, as TOML.
struct SettingsRecord {
    std::string toml;
};

using SessionRecord = std::variant<SessionHeader, EngineRecord, SettingsRecord, TurnTree::Change>;

// The line of a record, with its newline.
std::string record_line(const SessionRecord& record);
// The same for any JSON text.
std::string checked_line(std::string_view json);

// The JSON text of a line without its newline; empty when the line is not whole.
std::string_view whole_line(std::string_view line);
SessionRecord parse_record(std::string_view json);

}  // namespace foresay::app
