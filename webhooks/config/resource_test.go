package config_test

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/config"
)

func resource(t *testing.T, text string) *config.Resource {
	t.Helper()
	encoded, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	var u unstructured.Unstructured
	if err := u.UnmarshalJSON(encoded); err != nil {
		t.Fatal(err)
	}
	return config.ReadResource(&u)
}

const storedProfile = `
apiVersion: gatehouse.dev/v1alpha1
kind: SidecarProfile
metadata:
  name: logs
  uid: 0a1b
  generation: 3
  resourceVersion: "17"
  creationTimestamp: "2026-01-02T03:04:05Z"
  managedFields: [{manager: kubectl, operation: Apply, fieldsType: FieldsV1, fieldsV1: {"f:spec": {}}}]
spec: {template: {spec: {containers: [{name: logs, image: x}]}}}
status: {observedGeneration: 2, somethingNewer: true}
`

// What an API server adds to an object is no error, and its status says nothing.
func TestReadResource(t *testing.T) {
	t.Parallel()
	r := resource(t, storedProfile)
	if len(r.Found) > 0 {
		t.Errorf("found %v", r.Found)
	}
	profile, ok := r.Value.(*v1alpha1.SidecarProfile)
	if !ok || profile.Name != "logs" || len(profile.ManagedFields) > 0 {
		t.Errorf("read %#v", r.Value)
	}
	want := config.ResourceID{Kind: "SidecarProfile", Name: "logs", UID: "0a1b", Generation: 3}
	id := r.ResourceID
	if id.Sum = ""; id != want || r.Sum == "" {
		t.Errorf("got %v with the sum %q, want %v", id, r.Sum, want)
	}
	if got, want := r.ChangedAt, time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC); !got.Equal(want) {
		t.Errorf("changed at %s, want %s", got, want)
	}
	if got := r.GetObjectMeta(); got.GetName() != "logs" || got.GetResourceVersion() != "17" {
		t.Errorf("the metadata for stores is %v", got)
	}
}

// Versions are told by what counts: not by what is noted about an object, and by
// content that changed without a generation.
func TestResourceVersions(t *testing.T) {
	t.Parallel()
	id := resource(t, storedProfile).ResourceID
	for name, test := range map[string]struct {
		old, new string
		same     bool
	}{
		"status":           {"observedGeneration: 2", "observedGeneration: 3", true},
		"resource version": {`resourceVersion: "17"`, `resourceVersion: "18"`, true},
		"managed fields":   {"manager: kubectl", "manager: helm", true},
		"annotations":      {"  generation: 3\n", "  generation: 3\n  annotations: {a: b}\n", true},
		"a contact":        {"  generation: 3\n", "  generation: 3\n  annotations: {a: b, gatehouse.dev/contact: c}\n", false},
		"a default":        {"image: x}", "image: x, imagePullPolicy: Always}", false},
		"generation":       {"generation: 3", "generation: 4", false},
		"made again":       {"uid: 0a1b", "uid: 2c3d", false},
		"being deleted":    {"  generation: 3\n", "  generation: 3\n  deletionTimestamp: \"2026-01-02T03:04:06Z\"\n", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			changed := strings.Replace(storedProfile, test.old, test.new, 1)
			if changed == storedProfile {
				t.Fatal("nothing is changed")
			}
			if same := resource(t, changed).ResourceID == id; same != test.same {
				t.Errorf("the same: %v, want %v", same, test.same)
			}
		})
	}
}

// Of annotations, those that Gatehouse reads are kept.
func TestResourceAnnotations(t *testing.T) {
	t.Parallel()
	r := resource(t, strings.Replace(storedProfile, "  generation: 3\n", `  generation: 3
  annotations: {a: b, gatehouse.dev/contact: "#platform", gatehouse.dev/lint-ignore: expensive}
`, 1))
	want := map[string]string{v1alpha1.ContactAnnotation: "#platform", v1alpha1.LintIgnoreAnnotation: "expensive"}
	if profile, ok := r.Value.(*v1alpha1.SidecarProfile); !ok || !maps.Equal(profile.Annotations, want) || len(r.Found) > 0 {
		t.Errorf("read %#v, found %v", r.Value, r.Found)
	}
}

// Who changed last is told by the managers of the spec: not by who labels an object or
// writes its status.
func TestResourceChangedAt(t *testing.T) {
	t.Parallel()
	const made, written, later = "2026-01-02T03:04:05Z", "2026-01-02T03:05:00Z", "2026-01-02T03:06:00Z"
	for name, test := range map[string]struct{ managedFields, want string }{
		"none":                   {"", made},
		"the spec":               {`{time: "` + written + `", fieldsV1: {"f:spec": {"f:template": {}}}}`, written},
		"the later of two":       {`{time: "` + later + `", fieldsV1: {"f:spec": {}}}, {time: "` + written + `", fieldsV1: {"f:spec": {}}}`, later},
		"labels":                 {`{time: "` + written + `", fieldsV1: {"f:spec": {}}}, {time: "` + later + `", fieldsV1: {"f:metadata": {"f:labels": {"f:a": {}}}}}`, written},
		"a label of that name":   {`{time: "` + later + `", fieldsV1: {"f:metadata": {"f:labels": {"f:spec": {}}, "f:annotations": {"f:spec": {}}}}}`, made},
		"a subresource":          {`{time: "` + later + `", subresource: status, fieldsV1: {"f:spec": {}, "f:status": {}}}`, made},
		"no subresource":         {`{time: "` + later + `", subresource: "", fieldsV1: {"f:spec": {}}}`, later},
		"labels and the spec":    {`{time: "` + later + `", fieldsV1: {"f:metadata": {"f:labels": {}}, "f:spec": {}}}`, later},
		"no fields":              {`{time: "` + later + `"}`, made},
		"no time":                {`{fieldsV1: {"f:spec": {}}}`, made},
		"what no API server has": {`7, [], {time: 7, fieldsV1: {"f:spec": 7}}, {time: "` + later + `", fieldsV1: 7}`, made},
		"before it was made":     {`{time: "2025-01-02T03:04:05Z", fieldsV1: {"f:spec": {}}}`, made},
		"in another zone":        {`{time: "2026-01-02T04:05:00+01:00", fieldsV1: {"f:spec": {}}}`, written},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const old = `[{manager: kubectl, operation: Apply, fieldsType: FieldsV1, fieldsV1: {"f:spec": {}}}]`
			r := resource(t, strings.Replace(storedProfile, old, "["+test.managedFields+"]", 1))
			if got := r.ChangedAt.UTC().Format(time.RFC3339); got != test.want {
				t.Errorf("got %s, want %s", got, test.want)
			}
			first := resource(t, storedProfile)
			if r.ResourceID != first.ResourceID || r.Equal(first) != (test.want == made) {
				t.Errorf("the same: %v", r.Equal(first))
			}
		})
	}
	r := config.ReadResource(&unstructured.Unstructured{Object: map[string]any{"kind": "SidecarProfile", "metadata": map[string]any{"managedFields": "none"}}})
	if !r.ChangedAt.IsZero() {
		t.Errorf("changed at %s", r.ChangedAt)
	}
}

// One object cannot fill the memory, whatever its author may store.
func TestReadResourceSize(t *testing.T) {
	t.Parallel()
	const head = "apiVersion: gatehouse.dev/v1alpha1\nkind: PolicyException\nmetadata: {name: e, namespace: ns"
	large := strings.Repeat("x", 600<<10)
	r := resource(t, head+"}\nspec: {policies: [{name: p}], match: {names: [a]}, reason: "+large+"}\n")
	if r.Value != nil || r.Found.Err() == nil || !strings.Contains(r.Found.Err().Error(), "PolicyException/ns/e: is larger than 512 KiB") {
		t.Errorf("got %v with %v", r.Value != nil, r.Found)
	}
	r = resource(t, head+", annotations: {a: "+large+"}}\nspec: {policies: [{name: p}], match: {names: [a]}, reason: why}\n")
	kept, ok := r.Value.(*v1alpha1.PolicyException)
	if !ok || len(kept.Annotations) > 0 {
		t.Errorf("annotations are kept, or the object is not: %v", r.Found)
	}
}

// What cannot be used says why, and names the object.
func TestReadResourceErrors(t *testing.T) {
	t.Parallel()
	const head = "apiVersion: gatehouse.dev/v1alpha1\n"
	for name, test := range map[string]struct{ text, want string }{
		"unknown field":    {head + "kind: AdmissionPolicy\nmetadata: {name: p}\nspec: {valdations: []}", `cluster: AdmissionPolicy/p: spec.valdations: unknown field`},
		"wrong type":       {head + "kind: AdmissionPolicy\nmetadata: {name: p}\nspec: {validations: 7}", `cluster: AdmissionPolicy/p: spec.validations:`},
		"not ours":         {"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}", `"ConfigMap" is not a kind of custom resources`},
		"no resource":      {head + "kind: PolicyConfiguration", `"PolicyConfiguration" is not a kind of custom resources`},
		"another version":  {"apiVersion: gatehouse.dev/v2\nkind: AdmissionPolicy\nmetadata: {name: p}", `"gatehouse.dev/v2" is not a supported version of AdmissionPolicy`},
		"in its namespace": {head + "kind: PolicyException\nmetadata: {name: e, namespace: ns}\nspec: {reasn: x}", `cluster: PolicyException/ns/e: spec.reasn`},
		"no name":          {head + "kind: AdmissionPolicy\nmetadata: {}", `metadata.name: is missing`},
		"token in a field": {head + "kind: AccessToken\nmetadata: {name: t}\nspec: {token: gatehouse_abcdefghijklmnop}", `cluster: AccessToken/t: spec.token`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := resource(t, test.text)
			if r.Found.Err() == nil {
				t.Fatal("there is no error")
			}
			text := r.Found.Err().Error()
			if !strings.Contains(text, test.want) {
				t.Errorf("got %q, want %q in it", text, test.want)
			}
			if strings.Contains(text, "abcdefghijklmnop") {
				t.Errorf("the token is repeated: %s", text)
			}
		})
	}
}

// A configuration with resources leaves the one without as it was.
func TestWith(t *testing.T) {
	t.Parallel()
	base, found := config.InspectBeside("")
	if len(found) > 0 {
		t.Fatal(found)
	}
	r := resource(t, storedProfile)
	with, found := base.With([]*config.Resource{r})
	if len(found) > 0 || len(with.Sidecar.Profiles) != 1 || with.Sidecar.Profiles[0].Source != config.ClusterSource {
		t.Errorf("got %v with %v", with.Sidecar.Profiles, found)
	}
	if len(base.Sidecar.Profiles) > 0 {
		t.Error("the configuration without resources has changed")
	}
	if with.Digest == base.Digest {
		t.Error("the digest does not tell that there is a resource")
	}
	again, _ := base.With(slices.Clone([]*config.Resource{r}))
	if again.Digest != with.Digest {
		t.Error("the digest changes although nothing does")
	}
}

// A directory beside custom resources may be empty or be none, one by itself may not.
func TestInspectBeside(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, where := range []string{"", dir} {
		if _, found := config.InspectBeside(where); len(found) > 0 {
			t.Errorf("%q: %v", where, found)
		}
	}
	if _, found := config.Inspect(dir); found.Err() == nil {
		t.Error("an empty directory by itself is a configuration")
	}
	if _, found := config.InspectBeside(dir + "/none"); found.Err() == nil {
		t.Error("a directory that is not there is a configuration")
	}
}
