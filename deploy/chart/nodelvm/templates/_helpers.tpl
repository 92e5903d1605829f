{{/* Names are fixed: a CSI driver is installed once in a cluster, and policy and tools rely on them. */}}

{{- define "nodelvm.selector" -}}
app.kubernetes.io/name: nodelvm
app.kubernetes.io/component: node
{{- end }}

{{- define "nodelvm.labels" -}}
{{ include "nodelvm.selector" . }}
app.kubernetes.io/part-of: nodelvm
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
{{- end }}

{{- define "nodelvm.janitorSelector" -}}
app.kubernetes.io/name: nodelvm
app.kubernetes.io/component: janitor
{{- end }}

{{- define "nodelvm.janitorLabels" -}}
{{ include "nodelvm.janitorSelector" . }}
app.kubernetes.io/part-of: nodelvm
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
{{- end }}
