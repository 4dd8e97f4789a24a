// app/journal/record.h: the records of a saved session, and their form as lines of text (docs/sessions.md).
//
// Layout:   a line is the CRC-32 of its JSON text as eight hexadecimal digits, a space, the JSON text, a newline. A
//           line that a crash cut off has no newline or a wrong checksum.
// Errors:   parse_record() throws Error for an intact line with invalid contents: files are untrusted.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "app/conversation/turn_tree.h"

namespace foresay::app {

inline constexpr int kSessionVersion = 1;
inline constexpr std::size_t kMaxRecordBytes = std::size_t{64} << 20;

// The first record of a file.
struct SessionHeader {
    int version = kSessionVersion;
    std::string created;  // UTC, ISO 8601
};

// What generates the turns that follow.
struct EngineRecord {
    std::string model;     // its path
    std::string identity;  // model_identity() of its files
    std::int64_t vocabulary = 0;
    std::string backend;  // "cpu (avx512, 2 threads)": answers repeat bit for bit only on the same backend
    bool operator==(const EngineRecord&) const = default;
};

// The configuration of the turns that follow, as TOML.
struct SettingsRecord {
    std::string toml;
};

// A change that is being generated: its turns have no answers yet. It counts only while no change follows it in the
// file, so it is what a process that was killed leaves of its last answers.
struct UnfinishedRecord {
    TurnTree::Change change;
};

// More tokens of an answer of the UnfinishedRecord before it.
struct TokensRecord {
    std::size_t turn = 0;  // among the turns of that change
    std::vector<std::int32_t> tokens;
};

using SessionRecord =
    std::variant<SessionHeader, EngineRecord, SettingsRecord, TurnTree::Change, UnfinishedRecord, TokensRecord>;

// The line of a record, with its newline.
std::string record_line(const SessionRecord& record);
// The line of any JSON text, with its checksum and newline.
std::string checked_line(std::string_view json);

// The JSON text of a line that is given without its newline; empty when the checksum does not match.
std::string_view whole_line(std::string_view line);
SessionRecord parse_record(std::string_view json);

}  // namespace foresay::app
