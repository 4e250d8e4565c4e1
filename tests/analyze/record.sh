#!/bin/sh
# Records a bad and a good log of each case of examples/findings, compressed, for tests/inject/analyze_pairs_test.py.
#   record.sh GPUFLIGHT FINDINGS FOLDER [CASE...]
set -eu
gpuflight=$1 findings=$2 folder=$3
shift 3
mkdir -p "$folder"
for name in ${*:-$("$findings" --list)}; do
  for word in bad good; do
    log=$folder/${name}_$word.ndjson
    rm -f "$log" "$log.zst"
    "$gpuflight" run --quiet --timing all --flight memory --log "$log" -- "$findings" "$name" "$word"
    zstd --quiet --rm -19 "$log" || echo "no zstd here: $log is left as it is" >&2
    file=$log
    [ -f "$file" ] || file=$log.zst
    "$gpuflight" analyze --json "$file" |
      python3 -c 'import json, sys; print("   ", [f["rule"] for f in json.load(sys.stdin)["findings"]])'
  done
done
