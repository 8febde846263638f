package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"sigs.k8s.io/yaml"

	"github.com/gatehouse-dev/gatehouse/test/support"
	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
)

const (
	library = "../../manifests/policies"
	// mutatingLibrary is the folder of policies that refuse nothing.
	mutatingLibrary = "mutating"
	// libraryRole lets the users of the cases ask for everything, and is no right to "use" anything.
	libraryRole = "library-users"
	// denied is what the API server puts in front of what we refuse.
	denied = `admission webhook "fail.validate.gatehouse.dev" denied the request: `
)

// refusedBefore are the cases, by folder and name, that the API server refuses for reasons of its own before it asks
// uncertified, and what it says then. They are not about nothing: manifests are checked before they are applied, and what
// an API server refuses differs from version to version.
func refusedBefore() map[string]string {
	return map[string]string{
		"host-paths/an empty path":                     "Required value",
		"host-paths/out of an allowed path":            "must not contain '..'",
		"host-paths/out of an allowed path at the end": "must not contain '..'",
		"ingress-hosts/a host in capitals":             "a lowercase RFC 1123 subdomain must consist",
		"ingress-hosts/a host with a dot at its end":   "a lowercase RFC 1123 subdomain must consist",
		"pod-security-baseline/all of /proc":           "`hostUsers` must be false to use `Unmasked`",
		// Pod Security Admission comes first.
		"pod-security-labels/a namespace that enforces restricted, an ordinary pod": `violates PodSecurity "restricted:v1.36"`,
	}
}

// refusedUpstream are the cases of upstream's kinds that are admitted by Gatehouse alone, because an annotation asks for
// it.
func refusedUpstream() []string {
	return []string{
		"disruption-budgets/a budget from before the policy that is being deleted loses its finalizer",
		"ingress-hosts/a rule for every host from before the policy may stay beside another host",
		"ingress-hosts/a route from before the policy that is being deleted loses its finalizer",
		"ingress-hosts/an Ingress from before the policy may be changed",
		"ingress-hosts/an Ingress from before the policy that is being deleted loses its finalizer",
		"service-types/a NodePort from before the policy may be changed",
		"service-types/a NodePort from before the policy that is being deleted loses its finalizer",
	}
}

// What the cases of the library expect comes true on the real API server, with Gatehouse registered for what the policies
// are about: the same verdict, policies and messages. What is of upstream's kinds the API server evaluates itself, too, and so it does
// with what is compiled.
func TestLibrary(t *testing.T) {
	t.Parallel()
	// The policies of the shared world fail closed for namespaces that they do not know.
	w := newWorld(t)
	mapper := w.prepareLibrary(t)
	entries, err := os.ReadDir(library)
	must(t, err)
	seen := map[string]bool{}
	for _, entry := range entries {
		if !entry.IsDir() || entry.Name() == mutatingLibrary { // see TestMutatingLibrary
			continue
		}
		// One after the other, because each is a server of its own.
		t.Run(entry.Name(), func(t *testing.T) {
			f := &folder{world: w, name: entry.Name(), mapper: mapper}
			f.read(t)
			f.prepare(t)
			for i := range f.test.Cases {
				seen[f.title(&f.test.Cases[i])] = true
			}
			t.Run("gatehouse", func(t *testing.T) {
				directory := filepath.Join(library, f.name)
				f.servePoliciesIn(t, "library-"+f.name, directory, directory, nil, f.selected(t)...)
				f.tryAll(t, false)
			})
			if len(f.upstream) > 0 {
				t.Run("API server", func(t *testing.T) {
					f.install(t)
					f.tryAll(t, true)
				})
				if f.name == "token-scopes" {
					t.Run("everywhere", f.tryScopesEverywhere)
				}
			}
			t.Run("compiled", func(t *testing.T) { f.tryCompiled(t, filepath.Join(library, f.name)) })
		})
	}
	for _, title := range append(refusedUpstream(), slices.Collect(maps.Keys(refusedBefore()))...) {
		if !seen[title] {
			t.Errorf("there is no case %q", title)
		}
	}
}

// prepareLibrary makes what all folders need, and returns what knows the resources of all kinds in them.
func (w *world) prepareLibrary(t *testing.T) meta.RESTMapper {
	t.Helper()
	_, err := w.Client().RbacV1().ClusterRoles().Create(t.Context(), &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: libraryRole},
		Rules: []rbacv1.PolicyRule{{
			APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"get", "create", "update", "patch", "delete"},
		}},
	}, metav1.CreateOptions{})
	must(t, err)
	client, err := dynamic.NewForConfig(w.Config())
	must(t, err)
	definitions := client.Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"})
	files, err := filepath.Glob(filepath.Join(library, "*", "tests.yaml"))
	must(t, err)
	var kinds []schema.GroupKind
	for _, file := range files {
		for _, u := range libraryDocuments(t, file) {
			if u.GetKind() != "CustomResourceDefinition" {
				continue
			}
			_, err := definitions.Create(t.Context(), u, metav1.CreateOptions{})
			must(t, err)
			group, _, _ := unstructured.NestedString(u.Object, "spec", "group") // the API server has checked it
			kind, _, _ := unstructured.NestedString(u.Object, "spec", "names", "kind")
			kinds = append(kinds, schema.GroupKind{Group: group, Kind: kind})
		}
	}
	var mapper meta.RESTMapper
	support.Eventually(t, "the custom resources are served", func() error {
		groups, err := restmapper.GetAPIGroupResources(w.Client().Discovery())
		if err != nil {
			return err
		}
		mapper = restmapper.NewDiscoveryRESTMapper(groups)
		for _, kind := range kinds {
			_, err := mapper.RESTMapping(kind)
			if err != nil {
				return err
			}
		}
		return nil
	})
	return mapper
}

// libraryDocuments are the documents of a file of the library.
func libraryDocuments(t *testing.T, file string) []*unstructured.Unstructured {
	t.Helper()
	content, err := os.ReadFile(file)
	must(t, err)
	var all []*unstructured.Unstructured
	for document := range strings.SplitSeq(string(content), "\n---\n") {
		var u unstructured.Unstructured
		must(t, yaml.Unmarshal([]byte(document), &u.Object))
		all = append(all, &u)
	}
	return all
}

// folder is a folder of the library on its way to the API server.
type folder struct {
	*world
	name   string
	mapper meta.RESTMapper

	test       v1alpha1.Test
	namespaces []corev1.Namespace
	// upstream are the names of the policies of upstream's kind, and documents they, their bindings and params.
	upstream  []string
	documents []*unstructured.Unstructured
	// rights are the roles that Gatehouse reads with the policies.
	rights []*unstructured.Unstructured
}

func (f *folder) title(c *v1alpha1.TestCase) string { return f.name + "/" + c.Name }

// read reads the folder.
func (f *folder) read(t *testing.T) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(library, f.name, "*.yaml"))
	must(t, err)
	for _, file := range files {
		for _, u := range libraryDocuments(t, file) {
			switch u.GetKind() {
			case "Test":
				text, err := u.MarshalJSON()
				must(t, err)
				must(t, json.Unmarshal(text, &f.test))
			case "Namespace":
				f.namespaces = append(f.namespaces, corev1.Namespace{})
				must(t, runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &f.namespaces[len(f.namespaces)-1]))
			case "ValidatingAdmissionPolicy":
				f.upstream = append(f.upstream, u.GetName())
				f.documents = append(f.documents, u)
			case "MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding", "ValidatingAdmissionPolicyBinding", "ConfigMap":
				f.documents = append(f.documents, u)
			case "Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding":
				f.rights = append(f.rights, u)
			}
		}
	}
	if len(f.test.Cases) == 0 {
		t.Fatal("there are no cases")
	}
}

// install has the API server itself evaluate what it can, for the namespaces of the cases. It stays until the API server
// ends: once the last policy with a kind of params is gone, Kubernetes 1.36 finds no params of that kind any more.
func (f *folder) install(t *testing.T) {
	t.Helper()
	for _, u := range f.documents {
		// The policy of scopes is for all namespaces, and only about users with a scope, whom no other folder has.
		if u.GetKind() == "ValidatingAdmissionPolicyBinding" && f.name != "token-scopes" {
			var names []any
			for _, name := range f.selected(t) {
				names = append(names, name)
			}
			must(t, unstructured.SetNestedSlice(u.Object, []any{map[string]any{
				"key": corev1.LabelMetadataName, "operator": "In", "values": names,
			}}, "spec", "matchResources", "namespaceSelector", "matchExpressions"))
		}
		resource, err := f.resource(f.Config(), u)
		must(t, err)
		_, err = resource.Create(t.Context(), u, metav1.CreateOptions{})
		must(t, err)
	}
}

// tryScopesEverywhere tries what users with a scope may write where the cases of the folder are not: in kube-system, and the policy that narrows
// them, about which the API server asks no policy.
func (f *folder) tryScopesEverywhere(t *testing.T) {
	config := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "scoped", "namespace": metav1.NamespaceSystem}}}
	secret := config.DeepCopy()
	secret.SetKind("Secret")
	policy := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy", "metadata": map[string]any{"name": f.name}}}
	// No webhook is asked about it, and the API server's policies are.
	webhook := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration", "metadata": map[string]any{"name": "scoped"}}}
	const registrations, writes, namespaces = "no scope includes writes of secrets, roles", "does not include writes: view", "does not include this namespace"
	for name, c := range map[string]struct {
		scope  []string
		object *unstructured.Unstructured
		delete bool
		says   string
	}{
		"no scope":                     {nil, config, false, ""},
		"a scope that may write":       {[]string{"edit"}, config, false, ""},
		"a scope that may only look":   {[]string{"view"}, config, false, writes},
		"a scope of another namespace": {[]string{"edit", "namespace=depot"}, config, false, namespaces},
		"a webhook":                    {[]string{"edit"}, webhook, false, registrations},
		"a Secret":                     {[]string{"edit"}, secret, false, registrations},
		"the policy itself, unasked":   {[]string{"view"}, policy, true, ""},
	} {
		t.Run(name, func(t *testing.T) {
			access := f.Config()
			access.Impersonate = rest.ImpersonationConfig{UserName: "jane", Groups: []string{"system:authenticated"}, Extra: map[string][]string{}}
			if c.scope != nil {
				access.Impersonate.Extra[v1alpha1.ScopeExtraKey] = c.scope
			}
			resource, err := f.resource(access, c.object)
			must(t, err)
			if c.delete {
				err = resource.Delete(t.Context(), c.object.GetName(), metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}})
			} else {
				_, err = resource.Create(t.Context(), c.object, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			}
			if (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
				t.Errorf("got %v, want %q", err, c.says)
			}
		})
	}
}

// prepare makes what the cases take to be there: before the policies are in force, because some of it violates them.
func (f *folder) prepare(t *testing.T) {
	t.Helper()
	for i := range f.namespaces {
		must(t, f.createNamespace(t.Context(), &f.namespaces[i]))
	}
	users := map[string]bool{}
	for i := range f.test.Cases {
		c := &f.test.Cases[i]
		if c.User != nil {
			users[c.User.Username] = true
		}
		must(t, f.createAccount(t.Context(), decoded(t, c.Object)))
		if old := decoded(t, c.OldObject); old != nil && old.GetKind() != "Namespace" {
			resource, err := f.resource(f.Config(), old)
			must(t, err)
			_, err = resource.Create(t.Context(), old, metav1.CreateOptions{})
			if err != nil {
				t.Fatalf("the old object of %q: %v", c.Name, err)
			}
			if old.GetDeletionTimestamp() != nil {
				// Its finalizers keep it.
				must(t, resource.Delete(t.Context(), old.GetName(), metav1.DeleteOptions{}))
			}
		}
	}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "library-" + f.name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: libraryRole},
	}
	for _, user := range slices.Sorted(maps.Keys(users)) {
		binding.Subjects = append(binding.Subjects, rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user})
	}
	_, err := f.Client().RbacV1().ClusterRoleBindings().Create(t.Context(), binding, metav1.CreateOptions{})
	must(t, err)
}

// createAccount creates the service account of a pod, without which the API server refuses it.
func (f *folder) createAccount(ctx context.Context, pod *unstructured.Unstructured) error {
	if pod == nil || pod.GetKind() != "Pod" {
		return nil
	}
	name := "default"
	for _, field := range []string{"serviceAccountName", "serviceAccount"} {
		given, _, err := unstructured.NestedString(pod.Object, "spec", field)
		if err == nil && given != "" {
			name = given
		}
	}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}
	_, err := f.Client().CoreV1().ServiceAccounts(pod.GetNamespace()).Create(ctx, account, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

// decoded is an object of a case, or nil.
func decoded(t *testing.T, raw *runtime.RawExtension) *unstructured.Unstructured {
	t.Helper()
	if raw == nil {
		return nil
	}
	var object unstructured.Unstructured
	must(t, json.Unmarshal(raw.Raw, &object.Object))
	return &object
}

// selected are the namespaces of the cases, with those that the cases create.
func (f *folder) selected(t *testing.T) []string {
	t.Helper()
	names := map[string]bool{}
	for i := range f.namespaces {
		names[f.namespaces[i].Name] = true
	}
	for i := range f.test.Cases {
		if object := decoded(t, f.test.Cases[i].Object); object != nil && object.GetKind() == "Namespace" {
			names[object.GetName()] = true
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// tryAll tries the cases, by Gatehouse or by the API server itself.
func (f *folder) tryAll(t *testing.T, upstream bool) {
	t.Helper()
	mark := denied
	if upstream {
		mark = "denied request: "
	}
	var some []*v1alpha1.TestCase
	for i := range f.test.Cases {
		if c := &f.test.Cases[i]; !upstream || f.isUpstream(c) {
			some = append(some, c)
		}
	}
	f.waitUntilInForce(t, some, mark, upstream)
	for _, c := range some {
		t.Run(c.Name, func(t *testing.T) {
			var given recorder
			config := f.as(c)
			config.WarningHandlerWithContext = &given
			err := f.ask(t, c, config)
			for _, warning := range c.Expect.Warnings {
				if !slices.Contains(given.list(), warning) {
					t.Errorf("got the warnings %q, want %q", given.list(), warning)
				}
			}
			err = f.compare(t, c, err, mark, upstream)
			if err != nil {
				t.Error(err)
			}
		})
	}
}

// isUpstream reports whether a case expects nothing of what only Gatehouse evaluates.
func (f *folder) isUpstream(c *v1alpha1.TestCase) bool {
	return !slices.ContainsFunc(c.Expect.Violations, func(v v1alpha1.TestViolation) bool {
		return !slices.Contains(f.upstream, *v.Policy)
	})
}

// as is the access of who asks.
func (f *folder) as(c *v1alpha1.TestCase) *rest.Config {
	config := f.Config()
	if c.User != nil {
		config.Impersonate = rest.ImpersonationConfig{UserName: c.User.Username, Groups: c.User.Groups, Extra: map[string][]string{}}
		for key, values := range c.User.Extra {
			config.Impersonate.Extra[key] = values
		}
	}
	return config
}

// waitUntilInForce waits for the first refusal of each policy.
func (f *folder) waitUntilInForce(t *testing.T, some []*v1alpha1.TestCase, mark string, upstream bool) {
	t.Helper()
	own := refusedBefore()
	seen := map[string]bool{}
	for _, c := range some {
		if len(c.Expect.Violations) == 0 || own[f.title(c)] != "" || c.Expect.Violations[0].Policy == nil || seen[*c.Expect.Violations[0].Policy] {
			continue
		}
		seen[*c.Expect.Violations[0].Policy] = true
		support.Eventually(t, "the policies are in force", func() error {
			// Until params are known, a refusal has another reason.
			return f.compare(t, c, f.ask(t, c, f.as(c)), mark, upstream)
		})
	}
	if len(seen) == 0 {
		t.Fatal("no case is refused")
	}
}

// compare compares what the API server has said with what a case expects. A refusal by policy has a mark in front.
func (f *folder) compare(t *testing.T, c *v1alpha1.TestCase, err error, mark string, upstream bool) error {
	t.Helper()
	refused, text := false, ""
	if err != nil {
		_, text, refused = strings.Cut(err.Error(), mark)
	}
	own := refusedBefore()[f.title(c)]
	switch {
	case own != "":
		if err == nil || refused || !strings.Contains(err.Error(), own) {
			return fmt.Errorf("got %w, want that the API server itself says %q", err, own)
		}
	case upstream && slices.Contains(refusedUpstream(), f.title(c)):
		if !refused {
			return fmt.Errorf("got %w, want that the API server refuses what Gatehouse admits", err)
		}
	case len(c.Expect.Violations) == 0:
		// Nobody is there to be connected to.
		if connected := isConnect(decoded(t, c.Object)); err != nil && (!connected || refused || apierrors.IsForbidden(err)) {
			return fmt.Errorf("want it to be admitted: %w", err)
		}
	case !refused:
		return fmt.Errorf("got %w, want a refusal by policy", err)
	case upstream:
		return compareFirst(c.Expect.Violations, text)
	default:
		return compareViolations(c.Expect.Violations, text)
	}
	return nil
}

// compareFirst wants one of the violations in the text of a refusal: upstream names the first alone.
func compareFirst(expected []v1alpha1.TestViolation, text string) error {
	for _, v := range expected {
		if (v.Message == nil || strings.Contains(text, *v.Message)) && (v.MessageContains == nil || strings.Contains(text, *v.MessageContains)) {
			return nil
		}
	}
	return fmt.Errorf("got %q, which is none of the violations", text)
}

// compareViolations wants all violations, and no others, in the text of a refusal.
func compareViolations(expected []v1alpha1.TestViolation, text string) error {
	count := fmt.Sprintf("%d violations:", len(expected))
	if several := strings.Contains(text, " violations:"); several != (len(expected) > 1) || several && !strings.HasPrefix(text, count) {
		return fmt.Errorf("got %q, want %s", text, count)
	}
	for _, v := range expected {
		for _, part := range []*string{v.Policy, v.Template, v.Message, v.MessageContains} {
			if part != nil && !strings.Contains(text, *part) {
				return fmt.Errorf("got %q, want %q in it", text, *part)
			}
		}
	}
	return nil
}

// ask asks the API server for what a case is about, as a dry run where there is such a thing.
func (f *folder) ask(t *testing.T, c *v1alpha1.TestCase, config *rest.Config) error {
	t.Helper()
	object, old := decoded(t, c.Object), decoded(t, c.OldObject)
	if isConnect(object) {
		return connect(t, c, object, config)
	}
	main := object
	if main == nil {
		main = old
	}
	resource, err := f.resource(config, main)
	if err != nil {
		return err
	}
	var subresources []string
	if c.SubResource != "" {
		subresources = append(subresources, c.SubResource)
	}
	switch operation(c) {
	case admissionv1.Create:
		_, err = resource.Create(t.Context(), object, dryRun)
	case admissionv1.Delete:
		err = resource.Delete(t.Context(), old.GetName(), metav1.DeleteOptions{DryRun: dryRun.DryRun})
	case admissionv1.Update:
		// What the API server has added to the old object stays.
		kind := types.StrategicMergePatchType
		var patch []byte
		if typed, unknown := scheme.Scheme.New(object.GroupVersionKind()); unknown == nil {
			patch, err = strategicpatch.CreateTwoWayMergePatch(c.OldObject.Raw, c.Object.Raw, typed)
		} else { // a custom resource
			kind = types.MergePatchType
			patch, err = jsonpatch.CreateMergePatch(c.OldObject.Raw, c.Object.Raw)
		}
		must(t, err)
		_, err = resource.Patch(t.Context(), object.GetName(), kind, patch, metav1.PatchOptions{DryRun: dryRun.DryRun}, subresources...)
	case admissionv1.Connect:
		t.Fatalf("there is nothing to connect with in %q", c.Name)
	}
	return err
}

// operation is what a case asks for.
func operation(c *v1alpha1.TestCase) admissionv1.Operation {
	switch {
	case c.Operation != "":
		return c.Operation
	case c.Object == nil:
		return admissionv1.Delete
	case c.OldObject != nil:
		return admissionv1.Update
	default:
		return admissionv1.Create
	}
}

// resource is a client for an object.
func (f *folder) resource(config *rest.Config, object *unstructured.Unstructured) (dynamic.ResourceInterface, error) {
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	gvk := object.GroupVersionKind()
	mapping, err := f.mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
	if err != nil {
		return nil, err
	}
	if object.GetNamespace() == "" {
		return client.Resource(mapping.Resource), nil
	}
	return client.Resource(mapping.Resource).Namespace(object.GetNamespace()), nil
}

func isConnect(object *unstructured.Unstructured) bool {
	return object != nil && strings.HasSuffix(object.GetKind(), "Options")
}

// connect asks for what the options of a CONNECT are for.
func connect(t *testing.T, c *v1alpha1.TestCase, options *unstructured.Unstructured, config *rest.Config) error {
	t.Helper()
	client, err := kubernetes.NewForConfig(config)
	must(t, err)
	typed, err := scheme.Scheme.New(options.GroupVersionKind())
	must(t, err)
	must(t, runtime.DefaultUnstructuredConverter.FromUnstructured(options.Object, typed))
	resource, subresource := "pods", strings.ToLower(strings.TrimSuffix(strings.TrimPrefix(options.GetKind(), "Pod"), "Options"))
	if options.GetKind() == "ServiceProxyOptions" {
		resource, subresource = "services", "proxy"
	}
	return client.CoreV1().RESTClient().Post().Namespace(c.Namespace).Resource(resource).Name(c.ObjectName).SubResource(subresource).
		VersionedParams(typed, scheme.ParameterCodec).Do(t.Context()).Error()
}
