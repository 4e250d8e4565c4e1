#!/usr/bin/env python3
"""Validates gpuflight logs, plain or zstd, against docs/schema/gpuflight-log.schema.json.

Needs the public `jsonschema` package; for .zst files the `zstandard` module or the zstd command.
Exit codes: 0 every line is valid, 1 some are not, 2 usage or a file that cannot be read.
"""
import argparse
import copy
import io
import json
import pathlib
import shutil
import subprocess
import sys

import jsonschema

SCHEMA = pathlib.Path(__file__).resolve().parent.parent / "docs" / "schema" / "gpuflight-log.schema.json"


def closed(schema):
    """The schema as it binds our own writer: no type and no key that is not documented."""
    schema = copy.deepcopy(schema)
    types = [name for name in schema["$defs"] if not name.endswith("_part")]
    schema["properties"]["type"] = {"enum": types}
    for name in types:
        definition = schema["$defs"][name]
        definition["unevaluatedProperties"] = False
    for name in ("launch_part", "in_flight_part", "blocked_part"):
        schema["$defs"][name]["additionalProperties"] = False
    for definition in schema["$defs"].values():
        for value in definition["properties"].values():
            if "properties" in value:
                value["additionalProperties"] = False
    return schema


def reject_constant(text):
    raise ValueError(f"{text} is not JSON")


def unique_keys(pairs):
    keys = [key for key, _ in pairs]
    if len(set(keys)) != len(keys):
        raise ValueError("a key stands twice")
    return dict(pairs)


def parse_line(line, strict):
    text = line.decode("utf-8")  # strict: invalid UTF-8 raises
    value = json.loads(text, parse_constant=reject_constant, object_pairs_hook=unique_keys)
    if strict and isinstance(value, dict) and next(iter(value), None) != "type":
        raise ValueError("type is not the first key")
    return value


def open_log(path):
    if str(path) == "-":
        return sys.stdin.buffer
    raw = open(path, "rb")
    magic = raw.read(4)
    raw.seek(0)
    if magic != b"\x28\xb5\x2f\xfd":
        return raw
    try:
        import zstandard
        return io.BufferedReader(zstandard.ZstdDecompressor().stream_reader(raw, read_across_frames=True))
    except ImportError:
        pass
    if shutil.which("zstd") is None:
        raise OSError(f"{path}: needs the zstandard module or the zstd command")
    return subprocess.Popen(["zstd", "-dcq", str(path)], stdout=subprocess.PIPE).stdout


def validate(path, validator, strict, max_shown):
    lines, bad, types = 0, 0, {}
    with open_log(path) as log:
        for number, line in enumerate(log, 1):
            lines += 1
            problem = None
            try:
                if not line.endswith(b"\n"):
                    raise ValueError("no line end")
                value = parse_line(line, strict)
                error = jsonschema.exceptions.best_match(validator.iter_errors(value))
                if error is not None:
                    problem = f"{error.json_path}: {error.message}"
                else:
                    types[value["type"]] = types.get(value["type"], 0) + 1
            except ValueError as error:
                problem = str(error)
            if problem is None:
                continue
            bad += 1
            if bad <= max_shown:
                print(f"{path}:{number}: {problem[:300]}", file=sys.stderr)
    counts = ", ".join(f"{count} {name}" for name, count in sorted(types.items()))
    print(f"{path}: {lines} lines, {bad} invalid ({counts})")
    return lines, bad


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("logs", nargs="+", help="log files, or - for standard input")
    parser.add_argument("--strict", action="store_true", help="also reject types and keys that are not documented")
    parser.add_argument("--schema", type=pathlib.Path, default=SCHEMA)
    parser.add_argument("--max-shown", type=int, default=20, metavar="N", help="invalid lines to print (default 20)")
    arguments = parser.parse_args()
    schema = json.loads(arguments.schema.read_text())
    if arguments.strict:
        schema = closed(schema)
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema)
    total = total_bad = 0
    for path in arguments.logs:
        try:
            lines, bad = validate(path, validator, arguments.strict, arguments.max_shown)
        except OSError as error:
            print(f"validate_log: {error}", file=sys.stderr)
            return 2
        total += lines
        total_bad += bad
    if total == 0:
        print("validate_log: no lines", file=sys.stderr)
        return 1
    return 1 if total_bad else 0


if __name__ == "__main__":
    sys.exit(main())
