// Commands that write answers into files, and that keep files in the context.
#include <algorithm>
#include <string>
#include <vector>

#include "app/conversation/source_files.h"
#include "app/edits/answer_edit.h"
#include "app/edits/code_blocks.h"
#include "app/edits/file_text.h"
#include "app/output.h"
#include "app/repl/commands/arguments.h"
#include "app/repl/commands/topics.h"
#include "app/repl/completion.h"
#include "app/repl/repl.h"
#include "base/error.h"
#include "core/text/utf8.h"

namespace foresay::app {

namespace {

// A changed file of at most so many tokens is asked for as a whole, because models write whole files more reliably than
// diffs. Its unchanged parts are drafted from the prompt.
constexpr std::int64_t kWholeFileTokens = 1500;
constexpr std::int64_t kDiffTokens = 2048;

// A code block of the last answer, or another text that /write can write.
std::string text_to_write(Repl& repl, const std::string& which) {
    Conversation& conversation = repl.conversation();
    const std::string answer = core::to_valid_utf8(conversation.answer_text(conversation.last()));
    const std::vector<CodeBlock> blocks = code_blocks(answer);
    std::string text;
    if (which == "document") {
        if (conversation.format() != core::ChatFormat::complete) {
            throw Error("this conversation is no document; /write FILE all writes the whole last answer");
        }
        text = core::to_valid_utf8(conversation.tokenizer().decode(conversation.document().tokens));
    } else if (which == "all" || (which.empty() && blocks.empty())) {
        text = answer;
    } else {
        if (blocks.empty()) throw Error("the last answer has no code block; /write FILE writes all of it");
        const std::size_t number =
            which.empty() ? blocks.size() : whole_number(which, "the number of the code block", 1, blocks.size());
        const CodeBlock& block = blocks[number - 1];
        if (!block.closed) say(dim("The code block has no end, so the answer may be cut off.") + "\n");
        text = block.text;
    }
    if (text.empty()) throw Error("there is nothing to write: the text is empty");
    if (!text.ends_with('\n')) text += '\n';
    return text;
}

void write(Repl& repl, const std::string& arguments) {
    std::vector<std::string> words = split_words(arguments);
    WriteOptions options;
    std::erase_if(words, [&](const std::string& word) { return take_write_option(word, options); });
    if (words.empty() || words.size() > 2) throw Error("write /write FILE or /write FILE BLOCK");
    if (repl.conversation().empty()) throw Error("there is no answer to write yet");
    require_consent(repl, "/write", options);
    const std::string text = text_to_write(repl, words.size() > 1 ? words[1] : "");
    const TargetFile file = read_target(words[0], {.outside = options.outside});
    propose_write(repl, file, FileText(file.bytes).with_text(text), options);
}

// Takes a word, perhaps in quotes, from the front of `text`.
std::string take_word(std::string& text) {
    std::size_t end = 0;
    for (bool quoted = false; end < text.size(); ++end) {
        if (text[end] == '\\') {
            ++end;
        } else if (text[end] == '"') {
            quoted = !quoted;
        } else if (!quoted && (text[end] == ' ' || text[end] == '\t' || text[end] == '\n')) {
            break;
        }
    }
    const std::vector<std::string> words = split_words(std::string_view(text).substr(0, end));
    text.erase(0, text.find_first_not_of(" \t\n", std::min(end, text.size())));
    return words.empty() ? "" : words.front();
}

struct PatchRequest {
    std::string file, instruction;
    WriteOptions options;
};

PatchRequest parse_patch(std::string arguments) {
    PatchRequest request;
    while (!arguments.empty()) {
        const std::string before = arguments;
        const std::string word = take_word(arguments);
        if (take_write_option(word, request.options)) continue;
        if (!request.file.empty()) {
            request.instruction = before;
            break;
        }
        request.file = word;
    }
    if (request.instruction.empty()) throw Error("write /patch FILE and what to change in it");
    return request;
}

std::string patch_message(const PatchRequest& request, AskedFor asked) {
    if (asked == AskedFor::whole_file) {
        return request.instruction + "\n\nChange " + request.file +
               " accordingly. Reply with the complete changed file in one code block, and leave everything else in it "
               "as it is.";
    }
    return request.instruction + "\n\nChange " + request.file +
           " accordingly. Reply with a unified diff of the file in one code block: --- and +++ lines with its name, "
           "then hunks that begin with @@ and have three lines of context.";
}

void patch(Repl& repl, const std::string& arguments) {
    Conversation& conversation = repl.conversation();
    const PatchRequest request = parse_patch(arguments);
    if (conversation.format() == core::ChatFormat::complete) {
        throw Error(
            "/patch needs a model that follows instructions, and this one continues text; use /fim FILE:LINE "
            "--apply, or /set chat.style if the model has a chat format");
    }
    require_consent(repl, "/patch", request.options);
    const TargetFile target = read_target(request.file, {.outside = request.options.outside, .must_exist = true});
    const FileText file(target.bytes);
    Conversation::Answer answer;
    AskedFor asked = AskedFor::whole_file;
    repl.with_files([&] {
        const std::int64_t before = conversation.file_tokens();
        conversation.attach({request.file, file.text()});
        const std::int64_t tokens = conversation.file_tokens() - before;
        const std::int64_t room = repl.engine().context_length() - conversation.tokens() - conversation.file_tokens();
        Conversation::Limits limits = repl.limits();
        const std::int64_t most = tokens + tokens / 2 + 256;  // what the changed file may take
        if (tokens > kWholeFileTokens || room < most) asked = AskedFor::diff;
        // An answer that is cut off changes nothing, so it gets more room than other answers.
        if (limits.max_tokens > 0) {
            const std::int64_t least = asked == AskedFor::whole_file ? most : kDiffTokens;
            limits.max_tokens = std::max(limits.max_tokens, static_cast<std::int32_t>(least));
        }
        const std::string message = patch_message(request, asked);
        repl.show_answer(
            [&](const Repl::Show& show) {
                answer = conversation.answer(message, limits, show);
                return answer;
            },
            repl.text_before(message));
    });
    if (answer.result.finish == speculative::FinishReason::cancelled) {
        return say(dim("Cancelled; nothing was written.") + "\n");
    }
    if (answer.result.finish == speculative::FinishReason::length) {
        throw Error(
            "the answer was cut at the limit of tokens, so nothing was written; raise chat.max_tokens with /set, "
            "or start with a larger --context");
    }
    const std::string text = core::to_valid_utf8(conversation.answer_text(conversation.last()));
    propose_write(repl, target, edited_by_answer(file, target.path.filename().string(), text, asked), request.options);
}

void watch(Repl& repl, const std::string& arguments) {
    std::vector<std::string> words = split_words(arguments);
    const bool off = std::erase(words, "--off") > 0;
    if (off && words.empty()) throw Error("write /watch --off FILE");
    for (const std::string& word : words) {
        const std::filesystem::path path = user_path(word);
        if (off) {
            repl.watched().remove(path);
        } else {
            read_text_file(path);  // throws
            repl.watched().add(path);
        }
    }
    std::string out;
    for (const std::filesystem::path& path : repl.watched().files()) out += printable(path.string()) + "\n";
    if (out.empty()) return say(dim("No file is watched; /watch FILE watches one.") + "\n");
    say(out + dim("Each is read before your next message, and again whenever it has changed.") + "\n");
}

Candidates complete_written(const CompletionRequest& request) {
    if (request.before.empty()) return complete_files(request);
    return {"all", "document", "--yes", "--outside"};
}

Candidates complete_watched(const CompletionRequest& request) {
    Candidates candidates;
    if (request.before.empty() || request.before.front() != "--off") {
        candidates = complete_files(request);
        candidates.emplace_back("--off");
    } else {
        for (const std::filesystem::path& path : request.repl.watched().files()) candidates.push_back(path.string());
    }
    return candidates;
}

Candidates complete_first_file(const CompletionRequest& request) {
    return request.before.empty() ? complete_files(request) : Candidates{};
}

constexpr ReplCommand kCommands[] = {
    {"write", "FILE [BLOCK|all|document] [--yes] [--outside]", "write a code block of the last answer into a file",
     "Without BLOCK, writes the last code block, or the whole answer if it has none. BLOCK is the number of a code "
     "block, from 1; `all` is the whole answer, `document` your text and the model's in the style complete. Shows what "
     "changes in FILE and asks; --yes does not ask. Unchanged lines keep their bytes, the file its line ends, "
     "encoding, mode and owner. A copy of the old file is kept in the state folder, and /undo takes the write back. "
     "FILE must be inside the working folder, unless --outside is given.",
     write, complete_written},
    {"patch", "FILE [--yes] [--outside] INSTRUCTION", "let the model change a file",
     "Sends FILE and INSTRUCTION, and asks for the changed file or, if it is long, for a unified diff. Shows what "
     "changes and asks before it writes, as /write does. A diff that does not fit the file changes nothing. Needs a "
     "model that follows instructions.",
     patch, complete_first_file},
    {"watch", "[FILE...|--off FILE]", "keep a file's present text in the context",
     "The file is attached to your next message, and attached again before each later message if it has changed since. "
     "The text that the model read is saved with the conversation. Without FILE, lists the watched files.",
     watch, complete_watched},
};

}  // namespace

CommandTopic file_commands() { return {"Files", kCommands}; }

}  // namespace foresay::app
