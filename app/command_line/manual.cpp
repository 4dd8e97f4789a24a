// Generates the manual page: the commands and options from their descriptions, and the text that is common to all.
#include <algorithm>

#include "app/command_line/description.h"

namespace foresay::app {

namespace {

// Escapes text for roff: dashes stay dashes, and no line begins with a control character.
std::string roff(const std::string& text) {
    std::string out;
    for (const char c : text) {
        if (c == '-') {
            out += "\\-";
        } else if (c == '\\') {
            out += "\\e";
        } else if ((c == '.' || c == '\'') && (out.empty() || out.back() == '\n')) {
            out += std::string("\\&") + c;
        } else {
            out += c;
        }
    }
    return out;
}

std::string option(const OptionDescription& option) {
    std::string out = ".TP\n";
    for (const std::string& name : option.names) {
        out += (&name == option.names.data() ? "" : ", ") + ("\\fB" + roff(name)) + "\\fR";
    }
    if (!option.value.empty()) out += (option.names.empty() ? "" : " ") + ("\\fI" + roff(option.value)) + "\\fR";
    return out + "\n" + roff(option.doc) + "\n";
}

std::string command(const CommandDescription& command) {
    std::string usage = "\\fBforesay " + roff(command.name) + "\\fR";
    if (std::any_of(command.options.begin(), command.options.end(), [](const auto& o) { return !o.names.empty(); }))
        usage += " [\\fIoptions\\fR]";
    if (!command.usage.empty()) usage += " \\fI" + roff(command.usage) + "\\fR";
    for (const OptionDescription& argument : command.options) {
        if (!argument.names.empty() || !command.usage.empty()) continue;
        const std::string name = "\\fI" + roff(argument.value) + "\\fR" + (argument.repeatable ? "..." : "");
        usage += argument.required ? " " + name : " [" + name + "]";
    }
    std::string out = ".SS " + roff(command.name) + "\n" + usage + "\n.PP\n" + roff(command.doc) + "\n";
    for (const OptionDescription& described : command.options) {
        if (!described.shared && described.names != std::vector<std::string>{"-h", "--help"}) out += option(described);
    }
    if (!command.details.empty()) out += ".PP\n.nf\n" + roff(command.details) + ".fi\n";
    return out;
}

constexpr const char* kDescription = R"(.SH DESCRIPTION
foresay runs a large language model with a small draft model. The draft model proposes several tokens, and the large
model verifies them in a single pass. This changes the speed, never the text: the same prompt, seed and sampler settings
give the same bytes. Sampler plugins can change how each token is chosen.
.PP
Unless a configuration or \fB\-\-model\fR names a model, foresay uses the bundled pair.
)";

constexpr const char* kRest = R"(.SH CONFIGURATION
A configuration is a TOML file. Its layers, lowest first: the built\-in defaults; the system's file; the user's file;
the file on the command line, after the files it extends; the environment; \fB\-\-set\fR; the other options.
Tables merge key by key; scalars and lists replace those of lower layers.
\fBforesay config show\fR prints every key and where its value comes from, \fBforesay config reference\fR every key with
its meaning.
.SH ENVIRONMENT
.TP
\fBFORESAY_\fITABLE\fB__\fIKEY\fR
Sets a key of the configuration: upper case, two underscores for each dot. \fBFORESAY_SAMPLING__TOP_K__K=20\fR is
\fB\-\-set sampling.top_k.k=20\fR.
.TP
\fBFORESAY_PLUGIN_PATH\fR
Folders with sampler plugins: absolute paths, separated by colons.
.TP
\fBFORESAY_LOG\fR
The log level on standard error: error, warn (the default), info, debug.
.TP
\fBNO_COLOR\fR
No colours, unless \fB\-\-color\fR asks for them.
.TP
\fBCLICOLOR_FORCE\fR
Colours even where the output is not a terminal, unless it is 0 or \fBNO_COLOR\fR is set.
.TP
\fBPAGER\fR
Shows text that is longer than the screen [default: less]; \fBcat\fR or an empty value prints it at once.
.SH FILES
.TP
\fI/etc/xdg/foresay/config.toml\fR
The system's configuration (\fBXDG_CONFIG_DIRS\fR).
.TP
\fI~/.config/foresay/config.toml\fR
The user's configuration (\fBXDG_CONFIG_HOME\fR).
.TP
\fI~/.local/state/foresay/\fR
History, saved conversations, copies of files from before they were written (\fIbackups\fR), and other state
(\fBXDG_STATE_HOME\fR).
.SH EXIT STATUS
.TP
0
Done.
.TP
1
An error; standard error says what is wrong, where, and what to do.
.TP
2
The command line is wrong.
.TP
130
Cancelled.
.SH EXAMPLES
.TP
A conversation with the bundled pair
\fBforesay chat\fR
.TP
One completion, and the same text without speculation
\fBforesay complete \-p 'def fibonacci(n):' \-n 64\fR
.br
\fBforesay complete \-p 'def fibonacci(n):' \-n 64 \-\-speculation off\fR
.TP
The text that is missing at line 12, column 5 of a file; and the same inserted into the file
\fBforesay complete \-\-fim parser.py:12:5\fR
.br
\fBforesay complete \-\-fim parser.py:12:5 \-\-write\fR
.TP
Models of your own
\fBforesay chat \-\-model big.gguf \-\-draft small.gguf\fR
.TP
Check whether a model is undamaged, as far as its checksum is known
\fBforesay inspect \-\-verify big.gguf\fR
.TP
Check whether two models can pair, and how much memory they take
\fBforesay inspect big.gguf small.gguf\fR
)";

}  // namespace

std::string manual_page() {
    const auto commands = command_line();
    std::string out = ".\\\" Generated by: foresay manual\n";
    out += ".TH FORESAY 1 \"\" \"foresay " FORESAY_VERSION "\" \"User Commands\"\n";
    out += ".SH NAME\nforesay \\- run a large language model, sped up by a small draft model\n";
    out += ".SH SYNOPSIS\n\\fBforesay\\fR \\fICOMMAND\\fR [\\fIoptions\\fR] [\\fIarguments\\fR]\n";
    out += kDescription;
    out += ".SH COMMANDS\n";
    for (const CommandDescription& described : commands) {
        if (!described.name.empty()) out += command(described);
    }
    out += ".SH COMMON OPTIONS\n";
    std::vector<std::vector<std::string>> listed;
    for (const CommandDescription& described : commands) {
        for (const OptionDescription& shared : described.options) {
            const bool common = described.name.empty() || shared.shared;
            if (!common || std::find(listed.begin(), listed.end(), shared.names) != listed.end()) continue;
            listed.push_back(shared.names);
            out += option(shared);
        }
    }
    return out + kRest;
}

}  // namespace foresay::app
