// server/model.h: the model that a server serves: prompts as tokens, chains as a request wants them, and what the bits
// of its texts depend on.
//
// Life:     the engine outlives it.
// Threads:  immutable after construction, but for the grammars that it keeps; any thread.
// Cost:     the constructor reads the model's files once, for the fingerprint.
// Errors:   ApiError with the field that is wrong.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/chat/style.h"
#include "engine/engine.h"
#include "server/grammars.h"
#include "server/output/output_format.h"
#include "server/request.h"

namespace foresay::server {

class ServedModel {
public:
    // `name`: what clients call it; empty: the name of its file.
    ServedModel(const engine::Engine& engine, std::string name, const std::vector<std::string>& aliases);

    const engine::Engine& engine() const { return engine_; }
    const core::Tokenizer& tokenizer() const { return engine_.tokenizer(); }
    const core::ChatStyle& style() const { return style_; }
    const std::string& name() const { return name_; }
    bool answers_to(std::string_view name) const;
    std::int64_t created() const { return created_; }  // seconds since 1970
    std::int64_t parameters() const { return parameters_; }
    std::int64_t file_bytes() const { return file_bytes_; }
    std::int32_t context_length() const { return engine_.context_length(); }
    // "fp_" and 12 hexadecimal digits: of the model's files, how it is run, and the template. Not of the draft.
    const std::string& fingerprint() const { return fingerprint_; }
    // About the target's files.
    const std::string& digest() const { return digest_; }

    bool fills() const;        // has the tokens of fill-in-the-middle
    bool converses() const;    // has a chat format
    bool takes_tools() const;  // its template does; others get a description of the tools
    const OutputFormat& output_format() const { return format_; }
    // How tool calls are written for this conversation.
    bool describes_tools(const Conversation& conversation) const;

    // The rendered text of a conversation.
    std::string render(const Conversation& conversation) const;
    // At most context_length() - 1 tokens. `max_tokens`: of the answer, 0 for any; texts around a hole leave room for
    // it.
    std::vector<std::int32_t> encode(const Prompt& prompt, std::int64_t max_tokens) const;
    // The same without a limit by the context.
    std::vector<std::int32_t> count(const Prompt& prompt) const;

    samplers::ChainSpec chain_spec(const GenerationRequest& request) const;
    // The chain of an answer to a prompt, whose tokens are given: with the grammar that the request wants.
    std::unique_ptr<samplers::Chain> chain(const GenerationRequest& request, const Prompt& prompt,
                                           std::span<const std::int32_t> tokens) const;

private:
    jinja::Text render_template(const Conversation& conversation) const;
    std::vector<std::int32_t> encode_conversation(const Conversation& conversation) const;
    std::vector<std::int32_t> encode_parts(const std::vector<Prompt::Part>& parts, const std::string& param) const;
    std::vector<std::int32_t> encode_hole(const Hole& hole, std::int64_t max_tokens) const;
    std::vector<std::int32_t> encode_any(const Prompt& prompt, std::int64_t max_tokens) const;
    void find_fingerprint();
    void set_grammar(const GenerationRequest& request, const Prompt& prompt, std::span<const std::int32_t> tokens,
                     samplers::ChainSpec& spec) const;
    Json schema_of(const Tool& tool) const;
    void check_grammar(const std::string& language, const std::string& text, const std::string& param) const;

    const engine::Engine& engine_;
    mutable Grammars grammars_;  // it locks
    core::ChatStyle style_;
    OutputFormat format_;
    std::string name_;
    std::vector<std::string> aliases_;
    std::int64_t created_ = 0, parameters_ = 0, file_bytes_ = 0;
    std::string fingerprint_, digest_;
    bool takes_tools_ = false, typed_content_ = false, object_arguments_ = true, native_developer_ = false;
};

}  // namespace foresay::server
