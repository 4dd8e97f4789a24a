#!/bin/bash
# docs/record_session.sh [PROGRAM]: makes docs/session.svg, a picture of a real conversation with the bundled pair.
# PROGRAM is build/release/app/foresay unless named. Needs tmux; the text is the same every time, the times are not.
set -euo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.."
program=$(readlink -f -- "${1-build/release/app/foresay}")
columns=124 rows=44
state=$(mktemp -d)
server="foresay_record_$$"
trap 'tmux -L "$server" kill-server 2>/dev/null || true; rm -rf -- "$state"' EXIT
screen() { tmux -L "$server" capture-pane -p "$@"; }
await() { for ((i = 0; i < 300; i++)); do screen | grep -qF -- "$1" && return; sleep 0.1; done; screen >&2; exit 1; }
say() { tmux -L "$server" send-keys -l -- "$1"; tmux -L "$server" send-keys Enter; }
answers() { screen | grep -c '^context ' || true; }
answer() {  # say something and wait until its statistics line has come
    local before; before=$(answers)
    say "$1"
    for ((i = 0; i < 300; i++)); do (($(answers) > before)) && return; sleep 0.1; done
    screen >&2; exit 1
}

tmux -L "$server" -f /dev/null new-session -d -x "$columns" -y "$rows" env -u NO_COLOR TERM=tmux-256color \
    XDG_STATE_HOME="$state" XDG_CONFIG_HOME="$state" "$program" chat -n 56
await '/help lists the commands'
answer 'def read_json(path):'
say '/view on'; await 'Drafted tokens are marked'
answer '/retry'
say '/stats'; await 'answers   2'
sleep 0.5

# The screen as SVG: SGR 1 is bold, 2 dim, 4 underlines, 32, 35 and 36 are colours; other attributes are left out.
screen -e | awk -v columns="$columns" '
    function escaped(text) {
        gsub(/&/, "\\&amp;", text); gsub(/</, "\\&lt;", text); gsub(/>/, "\\&gt;", text)
        return text
    }
    function style() { return (bold ? "b " : "") (dim ? "d " : "") (colour ? "c" colour " " : "") (under ? "u" : "") }
    { lines[++count] = $0; if ($0 != "") last = count }
    END {
        width = columns * 8.4 + 32; height = last * 19 + 30
        printf "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" width=\"%d\" height=\"%d\">\n", \
               width, height, width, height
        print "<style>text{font:14px monospace;fill:#d8dee9;white-space:pre}" \
              ".b{font-weight:bold}.d{fill:#7b8494}.c32{fill:#8fce7e}.c35{fill:#c79bf0}.c36{fill:#6fcbd6}" \
              ".u{text-decoration:underline}</style>"
        printf "<rect width=\"%d\" height=\"%d\" rx=\"8\" fill=\"#1c2026\"/>\n", width, height
        for (i = 1; i <= last; i++) {
            printf "<text x=\"16\" y=\"%d\" xml:space=\"preserve\">", i * 19 + 8
            rest = lines[i]
            while (match(rest, /\033\[[0-9;]*m/)) {
                part = substr(rest, 1, RSTART - 1); codes = substr(rest, RSTART + 2, RLENGTH - 3)
                rest = substr(rest, RSTART + RLENGTH)
                if (part != "") printf "<tspan class=\"%s\">%s</tspan>", style(), escaped(part)
                n = split(codes == "" ? "0" : codes, code, ";")
                for (j = 1; j <= n; j++) {
                    if (code[j] == 0) { bold = dim = colour = under = 0 }
                    if (code[j] == 1) bold = 1
                    if (code[j] == 2) dim = 1
                    if (code[j] == 22) bold = dim = 0
                    if (code[j] == 4) under = 1
                    if (code[j] == 24) under = 0
                    if (code[j] == 32 || code[j] == 35 || code[j] == 36) colour = code[j]
                    if (code[j] == 39) colour = 0
                }
            }
            if (rest != "") printf "<tspan class=\"%s\">%s</tspan>", style(), escaped(rest)
            print "</text>"
        }
        print "</svg>"
    }' > docs/session.svg
echo "docs/session.svg: $(wc -c < docs/session.svg) bytes" >&2
