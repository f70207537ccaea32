{{/*
The objects come from daemonset/ (files/); the templates change in them what the values ask for. So the chart and the
kustomization can't differ in what neither of them is asked to change.
*/}}

{{/* The objects of the file $1 as a JSON list: (list . "files/...") */}}
{{- define "nodeagent.read" -}}
{{- $root := index . 0 -}}
{{- $objects := list -}}
{{- range $text := regexSplit "(?m)^---$" ($root.Files.Get (index . 1)) -1 -}}
{{- $object := fromYaml $text -}}
{{- if hasKey $object "Error" -}}{{- fail (printf "%s: %s" (index $ 1) $object.Error) -}}{{- end -}}
{{- if $object -}}{{- $objects = append $objects $object -}}{{- end -}}
{{- end -}}
{{- toJson $objects -}}
{{- end -}}

{{/* One object as a document of its own, in the release's namespace if it was in nodeagent's: (list . $object) */}}
{{- define "nodeagent.write" -}}
{{- $root := index . 0 -}}
{{- $object := index . 1 -}}
{{- if eq (dig "metadata" "namespace" "" $object) "nodeagent" -}}
{{- $_ := set $object.metadata "namespace" $root.Release.Namespace -}}
{{- end -}}
{{- range $subject := $object.subjects -}}
{{- $_ := set $subject "namespace" $root.Release.Namespace -}}
{{- end -}}
{{- $labels := dict "app.kubernetes.io/instance" $root.Release.Name "app.kubernetes.io/managed-by" $root.Release.Service -}}
{{- $_ := set $labels "app.kubernetes.io/version" $root.Chart.AppVersion -}}
{{- $_ := set $labels "helm.sh/chart" (printf "%s-%s" $root.Chart.Name ($root.Chart.Version | replace "+" "_")) -}}
{{- $common := $root.Values.commonLabels -}}
{{- $_ := set $object.metadata "labels" (merge (dig "metadata" "labels" dict $object) $labels $common) -}}
{{- /* Its pods, if it has any. */ -}}
{{- with dig "spec" "template" nil $object -}}
{{- $_ := set .metadata "labels" (merge .metadata.labels $root.Values.podLabels $common) -}}
{{- with $root.Values.imagePullSecrets -}}
{{- $_ := set $object.spec.template.spec "imagePullSecrets" . -}}
{{- end -}}
{{- end }}
---
{{ toYaml $object }}
{{- end -}}

{{/* Whether the data plane picks a Service's backend at connect(), where DNAT never matches: "true" or empty. */}}
{{- define "nodeagent.picksAtConnect" -}}
{{- if has .Values.dataPlane (list "cilium" "calico-ebpf") -}}true{{- end -}}
{{- end -}}

{{/* Whether CoreDNS serves pods: "true" or empty. */}}
{{- define "nodeagent.coredns" -}}
{{- if kindIs "bool" .Values.coredns.enabled -}}
{{- ternary "true" "" .Values.coredns.enabled -}}
{{- else -}}
{{- include "nodeagent.picksAtConnect" . -}}
{{- end -}}
{{- end -}}

{{/* The whole configuration, as YAML: the base's, changed by the values `dataPlane` and `config`. */}}
{{- define "nodeagent.config" -}}
{{- $config := index (.Files.Get "files/base/configmap.yaml" | fromYaml).data "nodeagent.yaml" | fromYaml -}}
{{- if include "nodeagent.picksAtConnect" . -}}
{{- $config = mergeOverwrite $config (dict "dnat" (dict "backend" "none") "coredns" (dict "servesPods" true)) -}}
{{- end -}}
{{- $config = mergeOverwrite $config (deepCopy .Values.config) -}}
{{- if .Values.dataPlane -}}
{{- $wanted := include "nodeagent.picksAtConnect" . | eq "true" -}}
{{- $backend := dig "dnat" "backend" "auto" $config | default "auto" -}}
{{- $serves := dig "coredns" "servesPods" false $config | default false -}}
{{- $enabled := include "nodeagent.coredns" . | eq "true" -}}
{{- if or (ne $wanted (eq $backend "none")) (ne $wanted $serves) (ne $wanted $enabled) -}}
{{- fail (printf "dataPlane: %s contradicts config.dnat.backend: %s, config.coredns.servesPods: %t or coredns.enabled: %t; it sets all three, so leave them out, or leave out dataPlane to choose them yourself" .Values.dataPlane $backend $serves $enabled) -}}
{{- end -}}
{{- end -}}
{{- toYaml $config -}}
{{- end -}}

{{/* The image of every container: what the values say, else what the base's kustomization says. */}}
{{- define "nodeagent.image" -}}
{{- $wanted := .Values.image -}}
{{- $base := .Files.Get "files/base/kustomization.yaml" -}}
{{- if not $base -}}
{{- fail "this copy of the chart lacks files/, whose links lead to daemonset/: Flux leaves links out of what it reads from Git; use a release's chart, or one that helm package made (docs/gitops.md)" -}}
{{- end -}}
{{- $known := ($base | fromYaml).images | first -}}
{{- $repository := $wanted.repository | default $known.newName -}}
{{- if not $repository -}}
{{- fail "image.repository is empty, and only the chart of a release knows an image: build one, push it where the nodes can pull it without the agent, and set image.repository to it (docs/development.md)" -}}
{{- end -}}
{{- $own := or $wanted.repository $wanted.tag -}}
{{- $digest := $wanted.digest | default (ternary "" (dig "digest" "" $known) (not (empty $own))) -}}
{{- $tag := $wanted.tag | default (dig "newTag" .Chart.AppVersion $known) -}}
{{- include "nodeagent.imageOf" (dict "repository" $repository "tag" $tag "digest" $digest) -}}
{{- end -}}

{{/* An image by its repository, tag and digest. */}}
{{- define "nodeagent.imageOf" -}}
{{- if .digest -}}{{- printf "%s@%s" .repository .digest -}}{{- else -}}{{- printf "%s:%s" .repository .tag -}}{{- end -}}
{{- end -}}
