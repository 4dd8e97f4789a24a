"""validate.py SCHEMAS TEXTS: whether every line {"schema": index, "text": value} is valid, by python3-jsonschema."""
import json
import sys

import jsonschema

validators = []
for schema in json.load(open(sys.argv[1])):
    jsonschema.Draft202012Validator.check_schema(schema)
    validators.append(jsonschema.Draft202012Validator(schema))
wrong = count = 0
for line in open(sys.argv[2]):
    entry = json.loads(line)
    count += 1
    problem = next(validators[entry["schema"]].iter_errors(entry["text"]), None)
    if problem is not None:
        wrong += 1
        print("not valid:", line.strip()[:300], problem.message)
print(count, "texts,", wrong, "not valid")
sys.exit(1 if wrong or count == 0 else 0)
