{{- define "hitline.name" -}}
{{- .Values.nameOverride | default .Chart.Name | trunc 58 | trimAll "-" -}}
{{- end -}}

{{/* The name of all objects: a release called hitline has the names of the plain manifests. */}}
{{- define "hitline.fullname" -}}
{{- $name := include "hitline.name" . -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 52 | trimAll "-" -}}
{{- else if contains $name .Release.Name -}}
{{- .Release.Name | trunc 52 | trimAll "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 52 | trimAll "-" -}}
{{- end -}}
{{- end -}}

{{- define "hitline.selectorLabels" -}}
app.kubernetes.io/name: {{ include "hitline.name" . | quote }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end -}}

{{- define "hitline.labels" -}}
{{ include "hitline.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service | quote }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" | quote }}
{{- end -}}

{{/* The labels of an object, with further ones in more, which do not replace those. */}}
{{- define "hitline.labelsWith" -}}
{{- merge (include "hitline.labels" .root | fromYaml) (.more | default dict) | toYaml -}}
{{- end -}}

{{- define "hitline.image" -}}
{{- if .Values.image.digest -}}
{{- printf "%s@%s" .Values.image.repository .Values.image.digest -}}
{{- else -}}
{{- printf "%s:%s" .Values.image.repository (.Values.image.tag | default .Chart.AppVersion) -}}
{{- end -}}
{{- end -}}

{{/* The backend in effect. */}}
{{- define "hitline.backend" -}}
{{- keys (.Values.config.backend | default dict) | first | default "memory" -}}
{{- end -}}

{{/* What a size of hitline.yaml is in bytes. */}}
{{- define "hitline.bytes" -}}
{{- if kindIs "string" . -}}
{{- $units := dict "" 1 "B" 1 "KB" 1000 "MB" 1000000 "GB" 1000000000 "TB" 1000000000000 "KiB" 1024 "MiB" 1048576 "GiB" 1073741824 "TiB" 1099511627776 -}}
{{- $number := regexFind "^[0-9]+" . -}}
{{- if or (not $number) (not (hasKey $units (trimPrefix $number .))) -}}
{{- fail (printf "config has the size %q: write bytes, or a whole number with KiB, MiB, GiB, TiB, KB, MB, GB or TB" .) -}}
{{- end -}}
{{- mul (int64 $number) (get $units (trimPrefix $number .) | int64) -}}
{{- else -}}
{{- int64 . -}}
{{- end -}}
{{- end -}}

{{/* What a quantity of Kubernetes is in bytes. */}}
{{- define "hitline.quantity" -}}
{{- $units := dict "" 1 "k" 1e3 "M" 1e6 "G" 1e9 "T" 1e12 "m" 0.001 "Ki" 1024 "Mi" 1048576 "Gi" 1073741824 "Ti" 1099511627776 -}}
{{- if kindIs "string" . -}}
{{- $number := regexFind "^[0-9.]+" . -}}
{{- mulf (float64 $number) (get $units (trimPrefix $number .) | float64) | int64 -}}
{{- else -}}
{{- int64 . -}}
{{- end -}}
{{- end -}}

{{/* backend.memory.max_bytes in bytes. */}}
{{- define "hitline.maxBytes" -}}
{{- include "hitline.bytes" (dig "backend" "memory" "max_bytes" "1GiB" .Values.config) -}}
{{- end -}}

{{/*
The memory of the router in bytes, by the sum of cmd/hitline/memory.go: the max_bytes of each model, and as much for a
dump; 256 MiB for queries; and with sources 8 times max_payload, at least 64 MiB, 64 MiB for copies of blocks, and 0.75
MiB for each source, of which 1,024 may be registered.
*/}}
{{- define "hitline.routerBytes" -}}
{{- $bytes := 0 -}}
{{- with .Values.config.router -}}
{{- $bytes = 268435456 -}}
{{- $each := .max_bytes | default "1GiB" -}}
{{- range $model := (.models | default (list "")) -}}
{{- $of := $each -}}
{{- if kindIs "map" $model }}{{ $of = $model.max_bytes | default $each }}{{ end -}}
{{- $bytes = add $bytes (mul 2 (include "hitline.bytes" $of | int64)) -}}
{{- end -}}
{{- $sources := len (.sources | default list) -}}
{{- if .register }}{{ $sources = add $sources 1024 }}{{ end -}}
{{- if $sources -}}
{{- $payload := include "hitline.bytes" (.max_payload | default "8MiB") | int64 -}}
{{- $bytes = add $bytes (max 67108864 (mul 8 (add $payload 4096))) 67108864 (mul $sources 786432) -}}
{{- end -}}
{{- end -}}
{{- $bytes -}}
{{- end -}}

{{/*
The container's memory. An index takes max_bytes, and a quarter more for garbage. Connections take limits.max_memory,
as much garbage, and 100 MiB: 512 MiB over an index and 3.5 GiB over a store are enough for its defaults.
*/}}
{{- define "hitline.memory" -}}
{{- $memory := eq (include "hitline.backend" .) "memory" -}}
{{- $maxMemory := include "hitline.bytes" (dig "limits" "max_memory" "0" .Values.config) | int64 -}}
{{- $bytes := max (ternary 536870912 3758096384 $memory) (add (mul 2 $maxMemory) 104857600) -}}
{{- if $memory -}}
{{- $bytes = add $bytes (div (mul (include "hitline.maxBytes" . | int64) 5) 4) -}}
{{- end -}}
{{- $bytes = add $bytes (include "hitline.routerBytes" . | int64) -}}
{{- printf "%dMi" (div (add $bytes 1048575) 1048576) -}}
{{- end -}}

{{/* resources.limits.memory, or what is needed, but not less than the request. */}}
{{- define "hitline.memoryLimit" -}}
{{- $needed := include "hitline.memory" . -}}
{{- $request := dig "requests" "memory" $needed .Values.resources -}}
{{- $limit := $needed -}}
{{- if gt (include "hitline.quantity" $request | int64) (include "hitline.quantity" $needed | int64) }}{{ $limit = $request }}{{ end -}}
{{- dig "limits" "memory" $limit .Values.resources | toString -}}
{{- end -}}

{{/* resources.requests.memory, or the limit. */}}
{{- define "hitline.memoryRequest" -}}
{{- dig "requests" "memory" (include "hitline.memoryLimit" .) .Values.resources | toString -}}
{{- end -}}

{{- define "hitline.hostPort" -}}
{{- $host := .root.Values.listen.address -}}
{{- if contains ":" $host }}{{ $host = printf "[%s]" $host }}{{ end -}}
{{- printf "%s:%d" $host (int .port) -}}
{{- end -}}

{{/* The credentials of a listener with TLS. */}}
{{- define "hitline.credentials" -}}
{{- $tls := dict "cert" "/run/secrets/hitline/tls/tls.crt" "key" "/run/secrets/hitline/tls/tls.key" -}}
{{- if .Values.tls.clientCA }}{{ $_ := set $tls "client_ca" "/run/secrets/hitline/tls/ca.crt" }}{{ end -}}
{{- $all := dict "tls" $tls -}}
{{- if .Values.tokens.secretName }}{{ $_ := set $all "tokens" "/run/secrets/hitline/tokens/tokens.yaml" }}{{ end -}}
{{- toYaml $all -}}
{{- end -}}

{{/* hitline.yaml. */}}
{{- define "hitline.config" -}}
{{- $config := deepCopy .Values.config -}}
{{- $listen := .Values.listen -}}
{{- $entries := list -}}
{{- if $listen.lookup.enabled -}}
{{- $address := printf "tcp://%s" (include "hitline.hostPort" (dict "root" . "port" $listen.lookup.port)) -}}
{{- $entries = append $entries (dict "address" $address "allow" $listen.lookup.allow) -}}
{{- end -}}
{{- if .Values.tls.secretName -}}
{{- $address := printf "tls://%s" (include "hitline.hostPort" (dict "root" . "port" $listen.secure.port)) -}}
{{- $entries = append $entries (merge (dict "address" $address) (include "hitline.credentials" . | fromYaml)) -}}
{{- end -}}
{{- $_ := set $config "listen" $entries -}}
{{- $_ := set $config "metrics" (include "hitline.hostPort" (dict "root" . "port" .Values.metrics.port)) -}}
{{- $_ := set $config "drain_delay" (printf "%ds" (int .Values.drainDelaySeconds)) -}}
{{- $_ := set $config "drain_timeout" (printf "%ds" (int .Values.drainSeconds)) -}}
{{- if $config.router -}}
{{- $address := include "hitline.hostPort" (dict "root" . "port" $listen.router.port) -}}
{{- if $listen.router.secure -}}
{{- $_ := set $config.router "listen" (merge (dict "address" (printf "tls://%s" $address)) (include "hitline.credentials" . | fromYaml)) -}}
{{- else -}}
{{- $_ := set $config.router "listen" (dict "address" (printf "tcp://%s" $address) "allow" $listen.router.allow) -}}
{{- end -}}
{{- end -}}
{{- toYaml $config -}}
{{- end -}}

{{/*
What of hitline.yaml a running server does not take from the changed file: docs/configuration.md has the list. Pools that a
router's model has are of the start.
*/}}
{{- define "hitline.configAtStart" -}}
{{- $config := include "hitline.config" . | fromYaml -}}
{{- $limits := dict "max_account" (dig "limits" "max_account" "" $config) -}}
{{- if ne (include "hitline.backend" .) "memory" -}}
{{- $_ := set $limits "max_memory" (dig "limits" "max_memory" "" $config) -}}
{{- end -}}
{{- $_ := set $config "limits" $limits -}}
{{- $_ := set $config "log" (omit ($config.log | default dict) "level") -}}
{{- $config = omit $config "drain_delay" "drain_timeout" -}}
{{- if not $config.router }}{{ $config = omit $config "pool" "pools" "accept_pools" }}{{ end -}}
{{- toYaml $config -}}
{{- end -}}

{{/* Refuses values that a schema cannot refuse in one clear line. */}}
{{- define "hitline.check" -}}
{{- $v := .Values -}}
{{- range $field, $value := dict "listen" "listen" "metrics" "metrics.port" "drain_delay" "drainDelaySeconds" "drain_timeout" "drainSeconds" -}}
{{- if hasKey $v.config $field }}{{ fail (printf "config.%s: the chart writes this field; set the value %s" $field $value) }}{{ end -}}
{{- end -}}
{{- if hasKey ($v.config.router | default dict) "listen" }}{{ fail "config.router.listen: the chart writes this field; set the value listen.router" }}{{ end -}}
{{- range $v.env -}}
{{- if has .name (list "HITLINE_LISTEN" "HITLINE_METRICS" "HITLINE_DRAIN_DELAY" "HITLINE_DRAIN_TIMEOUT" "HITLINE_ROUTER_LISTEN") -}}
{{- fail (printf "env has %s: the chart writes this field; set the value listen, metrics.port, drainDelaySeconds or drainSeconds" .name) -}}
{{- end -}}
{{- if has .name (list "HITLINE_BACKEND_MEMORY_MAX_BYTES" "HITLINE_LIMITS_MAX_MEMORY" "HITLINE_ROUTER_MAX_BYTES" "HITLINE_ROUTER_MAX_PAYLOAD") -}}
{{- fail (printf "env has %s: the chart computes the memory of the container; set the field in config" .name) -}}
{{- end -}}
{{- end -}}
{{- if regexMatch "^[^/]*//[^/@]*:[^/@]*@" (dig "backend" "redis" "url" "" $v.config) -}}
{{- fail "config.backend.redis.url has a password, and everybody may read a ConfigMap: put the URL into a Secret, redis.urlSecret.name" -}}
{{- end -}}
{{- $backend := include "hitline.backend" . -}}
{{- if gt (len ($v.config.backend | default dict)) 1 -}}
{{- fail (printf "config.backend names %s: name one" (keys $v.config.backend | sortAlpha | join " and ")) -}}
{{- end -}}
{{- if and (gt (int $v.replicaCount) 1) (eq $backend "memory") -}}
{{- fail "replicaCount is above 1 with backend.memory: each pod would have an index of its own; set 1, or config.backend.mooncake or redis" -}}
{{- end -}}
{{- if and (not $v.listen.lookup.enabled) (not $v.tls.secretName) -}}
{{- fail "listen.lookup.enabled is false and tls.secretName is empty: nothing listens; set one of them" -}}
{{- end -}}
{{- if and $v.tokens.secretName (not $v.tls.secretName) -}}
{{- fail "tokens.secretName without tls.secretName: others could read the tokens; set tls.secretName" -}}
{{- end -}}
{{- if and $v.tls.clientCA (not $v.tls.secretName) -}}
{{- fail "tls.clientCA without tls.secretName: name the Secret that has ca.crt" -}}
{{- end -}}
{{- if $v.listen.router.secure -}}
{{- if not $v.config.router }}{{ fail "listen.router.secure without config.router: there is no listener for routers; set config.router" }}{{ end -}}
{{- if not $v.tls.secretName }}{{ fail "listen.router.secure without tls.secretName: HTTPS needs a certificate; set tls.secretName" }}{{ end -}}
{{- end -}}
{{- if and (eq $backend "redis") (not (dig "backend" "redis" "url" "" $v.config)) (not $v.redis.urlSecret.name) -}}
{{- fail "config.backend.redis has no URL: set its url, or redis.urlSecret.name" -}}
{{- end -}}
{{- if and $v.redis.urlSecret.name (ne $backend "redis") -}}
{{- fail (printf "redis.urlSecret.name with config.backend.%s: set config.backend.redis, which may be {}" $backend) -}}
{{- end -}}
{{- if and $v.redis.tlsSecretName (ne $backend "redis") -}}
{{- fail (printf "redis.tlsSecretName with config.backend.%s: set config.backend.redis" $backend) -}}
{{- end -}}
{{- if and $v.redis.urlSecret.name (dig "backend" "redis" "url" "" $v.config) -}}
{{- fail "config.backend.redis.url and redis.urlSecret.name: set one of them" -}}
{{- end -}}
{{- $limit := include "hitline.memoryLimit" . -}}
{{- if and (eq $backend "memory") (lt (include "hitline.quantity" $limit | int64) (include "hitline.maxBytes" . | int64)) -}}
{{- fail (printf "resources.limits.memory %s is below config.backend.memory.max_bytes %s: raise it, or leave it out" $limit (dig "backend" "memory" "max_bytes" "1GiB" $v.config | toString)) -}}
{{- end -}}
{{- $request := include "hitline.memoryRequest" . -}}
{{- if gt (include "hitline.quantity" $request | int64) (include "hitline.quantity" $limit | int64) -}}
{{- fail (printf "resources.requests.memory %s is above resources.limits.memory %s" $request $limit) -}}
{{- end -}}
{{- $ports := list (toString $v.metrics.port) -}}
{{- if $v.listen.lookup.enabled }}{{ $ports = append $ports (toString $v.listen.lookup.port) }}{{ end -}}
{{- if $v.tls.secretName }}{{ $ports = append $ports (toString $v.listen.secure.port) }}{{ end -}}
{{- if $v.config.router }}{{ $ports = append $ports (toString $v.listen.router.port) }}{{ end -}}
{{- if ne (len $ports) (len (uniq $ports)) -}}
{{- fail (printf "two of listen.lookup.port, listen.secure.port, listen.router.port and metrics.port are equal: %s" (join ", " $ports)) -}}
{{- end -}}
{{- end -}}

{{/* A file of deploy, which make chart puts into the chart. */}}
{{- define "hitline.file" -}}
{{- .root.Files.Get (print "files/" .name) | trim | required (printf "this chart has no files/%s: package it by make chart" .name) -}}
{{- end -}}
