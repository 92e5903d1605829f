{{/* Names are fixed: a CSI driver is installed once in a cluster, and policy and tools rely on them. */}}

{{/* An image's name. (list $ IMAGE DEFAULT-TAG): the registry of all images replaces the image's own, and a digest replaces the tag. */}}
{{- define "nodelvm.image" -}}
{{- $root := index . 0 -}}
{{- $image := index . 1 -}}
{{- $repository := $image.repository -}}
{{- with $root.Values.imageRegistry -}}
{{- $repository = printf "%s/%s" . (regexReplaceAll "^[^/]*[.:][^/]*/|^localhost/" $image.repository "") -}}
{{- end -}}
{{- if $image.digest -}}
{{ $repository }}@{{ $image.digest }}
{{- else -}}
{{ $repository }}:{{ $image.tag | default (index . 2) }}
{{- end -}}
{{- end }}

{{- define "nodelvm.selector" -}}
app.kubernetes.io/name: nodelvm
app.kubernetes.io/component: node
{{- end }}

{{- define "nodelvm.labels" -}}
{{ include "nodelvm.selector" . }}
app.kubernetes.io/part-of: nodelvm
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
{{- end }}

{{- define "nodelvm.controllerSelector" -}}
app.kubernetes.io/name: nodelvm
app.kubernetes.io/component: controller
{{- end }}

{{- define "nodelvm.controllerLabels" -}}
{{ include "nodelvm.controllerSelector" . }}
app.kubernetes.io/part-of: nodelvm
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
{{- end }}

{{/* The values of nodelvm-controller, as YAML: what stands under their former name, janitor, replaces what is under controller, and
either of the two enables it. */}}
{{- define "nodelvm.controller" -}}
{{- $values := mergeOverwrite (deepCopy .Values.controller) (deepCopy .Values.janitor) -}}
{{- $_ := set $values "enabled" (or .Values.controller.enabled .Values.janitor.enabled) -}}
{{- toYaml $values -}}
{{- end }}

{{/* The names of the StorageClasses with encryption, as a list in CEL. */}}
{{- define "nodelvm.encryptedClasses" -}}
{{- $names := .Values.nodeRestriction.encryptedClasses }}
{{- range .Values.storageClasses }}
{{- if .parameters.encryption }}
{{- $names = append $names .name }}
{{- end }}
{{- end }}
{{- range $i, $name := $names }}{{ if $i }}, {{ end }}'{{ $name }}'{{ end }}
{{- end }}
