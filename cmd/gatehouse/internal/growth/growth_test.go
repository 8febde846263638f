// Package growth holds that the work for a request grows with its size, and not with its
// square, whoever sends it: it counts how often each block of code runs, which does not
// depend on the speed of the machine.
package growth

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/coverage"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/config"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/documents"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/server"
	"github.com/gatehouse-dev/gatehouse/webhooks"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy"
	"github.com/gatehouse-dev/gatehouse/webhooks/review"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar"
)

// counted are the packages whose blocks are counted: ours, and the checks of Pod Security.
// What a function of another package does is counted as one call: where that goes
// through a list, as slices.Contains does, a review has to find it.
const counted = "github.com/gatehouse-dev/gatehouse/webhooks/...,github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/documents," +
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/followon,k8s.io/pod-security-admission/policy"

const (
	small  = 240 // and factor times that is no more than a pod may have of anything
	factor = 4
	// most is how many times as much work factor times as large a request may be. What
	// grows with the square would be factor times factor.
	most = 5.5
)

// countTo names the directory into which a run of this test counts, and is empty for the
// run that compares the counts.
const countTo = "GATEHOUSE_COUNT_TO"

// TestGrowth sends each kind of hostile request in two sizes to the program's handler, in
// a build that counts.
func TestGrowth(t *testing.T) {
	t.Parallel()
	if dir := os.Getenv(countTo); dir != "" {
		count(t, dir)
		return
	}
	dir := t.TempDir()
	binary := filepath.Join(dir, "growth.test")
	run(t, "go", "test", "-c", "-cover", "-covermode=atomic", "-coverpkg="+counted, "-o", binary, ".")
	cmd := exec.CommandContext(t.Context(), binary, "-test.run=^TestGrowth$")
	cmd.Env = append(os.Environ(), countTo+"="+dir, "GOCOVERDIR="+t.TempDir())
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for name := range requests() {
		before, after := blocks(t, filepath.Join(dir, name, "1")), blocks(t, filepath.Join(dir, name, "2"))
		first, second := sum(before), sum(after)
		t.Logf("%s: %d blocks, then %d, %.1f times as many", name, first, second, float64(second)/float64(first))
		if float64(second) <= most*float64(first) {
			continue
		}
		t.Errorf("%s: %d blocks, and %d for a request that is %d times as large", name, first, second, factor)
		for block, n := range after {
			if n > second/50 {
				t.Logf("\t%s ran %d times, and %d times before", block, n, before[block])
			}
		}
	}
}

func run(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v: %s", name, err, out)
	}
	return string(out)
}

// blocks are the counts of a directory, by the place of the block.
func blocks(t *testing.T, dir string) map[string]int {
	t.Helper()
	text := filepath.Join(dir, "text")
	run(t, "go", "tool", "covdata", "textfmt", "-i="+dir, "-o="+text)
	raw, err := os.ReadFile(text)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]int{}
	for line := range strings.Lines(string(raw)) {
		if fields := strings.Fields(line); len(fields) == 3 {
			n, _ := strconv.Atoi(fields[2])
			out[fields[0]] = n
		}
	}
	return out
}

func sum(blocks map[string]int) int {
	n := 0
	for _, count := range blocks {
		n += count
	}
	return n
}

// count sends each request and writes down what ran.
func count(t *testing.T, dir string) {
	t.Helper()
	handler := newHandler(t)
	for name, f := range requests() {
		for i, n := range [...]int{small, small * factor} {
			request := f(n)
			response := send(t, handler, request) // what is kept for later is made here
			if i == 0 && request.want != 0 && response.Code != request.want || strings.Contains(response.Body.String(), "no decision in time") {
				t.Errorf("%s: %d %.300s", name, response.Code, response.Body)
			}
			if err := coverage.ClearCounters(); err != nil {
				t.Fatal(err)
			}
			send(t, handler, request)
			to := filepath.Join(dir, name, strconv.Itoa(i+1))
			if err := os.MkdirAll(to, 0o700); err != nil {
				t.Fatal(err)
			}
			if err := coverage.WriteCountersDir(to); err != nil {
				t.Fatal(err)
			}
			if err := coverage.WriteMetaDir(to); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// request is what somebody sends.
type request struct {
	path, body string
	want       int
}

func send(t *testing.T, handler http.Handler, r request) *httptest.ResponseRecorder {
	t.Helper()
	req := httptest.NewRequestWithContext(t.Context(), http.MethodPost, r.path+"?timeout=30s", strings.NewReader(r.body))
	req.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, req)
	return w
}

// newHandler is the program's, with documents that look at much of a pod.
func newHandler(t *testing.T) http.Handler {
	t.Helper()
	dir := t.TempDir()
	text, err := fs.ReadFile(os.DirFS("testdata"), "config.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "config.yaml"), text, 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := config.Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	snapshot, err := webhooks.Compile(webhooks.Spec{Sidecar: c.Sidecar, Policy: c.Policy})
	if err != nil {
		t.Fatal(err)
	}
	var current atomic.Pointer[webhooks.Snapshot]
	current.Store(snapshot)
	return server.Reviews(&current, server.ReviewOptions{
		Bytes: 8 * review.MaxAdmissionBytes, Observe: func(*review.Outcome) {}, Login: http.NotFoundHandler(), Now: time.Now,
		Profiles: func([]sidecar.Verdict) {}, Policies: func([]policy.Observation) {},
		Documents: documents.New(documents.Options{Current: func() *config.Config { return c }}),
	})
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
	return request{path: path, body: body.String(), want: http.StatusOK}
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
	raw, _ := json.Marshal(text) // a string: never fails
	return string(raw)
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
			return `"validations":[{"expression":"true"}],"matchConstraints":{"resourceRules":[{"apiGroups":[""],"apiVersions":["v1"],"operations":["CREATE"],"resources":["pods"],"` + member + `":` + list(n, element) + `}]}`
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
