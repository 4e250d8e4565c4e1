"""Holds the calls that forms.cpp wrote down against the recorder's log."""
import collections


def compare(lines, log):
    """Returns (failures, facts)."""
    failures = []
    calls = [line for line in lines if "call" in line]
    graph_calls = [line for line in lines if "graph_call" in line]
    absent = sorted({line["absent"] for line in lines if "absent" in line})
    threaded = [line for line in lines if "threaded" in line]
    main_thread = next((line["thread"] for line in lines if "thread" in line), None)
    events = [e for e in log.kernels() if e.get("thread") == main_thread]
    if len(events) != len(calls):
        by_name = collections.Counter(e.get("name") for e in events)
        by_name.subtract(collections.Counter(c["name"] for c in calls))
        off = {name: n for name, n in by_name.items() if n}
        failures.append(f"{len(events)} kernel_events of the main thread, {len(calls)} calls; too many or few: {off}")
    equal = 0
    for i, (call, event) in enumerate(zip(calls, events)):
        found = differences(call, event)
        equal += not found
        failures += [f"call {i} {call['call']} of {call['name']}: {text}" for text in found]
    graphs = [e for e in log.graph_launches() if e.get("thread") == main_thread]
    got, wanted = [e.get("status") for e in graphs], [c["status"] for c in graph_calls]
    if got != wanted:
        failures.append(f"graph launches {got}, expected {wanted}")
    if len({e.get("graph") for e in graphs}) > 1:
        failures.append("one instantiated graph has several ids")
    for line in threaded:
        mine = [e for e in log.kernels() if e.get("name") == line["threaded"]]
        if len(mine) != line["launches"]:
            failures.append(f"{line['threaded']}: {len(mine)} events, {line['launches']} launches")
        threads = len({e.get("thread") for e in mine})
        if threads != line["threads"]:
            failures.append(f"{line['threaded']}: {threads} threads, expected {line['threads']}")
        if len({e.get("stream") for e in mine}) < 2:
            failures.append(f"{line['threaded']}: threads with streams of their own share one in the log")
    if not any("done" in line for line in lines):
        failures.append("the program did not reach its end")
    forms = collections.Counter(c["call"] for c in calls) + collections.Counter(c["graph_call"] for c in graph_calls)
    facts = {"calls": len(calls), "equal": equal, "forms": dict(forms), "absent": absent,
             "refused": sum(1 for c in calls if c["status"] != 0), "captured": sum(1 for c in calls if c["captured"])}
    return failures, facts


def differences(call, event):
    out = []

    def same(field, wanted, got):
        if got != wanted:
            out.append(f"{field} {got!r}, expected {wanted!r}")

    same("name", call["name"], event.get("name"))
    same("status", call["status"], event.get("status"))
    same("grid", f"({call['grid']},1,1)", event.get("grid"))
    same("block", f"({call['block']},1,1)", event.get("block"))
    same("dyn_shared_bytes", call["dynamic"], event.get("dyn_shared_bytes"))
    same("cluster", f"({call['cluster']},1,1)" if call["cluster"] else None, event.get("cluster"))
    same("cooperative", call["cooperative"], event.get("cooperative"))
    same("captured", call["captured"], bool(event.get("captured")))
    if call["static"] >= 0:
        same("static_shared_bytes", call["static"], event.get("static_shared_bytes"))
    if not isinstance(event.get("call_ns"), int) or event["call_ns"] < 0:
        out.append(f"call_ns {event.get('call_ns')!r}")
    return out
