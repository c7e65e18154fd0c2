{{- define "slipway.labels" -}}
app.kubernetes.io/name: slipway
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/version: {{ .Chart.AppVersion | replace "+" "-" | trunc 63 | quote }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name (.Chart.Version | replace "+" "_") | trunc 63 }}
{{- end }}

{{/* What selects the pods of one part: (list . "edge"). */}}
{{- define "slipway.selector" -}}
app.kubernetes.io/name: slipway
app.kubernetes.io/instance: {{ (index . 0).Release.Name }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end }}

{{- define "slipway.tag" -}}
{{ .Values.images.tag | default .Chart.AppVersion | replace "+" "-" }}
{{- end }}

{{- define "slipway.image" -}}
{{ .Values.images.registry }}/slipway-cluster:{{ include "slipway.tag" . }}
{{- end }}

{{- define "slipway.keySecret" -}}
{{ .Values.secretsKey.existingSecret | default (printf "%s-key" .Release.Name) }}
{{- end }}

{{/* Settings that all parts have. */}}
{{- define "slipway.args" -}}
- --listen=:8080
- --edge-http=:80
- --edge-https=:443
- --log-format=json
- --node-temporary # its directory is an emptyDir
{{- range .Values.acme.directories }}
- --acme-ca={{ . }}
{{- end }}
{{- with .Values.acme.email }}
- --acme-email={{ . }}
{{- end }}
{{- range $name, $value := .Values.settings }}
{{- if kindIs "slice" $value }}
{{- range $value }}
- {{ printf "--%s=%v" $name . | quote }}
{{- end }}
{{- else if kindIs "float64" $value }}
- {{ printf "--%s=%v" $name ($value | toJson) | quote }}
{{- else }}
- {{ printf "--%s=%v" $name $value | quote }}
{{- end }}
{{- end }}
{{- end }}

{{- define "slipway.env" -}}
- name: POD_IP
  valueFrom: {fieldRef: {fieldPath: status.podIP}}
- name: GOMEMLIMIT
  valueFrom: {resourceFieldRef: {resource: limits.memory}}
# By the environment, so that commands in the pod (kubectl exec) have them, too.
- name: SLIPWAY_DATA_DIR
  value: /var/lib/slipway
- name: SLIPWAY_BASE_URL
  value: {{ quote .Values.baseURL }}
- name: SLIPWAY_SITE_DOMAIN
  value: {{ quote .Values.siteDomain }}
- name: SLIPWAY_BLOBS
  value: {{ quote .Values.objectStore.url }}
- name: SLIPWAY_DATABASE
  valueFrom: {secretKeyRef: {name: {{ .Values.database.existingSecret }}, key: {{ .Values.database.key }}}}
- name: AWS_ACCESS_KEY_ID
  valueFrom: {secretKeyRef: {name: {{ .Values.objectStore.existingSecret }}, key: {{ .Values.objectStore.accessKeyKey }}}}
- name: AWS_SECRET_ACCESS_KEY
  valueFrom: {secretKeyRef: {name: {{ .Values.objectStore.existingSecret }}, key: {{ .Values.objectStore.secretKeyKey }}}}
{{- range .Values.secretSettings }}
- name: {{ .name }}
  valueFrom: {secretKeyRef: {name: {{ .secret }}, key: {{ .key }}}}
{{- end }}
{{- end }}

{{- define "slipway.mounts" -}}
- {name: data, mountPath: /var/lib/slipway}
- {name: tmp, mountPath: /tmp}
- {name: key, mountPath: /var/lib/slipway/secrets.key, subPath: secrets.key, readOnly: true}
{{- end }}

{{- define "slipway.volumes" -}}
- name: tmp
  emptyDir: {sizeLimit: 10Gi}
- name: key
  secret: {secretName: {{ include "slipway.keySecret" . }}, defaultMode: 0440}
{{- end }}

{{- define "slipway.confined" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{- define "slipway.podSecurity" -}}
runAsUser: 10001
runAsGroup: 10001
fsGroup: 10001
runAsNonRoot: true
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "slipway.probes" -}}
startupProbe: # a start may migrate the database
  httpGet: {path: /healthz, port: control}
  periodSeconds: 2
  timeoutSeconds: 5
  failureThreshold: 450
readinessProbe:
  httpGet: {path: /readyz, port: control}
  periodSeconds: 2
  timeoutSeconds: 5
  failureThreshold: 2
livenessProbe: # whether the process responds: not whether the database does
  httpGet: {path: /healthz, port: control}
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 6
{{- end }}

{{/* Pods of one part on different nodes, where there are enough: (list . "edge") */}}
{{- define "slipway.spread" -}}
topologySpreadConstraints:
  - maxSkew: 1
    topologyKey: kubernetes.io/hostname
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels:
        {{- include "slipway.selector" . | nindent 8 }}
{{- end }}

{{/* The image of builds. */}}
{{- define "slipway.buildImage" -}}
{{ .Values.images.registry }}/slipway-build:{{ include "slipway.tag" . }}
{{- end }}

{{- define "slipway.runtimeImage" -}}
{{ (index . 0).Values.images.registry }}/slipway-runtime:{{ include "slipway.tag" (index . 0) }}-{{ (index . 1).suffix }}
{{- end }}

{{/* The images of programs, as workers read them. */}}
{{- define "slipway.imageList" -}}
{{- $all := list -}}
{{- range .Values.images.runtimes -}}
{{- $all = append $all (merge (dict "name" (include "slipway.runtimeImage" (list $ .))) (omit . "suffix")) -}}
{{- end -}}
{{ toJson $all }}
{{- end }}

{{/* Workers, as network policies name them. */}}
{{- define "slipway.workers" -}}
namespaceSelector:
  matchLabels: {kubernetes.io/metadata.name: {{ .Release.Namespace }}}
podSelector:
  matchLabels:
    {{- include "slipway.selector" (list . "worker") | nindent 4 }}
{{- end }}
