package property_test

import (
	"encoding/json"
	"reflect"
	"slices"
	"testing"

	strict "github.com/evanphx/json-patch/v5"
	"gomodules.xyz/jsonpatch/v2"
	evanphx "gopkg.in/evanphx/json-patch.v4"
	corev1 "k8s.io/api/core/v1"
	podsecurityapi "k8s.io/pod-security-admission/api"
	podsecuritypolicy "k8s.io/pod-security-admission/policy"

	rawjson "github.com/gatehouse-dev/gatehouse/webhooks/json"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar"
)

// decide decides, and checks what is true of every decision. It returns the pod as it is to be.
func (w *world) decide(t testing.TB, in sidecar.Input) (sidecar.Decision, []byte) {
	t.Helper()
	d := w.set.Decide(t.Context(), in)
	in.Apply, in.Explain = true, true
	applied := w.set.Decide(t.Context(), in)
	for i := range applied.Verdicts {
		if applied.Verdicts[i].Explanation == nil {
			t.Errorf("profile %q is not explained", applied.Verdicts[i].Profile)
		}
		applied.Verdicts[i].Explanation = nil
	}
	sameDecision(t, d, applied)
	if (d.Err != nil || len(d.Refusals) > 0) && d.Patches != nil || d.Err != nil && len(d.Refusals) > 0 {
		t.Errorf("an error, refusals and a patch at once: %+v", d)
	}
	pod := in.Request.Object.Raw
	if r := d.Response(); !r.Allowed && len(r.Patches) > 0 { // the API server may take it for no answer, and lose the denial
		t.Errorf("denied with a patch: %+v", r)
	}
	if d.Patches == nil {
		return d, pod
	}
	out := patched(t, pod, d.Patches)
	if !reflect.DeepEqual(treeOf(t, applied.Patched), treeOf(t, out)) {
		t.Errorf("the text is %s, patched %s", applied.Patched, out)
	}
	u := untouched{TB: t, profiles: w.profiles}
	u.check(parsed(t, pod), parsed(t, applied.Patched))
	w.secure(t, in.Request.Namespace, pod, out)
	return d, out
}

// patched applies a patch as the API server does, with its library. That adds on replace of a missing member and copies null from one;
// a library that refuses both must come to the same.
func patched(t testing.TB, pod []byte, operations []jsonpatch.Operation) []byte {
	t.Helper()
	text := asJSON(t, operations)
	if operations == nil {
		text = []byte("[]")
	}
	patch, err := evanphx.DecodePatch(text)
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	out, err := patch.Apply(pod)
	if err != nil {
		t.Fatalf("%s does not apply to %s: %v", text, pod, err)
	}
	again, err := strict.DecodePatch(text)
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	if same, err := again.Apply(pod); err != nil || !reflect.DeepEqual(treeOf(t, same), treeOf(t, out)) {
		t.Errorf("%s applies to %s differently: %s (%v), %s", text, pod, same, err, out)
	}
	return out
}

func parsed(t testing.TB, text []byte) rawjson.Value {
	t.Helper()
	v, err := rawjson.Parse(text)
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return v
}

// sameDecision wants two decisions to be equal.
func sameDecision(t testing.TB, a, b sidecar.Decision) {
	t.Helper()
	if (a.Err == nil) != (b.Err == nil) {
		t.Errorf("%v, %v", a.Err, b.Err)
	}
	if !reflect.DeepEqual([]any{a.Refusals, a.Verdicts, a.NotSelected, a.Warnings, a.Patches, a.Again}, []any{b.Refusals, b.Verdicts, b.NotSelected, b.Warnings, b.Patches, b.Again}) {
		t.Errorf("the decision differs:\n%+v\n%+v", a, b)
	}
}

// secure wants a pod that the namespace's level admits to be admitted as it is to be.
func (w *world) secure(t testing.TB, namespace string, pod, out []byte) {
	t.Helper()
	ns, known := namespaces{}.Namespace(namespace)
	if !known || ns.Labels[podsecurityapi.EnforceLevelLabel] == "" {
		return
	}
	level, errs := podsecurityapi.PolicyToEvaluate(ns.Labels, podsecurityapi.Policy{})
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	admits := func(text []byte) bool {
		var pod corev1.Pod
		return json.Unmarshal(text, &pod) == nil &&
			podsecuritypolicy.AggregateCheckResults(w.security.EvaluatePod(level.Enforce, &pod.ObjectMeta, &pod.Spec)).Allowed
	}
	if admits(pod) && !admits(out) {
		t.Errorf("%s admits %s and not %s", level.Enforce, pod, out)
	}
}

// all checks a decision, the one that follows about the result, and what is left when everything is taken out again. It
// returns the first decision.
func (w *world) all(t testing.TB, in sidecar.Input) sidecar.Decision {
	t.Helper()
	pod := in.Request.Object.Raw
	d, out := w.decide(t, in)
	switch {
	case d.Err != nil, repeats(parsed(t, pod)): // Whoever reads the result may read either.
	case d.Patches == nil:
		w.removed(t, pod, nil)
	default:
		w.nothing(t, in, out, d)
		if !d.Again && isUnambiguous(parsed(t, pod)) {
			w.removed(t, out, pod)
		}
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
	return slices.ContainsFunc(elements(v), repeats)
}

// isUnambiguous reports whether no list of the pod has two elements of one name, as
// in every pod that can be created. A field path leads to the first of two.
func isUnambiguous(pod rawjson.Value) bool {
	distinct := func(list rawjson.Value, key string) bool {
		seen := map[string]bool{}
		for _, e := range list.Elements() {
			seen[e.Get(key).Text()] = true
		}
		return len(seen) == list.Len()
	}
	for _, list := range []string{"initContainers", "containers", "volumes"} {
		all := pod.Get("spec", list)
		if all.Kind() == rawjson.Array && !distinct(all, "name") {
			return false
		}
		for _, e := range all.Elements() {
			if env, mounts := e.Get("env"), e.Get("volumeMounts"); env.Kind() == rawjson.Array && !distinct(env, "name") || mounts.Kind() == rawjson.Array && !distinct(mounts, "mountPath") {
				return false
			}
		}
	}
	return true
}

// nothing wants no patch for a pod that has everything.
func (w *world) nothing(t testing.TB, in sidecar.Input, out []byte, first sidecar.Decision) {
	t.Helper()
	in.Request.Object.Raw = out
	again, _ := w.decide(t, in)
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
func (w *world) removed(t testing.TB, pod, want []byte) {
	t.Helper()
	removal, err := sidecar.Remove(pod)
	if err != nil {
		if want != nil {
			t.Errorf("%s cannot be restored: %v", pod, err)
		}
		return
	}
	got := patched(t, pod, removal.Patches)
	if want != nil && (len(removal.Left) > 0 || !reflect.DeepEqual(treeOf(t, got), treeOf(t, want))) {
		t.Errorf("%s\nis restored to\n%s\nand was\n%s\n%q is not found", pod, got, want, removal.Left)
	}
}
