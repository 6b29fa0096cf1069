"""Prints custom resource definitions for the kinds of other projects that the chart uses, so that the API server accepts such
objects. Their fields are not validated."""

import yaml

KINDS = [
    ("cert-manager.io", "v1", "Certificate", "certificates"),
    ("cert-manager.io", "v1", "Issuer", "issuers"),
    ("gateway.networking.k8s.io", "v1", "HTTPRoute", "httproutes"),
    ("monitoring.coreos.com", "v1", "ServiceMonitor", "servicemonitors"),
    ("keda.sh", "v1alpha1", "ScaledObject", "scaledobjects"),
    ("monitoring.coreos.com", "v1", "PrometheusRule", "prometheusrules"),
]


def definition(group, version, kind, plural):
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    metadata = {"name": f"{plural}.{group}"}
    if group.endswith(".k8s.io"):
        metadata["annotations"] = {"api-approved.kubernetes.io": "unapproved, for a test"}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": metadata,
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"kind": kind, "plural": plural, "singular": kind.lower()},
            "versions": [{"name": version, "served": True, "storage": True, "schema": {"openAPIV3Schema": anything}}],
        },
    }


print(yaml.safe_dump_all([definition(*kind) for kind in KINDS]))
