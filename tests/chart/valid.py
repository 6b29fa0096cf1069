"""Checks a rendered chart for rules that no schema expresses: references between objects, and requirements of every pod."""

import sys

import yaml

objects = [document for document in yaml.safe_load_all(open(sys.argv[1])) if document]
faults = []


def check(condition, fault):
    if not condition:
        faults.append(fault)


names = [(item["kind"], item["metadata"]["name"]) for item in objects]
check(len(names) == len(set(names)), "two objects of one kind have one name")
deployments = {item["metadata"]["name"]: item for item in objects if item["kind"] == "Deployment"}
accounts = {name for kind, name in names if kind == "ServiceAccount"}
maps = {name for kind, name in names if kind == "ConfigMap"}
GIVEN = {"tools", "policies"}


def selects(selector, deployment):
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    return selector.items() <= labels.items()


for name, item in deployments.items():
    template = item["spec"]["template"]
    spec = template["spec"]
    check(selects(item["spec"]["selector"]["matchLabels"], item), f"{name} does not select its own pods")
    check(spec["serviceAccountName"] in accounts, f"{name} has an account that is not there")
    check(spec["automountServiceAccountToken"] is False, f"{name} has a token for the API server")
    # The first container is the service. Users are responsible for the additional containers.
    for container in spec["containers"][:1]:
        security = container["securityContext"]
        check(security["readOnlyRootFilesystem"] and security["capabilities"] == {"drop": ["ALL"]}, f"{name} may too much")
        ports = {port["name"] for port in container["ports"]}
        for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
            check(container[probe]["httpGet"]["port"] in ports, f"{name}: {probe} asks a port that is not there")
        volumes = {volume["name"] for volume in spec["volumes"]}
        for mount in container["volumeMounts"]:
            check(mount["name"] in volumes, f"{name} mounts {mount['name']}, which is not there")
    for volume in spec["volumes"]:
        if "configMap" in volume:
            check(volume["configMap"]["name"] in maps | GIVEN, f"{name}: no ConfigMap {volume['configMap']['name']}")

for item in objects:
    kind, name, spec = item["kind"], item["metadata"]["name"], item.get("spec", {})
    if kind == "Service" and not name.endswith("postgresql"):
        chosen = [of for of in deployments.values() if selects(spec["selector"], of)]
        check(len(chosen) == 1, f"Service {name} selects {len(chosen)} Deployments")
        headless = spec.get("clusterIP") == "None"
        shown = any(port["name"] == "probes" for port in spec["ports"])
        check(headless or not shown, f"Service {name} shows probes and metrics to clients")
        ports = {port["name"] for of in chosen for port in of["spec"]["template"]["spec"]["containers"][0]["ports"]}
        check(all(port["targetPort"] in ports for port in spec["ports"]), f"Service {name} leads to no port")
    if kind in ("NetworkPolicy", "PodDisruptionBudget") and not name.endswith("postgresql"):
        selector = (spec.get("podSelector") or spec["selector"])["matchLabels"]
        check(sum(selects(selector, of) for of in deployments.values()) == 1, f"{kind} {name} selects not one Deployment")
    if kind == "HorizontalPodAutoscaler":
        check(spec["scaleTargetRef"]["name"] in deployments, f"{name} scales nothing")
        check("replicas" not in deployments[spec["scaleTargetRef"]["name"]]["spec"], f"{name} and its Deployment both decide")

# Each key is mounted by only one service, and each service has a key.
holders = {}
for name, item in deployments.items():
    for volume in item["spec"]["template"]["spec"]["volumes"]:
        for source in volume.get("projected", {}).get("sources", []):
            for file in source.get("secret", {}).get("items", []):
                if file["path"].startswith("keys/"):
                    holders.setdefault(file["key"], []).append(name)
for key, names_of in holders.items():
    check(len(names_of) == 1, f"{key} is given to {names_of}")
check(len(holders) >= len(deployments), "a service has no key of its own")

# If a Job migrates the stores, it migrates every store, and no service migrates its own.
jobs = [item for item in objects if item["kind"] == "Job"]
for job in jobs:
    spec = job["spec"]["template"]["spec"]
    stores = {variable["name"] for variable in spec["containers"][0]["env"]}
    of_services = {
        variable["name"]
        for item in deployments.values()
        for variable in item["spec"]["template"]["spec"]["containers"][0].get("env", [])
        if variable["name"].endswith("__STORE")
    }
    check(stores == of_services, f"{job['metadata']['name']} migrates {sorted(stores)}, there are {sorted(of_services)}")
    given = next(volume["configMap"]["name"] for volume in spec["volumes"] if "configMap" in volume)
    early = next(item for item in objects if (item["kind"], item["metadata"]["name"]) == ("ConfigMap", given))
    check("helm.sh/hook" in early["metadata"]["annotations"], f"{given} is not there when its Job runs")
config = next((item for item in objects if item["kind"] == "ConfigMap" and item["metadata"]["name"].endswith("-config")), None)
sections = yaml.safe_load(config["data"]["wardgate.yaml"])
for section in ("gateway", "tool_runner", "audit", "memory"):
    migrates = sections[section].get("database", {}).get("migrate", True)
    check(migrates != bool(jobs), f"{section}: who migrates its store?")

# If edge services terminate TLS, every link to them uses TLS, and callers trust their CA.
if "https" in sections["gateway"]:
    for section in ("agent", "console"):
        for name, url in sections.get(section, {}).get("links", {}).items():
            check(name == "ca" or url.startswith("https://"), f"{section} calls {name} in clear")
        check("ca" in sections.get(section, {"links": {"ca": ""}})["links"], f"{section} trusts no authority of the release")

# Alert rules select only this release.
for item in objects:
    if item["kind"] == "PrometheusRule":
        for rule in item["spec"]["groups"][0]["rules"]:
            selectors = rule["expr"].count("{")
            limited = rule["expr"].count('{namespace="clinic"')
            check(selectors == limited > 0, f"{rule['alert']} looks beyond its release")
            check("wardgate.*" not in rule["expr"], f"{rule['alert']} takes any release for this one")

for fault in faults:
    print(f"{sys.argv[1]}: {fault}", file=sys.stderr)
sys.exit(bool(faults))
