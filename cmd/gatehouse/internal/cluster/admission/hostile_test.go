package admission_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	crdadmission "github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cluster/admission"
	"github.com/gatehouse-dev/gatehouse/webhooks/config"
)

// rawRequest is a request with any objects.
func rawRequest(resource string, operation admissionv1.Operation, object, old string) admission.Request {
	return admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{
		UID: "1", Resource: metav1.GroupVersionResource{Group: "gatehouse.dev", Version: "v1alpha1", Resource: resource}, Operation: operation,
		Object: runtime.RawExtension{Raw: []byte(object)}, OldObject: runtime.RawExtension{Raw: []byte(old)},
	}}
}

// TestHostile has requests that no API server sends, and objects that nobody
// means.
func TestHostile(t *testing.T) {
	t.Parallel()
	const (
		start = `{"apiVersion":"gatehouse.dev/v1alpha1","kind":"SidecarProfile",`
		good  = start + `"metadata":{"name":"a"},"spec":{"injection":"OptOut","template":{"spec":{"volumes":[{"name":"a","emptyDir":{}}]}}}}`
	)
	many := func(n int, format string) string {
		var all []string
		for i := range n {
			all = append(all, fmt.Sprintf(format, i))
		}
		return strings.Join(all, ",")
	}
	for _, tc := range []struct {
		name, object, old string
		resource, version string
		want              string
	}{
		{name: "no object", want: "cannot decide: the object cannot be read: the object is missing"},
		{name: "null", object: "null", want: "cannot decide: the object cannot be read: expected an object, not null"},
		{name: "a list", object: "[]", want: "cannot decide: the object cannot be read: expected an object, not an array"},
		{name: "no JSON", object: "{", want: "cannot decide: the object cannot be read: invalid JSON at byte 1: unexpected end"},
		{name: "nothing in it", object: "{}", want: `cannot decide: the request is about sidecarprofiles, but its object has kind "" and apiVersion ""`},
		{name: "a member twice", object: start + `"kind":"AccessToken"}`, want: `cannot decide: the object cannot be read: member "kind" occurs twice in one object`},
		{name: "another kind", object: good, resource: "accesstokens", want: `cannot decide: the request is about accesstokens, but its object has kind "SidecarProfile" and apiVersion "gatehouse.dev/v1alpha1"`},
		{name: "another version of the object", object: strings.Replace(good, "v1alpha1", "v1", 1), want: `cannot decide: the request is about sidecarprofiles, but its object has kind "SidecarProfile" and apiVersion "gatehouse.dev/v1"`},
		{name: "another version", object: good, version: "v1", want: `cannot decide: version "v1" of sidecarprofiles is not supported by this version of gatehouse (hint: register gatehouse.dev/v1alpha1, or run the gatehouse version of the CustomResourceDefinition)`},
		{name: "a kind that is none", object: strings.Replace(good, `"SidecarProfile"`, `5`, 1), want: `cannot decide: the request is about sidecarprofiles, but its object has kind "" and apiVersion "gatehouse.dev/v1alpha1"`},
		{name: "a list of objects", object: `{"apiVersion":"gatehouse.dev/v1alpha1","kind":"SidecarProfileList","items":[` + good + `]}`, want: `cannot decide: the request is about sidecarprofiles, but its object has kind "SidecarProfileList" and apiVersion "gatehouse.dev/v1alpha1"`},
		{name: "an object that is a list too", object: strings.Replace(good, `"spec"`, `"items":[],"spec"`, 1), want: "SidecarProfile \"a\" is invalid: items: unknown field (hint: the allowed fields are apiVersion, kind, metadata, spec, status)\n"},
		{name: "an old object that is none", object: good, old: "[", want: "allowed\n"},
		{name: "an old object of another kind", object: good, old: "{}", want: "allowed\n"},
		{name: "no metadata", object: start + `"spec":{}}`, want: "SidecarProfile \"\" is invalid: metadata: is missing or not a mapping (hint: a document has apiVersion, kind and metadata.name)\n"},
		{name: "metadata that is none", object: start + `"metadata":[1]}`, want: "SidecarProfile \"\" is invalid: metadata: is missing or not a mapping (hint: a document has apiVersion, kind and metadata.name)\n"},
		{name: "a name that is none", object: start + `"metadata":{"name":{}}}`, want: "SidecarProfile \"\" is invalid: metadata.name: is a mapping, expected a string\n"},
		{name: "a name that is yet to come", object: strings.Replace(good, `"name":"a"},"spec"`, `"generateName":"a-"},"spec"`, 1), want: "allowed\n"},
		{name: "a spec that is none", object: start + `"metadata":{"name":"a"},"spec":[]}`, want: "SidecarProfile \"a\" is invalid: spec: is a list, expected a mapping\n"},
		{name: "no spec", object: start + `"metadata":{"name":"a"}}`, want: "SidecarProfile \"a\" is invalid: spec.template: the profile adds nothing: set template or appContainers\n"},
		{name: "control characters", object: start + `"metadata":{"name":"a\u001b[2J\u202e"},"spec":{"injection":"\u0007\n","x\u001b":1}}`, want: ""},
		{name: "deep nesting", object: start + `"metadata":{"name":"a"},"spec":{"injection":"OptOut","template":{"spec":{"containers":` + strings.Repeat(`[`, 9990) + strings.Repeat(`]`, 9990) + `}}}}`, want: ""},
		{name: "deeper nesting", object: start + `"spec":` + strings.Repeat(`[`, 20000) + strings.Repeat(`]`, 20000) + `}`, want: "cannot decide: the object cannot be read: invalid JSON at byte 10069: nested too deeply"},
		{name: "many unknown fields", object: start + `"metadata":{"name":"a"},"spec":{` + many(20_000, `"f%d":1`) + `}}`, want: ""},
		{name: "many wrong containers", object: start + `"metadata":{"name":"a"},"spec":{"injection":"OptOut","template":{"spec":{"containers":[` + many(300, `{"name":"%d`+strings.Repeat("x", 500)+`"}`) + `]}}}}`, want: ""},
		{name: "a huge name", object: start + `"metadata":{"name":"` + strings.Repeat("ä", 1<<18) + `"},"spec":{}}`, want: ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			operation := admissionv1.Create
			if tc.old != "" {
				operation = admissionv1.Update
			}
			req := rawRequest("sidecarprofiles", operation, tc.object, tc.old)
			if tc.resource != "" {
				req.Resource.Resource = tc.resource
			}
			if tc.version != "" {
				req.Resource.Version = tc.version
			}
			got := text(t, reviewer(configOf(t)).Review(t.Context(), req, true))
			if tc.want == "" {
				if strings.HasPrefix(got, "allowed") || strings.ContainsAny(got, "\x1b\x07\u202e") || len(got) > 20<<10 {
					t.Errorf("got %d bytes: %.2000q", len(got), got)
				}
				return
			}
			if got != tc.want {
				t.Errorf("got %s, want %s", got, tc.want)
			}
		})
	}
}

// TestBounds shows as much as a person reads, in the order of the document.
func TestBounds(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	b.WriteString(head + "kind: AdmissionPolicy\nmetadata: {name: p}\nspec:\n  matchConstraints: {resourceRules: [{apiGroups: [\"\"], apiVersions: [v1], resources: [pods], operations: [CREATE]}]}\n  validationActions: [Deny]\n  variables:\n")
	for i := range 30 { // each name twice is a warning
		fmt.Fprintf(&b, "  - {name: v%d, expression: \"1\"}\n", i/2)
	}
	b.WriteString("  validations:\n")
	for range 100 {
		fmt.Fprintf(&b, "  - {expression: \"%s\"}\n", strings.Repeat("x", 300))
	}
	response := reviewer(configOf(t)).Review(t.Context(), about(t, b.String(), ""), true)
	lines := strings.Split(text(t, response), "\n")
	if !strings.HasPrefix(lines[1], "* spec.validations[0].expression: ") || !strings.HasPrefix(lines[2], "* spec.validations[1].expression: ") {
		t.Errorf("the first lines are %.300q", lines[:3])
	}
	causes := response.Result.Details.Causes
	last := causes[len(causes)-1]
	if want := fmt.Sprintf("and %d more", 100-len(causes)+1); last.Message != want || last.Field != "…" {
		t.Errorf("the last cause is %+v, want %s", last, want)
	}
	if n := len(response.Result.Message); n > 8<<10+100 || n < 4<<10 {
		t.Errorf("the message has %d bytes", n)
	}
	if n := len(response.Warnings); n != 10 || response.Warnings[9] != "… and 6 more warnings" {
		t.Errorf("%d warnings: %q", n, response.Warnings)
	}
}

// TestSwap reviews while the configuration changes. Every answer is that of one
// configuration.
func TestSwap(t *testing.T) {
	t.Parallel()
	configs := []*config.Config{configOf(t), configOf(t, profile("b", "proxy", ""), admissionPolicy("p", rules), "{apiVersion: gatehouse.dev/v1alpha1, kind: PolicyConfiguration, celCompatibilityVersion: '1.34'}")}
	var current atomic.Pointer[config.Config]
	current.Store(configs[0])
	r := crdadmission.New(current.Load)
	known := map[string]map[string]bool{}
	all := []string{
		profile("a", "proxy", ""), binding("{policyName: p, validationActions: [Deny]}"), admissionPolicy("q", rules+deny),
		token("ci", "{sha256: "+hash+", user: {username: ci}, expiresAt: '2099-01-01T00:00:00Z'}"),
	}
	for _, document := range all {
		known[document] = map[string]bool{}
		for _, c := range configs {
			one := crdadmission.New(func() *config.Config { return c })
			known[document][text(t, one.Review(t.Context(), about(t, document, ""), true))] = true
		}
	}
	var readers sync.WaitGroup
	done := make(chan struct{})
	for range 4 {
		readers.Go(func() {
			for i := range 60 {
				document := all[i%len(all)]
				if got := text(t, r.Review(t.Context(), about(t, document, ""), true)); !known[document][got] {
					t.Errorf("%s: got %s", document, got)
				}
			}
		})
	}
	var swapper sync.WaitGroup
	swapper.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-done:
				return
			default:
				current.Store(configs[i%len(configs)])
			}
		}
	})
	readers.Wait()
	close(done)
	swapper.Wait()
}

// FuzzReview shows objects to every kind. Whatever it is, the answer is one that
// the API server takes, and the same the second time.
func FuzzReview(f *testing.F) {
	for _, document := range []string{
		profile("a", "a", "  rollout: {percent: 10, replaces: b}\n"), admissionPolicy("p", rules+deny), binding("{policyName: p, validationActions: [Deny]}"),
		exception("gatehouse-system", "{policies: [{name: p}], match: {names: [a]}, reason: r}"),
		token("ci", "{sha256: "+hash+", user: {username: ci}, expiresAt: '2099-01-01T00:00:00Z'}"), revocation("r", "{user: jane, issuedBefore: '2020-01-01T00:00:00Z'}"), broken,
	} {
		f.Add(string(asJSON(f, document)), "")
		f.Add(string(asJSON(f, document)), `{"spec":{}}`)
	}
	r := reviewer(configOf(f, profile("b", "proxy", ""), admissionPolicy("p", rules)))
	kinds := plurals()
	f.Fuzz(func(t *testing.T, object, old string) {
		var is metav1.TypeMeta
		_ = json.Unmarshal([]byte(object), &is) // what is not JSON is of no kind
		operation := admissionv1.Create
		if old != "" {
			operation = admissionv1.Update
		}
		resource, ok := kinds[is.Kind]
		if !ok {
			resource = "sidecarprofiles"
		}
		req := rawRequest(resource, operation, object, old)
		first := text(t, r.Review(t.Context(), req, true))
		if again := text(t, r.Review(t.Context(), req, true)); again != first {
			t.Errorf("first %s, then %s", first, again)
		}
	})
}
