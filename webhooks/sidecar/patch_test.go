package sidecar_test

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"testing"

	rawjson "github.com/gatehouse-dev/gatehouse/webhooks/json"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar"
)

// both is a profile with an element for every list.
const both = `
metadata: {name: both}
spec:
  injection: OptOut
  template:
    spec:
      initContainers:
      - {name: setup, image: example/setup:1}
      - {name: proxy, image: example/proxy:1, restartPolicy: Always, startupProbe: {exec: {command: [ok]}}}
      containers:
      - {name: agent, image: "example/agent:1", args: ["a<b&c>d"]}
      volumes:
      - {name: scratch, emptyDir: {}}
`

const (
	setupJSON  = `{"image":"example/setup:1","name":"setup"}`
	proxyJSON  = `{"image":"example/proxy:1","name":"proxy","restartPolicy":"Always","startupProbe":{"exec":{"command":["ok"]}}}`
	agentJSON  = `{"args":["a<b&c>d"],"image":"example/agent:1","name":"agent"}`
	volumeJSON = `{"emptyDir":{},"name":"scratch"}`
)

// statusJSON returns the status annotation of the profile both, with what it says
// besides, as JSON.
func statusJSON(rest string) string {
	return string(rawjson.AppendString(nil,
		`{"profiles":[{"name":"both","revision":"REVISION","initContainers":["setup","proxy"],"containers":["agent"],"volumes":["scratch"]}]`+rest+`}`))
}

// TestPatch says what is added to pods of every shape, operation by operation.
// The status comes last: it tells what the others have done.
func TestPatch(t *testing.T) {
	t.Parallel()
	const (
		status = `/metadata/annotations/sidecar.gatehouse.dev~1status`
		made   = `"/spec/containers","/spec/initContainers","/spec/volumes"`
	)
	elements := []string{
		`add /spec/initContainers/0 ` + setupJSON,
		`add /spec/initContainers/1 ` + proxyJSON,
		`add /spec/containers/- ` + agentJSON,
		`add /spec/volumes/- ` + volumeJSON,
	}
	lists := []string{
		`add /spec/initContainers [` + setupJSON + `,` + proxyJSON + `]`,
		`add /spec/containers [` + agentJSON + `]`,
		`add /spec/volumes [` + volumeJSON + `]`,
	}
	for _, tc := range []struct {
		name, pod string
		want      []string
		status    string
	}{
		{
			"everything there", `{"metadata":{"annotations":{"x":"y"}},"spec":{"initContainers":[{"name":"own"}],"containers":[{"name":"app"}],"volumes":[{"name":"data"}]}}`,
			elements, `add ` + status + ` ` + statusJSON(``),
		},
		{
			"empty lists and annotations", `{"metadata":{"annotations":{}},"spec":{"initContainers":[],"containers":[],"volumes":[]}}`,
			append([]string{`add /spec/initContainers/- ` + setupJSON, `add /spec/initContainers/- ` + proxyJSON}, elements[2:]...), `add ` + status + ` ` + statusJSON(``),
		},
		{
			"no lists and no annotations", `{"metadata":{"name":"x"},"spec":{}}`,
			lists, `add /metadata/annotations {"sidecar.gatehouse.dev/status":` + statusJSON(`,"created":["/metadata/annotations",`+made+`]`) + `}`,
		},
		{
			"null lists and annotations", `{"metadata":{"annotations":null},"spec":{"initContainers":null,"containers":null,"volumes":null}}`,
			lists, `add /metadata/annotations {"sidecar.gatehouse.dev/status":` + statusJSON(`,"created":["/metadata/annotations",`+made+
				`],"originals":{"/metadata/annotations":null,"/spec/containers":null,"/spec/initContainers":null,"/spec/volumes":null}`) + `}`,
		},
		{
			"no metadata", `{"spec":{}}`,
			lists, `add /metadata {"annotations":{"sidecar.gatehouse.dev/status":` + statusJSON(`,"created":["/metadata","/metadata/annotations",`+made+`]`) + `}}`,
		},
		{
			"null metadata, and spec before it", ` { "spec" : { } , "metadata" : null } `,
			lists, `add /metadata {"annotations":{"sidecar.gatehouse.dev/status":` + statusJSON(`,"created":["/metadata","/metadata/annotations",`+made+`],"originals":{"/metadata":null}`) + `}}`,
		},
		{
			"escaped names", `{"meta\u0064ata":{"annotation\u0073":{}},"sp\u0065c":{"c\u006fntainers":[{"n\u0061me":"app"}]}}`,
			[]string{lists[0], elements[2], lists[2]},
			`add ` + status + ` ` + statusJSON(`,"created":["/spec/initContainers","/spec/volumes"]`),
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			set := compile(t, both)
			d := set.Decide(t.Context(), sidecar.ForPod("shop", []byte(tc.pod)))
			if d.Err != nil || len(d.Refusals) > 0 {
				t.Fatalf("%v %v", d.Err, d.Refusals)
			}
			var got []string
			for _, op := range d.Patches {
				value, ok := op.Value.(json.RawMessage)
				if !ok {
					t.Errorf("%s: the value is a %T", op.Path, op.Value)
				}
				got = append(got, op.Operation+" "+op.Path+" "+string(value))
			}
			want := strings.ReplaceAll(strings.Join(append(slices.Clone(tc.want), tc.status), "\n"), "REVISION", d.Verdicts[0].Revision)
			if strings.Join(got, "\n") != want {
				t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), want)
			}
			response := set.Decide(context.Background(), sidecar.Input{Request: request("shop", tc.pod)}).Response()
			checkTwice(t, set, tc.pod, response)
		})
	}
}

// names returns the names in one list of a patched pod.
func names(t testing.TB, pod, list string) string {
	t.Helper()
	value, err := rawjson.Parse([]byte(pod))
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, element := range value.Get("spec", list).Elements() {
		all = append(all, element.Get("name").Text())
	}
	return strings.Join(all, " ")
}

// pair returns a profile with two init containers, a container and a volume.
func pair(name, match string) string {
	return strings.ReplaceAll(`
metadata: {name: NAME}
spec:
  match: `+match+`
  injection: OptOut
  template:
    spec:
      initContainers:
      - {name: NAME-1, image: example/NAME:1}
      - {name: NAME-2, image: example/NAME:1}
      containers:
      - {name: NAME-3, image: example/NAME:1}
      volumes:
      - {name: NAME-4, emptyDir: {}}
`, "NAME", name)
}

// TestOrder says where the elements of several profiles go.
func TestOrder(t *testing.T) {
	t.Parallel()
	set := compile(t, pair("b", "{}"), pair("a", "{}"))
	for _, tc := range []struct {
		name, pod                  string
		inits, containers, volumes string
	}{
		{
			"into lists", `{"spec":{"initContainers":[{"name":"own-1"},{"name":"own-2"}],"containers":[{"name":"app"},{"name":"helper"}],"volumes":[{"name":"data"}]}}`,
			"a-1 a-2 b-1 b-2 own-1 own-2", "app helper a-3 b-3", "data a-4 b-4",
		},
		{
			"lists that are not there", `{"spec":{"containers":[{"name":"app"}]}}`,
			"a-1 a-2 b-1 b-2", "app a-3 b-3", "a-4 b-4",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			patched := checkTwice(t, set, tc.pod, set.Decide(context.Background(), sidecar.Input{Request: request("shop", tc.pod)}).Response())
			for list, want := range map[string]string{"initContainers": tc.inits, "containers": tc.containers, "volumes": tc.volumes} {
				if got := names(t, patched, list); got != want {
					t.Errorf("%s: got %s, want %s", list, got, want)
				}
			}
		})
	}
}

// TestSharedBetweenGoroutines shows that answers do not share memory with each
// other nor with the request, which is overwritten as soon as it is answered.
func TestSharedBetweenGoroutines(t *testing.T) {
	t.Parallel()
	set := compile(t, shipper(), spec("a", "{objectSelector: {matchLabels: {app: x}}}", "OptIn"))
	const pod = `{"metadata":{"labels":{"app":"x"},"annotations":{"sidecar.gatehouse.dev/inject":"true","sidecar.gatehouse.dev/status":"{\"profiles\":[{\"name\":\"mesh\",\"containers\":[\"app\"]}]}"}},"spec":{"restartPolicy":"Never","containers":[{"name":"app"}],"volumes":[{"name":"data"}]}}`
	want := apply(t, pod, set.Decide(context.Background(), sidecar.Input{Request: request("shop", pod)}).Response().Patches)
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			for range 50 {
				r := request("shop", pod)
				response := set.Decide(context.Background(), sidecar.Input{Request: r}).Response()
				for i := range r.Object.Raw {
					r.Object.Raw[i] = 'x'
				}
				response.AuditAnnotations["profiles-again"] += "written by the caller"
				if got := apply(t, pod, response.Patches); got != want {
					t.Errorf("got %s", got)
				}
			}
		})
	}
	group.Wait()
}
