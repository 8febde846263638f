{{/* Labels of every object. What selects pods never changes: "gatehouse.selector". */}}
{{- define "gatehouse.labels" -}}
app.kubernetes.io/name: gatehouse
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/part-of: gatehouse
{{- /* With namespace.create, it is not Helm that applies it. */}}
{{- if not .Values.namespace.create }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "gatehouse.selector" -}}
app.kubernetes.io/name: gatehouse
app.kubernetes.io/component: server
{{- end }}

{{- define "gatehouse.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end }}

{{- define "gatehouse.serviceAccount" -}}
{{ .Values.serviceAccount.name }}
{{- end }}

{{/*
The mode of mounted files, as a decimal number, because YAML 1.1 and 1.2 read 0440 differently: 0440 for the group of the pod,
or 0444 if the chart does not set the group and so does not know whose they are.
*/}}
{{- define "gatehouse.fileMode" -}}
{{- $group := get (.Values.podSecurityContext | default dict) "fsGroup" -}}
{{ ternary 292 288 (or (kindIs "invalid" $group) (eq (toString $group) "")) }}
{{- end }}

{{/* The file of files/ that is generated for certificates.source. */}}
{{- define "gatehouse.variant" -}}
{{ ternary "cert-manager" "self-signed" (eq .Values.certificates.source "certManager") }}.yaml
{{- end }}

{{/*
Objects of a file that "make manifests" wrote, as a list under "items", for the namespace of the release and with the labels of the chart,
of which none replaces theirs. They are taken from the program and not written a second time, so that rights and webhooks are those of
the program. Takes a list of the root, the file's name below files/ and a regular expression of kinds.
*/}}
{{- define "gatehouse.generated" -}}
{{- $root := index . 0 -}}
{{- $path := printf "files/%s" (index . 1) -}}
{{- $kinds := index . 2 -}}
{{- $text := $root.Files.Get $path -}}
{{- if not $text }}{{ fail (printf "%s is not in the chart (hint: make manifests)" $path) }}{{ end -}}
{{- $items := list -}}
{{- $text = $text | replace "gatehouse-system" $root.Release.Namespace -}}
{{- $user := printf "\"system:serviceaccount:%s:%%s\"" $root.Release.Namespace -}}
{{- $text = $text | replace (printf $user "gatehouse") (printf $user (include "gatehouse.serviceAccount" $root)) -}}
{{- range $document := regexSplit "(?m)^---$" $text -1 -}}
{{- $object := fromYaml $document -}}
{{- if hasKey $object "Error" }}{{ fail (printf "%s: %s" $path (get $object "Error")) }}{{ end -}}
{{- if regexMatch $kinds (get ($object | default dict) "kind" | default "") -}}
{{- $labels := fromYaml (include "gatehouse.labels" $root) -}}
{{- $_ := set $object.metadata "labels" (mergeOverwrite $labels (get $object.metadata "labels" | default dict)) -}}
{{- $items = append $items $object -}}
{{- end -}}
{{- end -}}
{{ dict "items" $items | toJson }}
{{- end }}
