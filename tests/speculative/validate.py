"""validate.py [--expect-invalid] SCHEMAS TEXTS: whether every line {"schema": index, "text": value} is valid, by
python3-jsonschema; with --expect-invalid, whether of each schema some line is not."""
import json
import sys

import jsonschema


def formats_of(schema):
    """The formats that a schema asserts anywhere."""
    if isinstance(schema, list):
        return set().union(*map(formats_of, schema))
    if not isinstance(schema, dict):
        return set()
    own = {schema["format"]} if isinstance(schema.get("format"), str) else set()
    return own.union(*map(formats_of, schema.values()))


expect_invalid = sys.argv[1] == "--expect-invalid"
schemas_file, texts_file = sys.argv[2 if expect_invalid else 1:]
Validator = jsonschema.Draft202012Validator
checker = Validator.FORMAT_CHECKER
validators = []
for schema in json.load(open(schemas_file)):
    Validator.check_schema(schema)
    unchecked = formats_of(schema) - set(checker.checkers)
    if unchecked:
        sys.exit("this python3-jsonschema does not check the formats " + ", ".join(sorted(unchecked)))
    validators.append(Validator(schema, format_checker=checker))
wrong = [0] * len(validators)
count = 0
for line in open(texts_file):
    entry = json.loads(line)
    count += 1
    problem = next(validators[entry["schema"]].iter_errors(entry["text"]), None)
    if problem is not None:
        wrong[entry["schema"]] += 1
        print("not valid:", line.strip()[:300], problem.message)
print(count, "texts; not valid of each schema:", *wrong)
sys.exit(0 if count > 0 and (all(wrong) if expect_invalid else not any(wrong)) else 1)
