// server/output/call_parser.h: finds the calls of tools in the content of an answer, as families of models write them.
//
// Rules:    as of machine.h. Text that may become a call is held back; once it cannot, it is content.
// Threads:  one caller for each parser.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "server/output/output_format.h"
#include "server/request.h"

namespace foresay::server {

struct OutputEvent {
    enum class Kind : std::uint8_t {
        reasoning,
        content,
        call,
        blank,  // white space and marks around calls, no part of the content
    };
    Kind kind = Kind::content;
    std::string text;  // of a call: as the model wrote it
    ToolCall call;     // of a call; its id is empty where the model gave none
};

class CallParser {
public:
    CallParser(OutputFamily family, std::vector<Tool> tools);
    void push(std::string_view content, std::vector<OutputEvent>& out);
    void finish(std::vector<OutputEvent>& out);

private:
    void advance(bool end, std::vector<OutputEvent>& out);
    void give(std::size_t bytes, std::vector<OutputEvent>& out);

    OutputFamily family_;
    std::vector<Tool> tools_;
    std::string held_;
    bool begun_ = false;       // content other than blanks was given since the beginning or the last call
    bool called_ = false;      // a call was given
    std::size_t refused_ = 0;  // bytes at the front of what is held where no call begins
};

}  // namespace foresay::server
