{{- define "jobtree.image" -}}
{{- if .Values.image.digest -}}
{{ printf "%s@%s" .Values.image.repository .Values.image.digest | quote }}
{{- else -}}
{{ printf "%s:%s" .Values.image.repository (.Values.image.tag | default .Chart.AppVersion) | quote }}
{{- end -}}
{{- end -}}
{{/* Pods of Runs without a template hold their GPUs until they are deleted; kubectl exec -it POD -- python3 enters them. */}}
{{- define "jobtree.defaultTemplate" -}}
spec:
  {{- with .Values.image.pullSecrets }}
  imagePullSecrets: {{- toYaml . | nindent 4 }}
  {{- end }}
  automountServiceAccountToken: false
  terminationGracePeriodSeconds: 5
  containers:
    - name: hold
      image: {{ include "jobtree.image" . }}
      imagePullPolicy: {{ .Values.image.pullPolicy }}
      command: [python3, -c]
      args:
        - "import signal, sys; signal.signal(signal.SIGTERM, lambda *_: sys.exit(143)); signal.pause()"
      securityContext:
        runAsNonRoot: true
        allowPrivilegeEscalation: false
        readOnlyRootFilesystem: true
        capabilities: {drop: [ALL]}
        seccompProfile: {type: RuntimeDefault}
{{- end -}}
