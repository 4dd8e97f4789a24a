// Whatever a template and a conversation hold, rendering ends with a text or one TemplateError, within the limits.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "core/jinja/from_json.h"
#include "core/jinja/template.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    using namespace foresay::jinja;
    // The template, and after a NUL the variables as JSON.
    const std::string_view input(reinterpret_cast<const char*>(data), size);
    const std::size_t end = input.find('\0');
    Limits limits;
    limits.steps = 20'000;
    limits.bytes = 4 << 20;
    limits.output_bytes = 1 << 20;
    try {
        const Template source(input.substr(0, end), limits);
        const Value variables = from_json(end == input.npos ? R"({"messages": [{"role": "user", "content": "<|x|>"}]})"
                                                            : input.substr(end + 1));
        if (variables.is(Kind::dict)) source.render(variables.dict());
    } catch (const TemplateError&) {
    }
    return 0;
}
