// Command count sends hostile requests to the program's handler and writes down, in a build
// that counts, how often each block of code ran.
package main

import (
	"bytes"
	"context"
	_ "embed"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime/coverage"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/config"
	crdadmission "github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/crd/admission"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/server"
	"github.com/gatehouse-dev/gatehouse/webhooks"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy"
	"github.com/gatehouse-dev/gatehouse/webhooks/rawjson"
	"github.com/gatehouse-dev/gatehouse/webhooks/review"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar"
)

// The sizes of requests: factor times small is no more than a pod may have of anything.
const (
	small  = 240
	factor = 4
)

// documentsText has documents that look at much of a pod.
//
//go:embed config.yaml
var documentsText []byte

func main() {
	if err := count(os.Args[1]); err != nil {
		log.Fatal(err)
	}
}

// count sends each request and writes down what ran, in directories of its name and size.
func count(dir string) error {
	handler, err := newHandler()
	if err != nil {
		return err
	}
	for name, f := range requests() {
		for _, times := range [...]int{1, factor} {
			r := f(times * small)
			response := send(handler, r)                                                           // what is kept for later is made here
			if response.Code != http.StatusOK && response.Code != http.StatusInternalServerError { // what no two readers read alike
				return fmt.Errorf("%s: %d %.300s", name, response.Code, response.Body)
			}
			to := filepath.Join(dir, name, strconv.Itoa(times))
			if err := os.MkdirAll(to, 0o700); err != nil { // #nosec G703 -- the test names it
				return err
			}
			if err := coverage.ClearCounters(); err != nil {
				return err
			}
			send(handler, r)
			if err := coverage.WriteCountersDir(to); err != nil {
				return err
			}
			if err := coverage.WriteMetaDir(to); err != nil {
				return err
			}
		}
	}
	return nil
}

// request is what somebody sends.
type request struct {
	path, body string
}

func send(handler http.Handler, r request) *httptest.ResponseRecorder {
	req := httptest.NewRequestWithContext(context.Background(), http.MethodPost, r.path+"?timeout=30s", strings.NewReader(r.body))
	req.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, req)
	return w
}

// newHandler is the program's.
func newHandler() (http.Handler, error) {
	dir, err := os.MkdirTemp("", "count")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if err := os.WriteFile(filepath.Join(dir, "config.yaml"), documentsText, 0o600); err != nil {
		return nil, err
	}
	c, err := config.Load(dir)
	if err != nil {
		return nil, err
	}
	snapshot, err := webhooks.Compile(webhooks.Spec{Sidecar: c.Sidecar, Policy: c.Policy})
	if err != nil {
		return nil, err
	}
	var current atomic.Pointer[webhooks.Snapshot]
	current.Store(snapshot)
	return server.Reviews(&current, server.ReviewOptions{
		Bytes: 8 * review.MaxAdmissionBytes, Observe: func(*review.Outcome) {}, Login: http.NotFoundHandler(), Now: time.Now,
		Profiles: func([]sidecar.Verdict) {}, Policies: func([]policy.Observation) {},
		CustomResources: crdadmission.New(crdadmission.Options{Current: func() *config.Config { return c }}),
	}), nil
}

// admission is a request about an object, and about an update if there is an old one.
func admission(path, group, kind, resource, object, old string) request {
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

// list is a JSON list of n elements, in each of which %[1]d is its number.
func list(n int, element string) string { return "[" + join(n, element) + "]" }

func join(n int, element string) string {
	all := make([]string, n)
	for i := range all {
		if all[i] = element; strings.Contains(element, "%") {
			all[i] = fmt.Sprintf(element, i)
		}
	}
	return strings.Join(all, ",")
}

func object(n int, member string) string { return "{" + join(n, member) + "}" }

func quoted(text string) string {
	return string(rawjson.AppendString(nil, text))
}

// requests are hostile requests by their names, as large as a number says.
func requests() map[string]func(n int) request {
	out := map[string]func(n int) request{}
	pod := func(metadata, spec string) string {
		if metadata != "" {
			metadata = "," + metadata
		}
		if spec != "" && !strings.Contains(spec, `"containers":`) {
			spec = `"containers":[{"name":"web","image":"web:1"}],` + spec
		}
		return `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"web","namespace":"shop"` + metadata + `},"spec":{` + spec + `}}`
	}
	const container = `{"name":"c%[1]d","image":"i%[1]d","securityContext":{"privileged":true,"capabilities":{"add":["SYS_ADMIN"]}},"ports":[{"name":"p%[1]d","containerPort":1,"hostPort":1}]}`
	inContainer := func(members string) string {
		return `"containers":[{"name":"web","image":"web:1",` + members + `}]`
	}
	status := func(text string) string { return `"annotations":{"sidecar.gatehouse.dev/status":` + quoted(text) + `}` }
	pods := map[string]func(n int) string{
		"containers":           func(n int) string { return pod("", `"containers":`+list(n, container)) },
		"equal-containers":     func(n int) string { return pod("", `"containers":`+list(n, `{"name":"web","image":"web:1"}`)) },
		"init-containers":      func(n int) string { return pod("", `"initContainers":`+list(n, container)) },
		"ephemeral-containers": func(n int) string { return pod("", `"ephemeralContainers":`+list(n, container)) },
		"volumes":              func(n int) string { return pod("", `"volumes":`+list(n, `{"name":"v%[1]d","hostPath":{"path":"/"}}`)) },
		"sysctls": func(n int) string {
			return pod("", `"securityContext":{"sysctls":`+list(n, `{"name":"kernel.x%[1]d","value":"1"}`)+`}`)
		},
		"containers-and-sysctls": func(n int) string {
			return pod("", `"securityContext":{"sysctls":`+list(n, `{"name":"kernel.x%[1]d","value":"1"}`)+`},"containers":`+list(n, container))
		},
		"containers-and-annotations": func(n int) string {
			return pod(`"annotations":`+object(n, `"container.apparmor.security.beta.kubernetes.io/c%[1]d":"unconfined"`), `"containers":`+list(n, container))
		},
		"containers-and-volumes": func(n int) string {
			return pod("", `"volumes":`+list(n, `{"name":"v%[1]d","hostPath":{"path":"/"}}`)+`,"containers":`+list(n, `{"name":"c%[1]d","volumeMounts":[{"name":"v%[1]d","mountPath":"/%[1]d"}]}`))
		},
		"annotations":          func(n int) string { return pod(`"annotations":`+object(n, `"a%[1]d":"x"`), "") },
		"reserved-annotations": func(n int) string { return pod(`"annotations":`+object(n, `"a%[1]d.kubernetes.io/x":"x"`), "") },
		"parameters": func(n int) string {
			return pod(`"annotations":`+object(n, `"agent.sidecar.gatehouse.dev/p%[1]d":"x"`), "")
		},
		"stray-annotations": func(n int) string { return pod(`"annotations":`+object(n, `"x%[1]d.sidecar.gatehouse.dev/p":"x"`), "") },
		"declined-profiles": func(n int) string {
			return pod(`"annotations":{"sidecar.gatehouse.dev/inject":"`+join(n, "-x%[1]d")+`"}`, "")
		},
		"equal-annotations": func(n int) string { return pod(`"annotations":`+object(n, `"a":"x"`), "") },
		"labels":            func(n int) string { return pod(`"labels":`+object(n, `"l%[1]d":"x"`), "") },
		"equal-members":     func(n int) string { return pod("", join(n, `"x":1`)) },
		"managed-fields": func(n int) string {
			return pod(`"managedFields":`+list(n, `{"manager":"m%[1]d","fieldsV1":{"f:spec":{"f:x%[1]d":{}}}}`), "")
		},
		"owners": func(n int) string {
			return pod(`"ownerReferences":`+list(n, `{"kind":"ReplicaSet","name":"o%[1]d","uid":"%[1]d"}`), "")
		},
		"finalizers":   func(n int) string { return pod(`"finalizers":`+list(n, `"f/%[1]d"`), "") },
		"tolerations":  func(n int) string { return pod("", `"tolerations":`+list(n, `{"key":"k%[1]d"}`)) },
		"host-aliases": func(n int) string { return pod("", `"hostAliases":`+list(n, `{"ip":"%[1]d","hostnames":["a"]}`)) },
		"pull-secrets": func(n int) string { return pod("", `"imagePullSecrets":`+list(n, `{"name":"s%[1]d"}`)) },
		"groups":       func(n int) string { return pod("", `"securityContext":{"supplementalGroups":`+list(n, `%[1]d`)+`}`) },
		"env": func(n int) string {
			return pod("", inContainer(`"env":`+list(n, `{"name":"E%[1]d","value":"$(E%[1]d)"}`)))
		},
		"equal-env": func(n int) string { return pod("", inContainer(`"env":`+list(n, `{"name":"E","value":"x"}`))) },
		"mounts": func(n int) string {
			return pod("", inContainer(`"volumeMounts":`+list(n, `{"name":"v","mountPath":"/%[1]d","subPathExpr":"$(A)"}`)))
		},
		"devices": func(n int) string {
			return pod("", inContainer(`"volumeDevices":`+list(n, `{"name":"v","devicePath":"/%[1]d"}`)))
		},
		"ports": func(n int) string {
			return pod("", inContainer(`"ports":`+list(n, `{"name":"p%[1]d","containerPort":%[1]d,"hostPort":%[1]d}`)))
		},
		"capabilities": func(n int) string {
			return pod("", inContainer(`"securityContext":{"capabilities":{"add":`+list(n, `"C%[1]d"`)+`}}`))
		},
		"containers-with-all": func(n int) string {
			return pod("", `"containers":`+list(n, `{"name":"c%[1]d","image":"i","env":[{"name":"E%[1]d","value":"x"}],"volumeMounts":[{"name":"v%[1]d","mountPath":"/%[1]d"}],"volumeDevices":[{"name":"d%[1]d","devicePath":"/d%[1]d"}],"ports":[{"containerPort":%[1]d}],"livenessProbe":{"httpGet":{"port":%[1]d}}}`))
		},
		"deep":        func(n int) string { return pod("", `"x":`+strings.Repeat("[", n)+strings.Repeat("]", n)) },
		"deep-object": func(n int) string { return pod(`"labels":`+strings.Repeat(`{"a":`, n)+`1`+strings.Repeat("}", n), "") },
		"deep-env": func(n int) string {
			return pod("", inContainer(`"env":[{"name":"A","value":`+strings.Repeat(`{"a":`, n)+`1`+strings.Repeat("}", n)+`}]`))
		},
		"deep-tolerations": func(n int) string {
			return pod("", `"tolerations":[`+strings.Repeat(`{"a":`, n)+`1`+strings.Repeat("}", n)+`]`)
		},
		"long-text": func(n int) string { return pod(`"annotations":{"a":"`+strings.Repeat(`\"`, 10*n)+`"}`, "") },
		"long-name": func(n int) string {
			return strings.Replace(pod("", inContainer(`"x":1`)), `"name":"web","image"`, `"name":"`+strings.Repeat("x", 10*n)+`","image"`, 1)
		},
		"claimed-containers": func(n int) string {
			return pod(status(`{"profiles":[{"name":"agent","revision":"1","containers":`+list(n, `"x%[1]d"`)+`}]}`), `"containers":`+list(n, container))
		},
		"claimed-by-profiles": func(n int) string {
			return pod(status(`{"profiles":`+list(n, `{"name":"x%[1]d","revision":"1","containers":["y%[1]d"]}`)+`}`), `"containers":`+list(n, container))
		},
		"claimed-volumes": func(n int) string {
			return pod(status(`{"profiles":[{"name":"agent","revision":"1","volumes":`+list(n, `"v%[1]d"`)+`,"reusedVolumes":`+list(n, `"w%[1]d"`)+`}]}`), `"volumes":`+list(n, `{"name":"v%[1]d","emptyDir":{}}`))
		},
		"claimed-env": func(n int) string {
			return pod(status(`{"profiles":[{"name":"agent","revision":"1","added":`+list(n, `"/spec/containers/name=web/env/name=E%[1]d"`)+`}]}`), inContainer(`"env":`+list(n, `{"name":"E%[1]d","value":"x"}`)))
		},
		"claimed-united": func(n int) string {
			return pod(status(`{"profiles":[{"name":"agent","revision":"1","added":`+list(n, `"/spec/tolerations/={\"key\":\"k%[1]d\"}"`)+`}]}`), `"tolerations":`+list(n, `{"key":"k%[1]d"}`))
		},
		"claimed-keys": func(n int) string {
			return pod(status(`{"profiles":[{"name":"agent","revision":"1","added":`+list(n, `"/spec/tolerations/k%[1]d=x"`)+`}]}`), `"tolerations":`+list(n, `{"k%[1]d":"x"}`))
		},
		"claimed-deep": func(n int) string {
			return pod(status(`{"profiles":[{"name":"agent","revision":"1","added":["/spec/x`+strings.Repeat("/a", n)+`"]}]}`), `"x":`+strings.Repeat(`{"a":`, n+1)+`1`+strings.Repeat("}", n+1))
		},
		"claimed-and-created": func(n int) string {
			return pod(status(`{"profiles":[],"created":`+list(n, `"/spec/x%[1]d"`)+`,"originals":`+object(n, `"/spec/x%[1]d":1`)+`}`), `"y":`+object(n, `"x%[1]d":{}`))
		},
	}
	for name, f := range pods {
		out["mutate-"+name] = func(n int) request { return admission("/mutate", "", "Pod", "pods", f(n), "") }
		out["validate-"+name] = func(n int) request { return admission("/validate", "", "Pod", "pods", f(n), "") }
		// Another image, so that the update is compared with what was before.
		out["update-"+name] = func(n int) request {
			return admission("/validate", "", "Pod", "pods", strings.Replace(f(n), `"containers":[{`, `"containers":[{"image":"other","name":"more"},{`, 1), f(n))
		}
		out["template-"+name] = func(n int) request {
			deployment := func(pod string) string {
				return `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"web","namespace":"shop"},"spec":{"template":` + pod + `}}`
			}
			return admission("/validate", "apps", "Deployment", "deployments", deployment(strings.Replace(f(n), `"name":"web"`, `"name":"w"`, 1)), deployment(f(n)))
		}
	}
	for name, f := range ownDocuments() {
		out["document-"+name] = f
	}
	return out
}

// ownDocuments are objects of the kinds of Gatehouse. What has more elements than a list
// may have is refused, so that lists are as long as that in the larger size.
func ownDocuments() map[string]func(n int) request {
	const longest = 1000
	document := func(kind, resource string, spec func(n int) string) func(n int) request {
		return func(n int) request {
			n = n * longest / (small * factor)
			return admission("/validate", "gatehouse.dev", kind, resource,
				`{"apiVersion":"gatehouse.dev/v1alpha1","kind":"`+kind+`","metadata":{"name":"web","namespace":"shop"},"spec":{`+spec(n)+`}}`, "")
		}
	}
	profile := func(members func(n int) string) func(n int) request {
		return document("SidecarProfile", "sidecarprofiles", members)
	}
	spec := func(members func(n int) string) func(n int) request {
		return profile(func(n int) string { return `"template":{"spec":{` + members(n) + `}}` })
	}
	app := func(members func(n int) string) func(n int) request {
		return profile(func(n int) string { return `"appContainers":[{"template":{` + members(n) + `}}]` })
	}
	const rules = `"matchConstraints":{"resourceRules":[{"apiGroups":[""],"apiVersions":["v1"],"operations":["CREATE"],"resources":["pods"]}]}`
	policies := func(members func(n int) string) func(n int) request {
		return document("AdmissionPolicy", "admissionpolicies", members)
	}
	rule := func(member, element string) func(n int) request {
		return policies(func(n int) string {
			members := map[string]string{"apiGroups": `[""]`, "apiVersions": `["v1"]`, "operations": `["CREATE"]`, "resources": `["pods"]`}
			members[member] = list(n, element)
			var all []string
			for name, value := range members {
				all = append(all, `"`+name+`":`+value)
			}
			return `"validations":[{"expression":"true"}],"matchConstraints":{"resourceRules":[{` + strings.Join(all, ",") + `}]}`
		})
	}
	exception := func(members func(n int) string) func(n int) request {
		return document("PolicyException", "policyexceptions", members)
	}
	return map[string]func(n int) request{
		"parameters":       profile(func(n int) string { return `"parameters":` + list(n, `{"name":"p%[1]d","type":"string"}`) }),
		"wrong-parameters": profile(func(n int) string { return `"parameters":` + list(n, `{"name":"p","type":"x"}`) }),
		"required-parameters": profile(func(n int) string {
			return `"injection":"OptOut","parameters":` + list(n, `{"name":"p%[1]d","type":"integer"}`)
		}),
		"enum": profile(func(n int) string {
			return `"parameters":[{"name":"p","type":"enum","enum":` + list(n, `"e%[1]d"`) + `}]`
		}),
		"presets": profile(func(n int) string {
			return `"presets":` + list(n, `{"name":"p%[1]d","configMap":{"namespace":"a","name":"b"}}`)
		}),
		"conditions": profile(func(n int) string {
			return `"match":{"matchConditions":` + list(n, `{"name":"c%[1]d","expression":"false"}`) + `}`
		}),
		"distinct-users": profile(func(n int) string { return `"distinctUsers":` + list(n, `"u%[1]d"`) }),
		"placements": profile(func(n int) string {
			return `"placement":{"before":` + list(n, `"u%[1]d"`) + `,"after":` + list(n, `"v%[1]d"`) + `}`
		}),
		"shares": profile(func(n int) string { return `"share":` + list(n, `{"container":"c%[1]d","volumeMounts":true}`) }),
		"additions": profile(func(n int) string {
			return `"appContainers":` + list(n, `{"names":["a%[1]d"],"template":{"tty":true}}`)
		}),
		"added-names": profile(func(n int) string {
			return `"appContainers":[{"names":` + list(n, `"a%[1]d"`) + `,"except":` + list(n, `"b%[1]d"`) + `,"template":{"tty":true}}]`
		}),
		"template-containers": spec(func(n int) string { return `"containers":` + list(n, `{"name":"c%[1]d","image":"i"}`) }),
		"equal-containers":    spec(func(n int) string { return `"containers":` + list(n, `{"name":"c","image":"i"}`) }),
		"template-volumes":    spec(func(n int) string { return `"volumes":` + list(n, `{"name":"c%[1]d","emptyDir":{}}`) }),
		"volumes-and-mounts": spec(func(n int) string {
			return `"volumes":` + list(n, `{"name":"c%[1]d","emptyDir":{}}`) + `,"containers":` + list(n, `{"name":"c%[1]d","image":"i","volumeMounts":[{"name":"c%[1]d","mountPath":"/a"}]}`)
		}),
		"container-ports": spec(func(n int) string {
			return `"initContainers":` + list(10, `{"name":"c%[1]d","image":"i","restartPolicy":"Always","ports":`+
				list(n/2, `{"containerPort":%[1]d}`)+`}`)
		}),
		"devices-and-mounts": spec(func(n int) string {
			return `"volumes":` + list(n, `{"name":"v%[1]d","emptyDir":{}}`) + `,"containers":[{"name":"c","image":"i","volumeMounts":` +
				list(n, `{"name":"v%[1]d","mountPath":"/a"}`) + `,"volumeDevices":` + list(n, `{"name":"v%[1]d","devicePath":"/a"}`) + `}]`
		}),
		"claims": spec(func(n int) string {
			return `"resourceClaims":` + list(n, `{"name":"c%[1]d","resourceClaimName":"x"}`) +
				`,"containers":[{"name":"c","image":"i","resources":{"claims":` + list(n, `{"name":"c%[1]d"}`) + `}}]`
		}),
		"wrong-words": spec(func(n int) string {
			return `"tolerations":` + list(n, `{"key":"k%[1]d","operator":"x","effect":"${params.p}"}`)
		}),
		"wrong-shares": profile(func(n int) string {
			return `"share":` + list(n, `{"container":"x%[1]d","env":["*"]}`) + `,"distinctUsers":` + list(n, `"u%[1]d"`) +
				`,"template":{"spec":{"containers":` + list(n, `{"name":"c%[1]d","image":"i"}`) + `}}`
		}),
		"missing-volumes": spec(func(n int) string {
			return `"containers":` + list(n, `{"name":"c%[1]d","image":"i","volumeMounts":[{"name":"c%[1]d","mountPath":"/a"}]}`)
		}),
		"tolerations":       spec(func(n int) string { return `"tolerations":` + list(n, `{"key":"k%[1]d"}`) }),
		"unknown-fields":    spec(func(n int) string { return join(n, `"x%[1]d":1`) }),
		"labels":            profile(func(n int) string { return `"template":{"metadata":{"labels":` + object(n, `"l%[1]d":"x"`) + `}}` }),
		"wrong-labels":      profile(func(n int) string { return `"template":{"metadata":{"labels":` + object(n, `"l%[1]d":"-"`) + `}}` }),
		"app-env":           app(func(n int) string { return `"env":` + list(n, `{"name":"E%[1]d","value":"x"}`) }),
		"app-equal-env":     app(func(n int) string { return `"env":` + list(n, `{"name":"E","value":"$(E)"}`) }),
		"app-mounts":        app(func(n int) string { return `"volumeMounts":` + list(n, `{"name":"v%[1]d","mountPath":"/%[1]d"}`) }),
		"app-ports":         app(func(n int) string { return `"ports":` + list(n, `{"name":"p%[1]d","containerPort":%[1]d}`) }),
		"app-devices":       app(func(n int) string { return `"volumeDevices":` + list(n, `{"name":"v%[1]d","devicePath":"/%[1]d"}`) }),
		"app-capabilities":  app(func(n int) string { return `"securityContext":{"capabilities":{"add":` + list(n, `"C%[1]d"`) + `}}` }),
		"long-text":         app(func(n int) string { return `"env":[{"name":"E","value":"` + strings.Repeat("$(E", 50*n) + `"}]` }),
		"open-placeholders": app(func(n int) string { return `"env":[{"name":"E","value":"` + strings.Repeat("${", 50*n) + `"}]` }),
		"placeholders":      app(func(n int) string { return `"env":[{"name":"E","value":"` + strings.Repeat("${x}", n) + `"}]` }),

		"validations": policies(func(n int) string {
			return rules + `,"validations":` + list(n/3, `{"expression":"object.x%[1]d == 1"}`)
		}),
		"wrong-rules": policies(func(n int) string { return rules + `,"validations":` + list(n/3, `{"expression":"x%[1]d +"}`) }),
		"undeclared":  policies(func(n int) string { return rules + `,"validations":` + list(n/3, `{"expression":"variables.x%[1]d"}`) }),
		"variables": policies(func(n int) string {
			return rules + `,"validations":[{"expression":"true"}],"variables":` + list(n/3, `{"name":"v%[1]d","expression":"1"}`)
		}),
		"using-variables": policies(func(n int) string {
			return rules + `,"validations":` + list(n/6, `{"expression":"variables.v%[1]d == 1"}`) + `,"variables":` + list(n/6, `{"name":"v%[1]d","expression":"1"}`)
		}),
		"notes": policies(func(n int) string {
			return rules + `,"auditAnnotations":` + list(n/3, `{"key":"k%[1]d","valueExpression":"'x'"}`)
		}),
		"actions": policies(func(n int) string {
			return rules + `,"validations":[{"expression":"true"}],"validationActions":` + list(n, `"A%[1]d"`)
		}),
		"resources":      rule("resources", `"r%[1]d/status"`),
		"wildcards":      rule("resources", `"pods/*"`),
		"resource-names": rule("resourceNames", `"n%[1]d"`),
		"versions":       rule("apiVersions", `"v%[1]d"`),
		"selectors": policies(func(n int) string {
			return `"matchConstraints":{"objectSelector":{"matchExpressions":` + list(n, `{"key":"k%[1]d","operator":"Exists"}`) + `}}`
		}),

		"excepted-policies": exception(func(n int) string {
			return `"reason":"x","match":{"names":["x"]},"policies":` + list(n, `{"name":"images%[1]d"}`)
		}),
		"excepted-rules": exception(func(n int) string {
			return `"reason":"x","match":{"names":["x"]},"policies":[{"name":"images","rules":` + list(n, `"validations[%[1]d]"`) + `}]`
		}),
		"excepted-names": exception(func(n int) string {
			return `"reason":"x","match":{"names":` + list(n, `"x*%[1]d"`) + `},"policies":[{"name":"images"}]`
		}),
		"groups-of-a-token": document("AccessToken", "accesstokens", func(n int) string { return `"sha256":"x","user":{"username":"a","groups":` + list(n, `"g%[1]d"`) + `}` }),
		"extra-of-a-token": document("AccessToken", "accesstokens", func(n int) string {
			return `"sha256":"x","user":{"username":"a","extra":` + object(n, `"e/%[1]d":["x"]`) + `}`
		}),
	}
}
