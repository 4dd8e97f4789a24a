// app/edits/answer_edit.h: finds what an answer changes in a file: a unified diff, or the whole changed file.
//
// Errors:   Error if the answer has neither, or if its diff does not fit the file.
#pragma once

#include <string>

#include "app/edits/file_text.h"

namespace foresay::app {

// What the model was asked for. Either is understood, but a code block that is no diff is taken for the whole file only
// when that was asked for: it could be a part of the file.
enum class AskedFor : std::uint8_t { whole_file, diff };

// The bytes of the file after the change. `name`: of the file, without folders; it chooses among several files of a
// diff.
std::string edited_by_answer(const FileText& file, const std::string& name, const std::string& answer, AskedFor asked);

}  // namespace foresay::app
