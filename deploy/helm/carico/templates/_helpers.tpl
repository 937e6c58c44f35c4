{{- define "carico.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end -}}
{{- define "carico.check" -}}
{{- if ne .Release.Namespace "carico" -}}
{{- fail "its Leases are in the namespace carico: helm install --namespace carico --create-namespace" -}}
{{- end -}}
{{- end -}}
