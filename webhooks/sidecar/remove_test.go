package sidecar_test

import (
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar"
)

// TestStatusOfEverything shows all that a status annotation can say.
func TestStatusOfEverything(t *testing.T) {
	t.Parallel()
	set := compile(t, everything, optOut("own", "onSameName: Replace\ntemplate: {spec: {containers: [{name: side, image: example/side}]}}"))
	d, patched := inject(t, set, `{"metadata":{"labels":null},"spec":{"terminationGracePeriodSeconds":30,"initContainers":[{"name":"proxy"}],"containers":[{"name":"app","env":[{"name":"A"}]},{"name":"side","image":"mine"}],"volumes":[{"name":"mesh","emptyDir":{}}]}}`)
	status := strings.NewReplacer(d.Verdicts[0].Revision, "REVISION", d.Verdicts[1].Revision, "REVISION").Replace(statusOf(t, patched))
	golden(t, "status.yaml", toYAML(t, tree(t, status)))
}

// TestRemove: what was added goes and what was replaced comes back, whatever
// others have done to the pod since; what they have done stays.
func TestRemove(t *testing.T) {
	t.Parallel()
	set := compile(t, everything)
	_, injected := inject(t, set, `{"metadata":{"labels":{"app":"x"}},"spec":{"terminationGracePeriodSeconds":30,"containers":[{"name":"app"}]}}`)
	injected = sortedText(t, injected)
	for _, tc := range []struct {
		name, old, new string // what others have done
		want           string
		left           string
	}{
		{name: "nothing", want: `metadata: {labels: {app: x}}
spec: {terminationGracePeriodSeconds: 30, containers: [{name: app}]}`},
		{name: "added beside", old: `"labels":{`, new: `"labels":{"late":"x",`, want: `metadata: {labels: {app: x, late: x}}
spec: {terminationGracePeriodSeconds: 30, containers: [{name: app}]}`},
		{name: "added in front", old: `"containers":[`, new: `"containers":[{"name":"late"},`, want: `metadata: {labels: {app: x}}
spec: {terminationGracePeriodSeconds: 30, containers: [{name: late}, {name: app}]}`},
		{name: "added to what was made", old: `"env":[{"name":"MESH"`, new: `"env":[{"name":"LATE"},{"name":"MESH"`, want: `metadata: {labels: {app: x}}
spec: {terminationGracePeriodSeconds: 30, containers: [{name: app, env: [{name: LATE}]}]}`},
		{name: "added to a list that was made", old: `"tolerations":[`, new: `"tolerations":[{"key":"late"},`, want: `metadata: {labels: {app: x}}
spec: {terminationGracePeriodSeconds: 30, containers: [{name: app}], tolerations: [{key: late}]}`},
		{name: "an annotation", old: `"annotations":{`, new: `"annotations":{"late":"x",`, want: `metadata: {labels: {app: x}, annotations: {late: x}}
spec: {terminationGracePeriodSeconds: 30, containers: [{name: app}]}`},
		{name: "a container of the profile changed", old: `{"image":"example/agent"`, new: `{"future":1,"image":"mirror/agent"`, want: `metadata: {labels: {app: x}}
spec: {terminationGracePeriodSeconds: 30, containers: [{name: app}]}`},
		{name: "a container of the profile gone", old: `,{"image":"example/agent","name":"agent"}`, want: `metadata: {labels: {app: x}}
spec: {terminationGracePeriodSeconds: 30, containers: [{name: app}]}`, left: "/spec/containers/name=agent"},
		{name: "a label of the profile gone", old: `,"mesh":"on"}`, new: "}", want: `metadata: {labels: {app: x}}
spec: {terminationGracePeriodSeconds: 30, containers: [{name: app}]}`, left: "/metadata/labels/mesh"},
		{
			name: "the app renamed", old: `"name":"app"`, new: `"name":"new"`, want: `metadata: {labels: {app: x}}
spec: {terminationGracePeriodSeconds: 30, containers: [{name: new, env: [{name: MESH, value: "on"}], resources: {requests: {cpu: 10m}}, volumeMounts: [{name: mesh, mountPath: /mesh}]}]}`,
			left: "/spec/containers/name=app/env/name=MESH /spec/containers/name=app/resources/requests/cpu /spec/containers/name=app/volumeMounts/mountPath=~1mesh",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			changed := strings.Replace(injected, tc.old, tc.new, 1)
			if tc.old != "" && changed == injected {
				t.Fatalf("%s is not in %s", tc.old, injected)
			}
			removal, err := sidecar.Remove([]byte(changed))
			if err != nil {
				t.Fatal(err)
			}
			check(t, "left", strings.Join(removal.Left, " "), tc.left)
			check(t, "profiles", strings.Join(removal.Profiles, " "), "all")
			if restored := apply(t, changed, removal.Patches); sortedText(t, restored) != toJSON(t, tc.want) {
				t.Errorf("got\n%s\nwant\n%s", restored, toJSON(t, tc.want))
			}
		})
	}
}

// TestRemoveRestoresTheFirst: what comes back is what stood there before the
// first call, whatever stood there before the second.
func TestRemoveRestoresTheFirst(t *testing.T) {
	t.Parallel()
	set := compile(t, optOut("a", "template: {spec: {terminationGracePeriodSeconds: 60}}"))
	const pod = `{"spec":{"terminationGracePeriodSeconds":null}}`
	_, once := inject(t, set, pod)
	changed := strings.Replace(once, `"terminationGracePeriodSeconds":60`, `"terminationGracePeriodSeconds":30`, 1)
	d := set.Decide(t.Context(), sidecar.ForPod("shop", []byte(changed)))
	check(t, "reasons", reasons(&d), "a=applied")
	checkRemoved(t, apply(t, changed, d.Patches), pod)
}

// TestRemoveFromOthers: what is no pod, has no status or one that cannot be read.
func TestRemoveFromOthers(t *testing.T) {
	t.Parallel()
	const field = "metadata.annotations[sidecar.gatehouse.dev/status]: not a status: "
	for _, tc := range []struct{ name, pod, err string }{
		{"no status", `{"metadata":{"annotations":{"a":"b"}},"spec":{}}`, ""},
		{"no metadata", `{}`, ""},
		{"no pod", `[]`, "the object is an array, not a pod"},
		{"no JSON", `{`, "the object: "},
		{"another kind", `{"kind":"Job"}`, "the object is not of kind Pod"},
		{"status of another shape", withStatus(t, `[]`, `{}`), field},
		{"no JSON in the status", withStatus(t, `true`, `{}`), field},
		{"status without profiles", withStatus(t, `{}`, `{}`), field + "profiles is absent"},
		{"a profile twice", withStatus(t, `{"profiles":[{"name":"a"},{"name":"a"}]}`, `{}`), field + `profile "a" occurs twice`},
		{"too long", withStatus(t, `{"profiles":[]`+strings.Repeat(" ", 256<<10)+`}`, `{}`), field + "longer than 262144 bytes"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			removal, err := sidecar.Remove([]byte(tc.pod))
			switch {
			case tc.err == "" && err != nil, tc.err != "" && (err == nil || !strings.HasPrefix(err.Error(), tc.err)):
				t.Errorf("got %v, want %q", err, tc.err)
			case removal.Patches != nil || removal.Left != nil || removal.Profiles != nil:
				t.Errorf("got %+v", removal)
			}
		})
	}
}

// TestForgedStatus: a status that somebody has written by hand takes nothing away
// but what it names, and breaks nothing.
func TestForgedStatus(t *testing.T) {
	t.Parallel()
	const spec = `{"hostNetwork":false,"containers":[{"name":"app","env":[{"name":"A"},{"name":"B"}]},{"name":"a/b~c&d"}],"tolerations":[{"key":"k"},{"key":"k"}]}`
	for _, tc := range []struct{ name, status, left, want string }{
		{"claims what is not there", `{"profiles":[{"name":"x","containers":["none"],"volumes":["none"],"added":["/spec/none/none","/metadata/labels/none"]}]}`, "/metadata/labels/none /spec/containers/name=none /spec/none/none /spec/volumes/name=none", spec},
		{"field paths elsewhere", `{"profiles":[{"name":"x","added":["","/","/spec","/metadata","/status","spec/containers","/kind","/spec/"]}],"created":["","/spec"],"originals":{"":1,"/kind":"Job"}}`, "/spec/", spec},
		{"field paths into texts and by index", `{"profiles":[{"name":"x","added":["/spec/hostNetwork/x","/spec/containers/0","/spec/containers/name=app/name/x"]}]}`, "/spec/containers/name=app/name/x /spec/hostNetwork/x", spec},
		{"a name with an escape", `{"profiles":[{"name":"x","containers":["a/b~c&d"]}]}`, "", strings.Replace(spec, `,{"name":"a/b~c&d"}`, "", 1)},
		{"one of two equal elements", `{"profiles":[{"name":"x","added":["/spec/tolerations/={\"key\":\"k\"}"]}]}`, "", strings.Replace(spec, `{"key":"k"},`, "", 1)},
		{"below and above", `{"profiles":[{"name":"x","containers":["app"],"added":["/spec/containers/name=app/env/name=A"]}]}`, "/spec/containers/name=app/env/name=A", strings.Replace(spec, `{"name":"app","env":[{"name":"A"},{"name":"B"}]},`, "", 1)},
		{"an element that is no JSON", `{"profiles":[{"name":"x","added":["/spec/tolerations/={"]}]}`, "/spec/tolerations/={", spec},
		{"created, and somebody else's is in it", `{"profiles":[],"created":["/spec/containers","/spec/containers/name=app/env","/metadata/annotations"]}`, "", spec},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			pod := withStatus(t, tc.status, spec)
			removal, err := sidecar.Remove([]byte(pod))
			if err != nil {
				t.Fatal(err)
			}
			check(t, "left", strings.Join(removal.Left, " "), tc.left)
			checkPod(t, apply(t, pod, removal.Patches), `{"spec":`+tc.want+`}`)
			// Injection copes with it too.
			set := compile(t, everything)
			d := set.Decide(t.Context(), sidecar.ForPod("shop", []byte(pod)))
			check(t, "reasons", reasons(&d), "all=applied")
			patched := apply(t, pod, d.Patches)
			if again := set.Decide(t.Context(), sidecar.ForPod("shop", []byte(patched))); again.Patches != nil || again.Err != nil || len(again.Refusals) > 0 {
				t.Errorf("asked again about\n%s\nit does %v and says %s", patched, again.Patches, said(&again))
			}
		})
	}
}
