package sidecar_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	rawjson "github.com/gatehouse-dev/gatehouse/webhooks/json"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar"
)

// withStatus returns a pod with a status annotation and a spec.
func withStatus(t testing.TB, status, spec string) string {
	t.Helper()
	text, err := json.Marshal(status)
	if err != nil {
		t.Fatal(err)
	}
	return `{"metadata":{"annotations":{"sidecar.gatehouse.dev/status":` + string(text) + `}},"spec":` + spec + `}`
}

func statusOf(t testing.TB, pod string) string {
	t.Helper()
	value, err := rawjson.Parse([]byte(pod))
	if err != nil {
		t.Fatal(err)
	}
	return value.Get("metadata", "annotations", "sidecar.gatehouse.dev/status").Text()
}

// TestStatusAnnotation says what is made of a pod that comes with a status
// annotation: its own, a copied, an old, a forged or a broken one. NOW stands
// for the revision in force.
func TestStatusAnnotation(t *testing.T) {
	t.Parallel()
	const (
		full    = `{"profiles":[{"name":"both","revision":"NOW","initContainers":["setup","proxy"],"containers":["agent"],"volumes":["scratch"]}]}`
		old     = `{"profiles":[{"name":"both","revision":"0123456789ab","initContainers":["setup","proxy"],"containers":["agent"],"volumes":["scratch"]}]}`
		allIn   = `{"initContainers":[{"name":"setup"},{"name":"proxy","restartPolicy":"Always"}],"containers":[{"name":"app"},{"name":"agent","image":"changed by others"}],"volumes":[{"name":"scratch","emptyDir":{"sizeLimit":"1Gi"}}]}`
		nothing = `{"containers":[{"name":"app"}]}`
		// made is full where the pod had neither init containers nor volumes.
		made = `{"profiles":[{"name":"both","revision":"NOW","initContainers":["setup","proxy"],"containers":["agent"],"volumes":["scratch"]}],"created":["/spec/initContainers","/spec/volumes"]}`
	)
	for _, tc := range []struct {
		name, status, spec string
		audit              string
		result             string // the status annotation afterwards; "" if there is no patch
		inits              string
		warning            string
		refusal            string
	}{
		{name: "second call, after others changed what was added", status: full, spec: allIn, audit: "both=already-there"},
		{name: "second call, after another webhook dropped a field", status: full, spec: strings.Replace(allIn, `,"restartPolicy":"Always"`, "", 1), audit: "both=already-there", warning: `init container "proxy" of sidecar profile "both" has no restartPolicy: Always any more, and the pod will not start`},
		{name: "names alone are written", status: full, spec: nothing, audit: "both=applied", result: made, inits: "setup proxy", warning: `lists sidecar profile "both", but the pod has none of its additions: the profile is applied now`},
		{name: "older revision, complete", status: old, spec: allIn, audit: "both=already-there", warning: `the pod keeps revision "0123456789ab" of sidecar profile "both": the active revision is "NOW"`},
		{name: "older revision, nothing there", status: old, spec: nothing, audit: "both=applied", result: made, inits: "setup proxy", warning: "the pod has none of its additions"},
		{
			name: "older revision, something missing", status: old, spec: `{"initContainers":[{"name":"proxy","restartPolicy":"Always"}],"containers":[{"name":"app"}]}`,
			refusal: `metadata.annotations[sidecar.gatehouse.dev/status]: the pod has revision "0123456789ab" of sidecar profile "both", but a part of the active revision "NOW" is missing (hint: remove the annotation and everything that it lists from the pod)`,
		},
		{name: "something missing", status: full, spec: `{"initContainers":[{"name":"first"},{"name":"setup"},{"name":"own"}],"containers":[{"name":"app"},{"name":"agent"}],"volumes":[{"name":"scratch"}]}`, audit: "both=applied", result: full, inits: "first setup proxy own"},
		{name: "the first missing", status: full, spec: `{"initContainers":[{"name":"own"},{"name":"proxy","restartPolicy":"Always"}],"containers":[{"name":"app"},{"name":"agent"}],"volumes":[{"name":"scratch"}]}`, audit: "both=applied", result: full, inits: "setup own proxy"},

		{name: "says nothing of the profile", status: `{"profiles":[{"name":"mesh","revision":"1","containers":["app","gone"],"volumes":["none"]}]}`, spec: nothing, audit: "both=applied", inits: "setup proxy", result: `{"profiles":[{"name":"both","revision":"NOW","initContainers":["setup","proxy"],"containers":["agent"],"volumes":["scratch"]},{"name":"mesh","revision":"1","containers":["app"]}],"created":["/spec/initContainers","/spec/volumes"]}`},
		{name: "claims nothing", status: `{"profiles":[{"name":"both","revision":"NOW"}]}`, spec: nothing, audit: "both=applied", result: made, inits: "setup proxy", warning: "the pod has none of its additions"},
		{
			name: "does not claim a name that is there", status: `{"profiles":[{"name":"both","revision":"NOW","containers":["agent"]}]}`, spec: `{"initContainers":[{"name":"proxy"}],"containers":[{"name":"agent"}]}`,
			refusal: `spec.initContainers[0].name: "proxy" is the name of a container that sidecar profile "both" adds`,
		},
		{
			name: "claims a name in another list", status: full, spec: `{"containers":[{"name":"proxy"}]}`,
			refusal: `spec.containers[0].name: "proxy" is the name of a container that sidecar profile "both" adds`,
		},
		{
			name: "a volume alone is no proof", status: full, spec: `{"volumes":[{"name":"scratch","hostPath":{"path":"/"}}]}`,
			refusal: `spec.volumes[0].name: volume "scratch" differs from the volume of the same name that sidecar profile "both" adds`,
		},
		{name: "an equal volume alone", status: full, spec: `{"volumes":[{"name":"scratch","emptyDir":{}}]}`, audit: "both=applied", inits: "setup proxy", result: `{"profiles":[{"name":"both","revision":"NOW","initContainers":["setup","proxy"],"containers":["agent"],"reusedVolumes":["scratch"]}],"created":["/spec/containers","/spec/initContainers"]}`},
		{
			name: "reused volume, changed by others since", status: `{"profiles":[{"name":"both","revision":"NOW","initContainers":["setup","proxy"],"containers":["agent"],"reusedVolumes":["scratch"]}]}`,
			spec: allIn, audit: "both=already-there",
		},
		{
			name: "reused volume, something missing", status: `{"profiles":[{"name":"both","revision":"NOW","initContainers":["setup","proxy"],"containers":["agent"],"reusedVolumes":["scratch"]}]}`,
			spec:  `{"initContainers":[{"name":"setup"},{"name":"proxy","restartPolicy":"Always"}],"volumes":[{"name":"scratch","emptyDir":{"sizeLimit":"1Gi"}}]}`,
			audit: "both=applied", inits: "setup proxy", result: `{"profiles":[{"name":"both","revision":"NOW","initContainers":["setup","proxy"],"containers":["agent"],"reusedVolumes":["scratch"]}],"created":["/spec/containers"]}`,
		},

		{name: "not JSON", status: `injected`, spec: nothing, audit: "both=applied", result: made, inits: "setup proxy", warning: "is invalid and is ignored"},
		{name: "empty", status: ``, spec: nothing, audit: "both=applied", result: made, inits: "setup proxy", warning: "is invalid and is ignored"},
		{name: "null", status: `null`, spec: nothing, audit: "both=applied", result: made, inits: "setup proxy", warning: "is invalid and is ignored"},
		{name: "an array", status: `[]`, spec: nothing, audit: "both=applied", result: made, inits: "setup proxy", warning: "is invalid and is ignored"},
		{name: "of another shape", status: `{"profiles":{"both":true}}`, spec: nothing, audit: "both=applied", result: made, inits: "setup proxy", warning: "is invalid and is ignored"},
		{name: "longer than any status", status: strings.Replace(full, `{"profiles":[`, `{"profiles":[`+strings.Repeat(" ", 256<<10), 1), spec: nothing, audit: "both=applied", result: made, inits: "setup proxy", warning: "is invalid and is ignored"},
		{name: "a profile twice", status: `{"profiles":[{"name":"both"},{"name":"both"}]}`, spec: nothing, audit: "both=applied", result: made, inits: "setup proxy", warning: "is invalid and is ignored"},
		{
			name: "not JSON, but the names are taken", status: `injected`, spec: `{"containers":[{"name":"agent"}]}`, warning: "is invalid and is ignored",
			refusal: `spec.containers[0].name: "agent" is the name of a container that sidecar profile "both" adds`,
		},
		{name: "written by a newer Gatehouse", status: strings.Replace(full, `"name":"both",`, `"name":"both","since":1,`, 1), spec: allIn, audit: "both=already-there"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			set := compile(t, both)
			revision := set.Decide(t.Context(), sidecar.ForPod("shop", []byte(`{}`))).Verdicts[0].Revision
			now := func(s string) string { return strings.ReplaceAll(s, "NOW", revision) }
			pod := withStatus(t, now(tc.status), tc.spec)
			response := set.Decide(context.Background(), sidecar.Input{Request: request("shop", pod)}).Response()
			if all := strings.Join(response.Warnings, "\n"); len(response.Warnings) > 1 || (all == "") != (tc.warning == "") || !strings.Contains(all, now(tc.warning)) {
				t.Errorf("got warnings %q, want one with %q", all, now(tc.warning))
			}
			if tc.refusal != "" {
				if response.Allowed || !strings.HasPrefix(response.Result.Message, now(tc.refusal)) {
					t.Fatalf("got %+v", response.Result)
				}
				return
			}
			if got := response.AuditAnnotations["profiles-again"]; got != tc.audit {
				t.Errorf("got %q, want %q", got, tc.audit)
			}
			if (response.Patches != nil) != (tc.result != "") {
				t.Fatalf("got patches %v %+v", response.Patches, response.Result)
			}
			patched := checkTwice(t, set, pod, response)
			if tc.result == "" {
				return
			}
			if got := statusOf(t, patched); got != now(tc.result) {
				t.Errorf("got %s, want %s", got, now(tc.result))
			}
			if got := names(t, patched, "initContainers"); got != tc.inits {
				t.Errorf("init containers: got %s, want %s", got, tc.inits)
			}
		})
	}
}

// TestReinvocation calls again after another webhook changed the pod so that one
// more profile applies: the result is that of one call that saw both.
func TestReinvocation(t *testing.T) {
	t.Parallel()
	labelled := "{objectSelector: {matchLabels: {tier: web}}}"
	for _, tc := range []struct{ name, first, second string }{
		{"the later profile joins", pair("a", "{}"), pair("b", labelled)},
		{"the earlier profile joins", pair("b", "{}"), pair("a", labelled)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			set := compile(t, tc.first, tc.second)
			const pod = `{"metadata":{"labels":{}},"spec":{"initContainers":[{"name":"own"}],"containers":[{"name":"app"}]}}`
			once := apply(t, pod, set.Decide(context.Background(), sidecar.Input{Request: request("shop", pod)}).Response().Patches)
			changed := strings.Replace(once, `"labels":{}`, `"labels":{"tier":"web"}`, 1)
			twice := checkTwice(t, set, changed, set.Decide(context.Background(), sidecar.Input{Request: request("shop", changed)}).Response())

			direct := strings.Replace(pod, `"labels":{}`, `"labels":{"tier":"web"}`, 1)
			want := apply(t, direct, set.Decide(context.Background(), sidecar.Input{Request: request("shop", direct)}).Response().Patches)
			if statusOf(t, twice) != statusOf(t, want) {
				t.Errorf("got %s, want %s", statusOf(t, twice), statusOf(t, want))
			}
			if got, want := names(t, twice, "initContainers"), names(t, want, "initContainers"); got != want {
				t.Errorf("got %s, want %s", got, want)
			}
		})
	}
}

// TestVolumesOnly: a profile may add nothing but volumes.
func TestVolumesOnly(t *testing.T) {
	t.Parallel()
	set := compile(t, `
metadata: {name: v}
spec:
  injection: OptOut
  template: {spec: {volumes: [{name: one, emptyDir: {}}, {name: two, emptyDir: {}}]}}
`)
	const pod = `{"spec":{"volumes":[{"name":"two","emptyDir":{}}]}}`
	patched := checkTwice(t, set, pod, set.Decide(context.Background(), sidecar.Input{Request: request("shop", pod)}).Response())
	if got := statusOf(t, patched); !strings.Contains(got, `"volumes":["one"],"reusedVolumes":["two"]`) {
		t.Errorf("got %s", got)
	}
	if got := names(t, patched, "volumes"); got != "two one" {
		t.Errorf("got %s", got)
	}
	// Another webhook removes one: it comes back, and the annotation stays.
	removed := strings.Replace(patched, `{"name":"two","emptyDir":{}},`, "", 1)
	again := checkTwice(t, set, removed, set.Decide(context.Background(), sidecar.Input{Request: request("shop", removed)}).Response())
	if got := statusOf(t, again); !strings.Contains(got, `"volumes":["one","two"]`) {
		t.Errorf("got %s", got)
	}
}

// TestCopiedPod: a pod that is copied with all that was added is
// left alone, and keeps what it says of profiles that are no more.
func TestCopiedPod(t *testing.T) {
	t.Parallel()
	before := compile(t, both, pair("gone", "{}"))
	const pod = `{"spec":{"containers":[{"name":"app"}]}}`
	copied := apply(t, pod, before.Decide(context.Background(), sidecar.Input{Request: request("shop", pod)}).Response().Patches)
	after := compile(t, both)
	response := after.Decide(context.Background(), sidecar.Input{Request: request("shop", copied)}).Response()
	if !response.Allowed || response.Patches != nil || len(response.Warnings) > 0 {
		t.Errorf("got %+v", response)
	}
}
