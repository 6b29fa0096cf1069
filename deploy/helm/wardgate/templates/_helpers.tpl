{{/* Name of the release's objects. */}}
{{- define "wardgate.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 48 | trimSuffix "-" -}}
{{- else -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- if contains $name .Release.Name -}}
{{- .Release.Name | trunc 48 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 48 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Labels of every object. */}}
{{- define "wardgate.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/part-of: wardgate
{{ include "wardgate.releaseLabels" . }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* Annotations of an object; its own override the common ones: (dict "root" $ "own" ANNOTATIONS). */}}
{{- define "wardgate.annotations" -}}
{{- with merge (dict) (default dict .own) .root.Values.commonAnnotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
{{- end }}
{{- end -}}

{{- define "wardgate.releaseLabels" -}}
app.kubernetes.io/name: {{ default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{/* Labels that select the pods of one service: (dict "root" $ "name" NAME). */}}
{{- define "wardgate.selector" -}}
{{ include "wardgate.releaseLabels" .root }}
app.kubernetes.io/component: {{ .name }}
{{- end -}}

{{- define "wardgate.image" -}}
{{- with .Values.image -}}
{{- if .digest -}}
{{ .repository }}@{{ .digest }}
{{- else -}}
{{ .repository }}:{{ default $.Chart.AppVersion .tag }}
{{- end -}}
{{- end -}}
{{- end -}}

{{/*
Every enabled service of the release, as JSON, with its merged settings and:
  name     its name in certificates, commands and object names
  key      its key in the values; `section`: its section of wardgate.yaml
  port     its main port; `speaks`: the protocol there; probes and metrics of every service are on port 9090
  callers  services that may connect to it in addition to those in the values; `open`: every peer may connect
  keys     files of the keys' Secret that it mounts
  files    other files that it mounts: tools, policies, assistants
  store    whether it has a store
  mayLackStore  whether it starts without a database URL, with a file in the pod
  advertise  scheme by which its replicas connect to each other, if they do
  links    false: it has no certificate, because it calls no service over gRPC
*/}}
{{- define "wardgate.services" -}}
{{- $table := list
  (dict "name" "gateway" "key" "gateway" "section" "gateway" "port" 8080 "speaks" "http" "open" true
    "callers" (list) "keys" (list "session.key") "files" (list) "store" true "advertise" "http")
  (dict "name" "policy" "key" "policy" "section" "policy" "port" 7001 "speaks" "grpc"
    "callers" (list "gateway" "tool-runner" "memory" "console" "audit") "keys" (list "permit.pem")
    "files" (ternary (list) (list "policies") (not (empty (dig "policy" "bundle" dict .Values.config)))) "store" false)
  (dict "name" "tool-runner" "key" "toolRunner" "section" "tool_runner" "port" 7002 "speaks" "grpc"
    "callers" (list "gateway" "tool-runner") "keys" (concat (list "permit.pub" "pseudonym.key") ($.Values.keys.nextPermitKeys | default list)) "files" (list "tools") "store" true "advertise" "https")
  (dict "name" "audit" "key" "audit" "section" "audit" "port" 7003 "speaks" "grpc"
    "callers" (list "gateway" "policy" "tool-runner" "memory" "console") "keys" (concat (list "audit-mac.key" "audit-log.pem" "audit-details.key") ($.Values.keys.formerDetailsKeys | default list))
    "files" (list) "store" true)
  (dict "name" "memory" "key" "memory" "section" "memory" "port" 7004 "speaks" "grpc"
    "callers" (list "gateway" "tool-runner") "keys" (concat (list "memory.key") ($.Values.keys.formerMemoryKeys | default list)) "files" (list) "store" true)
  (dict "name" "agent" "key" "agent" "section" "agent" "port" 8081 "speaks" "http" "open" true
    "callers" (list) "keys" (list "approval.key") "files" (list "assistants") "store" false "links" false)
  (dict "name" "console" "key" "console" "section" "console" "port" 8082 "speaks" "http" "open" true
    "callers" (list) "keys" (list "console.key") "files" (list) "store" true "mayLackStore" true)
-}}
{{- $there := list -}}
{{- range $service := $table -}}
{{- $own := index $.Values $service.key -}}
{{- if $own.enabled -}}
{{- $settings := mergeOverwrite (deepCopy $.Values.defaults) (omit $own "enabled") -}}
{{- $full := printf "%s-%s" (include "wardgate.fullname" $) $service.name -}}
{{- $account := default (ternary $full "default" $settings.serviceAccount.create) $settings.serviceAccount.name -}}
{{- $there = append $there (merge (dict "settings" $settings "fullname" $full "account" $account) $service) -}}
{{- end -}}
{{- end -}}
{{- dict "list" $there | toJson -}}
{{- end -}}

{{/* Names of the ConfigMaps: (dict "root" $ "what" "tools"). */}}
{{- define "wardgate.files" -}}
{{- $values := index .root.Values .what -}}
{{- default (printf "%s-%s" (include "wardgate.fullname" .root) .what) $values.existingConfigMap -}}
{{- end -}}

{{/* The Secret with the certificates of one service. */}}
{{- define "wardgate.tlsSecret" -}}
{{- if .root.Values.tls.certManager.enabled -}}
{{ printf "%s-%s-tls" (include "wardgate.fullname" .root) .service.name }}
{{- else -}}
{{ required (printf "tls.existingSecrets.%s: name the Secret with ca.crt, tls.crt and tls.key of the %s, or enable tls.certManager" .service.key .service.name) (index .root.Values.tls.existingSecrets .service.key) }}
{{- end -}}
{{- end -}}

{{/* The Secret with the certificate with which one service terminates TLS: (dict "root" $ "service" SERVICE). */}}
{{- define "wardgate.httpsSecret" -}}
{{- $named := index .root.Values.tls.http.existingSecrets .service.key -}}
{{- if $named -}}
{{ $named }}
{{- else if .root.Values.tls.certManager.enabled -}}
{{ printf "%s-%s-http-tls" (include "wardgate.fullname" .root) .service.name }}
{{- else -}}
{{ required (printf "tls.http.existingSecrets.%s: name the Secret with ca.crt, tls.crt and tls.key by which the %s terminates TLS, or enable tls.certManager" .service.key .service.name) $named }}
{{- end -}}
{{- end -}}

{{/* The Secret with the database URLs. */}}
{{- define "wardgate.databaseSecret" -}}
{{- if .Values.postgresql.enabled -}}
{{ default (printf "%s-postgresql" (include "wardgate.fullname" .)) .Values.postgresql.existingSecret }}
{{- else -}}
{{ required "database.existingSecret: name the Secret with one PostgreSQL URL for each service, or for a trial enable postgresql" .Values.database.existingSecret }}
{{- end -}}
{{- end -}}

{{/*
Section `database` of each service that has a store and such settings, by section of wardgate.yaml, as JSON:
(dict "root" $ "passwordSecret" NAME).
*/}}
{{- define "wardgate.databases" -}}
{{- $databases := dict -}}
{{- $passwordSecret := .passwordSecret -}}
{{- with .root -}}
{{- range $service := (include "wardgate.services" . | fromJson).list -}}
{{- if $service.store -}}
{{- $database := dict -}}
{{- if $.root.Values.migrations.enabled -}}
{{- $_ := set $database "migrate" false -}}
{{- with index $.root.Values.migrations.roles $service.key -}}
{{- $_ := set $database "role" . -}}
{{- end -}}
{{- end -}}
{{- if $passwordSecret -}}
{{- $_ := set $database "password_file" (printf "passwords/%s" $service.name) -}}
{{- end -}}
{{- if $database -}}
{{- $_ := set $databases $service.section $database -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- toJson $databases -}}
{{- end -}}

{{/* Whether callers are looked up in a database: any text, or none. */}}
{{- define "wardgate.looksUpInDatabase" -}}
{{- with .Values.config.policy -}}
{{- with .caller_lookup -}}
{{- if .query -}}yes{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Spreads the pods of one service over nodes and zones, where possible. */}}
{{- define "wardgate.spread" -}}
{{- range $key := list "kubernetes.io/hostname" "topology.kubernetes.io/zone" }}
- topologyKey: {{ $key }}
  maxSkew: 1
  whenUnsatisfiable: ScheduleAnyway
  labelSelector:
    matchLabels:
      {{- include "wardgate.selector" $ | nindent 6 }}
{{- end }}
{{- end -}}

{{/* wardgate.yaml: the settings that the chart generates, overridden by the values. */}}
{{- define "wardgate.config" -}}
{{- $full := include "wardgate.fullname" . -}}
{{- $at := dict -}}
{{- range $service := (include "wardgate.services" . | fromJson).list -}}
{{- $_ := set $at $service.key (printf "https://%s:%d" $service.fullname (int $service.port)) -}}
{{- end -}}
{{- $tls := dict "ca" "tls/ca.crt" "cert" "tls/tls.crt" "key" "tls/tls.key" -}}
{{- $links := dict "policy" $at.policy "tool_runner" $at.toolRunner "audit" $at.audit -}}
{{- $ofRunner := dict "audit" $at.audit "policy" $at.policy -}}
{{- if $at.memory -}}
{{- $_ := set $links "memory" $at.memory -}}
{{- $_ := set $ofRunner "memory" $at.memory -}}
{{- end -}}
{{- $address := .Values.listenAddress -}}
{{- $probes := printf "%s:9090" $address -}}
{{- $permits := list "keys/permit.pub" -}}
{{- range $key := .Values.keys.nextPermitKeys -}}
{{- $permits = append $permits (printf "keys/%s" $key) -}}
{{- end -}}
{{- $config := dict
  "telemetry" (dict "log_format" "json")
  "gateway" (dict "listen" (printf "%s:8080" $address) "probes" $probes "links" $links "tls" $tls "session_key_file" "keys/session.key")
  "policy" (dict "listen" (printf "%s:7001" $address) "tls" $tls "probes" $probes "permit_key_file" "keys/permit.pem" "policies" "../policies"
    "auth" .Values.config.gateway.auth "links" (dict "audit" $at.audit))
  "tool_runner" (dict "listen" (printf "%s:7002" $address) "tls" $tls "probes" $probes "permit_public_key_files" $permits
    "pseudonym_key_file" "keys/pseudonym.key" "catalogue" "../tools/tools.yaml" "links" $ofRunner)
  "audit" (dict "listen" (printf "%s:7003" $address) "tls" $tls "probes" $probes "mac_key_file" "keys/audit-mac.key"
    "log_key_file" "keys/audit-log.pem" "details_key_file" "keys/audit-details.key" "links" (dict "policy" $at.policy))
-}}
{{- $formerDetails := list -}}
{{- range $key := .Values.keys.formerDetailsKeys -}}
{{- $formerDetails = append $formerDetails (printf "keys/%s" $key) -}}
{{- end -}}
{{- if $formerDetails -}}
{{- $_ := set $config.audit "former_details_key_files" $formerDetails -}}
{{- end -}}
{{- with .Values.config.gateway.public_url -}}
{{- $_ := set $config.policy "public_url" . -}}
{{- end -}}
{{- if $at.memory -}}
{{- $_ := set $config "memory" (dict "listen" (printf "%s:7004" $address) "tls" $tls "probes" $probes "master_key_file" "keys/memory.key"
    "links" (dict "policy" $at.policy "audit" $at.audit)) -}}
{{- $former := list -}}
{{- range $key := .Values.keys.formerMemoryKeys -}}
{{- $former = append $former (printf "keys/%s" $key) -}}
{{- end -}}
{{- if $former -}}
{{- $_ := set $config.memory "former_master_key_files" $former -}}
{{- end -}}
{{- end -}}
{{- if $at.agent -}}
{{- $_ := set $config "agent" (dict "listen" (printf "%s:8081" $address) "probes" $probes "approval_key_file" "keys/approval.key" "assistants" "../assistants"
    "auth" .Values.config.gateway.auth
    "links" (dict "gateway" (printf "http://%s-gateway:%d" $full (int .Values.service.port)))) -}}
{{- end -}}
{{- if $at.console -}}
{{- $ofConsole := dict "gateway" (printf "http://%s-gateway:%d" $full (int .Values.service.port)) "policy" $at.policy "audit" $at.audit -}}
{{- if $at.agent -}}
{{- $_ := set $ofConsole "agent" (printf "http://%s-agent:%d" $full (int .Values.service.port)) -}}
{{- end -}}
{{- $console := dict "listen" (printf "%s:8082" $address) "probes" $probes "tls" $tls "cookie_key_file" "keys/console.key"
    "auth" .Values.config.gateway.auth "links" $ofConsole -}}
{{- with .Values.config.gateway.public_url -}}
{{- $_ := set $console "public_url" . -}}
{{- end -}}
{{- $_ := set $config "console" $console -}}
{{- end -}}
{{- range $section, $database := (include "wardgate.databases" (dict "root" . "passwordSecret" .Values.database.passwordSecret) | fromJson) -}}
{{- $_ := set (index $config $section) "database" $database -}}
{{- end -}}
{{- if .Values.tls.http.enabled -}}
{{- $https := dict "cert" "https/tls.crt" "key" "https/tls.key" -}}
{{- range $section := list "gateway" "agent" "console" -}}
{{- with index $config $section -}}
{{- $_ := set . "https" $https -}}
{{- end -}}
{{- end -}}
{{- $_ := set $config.gateway "advertise_ca_file" "https/ca.crt" -}}
{{- range $section := list "agent" "console" -}}
{{- with index $config $section -}}
{{- $_ := set .links "ca" "https/ca.crt" -}}
{{- range $link := list "gateway" "agent" -}}
{{- with index $config $section "links" $link -}}
{{- $_ := set (index $config $section "links") $link (replace "http://" "https://" .) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- $config = mergeOverwrite $config (deepCopy .Values.config) -}}
{{- /* Policies come from a directory or from bundles, not from both. */ -}}
{{- if $config.policy.bundle -}}
{{- $_ := unset $config.policy "policies" -}}
{{- end -}}
{{- /* A merge replaces lists, so the hosts that the chart knows are added to those in the values. */ -}}
{{- $public := include "wardgate.publicHosts" . | fromJsonArray -}}
{{- range $section := list "gateway" "agent" "console" -}}
{{- with index $config $section -}}
{{- $own := list (printf "%s-%s" $full $section) (printf "%s-%s.%s" $full $section $.Release.Namespace) (printf "%s-%s.%s.svc" $full $section $.Release.Namespace) -}}
{{- $_ := set . "allowed_hosts" (concat $own $public (default list .allowed_hosts) | uniq) -}}
{{- end -}}
{{- end -}}
{{- toYaml $config -}}
{{- end -}}

{{/* The part of wardgate.yaml that one service reads; a change restarts the service: (dict "root" $ "service" SERVICE). */}}
{{- define "wardgate.configOf" -}}
{{- $config := include "wardgate.config" .root | fromYaml -}}
{{- $own := .service.section -}}
{{- range $section := list "gateway" "policy" "tool_runner" "audit" "memory" "agent" "console" -}}
{{- if ne $section $own -}}
{{- $_ := unset $config $section -}}
{{- end -}}
{{- end -}}
{{- toYaml $config -}}
{{- end -}}

{{/* Public host names of the release, without wildcards, as JSON. */}}
{{- define "wardgate.publicHosts" -}}
{{- $hosts := list -}}
{{- if .Values.ingress.enabled -}}
{{- $hosts = concat $hosts .Values.ingress.hosts -}}
{{- end -}}
{{- if .Values.httpRoute.enabled -}}
{{- $hosts = concat $hosts .Values.httpRoute.hostnames -}}
{{- end -}}
{{- $named := list -}}
{{- range $host := $hosts -}}
{{- if not (hasPrefix "*" $host) -}}
{{- $named = append $named $host -}}
{{- end -}}
{{- end -}}
{{- $public := .Values.config.gateway.public_url -}}
{{- if and $public $named (eq (len $named) (len $hosts)) -}}
{{- $host := regexReplaceAll ":[0-9]+$" (get (urlParse $public) "host") "" -}}
{{- if not (has $host $named) -}}
{{- fail (printf "config.gateway.public_url: %s is not one of the hosts of ingress and httpRoute (%s); clients would be sent elsewhere" $host (join ", " $named)) -}}
{{- end -}}
{{- end -}}
{{- toJson (uniq $named) -}}
{{- end -}}

{{/* Annotations that let responses stream through the ingress controller: no buffering, long timeouts. */}}
{{- define "wardgate.streaming" -}}
{{- $seconds := .Values.ingress.streamSeconds | int -}}
{{- $https := .Values.tls.http.enabled -}}
{{- if eq .Values.ingress.controller "nginx" }}
nginx.ingress.kubernetes.io/proxy-buffering: "off"
nginx.ingress.kubernetes.io/proxy-request-buffering: "off"
nginx.ingress.kubernetes.io/proxy-read-timeout: {{ $seconds | quote }}
nginx.ingress.kubernetes.io/proxy-send-timeout: {{ $seconds | quote }}
{{- if $https }}
nginx.ingress.kubernetes.io/backend-protocol: HTTPS
{{- end }}
{{- else if eq .Values.ingress.controller "haproxy" }}
haproxy.org/timeout-server: {{ printf "%ds" $seconds | quote }}
haproxy.org/timeout-tunnel: {{ printf "%ds" $seconds | quote }}
{{- if $https }}
haproxy.org/server-ssl: "true"
{{- end }}
{{- else if eq .Values.ingress.controller "alb" }}
alb.ingress.kubernetes.io/load-balancer-attributes: {{ printf "idle_timeout.timeout_seconds=%d" (min $seconds 4000) | quote }}
alb.ingress.kubernetes.io/target-type: ip
{{- if $https }}
alb.ingress.kubernetes.io/backend-protocol: HTTPS
{{- end }}
{{- end }}
{{- end -}}
