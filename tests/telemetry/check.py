"""Checks of tests/telemetry/run. Each prints its faults, and exits with 1 if there are any."""

import json
import sys

import yaml


def alerts(rules, tests):
    """Checks that every alert rule has a test in which it fires."""
    named = {rule["alert"] for group in yaml.safe_load(open(rules))["groups"] for rule in group["rules"]}
    tested = open(tests).read()
    return [f"{name} is not tested" for name in sorted(named) if f'alertname="{name}"' not in tested]


def expressions(*dashboards):
    """Prints the expressions of dashboards as rules, with their variables replaced."""
    rules = []
    for path in dashboards:
        for panel in json.load(open(path))["panels"]:
            for target in panel.get("targets", []):
                filled = target["expr"].replace("$__rate_interval", "5m").replace("$namespace", ".*")
                rules.append({"record": f"panel:{len(rules)}", "expr": filled})
    print(json.dumps({"groups": [{"name": "panels", "rules": rules}]}))
    return [] if rules else ["no expressions"]


def collector(path):
    """Checks that the collector configuration refers only to defined components, and receives and exports traces."""
    values = yaml.safe_load(open(path))
    config, faults = values["config"], []
    pipelines = {name: pipeline for name, pipeline in config["service"]["pipelines"].items() if pipeline}
    for name, pipeline in pipelines.items():
        for kind in ("receivers", "processors", "exporters"):
            for used in pipeline.get(kind, []):
                if used not in config.get(kind, {}):
                    faults.append(f"pipeline {name} uses {kind[:-1]} {used}, which is not defined")
    for extension in config["service"].get("extensions", []):
        if extension not in config.get("extensions", {}):
            faults.append(f"extension {extension} is not defined")
    if pipelines["traces"]["receivers"] != ["otlp"]:
        faults.append("traces are not taken by OTLP")
    return faults


def text(path):
    from prometheus_client.parser import text_string_to_metric_families as parse

    return measured(parse(open(path).read()))


def open_metrics(path):
    from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse

    families = list(parse(open(path).read()))
    exemplars = [s.exemplar.labels for family in families for s in family.samples if s.exemplar]
    traced = any(len(labels["trace_id"]) == 32 for labels in exemplars)
    return measured(families) + ([] if traced else ["no exemplar leads to a trace"])


def measured(families):
    """Checks that the metrics contain the calls, and how long the audit store lasts."""
    samples = {(s.name, tuple(sorted(s.labels.items()))): s.value for family in families for s in family.samples}
    called = samples.get(("wardgate_tool_calls_total", (("status", "ok"), ("tool", "get_medical_records"))))
    faults = [] if called == 3 else [f"three calls are counted as {called}"]
    store = {name: samples.get((f"wardgate_audit_store_{name}", ()), 0) for name in ("bytes", "free_bytes", "days_left")}
    # The record is measured before it contains a call, so it is expected to last forever, or at least for years.
    if not 0 < store["bytes"] < store["free_bytes"] or store["days_left"] < 100:
        faults.append(f"the size, the space and the days left of the audit store are {store}")
    return faults


CHECKS = {"alerts": alerts, "expressions": expressions, "collector": collector, "text": text, "open": open_metrics}

if __name__ == "__main__":
    faults = CHECKS[sys.argv[1]](*sys.argv[2:])
    for fault in faults:
        print(fault, file=sys.stderr)
    sys.exit(bool(faults))
