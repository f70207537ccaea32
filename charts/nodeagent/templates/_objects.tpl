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
{{- $_ := set $object.metadata "labels" (merge (dig "metadata" "labels" dict $object) $labels) }}
---
{{ toYaml $object }}
{{- end -}}

{{/* The whole configuration, as YAML: the base's, changed by the value `config`. */}}
{{- define "nodeagent.config" -}}
{{- $base := (.Files.Get "files/base/configmap.yaml" | fromYaml).data -}}
{{- $config := mergeOverwrite (index $base "nodeagent.yaml" | fromYaml) (deepCopy .Values.config) -}}
{{- if eq (dig "relay" "kind" "node" $config) "service" -}}
{{- $_ := unset $config.relay "haproxyDir" -}}
{{- end -}}
{{- toYaml $config -}}
{{- end -}}

{{/* An image: what the values say, else what the base's kustomization says: (list . $values "name in the base") */}}
{{- define "nodeagent.image" -}}
{{- $root := index . 0 -}}
{{- $wanted := index . 1 -}}
{{- $name := index . 2 -}}
{{- $known := dict -}}
{{- range (fromYaml ($root.Files.Get "files/base/kustomization.yaml")).images -}}
{{- if eq .name $name -}}{{- $known = . -}}{{- end -}}
{{- end -}}
{{- $repository := $wanted.repository | default (dig "newName" $name $known) -}}
{{- $own := or $wanted.repository $wanted.tag -}}
{{- $digest := $wanted.digest | default (ternary "" (dig "digest" "" $known) (not (empty $own))) -}}
{{- $tag := $wanted.tag | default (dig "newTag" $root.Chart.AppVersion $known) -}}
{{- if $digest -}}{{- printf "%s@%s" $repository $digest -}}{{- else -}}{{- printf "%s:%s" $repository $tag -}}{{- end -}}
{{- end -}}
