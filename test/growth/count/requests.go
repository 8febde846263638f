package main

import (
	"bytes"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/gatehouse-dev/gatehouse/webhooks/rawjson"
)

// request is the path and the body of a call.
type request struct {
	path, body string
}

// requestOf returns a request about an object, and about an update if there is an old one.
func requestOf(path, group, kind, resource, object, old string) request {
	operation, version := "CREATE", "v1"
	if old != "" {
		operation = "UPDATE"
		old = `,"oldObject":` + old
	}
	if group == "gatehouse.dev" {
		version = "v1alpha1"
	}
	var body bytes.Buffer
	fmt.Fprintf(&body, `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":"u","kind":{"group":%[1]q,"version":%[6]q,"kind":%[2]q},`+
		`"resource":{"group":%[1]q,"version":%[6]q,"resource":%[3]q},"name":"web","namespace":"shop","operation":%[4]q,"userInfo":{"username":"jane"},"object":%[5]s`, group, kind, resource, operation, object, version)
	body.WriteString(old + "}}")
	return request{path: path, body: body.String()}
}

// repetition matches what expand repeats.
var repetition = regexp.MustCompile("«(?:/([0-9]) )?([^»]*)»|‹([^›]*)›")

// expand returns the text of a template with n repetitions: «element» stands for elements
// with commas between them, in which # is the number, «/3 element» for a third as many,
// and ‹text› for the text again and again.
func expand(template string, n int) string {
	return repetition.ReplaceAllStringFunc(template, func(found string) string {
		parts := repetition.FindStringSubmatch(found)
		if parts[2] == "" {
			return strings.Repeat(parts[3], n)
		}
		part, _ := strconv.Atoi(parts[1]) // all of n without one
		all := make([]string, n/max(part, 1))
		for i := range all {
			all[i] = strings.ReplaceAll(parts[2], "#", strconv.Itoa(i))
		}
		return strings.Join(all, ",")
	})
}

// requests returns hostile requests by their names, as large as a number says.
func requests() map[string]func(n int) request {
	out := map[string]func(n int) request{}
	for name, template := range podTemplates() {
		out["mutate-"+name] = func(n int) request { return requestOf("/mutate", "", "Pod", "pods", expand(template, n), "") }
		out["validate-"+name] = func(n int) request { return requestOf("/validate", "", "Pod", "pods", expand(template, n), "") }
		// Another image, so that the update is compared with what was before.
		out["update-"+name] = func(n int) request {
			pod := expand(template, n)
			return requestOf("/validate", "", "Pod", "pods", strings.Replace(pod, `"containers":[{`, `"containers":[{"image":"other","name":"more"},{`, 1), pod)
		}
		out["template-"+name] = func(n int) request {
			pod := expand(template, n)
			deployment := func(pod string) string {
				return `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"web","namespace":"shop"},"spec":{"template":` + pod + `}}`
			}
			return requestOf("/validate", "apps", "Deployment", "deployments", deployment(strings.Replace(pod, `"name":"web"`, `"name":"w"`, 1)), deployment(pod))
		}
	}
	for name, f := range ownDocuments() {
		out["document-"+name] = f
	}
	return out
}

// podTemplates returns templates of pods by their names.
func podTemplates() map[string]string {
	pod := func(metadata, spec string) string {
		if metadata != "" {
			metadata = "," + metadata
		}
		if spec != "" && !strings.Contains(spec, `"containers":`) {
			spec = `"containers":[{"name":"web","image":"web:1"}],` + spec
		}
		return `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"web","namespace":"shop"` + metadata + `},"spec":{` + spec + `}}`
	}
	const container = `{"name":"c#","image":"i#","securityContext":{"privileged":true,"capabilities":{"add":["SYS_ADMIN"]}},"ports":[{"name":"p#","containerPort":1,"hostPort":1}]}`
	inContainer := func(members string) string {
		return `"containers":[{"name":"web","image":"web:1",` + members + `}]`
	}
	status := func(text string) string {
		return `"annotations":{"sidecar.gatehouse.dev/status":` + string(rawjson.AppendString(nil, text)) + `}`
	}
	return map[string]string{
		"containers":                 pod("", `"containers":[«`+container+`»]`),
		"equal-containers":           pod("", `"containers":[«{"name":"web","image":"web:1"}»]`),
		"init-containers":            pod("", `"initContainers":[«`+container+`»]`),
		"ephemeral-containers":       pod("", `"ephemeralContainers":[«`+container+`»]`),
		"volumes":                    pod("", `"volumes":[«{"name":"v#","hostPath":{"path":"/"}}»]`),
		"sysctls":                    pod("", `"securityContext":{"sysctls":[«{"name":"kernel.x#","value":"1"}»]}`),
		"containers-and-sysctls":     pod("", `"securityContext":{"sysctls":[«{"name":"kernel.x#","value":"1"}»]},"containers":[«`+container+`»]`),
		"containers-and-annotations": pod(`"annotations":{«"container.apparmor.security.beta.kubernetes.io/c#":"unconfined"»}`, `"containers":[«`+container+`»]`),
		"containers-and-volumes":     pod("", `"volumes":[«{"name":"v#","hostPath":{"path":"/"}}»],"containers":[«{"name":"c#","volumeMounts":[{"name":"v#","mountPath":"/#"}]}»]`),
		"annotations":                pod(`"annotations":{«"a#":"x"»}`, ""),
		"reserved-annotations":       pod(`"annotations":{«"a#.kubernetes.io/x":"x"»}`, ""),
		"parameters":                 pod(`"annotations":{«"agent.sidecar.gatehouse.dev/p#":"x"»}`, ""),
		"stray-annotations":          pod(`"annotations":{«"x#.sidecar.gatehouse.dev/p":"x"»}`, ""),
		"declined-profiles":          pod(`"annotations":{"sidecar.gatehouse.dev/inject":"«-x#»"}`, ""),
		"equal-annotations":          pod(`"annotations":{«"a":"x"»}`, ""),
		"labels":                     pod(`"labels":{«"l#":"x"»}`, ""),
		"equal-members":              pod("", `«"x":1»`),
		"managed-fields":             pod(`"managedFields":[«{"manager":"m#","fieldsV1":{"f:spec":{"f:x#":{}}}}»]`, ""),
		"owners":                     pod(`"ownerReferences":[«{"kind":"ReplicaSet","name":"o#","uid":"#"}»]`, ""),
		"finalizers":                 pod(`"finalizers":[«"f/#"»]`, ""),
		"tolerations":                pod("", `"tolerations":[«{"key":"k#"}»]`),
		"host-aliases":               pod("", `"hostAliases":[«{"ip":"#","hostnames":["a"]}»]`),
		"pull-secrets":               pod("", `"imagePullSecrets":[«{"name":"s#"}»]`),
		"groups":                     pod("", `"securityContext":{"supplementalGroups":[«#»]}`),
		"env":                        pod("", inContainer(`"env":[«{"name":"E#","value":"$(E#)"}»]`)),
		"equal-env":                  pod("", inContainer(`"env":[«{"name":"E","value":"x"}»]`)),
		"mounts":                     pod("", inContainer(`"volumeMounts":[«{"name":"v","mountPath":"/#","subPathExpr":"$(A)"}»]`)),
		"devices":                    pod("", inContainer(`"volumeDevices":[«{"name":"v","devicePath":"/#"}»]`)),
		"ports":                      pod("", inContainer(`"ports":[«{"name":"p#","containerPort":#,"hostPort":#}»]`)),
		"capabilities":               pod("", inContainer(`"securityContext":{"capabilities":{"add":[«"C#"»]}}`)),
		"containers-with-all":        pod("", `"containers":[«{"name":"c#","image":"i","env":[{"name":"E#","value":"x"}],"volumeMounts":[{"name":"v#","mountPath":"/#"}],"volumeDevices":[{"name":"d#","devicePath":"/d#"}],"ports":[{"containerPort":#}],"livenessProbe":{"httpGet":{"port":#}}}»]`),
		"deep":                       pod("", `"x":‹[›‹]›`),
		"deep-object":                pod(`"labels":‹{"a":›1‹}›`, ""),
		"deep-env":                   pod("", inContainer(`"env":[{"name":"A","value":‹{"a":›1‹}›}]`)),
		"deep-tolerations":           pod("", `"tolerations":[‹{"a":›1‹}›]`),
		"long-text":                  pod(`"annotations":{"a":"‹`+strings.Repeat(`\"`, 10)+`›"}`, ""),
		"long-name":                  strings.Replace(pod("", inContainer(`"x":1`)), `"name":"web","image"`, `"name":"‹`+strings.Repeat("x", 10)+`›","image"`, 1),
		"claimed-containers":         pod(status(`{"profiles":[{"name":"agent","revision":"1","containers":[«"x#"»]}]}`), `"containers":[«`+container+`»]`),
		"claimed-by-profiles":        pod(status(`{"profiles":[«{"name":"x#","revision":"1","containers":["y#"]}»]}`), `"containers":[«`+container+`»]`),
		"claimed-volumes":            pod(status(`{"profiles":[{"name":"agent","revision":"1","volumes":[«"v#"»],"reusedVolumes":[«"w#"»]}]}`), `"volumes":[«{"name":"v#","emptyDir":{}}»]`),
		"claimed-env":                pod(status(`{"profiles":[{"name":"agent","revision":"1","added":[«"/spec/containers/name=web/env/name=E#"»]}]}`), inContainer(`"env":[«{"name":"E#","value":"x"}»]`)),
		"claimed-united":             pod(status(`{"profiles":[{"name":"agent","revision":"1","added":[«"/spec/tolerations/={\"key\":\"k#\"}"»]}]}`), `"tolerations":[«{"key":"k#"}»]`),
		"claimed-keys":               pod(status(`{"profiles":[{"name":"agent","revision":"1","added":[«"/spec/tolerations/k#=x"»]}]}`), `"tolerations":[«{"k#":"x"}»]`),
		"claimed-deep":               pod(status(`{"profiles":[{"name":"agent","revision":"1","added":["/spec/x‹/a›"]}]}`), `"x":‹{"a":›{"a":1‹}›}`),
		"claimed-and-created":        pod(status(`{"profiles":[],"created":[«"/spec/x#"»],"originals":{«"/spec/x#":1»}}`), `"y":{«"x#":{}»}`),
	}
}

// ownDocuments are objects of the kinds of Gatehouse. What has more elements than a list
// may have is refused, so that lists are as long as that in the larger size.
func ownDocuments() map[string]func(n int) request {
	const longest = 1000
	document := func(kind, resource, spec string) func(n int) request {
		return func(n int) request {
			return requestOf("/validate", "gatehouse.dev", kind, resource, `{"apiVersion":"gatehouse.dev/v1alpha1","kind":"`+kind+
				`","metadata":{"name":"web","namespace":"shop"},"spec":{`+expand(spec, n*longest/(small*factor))+`}}`, "")
		}
	}
	profile := func(spec string) func(n int) request { return document("SidecarProfile", "sidecarprofiles", spec) }
	spec := func(pod string) func(n int) request { return profile(`"template":{"spec":{` + pod + `}}`) }
	app := func(container string) func(n int) request {
		return profile(`"appContainers":[{"template":{` + container + `}}]`)
	}
	var containers []string
	for i := range 10 {
		containers = append(containers, fmt.Sprintf(`{"name":"c%d","image":"i","restartPolicy":"Always","ports":[«/2 {"containerPort":#}»]}`, i))
	}
	const rules = `"matchConstraints":{"resourceRules":[{"apiGroups":[""],"apiVersions":["v1"],"operations":["CREATE"],"resources":["pods"]}]}`
	policies := func(spec string) func(n int) request { return document("AdmissionPolicy", "admissionpolicies", spec) }
	rule := func(member, element string) func(n int) request {
		members := map[string]string{"apiGroups": `[""]`, "apiVersions": `["v1"]`, "operations": `["CREATE"]`, "resources": `["pods"]`}
		members[member] = "[«" + element + "»]"
		var all []string
		for _, name := range slices.Sorted(maps.Keys(members)) {
			all = append(all, `"`+name+`":`+members[name])
		}
		return policies(`"validations":[{"expression":"true"}],"matchConstraints":{"resourceRules":[{` + strings.Join(all, ",") + `}]}`)
	}
	exception := func(spec string) func(n int) request { return document("PolicyException", "policyexceptions", spec) }
	return map[string]func(n int) request{
		"parameters":          profile(`"parameters":[«{"name":"p#","type":"string"}»]`),
		"wrong-parameters":    profile(`"parameters":[«{"name":"p","type":"x"}»]`),
		"required-parameters": profile(`"injection":"OptOut","parameters":[«{"name":"p#","type":"integer"}»]`),
		"enum":                profile(`"parameters":[{"name":"p","type":"enum","enum":[«"e#"»]}]`),
		"presets":             profile(`"presets":[«{"name":"p#","configMap":{"namespace":"a","name":"b"}}»]`),
		"conditions":          profile(`"match":{"matchConditions":[«{"name":"c#","expression":"false"}»]}`),
		"distinct-users":      profile(`"distinctUsers":[«"u#"»]`),
		"placements":          profile(`"placement":{"before":[«"u#"»],"after":[«"v#"»]}`),
		"shares":              profile(`"share":[«{"container":"c#","volumeMounts":true}»]`),
		"additions":           profile(`"appContainers":[«{"names":["a#"],"template":{"tty":true}}»]`),
		"added-names":         profile(`"appContainers":[{"names":[«"a#"»],"except":[«"b#"»],"template":{"tty":true}}]`),
		"template-containers": spec(`"containers":[«{"name":"c#","image":"i"}»]`),
		"equal-containers":    spec(`"containers":[«{"name":"c","image":"i"}»]`),
		"template-volumes":    spec(`"volumes":[«{"name":"c#","emptyDir":{}}»]`),
		"volumes-and-mounts":  spec(`"volumes":[«{"name":"c#","emptyDir":{}}»],"containers":[«{"name":"c#","image":"i","volumeMounts":[{"name":"c#","mountPath":"/a"}]}»]`),
		"container-ports":     spec(`"initContainers":[` + strings.Join(containers, ",") + `]`),
		"devices-and-mounts":  spec(`"volumes":[«{"name":"v#","emptyDir":{}}»],"containers":[{"name":"c","image":"i","volumeMounts":[«{"name":"v#","mountPath":"/a"}»],"volumeDevices":[«{"name":"v#","devicePath":"/a"}»]}]`),
		"claims":              spec(`"resourceClaims":[«{"name":"c#","resourceClaimName":"x"}»],"containers":[{"name":"c","image":"i","resources":{"claims":[«{"name":"c#"}»]}}]`),
		"wrong-words":         spec(`"tolerations":[«{"key":"k#","operator":"x","effect":"${params.p}"}»]`),
		"wrong-shares":        profile(`"share":[«{"container":"x#","env":["*"]}»],"distinctUsers":[«"u#"»],"template":{"spec":{"containers":[«{"name":"c#","image":"i"}»]}}`),
		"missing-volumes":     spec(`"containers":[«{"name":"c#","image":"i","volumeMounts":[{"name":"c#","mountPath":"/a"}]}»]`),
		"tolerations":         spec(`"tolerations":[«{"key":"k#"}»]`),
		"unknown-fields":      spec(`«"x#":1»`),
		"labels":              profile(`"template":{"metadata":{"labels":{«"l#":"x"»}}}`),
		"wrong-labels":        profile(`"template":{"metadata":{"labels":{«"l#":"-"»}}}`),
		"app-env":             app(`"env":[«{"name":"E#","value":"x"}»]`),
		"app-equal-env":       app(`"env":[«{"name":"E","value":"$(E)"}»]`),
		"app-mounts":          app(`"volumeMounts":[«{"name":"v#","mountPath":"/#"}»]`),
		"app-ports":           app(`"ports":[«{"name":"p#","containerPort":#}»]`),
		"app-devices":         app(`"volumeDevices":[«{"name":"v#","devicePath":"/#"}»]`),
		"app-capabilities":    app(`"securityContext":{"capabilities":{"add":[«"C#"»]}}`),
		"long-text":           app(`"env":[{"name":"E","value":"‹` + strings.Repeat("$(E", 50) + `›"}]`),
		"open-placeholders":   app(`"env":[{"name":"E","value":"‹` + strings.Repeat("${", 50) + `›"}]`),
		"placeholders":        app(`"env":[{"name":"E","value":"‹${x}›"}]`),

		"validations":     policies(rules + `,"validations":[«/3 {"expression":"object.x# == 1"}»]`),
		"wrong-rules":     policies(rules + `,"validations":[«/3 {"expression":"x# +"}»]`),
		"undeclared":      policies(rules + `,"validations":[«/3 {"expression":"variables.x#"}»]`),
		"variables":       policies(rules + `,"validations":[{"expression":"true"}],"variables":[«/3 {"name":"v#","expression":"1"}»]`),
		"using-variables": policies(rules + `,"validations":[«/6 {"expression":"variables.v# == 1"}»],"variables":[«/6 {"name":"v#","expression":"1"}»]`),
		"notes":           policies(rules + `,"auditAnnotations":[«/3 {"key":"k#","valueExpression":"'x'"}»]`),
		"actions":         policies(rules + `,"validations":[{"expression":"true"}],"validationActions":[«"A#"»]`),
		"resources":       rule("resources", `"r#/status"`),
		"wildcards":       rule("resources", `"pods/*"`),
		"resource-names":  rule("resourceNames", `"n#"`),
		"versions":        rule("apiVersions", `"v#"`),
		"selectors":       policies(`"matchConstraints":{"objectSelector":{"matchExpressions":[«{"key":"k#","operator":"Exists"}»]}}`),

		"excepted-policies": exception(`"reason":"x","match":{"names":["x"]},"policies":[«{"name":"images#"}»]`),
		"excepted-rules":    exception(`"reason":"x","match":{"names":["x"]},"policies":[{"name":"images","rules":[«"validations[#]"»]}]`),
		"excepted-names":    exception(`"reason":"x","match":{"names":[«"x*#"»]},"policies":[{"name":"images"}]`),
		"groups-of-a-token": document("AccessToken", "accesstokens", `"sha256":"x","user":{"username":"a","groups":[«"g#"»]}`),
		"extra-of-a-token":  document("AccessToken", "accesstokens", `"sha256":"x","user":{"username":"a","extra":{«"e/#":["x"]»}}`),
	}
}
