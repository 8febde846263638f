package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"

	"github.com/gatehouse-dev/gatehouse/test/support"
	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
)

// The API server applies mutating policies in one of these namespaces, and Gatehouse in the other, as in TestUpstreamPolicies.
const (
	nativeMutating = "mutating-native"
	ownMutating    = "mutating-own"
)

// mutatingSince is the minor version of Kubernetes whose API server has mutating policies.
const mutatingSince = 36

// mutation is a case of testdata/mutating: a policy, a request and what is stored.
type mutation struct {
	Name string
	// Of is the object that Object is a patch of, a key of objects.yaml.
	Of     string
	Object json.RawMessage
	// Shares is another case: the policy is about the object of that one.
	Shares string
	// Rule is the resource of the policy, that of the object by default.
	Rule string
	// Do are the expressions of the mutations.
	Do []string
	// Spec and Binding are patches of the specs of the policy and the binding.
	Spec, Binding json.RawMessage
	// User creates the object, the administrator by default.
	User string
	// Then is a request that follows the creation.
	Then *apiRequest
	// Want is a part of the result, or Refused of the message.
	Want    map[string]any
	Refused string
	// Since is the first minor version of Kubernetes with this result.
	Since int
	// Differs is a part of Gatehouse's result where it is not the API server's.
	Differs map[string]any
}

// mutations are the cases with the objects that they create.
type mutations struct {
	cases   []mutation
	objects map[string]json.RawMessage
}

func readMutations(t *testing.T) *mutations {
	t.Helper()
	m := &mutations{}
	readTable(t, "mutating/cases.yaml", &m.cases)
	readTable(t, "mutating/objects.yaml", &m.objects)
	// It is created last: once the API server applies it, it applies all of them.
	m.cases = append(m.cases, mutation{Name: "zz-last", Of: "configmap", Do: []string{`Object{data: {"last": "yes"}}`}})
	return m
}

// object returns the object of a case.
func (m *mutations) object(t *testing.T, c *mutation) *unstructured.Unstructured {
	t.Helper()
	name := "mutating-" + c.Name
	out := &unstructured.Unstructured{}
	must(t, json.Unmarshal(merged(t, m.objects[c.Of], c.Object, fmt.Appendf(nil, `{"metadata":{"name":%q,"labels":{"mutating":%q}}}`, name, c.Name)), &out.Object))
	return out
}

// merged returns an object with patches.
func merged(t *testing.T, object []byte, patches ...[]byte) []byte {
	t.Helper()
	for _, patch := range patches {
		if len(patch) == 0 {
			continue
		}
		var err error
		object, err = jsonpatch.MergePatch(object, patch)
		must(t, err)
	}
	return object
}

// documents returns the policies and bindings as documents.
func (m *mutations) documents(t *testing.T) string {
	t.Helper()
	var out strings.Builder
	for i := range m.cases {
		c := &m.cases[i]
		object := m.object(t, c)
		plural, _ := meta.UnsafeGuessKindToResource(object.GroupVersionKind())
		resource := plural.Resource
		if c.Rule != "" {
			resource = c.Rule
		}
		about := c.Name
		if c.Shares != "" {
			about = c.Shares
		}
		constraints := map[string]any{"resourceRules": []any{map[string]any{
			"apiGroups": []any{plural.Group}, "apiVersions": []any{plural.Version}, "operations": []any{"CREATE", "UPDATE"}, "resources": []any{resource},
		}}}
		if strings.HasSuffix(resource, "/scale") { // which has no labels
			constraints["resourceRules"].([]any)[0].(map[string]any)["resourceNames"] = []any{object.GetName()} //nolint:forcetypeassert // see above
		} else {
			constraints["objectSelector"] = map[string]any{"matchLabels": map[string]any{"mutating": about}}
		}
		var list []any
		for _, expression := range c.Do {
			if strings.HasPrefix(expression, "[") {
				list = append(list, map[string]any{"patchType": "JSONPatch", "jsonPatch": map[string]any{"expression": expression}})
			} else {
				list = append(list, map[string]any{"patchType": "ApplyConfiguration", "applyConfiguration": map[string]any{"expression": expression}})
			}
		}
		add := func(kind string, spec map[string]any, patch json.RawMessage) {
			text, err := json.Marshal(spec)
			must(t, err)
			fmt.Fprintf(&out, "---\n{\"apiVersion\": \"admissionregistration.k8s.io/v1\", \"kind\": %q, \"metadata\": {\"name\": %q}, \"spec\": %s}\n", kind, "mutating-"+c.Name, merged(t, text, patch))
		}
		add("MutatingAdmissionPolicy", map[string]any{"matchConstraints": constraints, "mutations": list, "reinvocationPolicy": "Never"}, c.Spec)
		add("MutatingAdmissionPolicyBinding", map[string]any{
			"policyName":     "mutating-" + c.Name,
			"matchResources": map[string]any{"namespaceSelector": map[string]any{"matchLabels": map[string]any{"mutating": "compared"}}},
		}, c.Binding)
	}
	return out.String()
}

// outcome is what a client receives, with the name of the namespace replaced.
type outcome struct {
	code    int32
	message string
	object  map[string]any
}

// run makes the requests of a case in a namespace.
func (m *mutations) run(t *testing.T, w *world, c *mutation, namespace string) outcome {
	t.Helper()
	object := m.object(t, c)
	plural, _ := meta.UnsafeGuessKindToResource(object.GroupVersionKind())
	path := "/apis/" + plural.GroupVersion().String()
	if plural.Group == "" {
		path = "/api/" + plural.Version
	}
	body, err := object.MarshalJSON()
	must(t, err)
	create := apiRequest{Request: "POST " + path + "/namespaces/NAMESPACE/" + plural.Resource, Body: body}
	if c.User != "" {
		create.User = &authenticationv1.UserInfo{Username: c.User}
	}
	requests := []*apiRequest{&create}
	if c.Then != nil {
		requests = append(requests, c.Then)
	}
	var raw []byte
	for _, request := range requests {
		// The API server reads the schemas of a new custom kind some time after it serves the kind.
		support.Eventually(t, c.Name, func() error {
			result, _, _ := request.do(t, w, namespace, true)
			raw, _ = result.Raw()
			err = result.Error() // which has the message
			if apierrors.IsServiceUnavailable(err) {
				return err
			}
			return nil
		})
		if err != nil {
			break
		}
	}
	if err != nil {
		var status apierrors.APIStatus
		if !errors.As(err, &status) {
			t.Fatal(err)
		}
		message := status.Status().Message
		if at := strings.Index(message, "policy '"); at > 0 { // behind the webhook's name, or the object's
			message = message[at:]
		}
		return outcome{code: status.Status().Code, message: strings.ReplaceAll(message, namespace, "NAMESPACE")}
	}
	var stored unstructured.Unstructured
	must(t, json.Unmarshal([]byte(strings.ReplaceAll(string(raw), namespace, "NAMESPACE")), &stored.Object))
	// What the API server chooses for each object.
	for _, field := range []string{"uid", "resourceVersion", "creationTimestamp"} {
		unstructured.RemoveNestedField(stored.Object, "metadata", field)
	}
	entries := stored.GetManagedFields()
	for i := range entries {
		entries[i].Time = nil
	}
	stored.SetManagedFields(entries)
	return outcome{object: stored.Object}
}

// differsFrom returns where a value is not as wanted, "" if it is. Members of a map that are not wanted may be there, and null is what
// is not.
func differsFrom(want, got any, path string) string {
	switch want := want.(type) {
	case map[string]any:
		fields, _ := got.(map[string]any)
		for _, key := range slices.Sorted(maps.Keys(want)) {
			if diff := differsFrom(want[key], fields[key], path+"."+key); diff != "" {
				return diff
			}
		}
		return ""
	case []any:
		list, _ := got.([]any)
		if len(list) != len(want) {
			return fmt.Sprintf("%s is %v, want %v", path, got, want)
		}
		for i := range want {
			if diff := differsFrom(want[i], list[i], fmt.Sprintf("%s[%d]", path, i)); diff != "" {
				return diff
			}
		}
		return ""
	}
	if fmt.Sprint(want) != fmt.Sprint(got) {
		return fmt.Sprintf("%s is %v, want %v", path, got, want)
	}
	return ""
}

// check compares an outcome with what a case wants.
func (o *outcome) check(t *testing.T, c *mutation, want map[string]any, who string) {
	t.Helper()
	switch {
	case c.Refused != "" && (o.code == 0 || !strings.Contains(o.message, c.Refused)):
		t.Errorf("%s: got %d %q, want a refusal with %q", who, o.code, o.message, c.Refused)
	case c.Refused == "" && o.code != 0:
		t.Errorf("%s: refused: %d %s", who, o.code, o.message)
	case c.Refused == "":
		if diff := differsFrom(want, o.object, ""); diff != "" {
			t.Errorf("%s: %s", who, diff)
		}
	}
}

// The same mutating policies make the same objects in the API server and in Gatehouse. Before Kubernetes 1.36 the API server has
// none, and Gatehouse alone is tested.
func TestUpstreamMutations(t *testing.T) {
	t.Parallel()
	w := sharedWorld(t)
	native := w.Minor(t) >= mutatingSince
	w.newNamespace(t, nativeMutating, map[string]string{"mutating": "compared", "team": "blue"})
	w.newNamespace(t, ownMutating, map[string]string{"team": "blue"})
	w.newNamespace(t, "mutating-shared", nil)
	m := readMutations(t)
	context, definition, policies := readDocuments(t, "mutating/context.yaml"), readDocuments(t, "mutating/definition.yaml"), m.documents(t)
	must(t, w.apply(t.Context(), definition+"---\n"+context+"---\n"+strings.ReplaceAll(context, ownMutating, nativeMutating)))
	if native {
		must(t, w.apply(t.Context(), policies))
	}
	w.servePolicies(t, "mutating", definition+"---\n"+context+"---\n"+readDocuments(t, "mutating/namespaces.yaml")+policies, "", ownMutating)
	for _, namespace := range []string{nativeMutating, ownMutating} {
		if namespace == nativeMutating && !native {
			continue
		}
		support.Eventually(t, "the policies in "+namespace, func() error {
			created, err := w.Client().CoreV1().ConfigMaps(namespace).Create(t.Context(), configMap("last", map[string]string{"mutating": "zz-last"}), dryRun)
			if err == nil && created.Data["last"] != "yes" {
				err = errors.New("they are not applied yet")
			}
			return err
		})
	}
	for i := range m.cases {
		c := &m.cases[i]
		if c.Shares != "" {
			continue
		}
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			own := m.run(t, w, c, ownMutating)
			own.message = missingParam.ReplaceAllString(own.message, "")
			want := c.Want
			if c.Differs != nil {
				want = c.Differs
			}
			own.check(t, c, want, "Gatehouse")
			if w.Minor(t) < max(c.Since, mutatingSince) {
				return
			}
			upstream := m.run(t, w, c, nativeMutating)
			upstream.check(t, c, c.Want, "the API server")
			if c.Differs == nil && !reflect.DeepEqual(own, upstream) {
				a, _ := yaml.Marshal(own.object)
				b, _ := yaml.Marshal(upstream.object)
				t.Errorf("Gatehouse: %d %s\n%s\nthe API server: %d %s\n%s", own.code, own.message, a, upstream.code, upstream.message, b)
			}
		})
	}
	t.Run("audit annotation", func(t *testing.T) {
		t.Parallel()
		support.Eventually(t, "the audit log", func() error {
			notes, err := w.audited("create", "configmaps", ownMutating, "mutating-label")
			if got, want := notes["fail.mutate.gatehouse.dev/mutated-by"], "mutating-label/mutating-label"; err == nil && got != want {
				err = fmt.Errorf("the annotations are %q", notes)
			}
			return err
		})
	})
}

// dynamic returns a client for objects of any kind.
func (w *world) dynamic(t *testing.T) dynamic.Interface {
	t.Helper()
	client, err := dynamic.NewForConfig(w.Config())
	must(t, err)
	return client
}

// TestMutatingLibrary: what the cases of the library's mutating policies expect comes true, by Gatehouse and by the API server itself.
func TestMutatingLibrary(t *testing.T) {
	t.Parallel()
	// The policies match all namespaces.
	w := newWorld(t)
	f := &folder{world: w, name: mutatingLibrary}
	f.read(t)
	must(t, w.apply(t.Context(), `{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"ClusterRoleBinding","metadata":{"name":"library"},
		"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"cluster-admin"},"subjects":[{"apiGroup":"rbac.authorization.k8s.io","kind":"Group","name":"system:authenticated"}]}`))
	directory := t.TempDir()
	must(t, os.CopyFS(directory, os.DirFS(filepath.Join(library, f.name))))
	for i := range f.test.Context {
		must(t, w.apply(t.Context(), string(f.test.Context[i].Raw)))
		must(t, os.WriteFile(filepath.Join(directory, fmt.Sprintf("context-%d.yaml", i)), f.test.Context[i].Raw, 0o600))
	}
	for i := range f.test.Cases {
		object := decoded(t, f.test.Cases[i].Object)
		object.SetNamespace(f.test.Cases[i].Namespace)
		must(t, f.createAccount(t.Context(), object))
	}
	try := func(t *testing.T, c *v1alpha1.TestCase) error {
		client, err := dynamic.NewForConfig(f.as(c))
		must(t, err)
		object := decoded(t, c.Object)
		object.SetNamespace(c.Namespace)
		plural, _ := meta.UnsafeGuessKindToResource(object.GroupVersionKind())
		got, err := client.Resource(plural).Namespace(c.Namespace).Create(t.Context(), object, dryRun)
		if err != nil {
			return err
		}
		// What a case says of the object stays, but for what is expected.
		want := c.Object.Raw
		if c.Expect.Object != nil {
			want = c.Expect.Object.Raw
		}
		if operations, err := json.Marshal(c.Expect.Patch); err == nil && len(c.Expect.Patch) > 0 {
			patch, err := jsonpatch.DecodePatch(operations)
			must(t, err)
			want, err = patch.Apply(want)
			must(t, err)
		}
		var fields map[string]any
		must(t, json.Unmarshal(want, &fields))
		if c.Expect.Object == nil {
			unstructured.RemoveNestedField(fields, "spec", "tolerations") // to which the API server adds two
		}
		if diff := differsFrom(fields, got.Object, ""); diff != "" {
			return errors.New(diff)
		}
		return nil
	}
	tryAll := func(t *testing.T) {
		support.Eventually(t, "the policies", func() error { return try(t, &f.test.Cases[0]) })
		for i := range f.test.Cases {
			if err := try(t, &f.test.Cases[i]); err != nil {
				t.Errorf("%s: %v", f.test.Cases[i].Name, err)
			}
		}
	}
	t.Run("gatehouse", func(t *testing.T) {
		f.servePoliciesIn(t, "library-mutating", directory, directory, nil, "shop", "default")
		tryAll(t)
	})
	if w.Minor(t) >= mutatingSince {
		t.Run("API server", func(t *testing.T) {
			for _, u := range f.documents {
				text, err := u.MarshalJSON()
				must(t, err)
				must(t, w.apply(t.Context(), string(text)))
			}
			tryAll(t)
		})
	}
}
