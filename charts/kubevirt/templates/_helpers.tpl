{{/* Labels of every object; call with a dict of `root` and `component`. */}}
{{- define "kubevirt.labels" -}}
app.kubernetes.io/name: {{ .component }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/part-of: kubevirt
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ .root.Chart.Name }}-{{ .root.Chart.Version }}
{{- end -}}

{{/* What selects our pods: `kubevirt.io` is COMPONENT_LABEL of apiserver/apis/virt/places/names.py. */}}
{{- define "kubevirt.selector" -}}
kubevirt.io: {{ . }}
{{- end -}}

{{/* The namespace of virt-handlers' Leases. */}}
{{- define "kubevirt.leaseNamespace" -}}
{{ .Values.nodeLeases.namespace | default (printf "%s-node-lease" .Release.Namespace) }}
{{- end -}}

{{/* As whom virt-handler writes; which node it is on is in its token. */}}
{{- define "kubevirt.handlerUsername" -}}
system:serviceaccount:{{ .Release.Namespace }}:virt-handler
{{- end -}}

{{/* The reference of an image; call with a dict of `root` and `name`. A digest decides, whatever the tag says by then. */}}
{{- define "kubevirt.image" -}}
{{- with index .root.Values.image.digests .name -}}
{{ $.root.Values.image.registry }}/{{ $.name }}@{{ . }}
{{- else -}}
{{ .root.Values.image.registry }}/{{ .name }}:{{ .root.Values.image.tag }}
{{- end -}}
{{- end -}}

{{- define "kubevirt.pullSecrets" -}}
{{- with .Values.image.pullSecrets }}
imagePullSecrets:
{{- range . }}
- name: {{ . | quote }}
{{- end }}
{{- end }}
{{- end -}}

{{/* Pod Security `restricted`, for all but virt-handler. */}}
{{- define "kubevirt.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
seccompProfile: {type: RuntimeDefault}
{{- end -}}

{{- define "kubevirt.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end -}}

{{/* Replicas on different nodes as long as there are any; a rollout's old pods do not count, or both new ones might share a node. */}}
{{- define "kubevirt.spread" -}}
podAntiAffinity:
  preferredDuringSchedulingIgnoredDuringExecution:
  - weight: 100
    podAffinityTerm:
      topologyKey: kubernetes.io/hostname
      labelSelector:
        matchLabels:
          {{- include "kubevirt.selector" . | nindent 10 }}
      matchLabelKeys: [pod-template-hash]
{{- end -}}

{{/*
Where etcd's data is, as JSON: type (StorageClass or NodeDisk), storageClassName, node, path, volume, claimUid. What exists decides before values do,
for a claim's class, a volume's node and its path cannot change, and data must not be left behind.
*/}}
{{- define "kubevirt.etcdStorage" -}}
{{- $values := .Values.etcd.storage -}}
{{- $volumeName := printf "%s-etcd-0" .Release.Namespace -}}
{{- $claim := lookup "v1" "PersistentVolumeClaim" .Release.Namespace "data-kubevirt-etcd-0" -}}
{{- $volume := lookup "v1" "PersistentVolume" "" $volumeName -}}
{{- $type := $values.type -}}
{{- $class := $values.storageClassName -}}
{{- $node := $values.nodeDisk.node -}}
{{- $path := $values.nodeDisk.path -}}
{{- if $claim -}}
  {{- $class = default "" (dig "spec" "storageClassName" "" $claim) -}}
  {{- $present := ternary "NodeDisk" "StorageClass" (eq $class "kubevirt-etcd-node-disk") -}}
  {{- if not (has $type (list "auto" $present)) -}}
    {{- fail (printf "etcd.storage.type=%s: the claim %s/data-kubevirt-etcd-0 holds the data of a %s; back it up, delete the claim, install again and restore" $type .Release.Namespace $present) -}}
  {{- end -}}
  {{- $type = $present -}}
{{- else if $volume -}}
  {{- if eq $type "auto" -}}{{- $type = "NodeDisk" -}}{{- end -}}
{{- else if eq $type "auto" -}}
  {{- $type = ternary "StorageClass" "NodeDisk" (not (empty $class)) -}}
  {{- range (dig "items" list (lookup "storage.k8s.io/v1" "StorageClass" "" "")) -}}
    {{- if eq "true" (dig "metadata" "annotations" "storageclass.kubernetes.io/is-default-class" "" .) -}}{{- $type = "StorageClass" -}}{{- end -}}
  {{- end -}}
{{- end -}}
{{- if eq $type "NodeDisk" -}}
  {{- if $volume -}}
    {{- $path = dig "spec" "hostPath" "path" $path $volume -}}
    {{- range (dig "spec" "nodeAffinity" "required" "nodeSelectorTerms" list $volume) -}}
      {{- range .matchExpressions -}}{{- $node = first .values -}}{{- end -}}
    {{- end -}}
  {{- end -}}
  {{- if not $node -}}
    {{- range (dig "items" list (lookup "v1" "Node" "" "")) -}}
      {{- $takes := not (dig "spec" "unschedulable" false .) -}}
      {{- range (dig "spec" "taints" list .) -}}{{- if ne .effect "PreferNoSchedule" -}}{{- $takes = false -}}{{- end -}}{{- end -}}
      {{- $ready := false -}}
      {{- range (dig "status" "conditions" list .) -}}{{- if and (eq .type "Ready") (eq .status "True") -}}{{- $ready = true -}}{{- end -}}{{- end -}}
      {{- if and $takes $ready (or (not $node) (lt .metadata.name $node)) -}}{{- $node = .metadata.name -}}{{- end -}}
    {{- end -}}
  {{- end -}}
  {{- if and (not $node) (not (dig "items" list (lookup "v1" "Node" "" ""))) -}}
    {{- fail "etcd needs a disk, but helm template and --dry-run do not query the cluster. Use --dry-run=server, or set etcd.storage.storageClassName or etcd.storage.nodeDisk.node" -}}
  {{- end -}}
  {{- if not $node -}}
    {{- fail "etcd needs a disk: this cluster has no default StorageClass and no ready, schedulable node; set etcd.storage.storageClassName or etcd.storage.nodeDisk.node" -}}
  {{- end -}}
  {{- $class = "kubevirt-etcd-node-disk" -}}
{{- end -}}
{{- dict "type" $type "storageClassName" $class "node" $node "path" $path "volume" $volumeName "claimUid" (dig "metadata" "uid" "" ($claim | default dict)) | toJson -}}
{{- end -}}

{{/* Not empty where the nodes have plugins. */}}
{{- define "kubevirt.plugins" -}}
{{- join "," (concat .Values.plugins.network .Values.plugins.storage) -}}
{{- end -}}

{{/* The seconds of a Go duration of whole ones. */}}
{{- define "kubevirt.seconds" -}}
{{- $from := toDate "2006-01-02" "2000-01-01" -}}
{{- sub ($from | mustDateModify (print "+" .) | unixEpoch) ($from | unixEpoch) -}}
{{- end }}
