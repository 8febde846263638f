package main

import (
	"bytes"
	_ "embed"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"
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

// requestsText has the templates of requests.
//
//go:embed requests.yaml
var requestsText []byte

// requests returns hostile requests by their names, as large as a number says.
func requests() (map[string]func(n int) request, error) {
	const (
		container = `{"name":"c#","image":"i#","securityContext":{"privileged":true,"capabilities":{"add":["SYS_ADMIN"]}},"ports":[{"name":"p#","containerPort":1,"hostPort":1}]}`
		rules     = `"matchConstraints":{"resourceRules":[{"apiGroups":[""],"apiVersions":["v1"],"operations":["CREATE"],"resources":["pods"]}]}`
	)
	var templates struct {
		Pods      map[string]struct{ Metadata, Spec string }
		Documents map[string]map[string]string
	}
	text := bytes.ReplaceAll(bytes.ReplaceAll(requestsText, []byte("CONTAINER"), []byte(container)), []byte("RULES"), []byte(rules))
	if err := yaml.UnmarshalStrict(text, &templates); err != nil {
		return nil, fmt.Errorf("requests.yaml: %w", err)
	}
	out := map[string]func(n int) request{}
	for name, template := range templates.Pods {
		pod := func(n int) string {
			metadata, spec := template.Metadata, template.Spec
			if metadata != "" {
				metadata = "," + metadata
			}
			if spec != "" && !strings.Contains(spec, `"containers":`) {
				spec = `"containers":[{"name":"web","image":"web:1"}],` + spec
			}
			return expand(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"web","namespace":"shop"`+metadata+`},"spec":{`+spec+`}}`, n)
		}
		out["mutate-"+name] = func(n int) request { return requestOf("/mutate", "", "Pod", "pods", pod(n), "") }
		out["validate-"+name] = func(n int) request { return requestOf("/validate", "", "Pod", "pods", pod(n), "") }
		// Another image, so that the update is compared with what was before.
		out["update-"+name] = func(n int) request {
			return requestOf("/validate", "", "Pod", "pods", strings.Replace(pod(n), `"containers":[{`, `"containers":[{"image":"other","name":"more"},{`, 1), pod(n))
		}
		out["template-"+name] = func(n int) request {
			deployment := func(pod string) string {
				return `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"web","namespace":"shop"},"spec":{"template":` + pod + `}}`
			}
			return requestOf("/validate", "apps", "Deployment", "deployments", deployment(strings.Replace(pod(n), `"name":"web"`, `"name":"w"`, 1)), deployment(pod(n)))
		}
	}
	// What has more elements than a list may have is refused, so that lists are as long as that in the larger size.
	const longest = 1000
	for kind, specs := range templates.Documents {
		resource, _ := meta.UnsafeGuessKindToResource(schema.GroupVersionKind{Kind: kind})
		for name, spec := range specs {
			out["document-"+name] = func(n int) request {
				return requestOf("/validate", "gatehouse.dev", kind, resource.Resource, `{"apiVersion":"gatehouse.dev/v1alpha1","kind":"`+kind+
					`","metadata":{"name":"web","namespace":"shop"},"spec":{`+expand(spec, n*longest/(small*factor))+`}}`, "")
			}
		}
	}
	return out, nil
}
