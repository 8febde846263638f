package install

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/diff"
)

// TestSameObjects: the chart with the values of an overlay's name renders what the overlay does. What differs, and may:
//
//   - labels that say by which tool, chart and version something was installed, and that of kustomize that says of what
//     it is a part;
//   - the namespace, which helm install --create-namespace makes;
//   - what Helm makes for its pre-delete hook, and takes away again.
func TestSameObjects(t *testing.T) {
	t.Parallel()
	values := valuesNames(t)
	for _, overlay := range overlayNames(t) {
		t.Run(overlay, func(t *testing.T) {
			t.Parallel()
			if !slices.Contains(values, overlay) {
				t.Fatalf("the chart has no ci/%s-values.yaml: there are %q", overlay, values)
			}
			difference := compare(comparableObjects(kustomized(t, overlay)), comparableObjects(charted(t, overlay)))
			if difference != "" {
				t.Error(difference)
			}
		})
	}
}

// comparableObjects are the objects of a variant without what may differ, by kind, namespace and name.
func comparableObjects(v *variant) map[string]*unstructured.Unstructured {
	objects := map[string]*unstructured.Unstructured{}
	for _, o := range v.objects {
		if isHook(o) || o.GetKind() == "Namespace" {
			continue
		}
		o = o.DeepCopy()
		for _, path := range [][]string{{"metadata"}, {"spec", "template", "metadata"}} {
			withoutTool(o, path)
		}
		key := o.GetKind() + " " + o.GetNamespace() + "/" + o.GetName()
		if objects[key] != nil {
			key += " (again)"
		}
		objects[key] = o
	}
	return objects
}

// withoutTool removes the labels that say how an object was installed.
func withoutTool(o *unstructured.Unstructured, metadata []string) {
	path := slices.Concat(metadata, []string{"labels"})
	labels, found, _ := unstructured.NestedStringMap(o.Object, path...)
	if !found {
		return
	}
	for _, label := range []string{"helm.sh/chart", "app.kubernetes.io/managed-by", "app.kubernetes.io/version", "app.kubernetes.io/part-of"} {
		delete(labels, label)
	}
	_ = unstructured.SetNestedStringMap(o.Object, labels, path...) // it was there
}

// compare says what differs, object by object.
func compare(kustomize, helm map[string]*unstructured.Unstructured) string {
	var text strings.Builder
	keys := map[string]bool{}
	for _, objects := range []map[string]*unstructured.Unstructured{kustomize, helm} {
		for key := range objects {
			keys[key] = true
		}
	}
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		switch {
		case helm[key] == nil:
			fmt.Fprintf(&text, "%s: kustomize renders it, helm does not\n", key)
		case kustomize[key] == nil:
			fmt.Fprintf(&text, "%s: helm renders it, kustomize does not\n", key)
		default:
			if !equality.Semantic.DeepEqual(kustomize[key].Object, helm[key].Object) {
				fmt.Fprintf(&text, "%s: differs, - kustomize, + helm:\n%s\n", key, diff.Diff(kustomize[key].Object, helm[key].Object))
			}
		}
	}
	return text.String()
}

// TestSameComponents: each component of kustomize and the values of the chart for the same render the same objects, and more of
// them, or others, than without.
func TestSameComponents(t *testing.T) {
	t.Parallel()
	without := comparableObjects(kustomized(t, "self-signed"))
	for component, values := range map[string][]string{
		"record": {recordingOn, recordingKey}, "audit": {`audit.enabled=true`}, "count-pods": {`podCounts.every="5m"`},
		"back-channel-logout": {`authentication.backChannelLogout="24h"`},
	} {
		with := comparableObjects(kustomizedWith(t, component))
		if difference := compare(with, comparableObjects(chartedWith(t, values...))); difference != "" {
			t.Errorf("%s: %s", component, difference)
		}
		if compare(with, without) == "" {
			t.Errorf("%s changes nothing", component)
		}
	}
}

// TestSameRights: the ServiceAccount of Gatehouse gets the same rights from the chart and from "gatehouse manifests".
func TestSameRights(t *testing.T) {
	t.Parallel()
	for flag, value := range map[string]string{
		"--custom-resources": "webhooks.manage=false", "--manage-registration": "webhooks.manage=true",
		"--count-pods": `podCounts.every="5m"`, "--back-channel-logout": `authentication.backChannelLogout="24h"`,
	} {
		flags := []string{"manifests", "--service", system + "/" + name, "--certificates", "self-signed", "--custom-resources", flag}
		printed, charted := granted(newVariant(t, flag, run(t, binary(t), flags...))), granted(chartedWith(t, "webhooks.manage=false", value))
		if difference := diff.Diff(printed, charted); len(printed) < 4 || !equality.Semantic.DeepEqual(printed, charted) {
			t.Errorf("%s and %s: %d roles differ, - manifests, + helm:\n%s", flag, value, len(printed), difference)
		}
	}
}

// granted returns the rules of the roles that are bound to the ServiceAccount of Gatehouse, by kind, namespace and name.
func granted(v *variant) map[string]any {
	rules, roles := map[string]any{}, map[string]any{}
	for _, o := range v.objects {
		rules[o.GetKind()+" "+o.GetNamespace()+"/"+o.GetName()] = o.Object["rules"]
	}
	for _, o := range v.objects {
		subjects, _, _ := unstructured.NestedSlice(o.Object, "subjects")
		if len(subjects) != 1 || subjects[0].(map[string]any)["name"] != name {
			continue
		}
		ref, _, _ := unstructured.NestedStringMap(o.Object, "roleRef")
		role := ref["kind"] + " " + o.GetNamespace() + "/" + ref["name"]
		roles[role] = rules[role]
	}
	return roles
}
