"""python_blocks.py FILE: whether the programs of a JSON list have sound indentation, brackets and ends of strings."""
import io
import json
import sys
import tokenize

PAIRS = {")": "(", "]": "[", "}": "{"}


def problem(text):
    """What is wrong with a program, by Python's own tokenizer; None: nothing."""
    brackets = []
    last = None  # the last token of the line that counts
    wants = False  # a block must follow
    try:
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type in (tokenize.NL, tokenize.COMMENT):
                continue
            if token.type == tokenize.ERRORTOKEN and token.string.strip():
                return "unreadable " + token.string
            if token.type == tokenize.OP and token.string in "([{":
                brackets.append(token.string)
            if token.type == tokenize.OP and token.string in PAIRS and (
                    not brackets or brackets.pop() != PAIRS[token.string]):
                return "a bracket closes another"
            if token.type == tokenize.NEWLINE:
                wants = last == ":"
                last = None
                continue
            if last is None and wants != (token.type == tokenize.INDENT):
                return "a block is missing" if wants else "indented without a colon"
            if token.type == tokenize.INDENT:
                wants = False
            elif token.type != tokenize.DEDENT:
                last = token.string
    except (tokenize.TokenError, IndentationError) as error:
        return str(error)
    return None


texts = json.load(open(sys.argv[1]))
wrong = 0
for text in texts:
    what = problem(text)
    if what:
        wrong += 1
        print(what, repr(text))
print(len(texts), "programs,", wrong, "wrong")
sys.exit(1 if wrong or not texts else 0)
