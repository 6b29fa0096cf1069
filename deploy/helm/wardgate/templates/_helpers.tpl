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

{{/* Labels of everything. */}}
{{- define "wardgate.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/part-of: wardgate
{{ include "wardgate.releaseLabels" . }}
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
Every service of the release, as JSON: what is the same for all, and then
  name     as in certificates, commands and object names
  key      in the values; section in wardgate.yaml
  port     of what it is there for, and what speaks there; probes and metrics of each are at 9090
  callers  who may reach it besides what the values say; everybody where open
  keys     files of the keys' Secret that it gets
  files    what else it gets: tools, policies, assistants
  store    whether it has one
  mayLackStore  whether it starts without its address, with a file of the pod's own
  advertise  how replicas reach each other, where they do
  links    false: it has no certificate, since it calls no service over gRPC
*/}}
{{- define "wardgate.services" -}}
{{- $table := list
  (dict "name" "gateway" "key" "gateway" "section" "gateway" "port" 8080 "speaks" "http" "open" true
    "callers" (list) "keys" (list "session.key") "files" (list) "store" true "advertise" "http")
  (dict "name" "policy" "key" "policy" "section" "policy" "port" 7001 "speaks" "grpc"
    "callers" (list "gateway" "memory" "console") "keys" (list "permit.pem") "files" (list "policies") "store" false)
  (dict "name" "tool-runner" "key" "toolRunner" "section" "tool_runner" "port" 7002 "speaks" "grpc"
    "callers" (list "gateway" "tool-runner") "keys" (list "permit.pub" "pseudonym.key") "files" (list "tools") "store" true "advertise" "https")
  (dict "name" "audit" "key" "audit" "section" "audit" "port" 7003 "speaks" "grpc"
    "callers" (list "gateway" "tool-runner" "memory" "console") "keys" (list "audit-mac.key" "audit-log.pem" "audit-details.key") "files" (list) "store" true)
  (dict "name" "memory" "key" "memory" "section" "memory" "port" 7004 "speaks" "grpc"
    "callers" (list "gateway" "tool-runner") "keys" (list "memory.key") "files" (list) "store" true)
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

{{/* The Secret with the addresses of the stores. */}}
{{- define "wardgate.databaseSecret" -}}
{{- if .Values.postgresql.enabled -}}
{{ printf "%s-postgresql" (include "wardgate.fullname" .) }}
{{- else -}}
{{ required "database.existingSecret: name the Secret with one PostgreSQL URL for each service, or for a trial enable postgresql" .Values.database.existingSecret }}
{{- end -}}
{{- end -}}

{{/* Section `database` of each service with a store, where the Job migrates: by section of wardgate.yaml, as JSON. */}}
{{- define "wardgate.databases" -}}
{{- $databases := dict -}}
{{- if .Values.migrations.enabled -}}
{{- range $service := (include "wardgate.services" . | fromJson).list -}}
{{- if $service.store -}}
{{- $database := dict "migrate" false -}}
{{- with index $.Values.migrations.roles $service.key -}}
{{- $_ := set $database "role" . -}}
{{- end -}}
{{- $_ := set $databases $service.section $database -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- toJson $databases -}}
{{- end -}}

{{/* Pods of one service on different nodes and in different zones, where that can be had. */}}
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

{{/* wardgate.yaml: what the chart knows, and over it what the values say. */}}
{{- define "wardgate.config" -}}
{{- $full := include "wardgate.fullname" . -}}
{{- $at := dict -}}
{{- range $service := (include "wardgate.services" . | fromJson).list -}}
{{- $_ := set $at $service.key (printf "https://%s:%d" $service.fullname (int $service.port)) -}}
{{- end -}}
{{- $tls := dict "ca" "tls/ca.crt" "cert" "tls/tls.crt" "key" "tls/tls.key" -}}
{{- $links := dict "policy" $at.policy "tool_runner" $at.toolRunner "audit" $at.audit -}}
{{- $ofRunner := dict "audit" $at.audit -}}
{{- if $at.memory -}}
{{- $_ := set $links "memory" $at.memory -}}
{{- $_ := set $ofRunner "memory" $at.memory -}}
{{- end -}}
{{- $probes := "0.0.0.0:9090" -}}
{{- $config := dict
  "telemetry" (dict "log_format" "json")
  "gateway" (dict "listen" "0.0.0.0:8080" "probes" $probes "links" $links "tls" $tls "session_key_file" "keys/session.key"
    "allowed_hosts" (list (printf "%s-gateway" $full)))
  "policy" (dict "listen" "0.0.0.0:7001" "tls" $tls "probes" $probes "permit_key_file" "keys/permit.pem" "policies" "../policies"
    "auth" .Values.config.gateway.auth)
  "tool_runner" (dict "listen" "0.0.0.0:7002" "tls" $tls "probes" $probes "permit_public_key_files" (list "keys/permit.pub")
    "pseudonym_key_file" "keys/pseudonym.key" "catalogue" "../tools/tools.yaml" "links" $ofRunner)
  "audit" (dict "listen" "0.0.0.0:7003" "tls" $tls "probes" $probes "mac_key_file" "keys/audit-mac.key"
    "log_key_file" "keys/audit-log.pem" "details_key_file" "keys/audit-details.key")
-}}
{{- with .Values.config.gateway.public_url -}}
{{- $_ := set $config.policy "public_url" . -}}
{{- end -}}
{{- if $at.memory -}}
{{- $_ := set $config "memory" (dict "listen" "0.0.0.0:7004" "tls" $tls "probes" $probes "master_key_file" "keys/memory.key"
    "links" (dict "policy" $at.policy "audit" $at.audit)) -}}
{{- end -}}
{{- if $at.agent -}}
{{- $_ := set $config "agent" (dict "listen" "0.0.0.0:8081" "probes" $probes "approval_key_file" "keys/approval.key" "assistants" "../assistants"
    "allowed_hosts" (list (printf "%s-agent" $full)) "auth" .Values.config.gateway.auth
    "links" (dict "gateway" (printf "http://%s-gateway:%d" $full (int .Values.service.port)))) -}}
{{- end -}}
{{- if $at.console -}}
{{- $ofConsole := dict "gateway" (printf "http://%s-gateway:%d" $full (int .Values.service.port)) "policy" $at.policy "audit" $at.audit -}}
{{- if $at.agent -}}
{{- $_ := set $ofConsole "agent" (printf "http://%s-agent:%d" $full (int .Values.service.port)) -}}
{{- end -}}
{{- $console := dict "listen" "0.0.0.0:8082" "probes" $probes "tls" $tls "cookie_key_file" "keys/console.key"
    "allowed_hosts" (list (printf "%s-console" $full)) "auth" .Values.config.gateway.auth "links" $ofConsole -}}
{{- with .Values.config.gateway.public_url -}}
{{- $_ := set $console "public_url" . -}}
{{- end -}}
{{- $_ := set $config "console" $console -}}
{{- end -}}
{{- range $section, $database := (include "wardgate.databases" . | fromJson) -}}
{{- $_ := set (index $config $section) "database" $database -}}
{{- end -}}
{{- mergeOverwrite $config .Values.config | toYaml -}}
{{- end -}}
