package sidecar_test

import (
	"encoding/json"
	"reflect"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	podsecurityapi "k8s.io/pod-security-admission/api"
	podsecuritypolicy "k8s.io/pod-security-admission/policy"

	"github.com/gatehouse-dev/gatehouse/webhooks/rawjson"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar"
)

// checker checks one decision for what is true of every decision.
type checker struct {
	world
	security podsecuritypolicy.Evaluator
}

// checkers returns checkers for all worlds.
func checkers(t testing.TB) []*checker {
	t.Helper()
	security, err := podsecuritypolicy.NewEvaluator(podsecuritypolicy.DefaultChecks(), nil)
	if err != nil {
		t.Fatal(err)
	}
	var all []*checker
	for _, w := range worlds(t) {
		all = append(all, &checker{w, security})
	}
	return all
}

// treeOf is tree for bytes.
func treeOf(t testing.TB, text []byte) any {
	t.Helper()
	return tree(t, string(text))
}

// decide decides, and checks all that can be said of the decision. It returns
// the pod as it is to be.
func (c *checker) decide(t testing.TB, in sidecar.Input) (sidecar.Decision, []byte) {
	t.Helper()
	d, spliced := c.set.Spliced(in)
	in.Apply = true
	applied := c.set.Decide(t.Context(), in)
	in.Apply = false
	sameDecision(t, "the decision", d, applied)
	in.Explain = true
	explained := c.set.Decide(t.Context(), in)
	for i := range explained.Verdicts {
		if explained.Verdicts[i].Explanation == nil {
			t.Errorf("profile %q is not explained", explained.Verdicts[i].Profile)
		}
		explained.Verdicts[i].Explanation = nil
	}
	in.Explain = false
	sameDecision(t, "the explained decision", d, explained)
	if (d.Err != nil || len(d.Refusals) > 0) && d.Patches != nil || d.Err != nil && len(d.Refusals) > 0 {
		t.Errorf("an error, refusals and a patch at once: %+v", d)
	}
	if d.Patches == nil {
		return d, in.Request.Object.Raw
	}
	out := patchedBy(t, in.Request.Object.Raw, d.Patches)
	// The status annotation comes last and is not spliced.
	if got, want := treeOf(t, spliced), treeOf(t, patchedBy(t, in.Request.Object.Raw, d.Patches[:len(d.Patches)-1])); !reflect.DeepEqual(got, want) {
		t.Errorf("spliced %s, patched %s", spliced, out)
	}
	if !reflect.DeepEqual(treeOf(t, applied.Patched), treeOf(t, out)) {
		t.Errorf("the text is %s, patched %s", applied.Patched, out)
	}
	before, after := parsed(t, in.Request.Object.Raw), parsed(t, spliced)
	declares := declared{TB: t, profiles: c.profiles}
	declares.check(before, after)
	if !d.Again {
		declares.complete(appliedIn(d), before, after, c.keeps())
	}
	c.secure(t, in, out)
	return d, out
}

func (w *world) keeps() bool { return w.profiles[0].Spec.OnConflict == "Keep" }

func appliedIn(d sidecar.Decision) []string {
	var all []string
	for _, v := range d.Verdicts {
		if v.Reason == sidecar.Applied {
			all = append(all, v.Profile)
		}
	}
	return all
}

func parsed(t testing.TB, text []byte) rawjson.Value {
	t.Helper()
	v, err := rawjson.Parse(text)
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return v
}

// same wants two decisions to be equal in all but how they are explained.
func sameDecision(t testing.TB, what string, a, b sidecar.Decision) {
	t.Helper()
	if (a.Err == nil) != (b.Err == nil) || a.Err != nil && a.Err.Error() != b.Err.Error() {
		t.Errorf("%s: %v, %v", what, a.Err, b.Err)
	}
	a.Err, b.Err = nil, nil
	if !reflect.DeepEqual([]any{a.Refusals, a.Verdicts, a.NotSelected, a.Warnings, a.Patches, a.Again}, []any{b.Refusals, b.Verdicts, b.NotSelected, b.Warnings, b.Patches, b.Again}) {
		t.Errorf("%s differs:\n%+v\n%+v", what, a, b)
	}
}

// secure wants a pod that the namespace's level admits to be admitted as it is
// to be.
func (c *checker) secure(t testing.TB, in sidecar.Input, out []byte) {
	t.Helper()
	ns, known := propertyNamespaces{}.Namespace(in.Request.Namespace)
	if !known || ns.Labels[podsecurityapi.EnforceLevelLabel] == "" {
		return
	}
	policy, errs := podsecurityapi.PolicyToEvaluate(ns.Labels, podsecurityapi.Policy{})
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	if c.admits(policy.Enforce, in.Request.Object.Raw) && !c.admits(policy.Enforce, out) {
		t.Errorf("%s admits %s and not %s", policy.Enforce, in.Request.Object.Raw, out)
	}
}

func (c *checker) admits(level podsecurityapi.LevelVersion, text []byte) bool {
	var pod corev1.Pod
	if json.Unmarshal(text, &pod) != nil {
		return false
	}
	return podsecuritypolicy.AggregateCheckResults(c.security.EvaluatePod(level, &pod.ObjectMeta, &pod.Spec)).Allowed
}

// all checks a decision and those that follow: about the result, about the
// result after others have worked on it, and about what is left when everything
// is taken out again. It returns the first decision.
func (c *checker) all(t testing.TB, in sidecar.Input) sidecar.Decision {
	t.Helper()
	pod := in.Request.Object.Raw
	d, out := c.decide(t, in)
	if d.Err == nil && repeats(parsed(t, pod)) {
		return d // Whoever reads the result may read either.
	}
	if d.Patches == nil {
		if d.Err == nil {
			c.removed(t, pod, nil)
		}
		return d
	}
	c.nothing(t, in, out, d)
	if d.Again {
		c.removed(t, out, nil)
		return d
	}
	if unambiguous(parsed(t, pod)) {
		c.removed(t, out, pod)
		c.reinvoked(t, in, out, d)
	}
	return d
}

// repeats reports whether an object anywhere has a member twice.
func repeats(v rawjson.Value) bool {
	if _, twice := v.DuplicateKey(); twice {
		return true
	}
	for _, below := range v.Members() {
		if repeats(below) {
			return true
		}
	}
	for _, below := range v.Elements() {
		if repeats(below) {
			return true
		}
	}
	return false
}

// nothing wants no patch for a pod that has everything.
func (c *checker) nothing(t testing.TB, in sidecar.Input, out []byte, first sidecar.Decision) {
	t.Helper()
	in.Request.Object.Raw = out
	again, _ := c.decide(t, in)
	if again.Patches != nil || again.Err != nil || len(again.Refusals) > 0 || !again.Again {
		t.Errorf("the second decision about %s: %+v", out, again)
		return
	}
	for i, v := range again.Verdicts {
		was := first.Verdicts[i]
		there := was.Reason == sidecar.Applied || was.Reason == sidecar.AlreadyThere // The pod has nothing for it to add to.
		if v.Profile != was.Profile || (v.Reason == sidecar.AlreadyThere) != there {
			t.Errorf("profile %q was %s and is %s: %s", v.Profile, was.Reason, v.Reason, v.Detail)
		}
	}
}

// removed takes out what the status annotation lists, and compares with the pod
// that was, if there is one to compare with.
func (c *checker) removed(t testing.TB, pod, want []byte) {
	t.Helper()
	removal, err := sidecar.Remove(pod)
	if err != nil {
		if want != nil {
			t.Errorf("%s cannot be restored: %v", pod, err)
		}
		return
	}
	got := treeOf(t, patchedBy(t, pod, removal.Patches))
	if stripped, ok := sidecar.Stripped(pod); ok {
		if !reflect.DeepEqual(treeOf(t, parsed(t, stripped)), got) {
			t.Errorf("%s stripped is %s, restored is %v", pod, stripped, got)
		}
	}
	if want == nil {
		return
	}
	if !reflect.DeepEqual(got, treeOf(t, want)) {
		t.Errorf("%s\nis restored to\n%s\nand was\n%s", pod, patchedBy(t, pod, removal.Patches), want)
	}
	if len(removal.Left) > 0 {
		t.Errorf("%s: %q is not found", pod, removal.Left)
	}
}

// unambiguous reports whether no list of the pod has two elements of one name, as
// in every pod that can be created. A field path leads to the first of two.
func unambiguous(pod rawjson.Value) bool {
	for _, list := range []string{"initContainers", "containers", "volumes"} {
		var names []string
		for _, e := range pod.Get("spec", list).Elements() {
			names = append(names, e.Get("name").Text())
			var keys []string
			for _, below := range e.Get("env").Elements() {
				keys = append(keys, "env "+below.Get("name").Text())
			}
			for _, below := range e.Get("volumeMounts").Elements() {
				keys = append(keys, "mount "+below.Get("mountPath").Text())
			}
			if slices.Sort(keys); len(slices.Compact(slices.Clone(keys))) != len(keys) {
				return false
			}
		}
		if slices.Sort(names); len(slices.Compact(slices.Clone(names))) != len(names) {
			return false
		}
	}
	return true
}

// reinvoked lets others work on a pod between two decisions.
func (c *checker) reinvoked(t testing.TB, in sidecar.Input, out []byte, first sidecar.Decision) {
	t.Helper()
	pod := in.Request.Object.Raw
	c.nothing(t, in, defaulted(t, out), first)
	if len(first.Warnings) > 0 && c.keeps() {
		return // What was kept may be completed from what others bring.
	}
	in.Request.Object.Raw = extendedBy(t, out)
	second, completed := c.decide(t, in)
	if second.Err != nil {
		t.Errorf("the decision about %s: %v", in.Request.Object.Raw, second.Err)
		return
	}
	if len(second.Refusals) > 0 {
		return
	}
	for i, v := range second.Verdicts {
		if was := first.Verdicts[i].Reason; was == sidecar.Applied && v.Reason != sidecar.Applied && v.Reason != sidecar.AlreadyThere {
			t.Errorf("profile %q was applied and is %s: %s", v.Profile, v.Reason, v.Detail)
		}
	}
	in.Request.Object.Raw = completed
	if third, _ := c.decide(t, in); third.Patches != nil || third.Err != nil || len(third.Refusals) > 0 {
		t.Errorf("the third decision about %s: %+v", completed, third)
	}
	// Whatever others do, taking out ours leaves theirs.
	c.removed(t, completed, extendedBy(t, pod))
}

// extendedBy returns a pod after a webhook that adds a container, a volume, a label
// and an annotation.
func extendedBy(t testing.TB, text []byte) []byte {
	t.Helper()
	pod := asObject(treeOf(t, text))
	metadata := asObject(pod["metadata"])
	pod["metadata"] = metadata
	metadata["labels"] = withMember(metadata["labels"], "other.example/on", "yes")
	metadata["annotations"] = withMember(metadata["annotations"], "other.example/status", "done")
	spec := asObject(pod["spec"])
	pod["spec"] = spec
	for list, element := range map[string]map[string]any{
		"containers": {"name": "foreign", "image": "example/foreign:1", "env": []any{map[string]any{"name": "TZ", "value": "UTC"}}},
		"volumes":    {"name": "foreign", "emptyDir": map[string]any{}},
	} {
		all, _ := spec[list].([]any)
		spec[list] = append(all, element)
	}
	return asJSON(t, pod)
}

func asJSON(t testing.TB, v any) []byte {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func asObject(v any) map[string]any {
	if m, ok := v.(map[string]any); ok {
		return m
	}
	return map[string]any{}
}

func withMember(v any, key string, value any) map[string]any {
	m := asObject(v)
	m[key] = value
	return m
}

// defaulted returns a pod after the API server's defaulting and its plug-ins.
func defaulted(t testing.TB, text []byte) []byte {
	t.Helper()
	pod := asObject(treeOf(t, text))
	spec := asObject(pod["spec"])
	pod["spec"] = spec
	set := func(m map[string]any, key string, value any) {
		if m[key] == nil {
			m[key] = value
		}
	}
	each := func(v any, do func(map[string]any)) {
		all, _ := v.([]any)
		for _, e := range all {
			if m, ok := e.(map[string]any); ok {
				do(m)
			}
		}
	}
	set(spec, "dnsPolicy", "ClusterFirst")
	set(spec, "restartPolicy", "Always")
	set(spec, "schedulerName", "default-scheduler")
	set(spec, "serviceAccountName", "default")
	set(spec, "securityContext", map[string]any{})
	set(spec, "terminationGracePeriodSeconds", json.Number("30"))
	set(spec, "enableServiceLinks", true)
	tolerations, _ := spec["tolerations"].([]any)
	spec["tolerations"] = append(tolerations, map[string]any{"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": json.Number("300")})
	volumes, _ := spec["volumes"].([]any)
	spec["volumes"] = append(volumes, map[string]any{"name": "kube-api-access-x2x7k", "projected": map[string]any{"sources": []any{}}})
	each(spec["volumes"], func(v map[string]any) {
		if m, ok := v["secret"].(map[string]any); ok {
			set(m, "defaultMode", json.Number("420"))
		}
		if m, ok := v["configMap"].(map[string]any); ok {
			set(m, "defaultMode", json.Number("420"))
		}
		if m, ok := v["projected"].(map[string]any); ok {
			set(m, "defaultMode", json.Number("420"))
			each(m["sources"], func(s map[string]any) {
				if token, ok := s["serviceAccountToken"].(map[string]any); ok {
					set(token, "expirationSeconds", json.Number("3600"))
				}
			})
		}
	})
	for _, list := range []string{"initContainers", "containers"} {
		each(spec[list], func(container map[string]any) {
			set(container, "resources", map[string]any{})
			set(container, "terminationMessagePath", "/dev/termination-log")
			set(container, "terminationMessagePolicy", "File")
			set(container, "imagePullPolicy", "IfNotPresent")
			each(container["env"], func(e map[string]any) {
				if ref, ok := asObject(e["valueFrom"])["fieldRef"].(map[string]any); ok {
					set(ref, "apiVersion", "v1")
				}
			})
			each(container["ports"], func(p map[string]any) { set(p, "protocol", "TCP") })
			if probe, ok := container["startupProbe"].(map[string]any); ok {
				set(probe, "timeoutSeconds", json.Number("1"))
				if get, ok := probe["httpGet"].(map[string]any); ok {
					set(get, "scheme", "HTTP")
				}
			}
			mounts, _ := container["volumeMounts"].([]any)
			if !slices.ContainsFunc(mounts, func(m any) bool { return asObject(m)["mountPath"] == tokenMount }) {
				container["volumeMounts"] = append(mounts, map[string]any{"name": "kube-api-access-x2x7k", "readOnly": true, "mountPath": tokenMount})
			}
		})
	}
	return asJSON(t, pod)
}

const tokenMount = "/var/run/secrets/kubernetes.io/serviceaccount"
