package e2e

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/rand"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/gatehouse-dev/gatehouse/test/support"
	"github.com/gatehouse-dev/gatehouse/test/support/arbitrary"
	"github.com/gatehouse-dev/gatehouse/test/support/gatehouse"
	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
)

// compilation is what compile writes of a directory.
type compilation struct {
	Items []struct {
		Kind, Name, Rule, Status string
		Reasons                  []string
	}
	policies []*admissionregistrationv1.ValidatingAdmissionPolicy
	bindings []*admissionregistrationv1.ValidatingAdmissionPolicyBinding
}

// compileDirectory compiles a directory for the API server of the world.
func (w *world) compileDirectory(t *testing.T, directory string) *compilation {
	t.Helper()
	text, err := gatehouse.Run(t.Context(), "compile", "--config", directory, "-o", "json", "--kubernetes", fmt.Sprintf("1.%d", w.Minor(t)))
	// The exit code 1 says that something differs.
	if exit, ok := errors.AsType[*exec.ExitError](err); err != nil && (!ok || exit.ExitCode() != 1) {
		t.Fatal(err)
	}
	var out struct {
		compilation
		Documents []json.RawMessage
	}
	must(t, json.Unmarshal([]byte(text), &out))
	for _, document := range out.Documents {
		var kind metav1.TypeMeta
		must(t, json.Unmarshal(document, &kind))
		switch kind.Kind {
		case "ValidatingAdmissionPolicy":
			out.policies = append(out.policies, new(admissionregistrationv1.ValidatingAdmissionPolicy))
			must(t, json.Unmarshal(document, out.policies[len(out.policies)-1]))
		case "ValidatingAdmissionPolicyBinding":
			out.bindings = append(out.bindings, new(admissionregistrationv1.ValidatingAdmissionPolicyBinding))
			must(t, json.Unmarshal(document, out.bindings[len(out.bindings)-1]))
		}
	}
	return &out.compilation
}

// isNative reports whether the report calls the rules of a policy native that begin with a name, "" for all.
func (c *compilation) isNative(policy, rule string) bool {
	for _, item := range c.Items {
		if (item.Name == policy || strings.HasPrefix(item.Name, policy+"-")) && item.Status != "native" && (rule == "" || rule == item.Rule || strings.HasPrefix(rule, item.Rule+".")) {
			return false
		}
	}
	return true
}

// isNativeFrom is isNative of the source of a compiled policy, by its name.
func (c *compilation) isNativeFrom(name string) bool {
	for _, p := range c.policies {
		if p.Name == name {
			_, source, _ := strings.Cut(p.Annotations["gatehouse.dev/compiled-from"], "/")
			return c.isNative(source, "")
		}
	}
	return true
}

// enforce has the API server enforce what was compiled, for some namespaces alone, and waits until it does. None of it is refused. What
// has the name of a policy that is there already is in its place.
func (w *world) enforce(t *testing.T, name string, c *compilation, namespaces ...string) {
	t.Helper()
	policies, bindings := w.Client().AdmissionregistrationV1().ValidatingAdmissionPolicies(), w.Client().AdmissionregistrationV1().ValidatingAdmissionPolicyBindings()
	var group errgroup.Group // the API server compiles each, which takes long
	group.SetLimit(atATime)
	for _, p := range c.policies {
		group.Go(func() error {
			_, err := policies.Create(t.Context(), p, metav1.CreateOptions{})
			if apierrors.IsAlreadyExists(err) {
				var there *admissionregistrationv1.ValidatingAdmissionPolicy
				there, err = policies.Get(t.Context(), p.Name, metav1.GetOptions{})
				if err == nil {
					p.ResourceVersion = there.ResourceVersion
					_, err = policies.Update(t.Context(), p, metav1.UpdateOptions{})
				}
			}
			if err != nil {
				t.Errorf("the API server refuses policy %s: %v", p.Name, err)
			}
			return nil
		})
	}
	must(t, group.Wait())
	for _, b := range c.bindings {
		if len(namespaces) > 0 {
			if b.Spec.MatchResources == nil {
				b.Spec.MatchResources = &admissionregistrationv1.MatchResources{}
			}
			if b.Spec.MatchResources.NamespaceSelector == nil {
				b.Spec.MatchResources.NamespaceSelector = &metav1.LabelSelector{}
			}
			selector := b.Spec.MatchResources.NamespaceSelector
			selector.MatchExpressions = append(selector.MatchExpressions, metav1.LabelSelectorRequirement{Key: corev1.LabelMetadataName, Operator: metav1.LabelSelectorOpIn, Values: namespaces})
		}
		_, err := bindings.Create(t.Context(), b, metav1.CreateOptions{})
		if apierrors.IsAlreadyExists(err) {
			var there *admissionregistrationv1.ValidatingAdmissionPolicyBinding
			there, err = bindings.Get(t.Context(), b.Name, metav1.GetOptions{})
			must(t, err)
			b.ResourceVersion = there.ResourceVersion
			_, err = bindings.Update(t.Context(), b, metav1.UpdateOptions{})
		}
		if err != nil {
			t.Errorf("the API server refuses binding %s: %v", b.Name, err)
		}
	}
	w.waitForPolicies(t, "last-of-"+name)
}

// waitForPolicies waits until the policies and bindings that were written so far are in force: the API server learns of them in their
// order, and of the last one, which gets the name, a refusal tells.
func (w *world) waitForPolicies(t *testing.T, name string) {
	t.Helper()
	_, err := w.Client().AdmissionregistrationV1().ValidatingAdmissionPolicies().Create(t.Context(), &admissionregistrationv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
			MatchConstraints: &admissionregistrationv1.MatchResources{ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{
				RuleWithOperations: admissionregistrationv1.RuleWithOperations{
					Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
					Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"configmaps"}},
				},
			}}},
			Validations: []admissionregistrationv1.Validation{{Expression: fmt.Sprintf("object.metadata.name != %q", name), Message: "it is in force"}},
		},
	}, metav1.CreateOptions{})
	must(t, err)
	_, err = w.Client().AdmissionregistrationV1().ValidatingAdmissionPolicyBindings().Create(t.Context(), &admissionregistrationv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName: name, ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny},
		},
	}, metav1.CreateOptions{})
	must(t, err)
	support.Eventually(t, "the policies are in force", func() error {
		_, err := w.Client().CoreV1().ConfigMaps(system).Create(t.Context(), configMap(name, nil), dryRun)
		return refusal(err, 422, "it is in force")
	})
}

// tryCompiled has the API server decide the cases of the folder by what is compiled of it. Cases are as they say where the report calls
// the rules native.
func (f *folder) tryCompiled(t *testing.T, directory string) {
	t.Helper()
	c := f.compileDirectory(t, directory)
	for _, u := range slices.Concat(f.documents, f.rights) {
		if strings.Contains(u.GetKind(), "Policy") {
			continue
		}
		resource, err := f.resource(f.Config(), u)
		must(t, err)
		if _, err = resource.Create(t.Context(), u, metav1.CreateOptions{}); !apierrors.IsAlreadyExists(err) {
			must(t, err)
		}
	}
	f.enforce(t, f.name, c, f.selected(t)...)
	const mark = "denied request: "
	counts := map[string]int{}
	for i := range f.test.Cases {
		one := &f.test.Cases[i]
		t.Run(one.Name, func(t *testing.T) {
			var err error
			support.Eventually(t, "the params are known", func() error {
				if err = f.ask(t, one, f.as(one)); err != nil && strings.Contains(err.Error(), "no params found") {
					return err
				}
				return nil
			})
			isRefused := err != nil && strings.Contains(err.Error(), mark)
			isNative := !slices.ContainsFunc(one.Expect.Violations, func(v v1alpha1.TestViolation) bool {
				return v.Policy == nil || !c.isNative(*v.Policy, stringOf(v.Rule))
			})
			switch {
			case !isNative && !isRefused:
				counts["passes, as the report says"]++
			case isRefused && len(one.Expect.Violations) == 0:
				_, name, _ := strings.Cut(err.Error(), "ValidatingAdmissionPolicy '")
				name, _, _ = strings.Cut(name, "'")
				if counts["refused, as the report says"]++; c.isNativeFrom(name) {
					t.Errorf("%v, and the report calls it native", err)
				}
			case isRefused:
				counts["as Gatehouse decides"]++
				_, text, _ := strings.Cut(err.Error(), mark)
				if err := compareFirst(one.Expect.Violations, text); err != nil && !strings.Contains(text, "podSecurity.") { // whose messages name no containers
					t.Error(err)
				}
			default:
				counts["as Gatehouse decides"]++
				if err := f.compare(t, one, err, mark, false); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for _, what := range slices.Sorted(maps.Keys(counts)) {
		t.Logf("%d cases: %s", counts[what], what)
	}
}

func stringOf(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// atATime is how many requests are made at a time.
const atATime = 8

// batch are configurations that are compared together, each in two namespaces of its own.
type batch struct {
	*world
	documents []any
	requests  []batchRequest
	// names are those of the namespaces.
	names []string
}

// batchRequest is a request in a namespace of one configuration of a batch.
type batchRequest struct {
	user, resource string
	// policies begin with it.
	of, namespace string
	// object is what is created. With a patch, of which the type is given, or a deletion, it is the name alone.
	object *unstructured.Unstructured
	patch  string
	kind   types.PatchType
	delete bool
}

func (r *batchRequest) String() string {
	what := "create"
	if r.delete {
		what = "delete"
	} else if r.patch != "" {
		what = "patch with " + r.patch
	}
	text, _ := r.object.MarshalJSON() // for people
	return fmt.Sprintf("%s as %s: %s in %s: %s", what, r.user, r.resource, r.namespace, text)
}

// batchAnswer is an answer in the terms that Gatehouse and the API server share.
type batchAnswer struct {
	refused bool
	code    int32
	text    string
	// warned are the texts of warnings.
	warned string
	err    error
}

// ask makes a request.
func (b *batch) ask(ctx context.Context, clients map[string]*rest.Config, r *batchRequest) batchAnswer {
	var given recorder
	access := rest.CopyConfig(clients[r.user])
	access.WarningHandlerWithContext = &given
	client, err := dynamic.NewForConfig(access)
	if err != nil {
		return batchAnswer{err: err}
	}
	groups := map[string]schema.GroupVersion{"deployments": appsv1.SchemeGroupVersion, "cronjobs": batchv1.SchemeGroupVersion}
	resource := client.Resource(cmp.Or(groups[r.resource], corev1.SchemeGroupVersion).WithResource(r.resource)).Namespace(r.namespace)
	switch {
	case r.delete:
		err = resource.Delete(ctx, r.object.GetName(), metav1.DeleteOptions{DryRun: dryRun.DryRun})
	case r.patch != "":
		_, err = resource.Patch(ctx, r.object.GetName(), r.kind, []byte(r.patch), metav1.PatchOptions{DryRun: dryRun.DryRun})
	default:
		_, err = resource.Create(ctx, r.object, dryRun)
	}
	// Natively nobody is told what is allowed although it is wrong.
	warnings := slices.DeleteFunc(given.list(), func(warning string) bool { return strings.Contains(warning, "(allowed: ") })
	out := batchAnswer{warned: strings.Join(warnings, "\n")}
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		out.text, out.code = status.Status().Message, status.Status().Code
		out.refused = strings.Contains(out.text, "denied the request: ") || strings.Contains(out.text, "denied request: ")
	}
	if !out.refused {
		out.err = err
	}
	return out
}

// askAll makes all requests, some at a time.
func (b *batch) askAll(t *testing.T) []batchAnswer {
	t.Helper()
	clients := map[string]*rest.Config{}
	for _, user := range []string{"jane", "root"} {
		clients[user] = b.Config()
		clients[user].Impersonate = rest.ImpersonationConfig{UserName: user, Groups: []string{"system:masters", "system:authenticated"}}
	}
	out := make([]batchAnswer, len(b.requests))
	var group errgroup.Group
	group.SetLimit(atATime)
	for i := range b.requests {
		group.Go(func() error {
			out[i] = b.ask(t.Context(), clients, &b.requests[i])
			return nil
		})
	}
	must(t, group.Wait())
	for i := range out {
		if out[i].err != nil {
			t.Errorf("%s: %v", &b.requests[i], out[i].err)
		}
	}
	return out
}

// name adds the two namespaces of a configuration.
func (b *batch) name(n arbitrary.Names) {
	for _, namespace := range n.Namespaces() {
		namespace.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"}
		b.documents, b.names = append(b.documents, namespace), append(b.names, namespace.Name)
	}
}

// place makes the two namespaces of a configuration, with a pod and a Deployment in the first.
func (b *batch) place(ctx context.Context, n arbitrary.Names) error {
	for _, namespace := range n.Namespaces() {
		if err := b.createNamespace(ctx, &namespace); err != nil {
			return err
		}
	}
	containers := []corev1.Container{{Name: "app", Image: "r/app", Ports: []corev1.ContainerPort{{ContainerPort: 80, HostPort: 80}}}, {Name: "b", Image: "x"}}
	template := corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"team": "a", "bad": "x", "app": "selected"}}, Spec: corev1.PodSpec{Containers: containers}}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web-0", Labels: template.Labels}, Spec: template.Spec}
	_, err := b.Client().CoreV1().Pods(n.Shop).Create(ctx, pod, metav1.CreateOptions{})
	deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "web-0"}, Spec: appsv1.DeploymentSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "selected"}}, Template: template}}
	_, deploymentErr := b.Client().AppsV1().Deployments(n.Shop).Create(ctx, deployment, metav1.CreateOptions{})
	return errors.Join(err, deploymentErr)
}

// vary adds requests about what the policies of a configuration are about.
func (b *batch) vary(random *rand.Rand, n arbitrary.Names) {
	user := func() string { return []string{"jane", "root"}[random.Intn(2)] }
	create := func(resource string, object map[string]any) {
		b.requests = append(b.requests, batchRequest{of: n.Policy, user: user(), resource: resource, namespace: []string{n.Shop, n.Lab}[random.Intn(2)], object: &unstructured.Unstructured{Object: object}})
	}
	for range 3 {
		create("pods", arbitrary.Pod(random))
	}
	create("deployments", arbitrary.Workload("Deployment", arbitrary.Pod(random)))
	create("cronjobs", arbitrary.Workload("CronJob", arbitrary.Pod(random)))
	there := &unstructured.Unstructured{}
	there.SetName("web-0")
	for _, change := range []struct{ resource, patch string }{
		{"pods", `{"metadata":{"labels":{"team":"b"}}}`},
		{"pods", `{"metadata":{"labels":{"team":null,"skip":"b"},"annotations":{"note":"n"}}}`},
		{"pods", `{"spec":{"containers":[{"name":"app","image":"x"}]}}`},
		{"deployments", `{"spec":{"template":{"metadata":{"labels":{"team":"b"}}}}}`},
		{"deployments", `{"spec":{"replicas":3}}`},
		{"deployments", `{"spec":{"template":{"spec":{"containers":[{"name":"b","$patch":"delete"}]}}}}`},
		{"deployments", `{"spec":{"template":{"spec":{"hostNetwork":true,"containers":[{"name":"app","image":"x"}]}}}}`},
	} {
		b.requests = append(b.requests, batchRequest{of: n.Policy, user: user(), resource: change.resource, namespace: n.Shop, object: there, patch: change.patch, kind: types.StrategicMergePatchType})
	}
	b.requests = append(b.requests, batchRequest{of: n.Policy, user: user(), resource: "pods", namespace: n.Shop, object: there, delete: true})
}

// toldRules are the rules that a text says do not hold.
var toldRules = regexp.MustCompile(`rule (\d) does not hold|validations\[(?:rule-)?(\d)\]`)

// rulesIn returns the numbers of the rules that a text names, each once.
func rulesIn(text string) []string {
	var out []string
	for _, found := range toldRules.FindAllStringSubmatch(text, -1) {
		out = append(out, found[1]+found[2])
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// compareBatch returns how the API server's answer differs from Gatehouse's where the report calls the rules native.
func compareBatch(c *compilation, r *batchRequest, own, native batchAnswer) string {
	isNative := func(rule string) bool {
		return c.isNative(r.of, "validations["+rule+"]") && c.isNative(r.of, "validations[rule-"+rule+"]")
	}
	said, says := rulesIn(own.text), rulesIn(native.text)
	switch {
	case native.refused && !own.refused:
		if slices.ContainsFunc(says, isNative) || len(says) == 0 && c.isNative(r.of, "") {
			return "it alone refuses"
		}
	case own.refused && !native.refused:
		if slices.ContainsFunc(said, isNative) || len(said) == 0 && c.isNative(r.of, "") { // a failure does not name its rule
			return "it alone admits"
		}
	case own.refused && len(said) == 1 && isNative(said[0]):
		if len(says) > 0 && !slices.Equal(said, says) || own.code != native.code {
			return "it refuses by another rule, or with another code"
		}
	}
	if said, says := rulesIn(own.warned), rulesIn(native.warned); !slices.Equal(said, says) {
		// Where a condition of an exception cannot be evaluated, it says so in place of the message.
		nameless := slices.ContainsFunc(strings.Split(native.warned, "\n"), func(line string) bool { return strings.Contains(line, "resulted in error") })
		for _, rule := range slices.Concat(said, says) {
			if slices.Contains(said, rule) != slices.Contains(says, rule) && isNative(rule) && (slices.Contains(says, rule) || !nameless) {
				return "it warns of other rules"
			}
		}
	}
	return ""
}

// Of random policies with exceptions, and of those of the examples, the API server decides by what is compiled as Gatehouse decides, or the report names the rule.
func TestCompiled(t *testing.T) {
	t.Parallel()
	const configurations = 200
	w := newWorld(t)
	b := &batch{world: w}
	now := time.Now()
	var group errgroup.Group
	group.SetLimit(atATime)
	for seed := range int64(configurations) {
		n := arbitrary.Names{Policy: fmt.Sprintf("p%d", seed), Shop: fmt.Sprintf("shop-%d", seed), Lab: fmt.Sprintf("lab-%d", seed), Only: true}
		random := rand.New(rand.NewSource(seed))
		c := arbitrary.Configuration(random, n, now)
		b.name(n)
		group.Go(func() error { return b.place(t.Context(), n) })
		for _, p := range c.Policy.AdmissionPolicies {
			p.TypeMeta = metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "AdmissionPolicy"}
			b.documents = append(b.documents, p.AdmissionPolicy)
		}
		for _, x := range c.Policy.Exceptions {
			x.TypeMeta = metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "PolicyException"}
			b.documents = append(b.documents, x.PolicyException)
		}
		b.vary(random, n)
	}
	must(t, group.Wait())
	shown, err := filepath.Glob(examples + "/*")
	must(t, err)
	for i, directory := range shown {
		n := arbitrary.Names{Policy: fmt.Sprintf("ex%d", i), Shop: fmt.Sprintf("shop-ex%d", i), Lab: fmt.Sprintf("lab-ex%d", i), Only: true}
		b.addExample(t, rand.New(rand.NewSource(int64(i))), directory, n)
	}
	directory := writeDocuments(t, b.documents)
	lap := func(what string) { t.Logf("%s: %s", time.Since(now).Round(time.Second), what) }
	lap("the objects are there")
	own := b.askGatehouse(t, directory)
	lap("Gatehouse has decided")
	c := w.compileDirectory(t, directory)
	lap("the policies are compiled")
	w.enforce(t, "batch", c)
	lap("they are in force")
	native := b.askAll(t)
	lap("the API server has decided")
	refused, warned, different := 0, 0, 0
	for i := range b.requests {
		if own[i].refused {
			refused++
		}
		if own[i].warned != "" {
			warned++
		}
		if found := compareBatch(c, &b.requests[i], own[i], native[i]); found != "" {
			const most = 10
			if different++; different <= most {
				t.Errorf("%s\n%s\nGatehouse: %+v\nthe API server: %+v", found, &b.requests[i], own[i], native[i])
			}
		}
	}
	t.Logf("%d requests under %d policies, %d refused, %d with warnings, %d with a difference without a name", len(b.requests), len(c.policies), refused, warned, different)
	if refused < len(b.requests)/10 || warned < len(b.requests)/50 {
		t.Error("too few requests are refused, or warned about")
	}
}

// askGatehouse has Gatehouse serve the directory while the requests are made.
func (b *batch) askGatehouse(t *testing.T, directory string) (out []batchAnswer) {
	t.Helper()
	refuses := func() error {
		_, err := b.Client().CoreV1().Pods("watched").Create(t.Context(), pod("watched"), dryRun)
		return refusal(err, 422, "is served")
	}
	t.Run("gatehouse", func(t *testing.T) {
		must(t, b.CreateNamespace(t.Context(), "watched", nil))
		const watched = "---\n{apiVersion: gatehouse.dev/v1alpha1, kind: AdmissionPolicy, metadata: {name: watched}, spec: {validationActions: [Deny], workloadTemplates: Ignore, " +
			"matchConstraints: {resourceRules: [{apiGroups: [''], apiVersions: [v1], operations: [CREATE], resources: [pods]}]}, validations: [{expression: 'object.metadata.namespace != \"watched\"', message: is served}]}}\n"
		must(t, os.WriteFile(filepath.Join(directory, "watched.yaml"), []byte("{apiVersion: v1, kind: Namespace, metadata: {name: watched}}\n"+watched), 0o600))
		b.servePoliciesIn(t, "compiled", directory, directory, nil, append(b.names, "watched")...)
		support.Eventually(t, "the registration", refuses)
		out = b.askAll(t)
	})
	must(t, os.Remove(filepath.Join(directory, "watched.yaml")))
	support.Eventually(t, "the end of the registration", func() error {
		if refuses() == nil {
			return errNotYet
		}
		return nil
	})
	return out
}

// addExample adds the policies of an example under names of their own, for two namespaces of their own, and its objects as requests.
func (b *batch) addExample(t *testing.T, random *rand.Rand, directory string, n arbitrary.Names) {
	t.Helper()
	var all []*unstructured.Unstructured
	must(t, filepath.WalkDir(directory, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && filepath.Ext(path) == ".yaml" && !entry.IsDir() {
			all = append(all, libraryDocuments(t, path)...)
		}
		return err
	}))
	if !slices.ContainsFunc(all, func(u *unstructured.Unstructured) bool {
		return u.GetKind() == "AdmissionPolicy" || u.GetKind() == "ValidatingAdmissionPolicy"
	}) {
		return
	}
	b.name(n)
	must(t, b.place(t.Context(), n))
	own := func(u *unstructured.Unstructured, path ...string) {
		name, found, err := unstructured.NestedString(u.Object, path...)
		must(t, err)
		if found {
			must(t, unstructured.SetNestedField(u.Object, n.Policy+"-"+name, path...))
		}
	}
	here := map[string]any{"matchExpressions": []any{map[string]any{"key": corev1.LabelMetadataName, "operator": "In", "values": []any{n.Shop, n.Lab}}}}
	seen := map[string]bool{}
	for _, u := range all {
		title := u.GetKind() + "/" + u.GetName()
		switch u.GetKind() {
		case "AdmissionPolicy", "ValidatingAdmissionPolicy":
			must(t, unstructured.SetNestedMap(u.Object, here, "spec", "matchConstraints", "namespaceSelector"))
			own(u, "metadata", "name")
		case "AdmissionPolicyBinding", "ValidatingAdmissionPolicyBinding":
			own(u, "metadata", "name")
			own(u, "spec", "policyName")
			unstructured.RemoveNestedField(u.Object, "spec", "matchResources", "namespaceSelector")
			if _, found, _ := unstructured.NestedMap(u.Object, "spec", "paramRef"); found {
				must(t, unstructured.SetNestedField(u.Object, n.Shop, "spec", "paramRef", "namespace"))
			}
		case "PolicyException":
			own(u, "metadata", "name")
			policies, _, err := unstructured.NestedSlice(u.Object, "spec", "policies")
			must(t, err)
			for _, p := range policies {
				of := p.(map[string]any) //nolint:forcetypeassert // a valid exception
				of["name"] = fmt.Sprintf("%s-%s", n.Policy, of["name"])
			}
			must(t, unstructured.SetNestedSlice(u.Object, policies, "spec", "policies"))
			u.SetNamespace(system)
		case "ConfigMap":
			u.SetNamespace(n.Shop)
			_, err := b.Client().CoreV1().ConfigMaps(n.Shop).Create(t.Context(), configMap(u.GetName(), nil), metav1.CreateOptions{})
			must(t, err)
			data, _, err := unstructured.NestedStringMap(u.Object, "data")
			must(t, err)
			_, err = b.Client().CoreV1().ConfigMaps(n.Shop).Update(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: u.GetName()}, Data: data}, metav1.UpdateOptions{})
			must(t, err)
		case "Pod", "Deployment", "CronJob":
			u.SetNamespace("")
			u.SetResourceVersion("")
			b.requests = append(b.requests, batchRequest{of: n.Policy, user: "jane", resource: arbitrary.Resource(u.GetKind()), namespace: n.Shop, object: u})
			continue
		default:
			continue
		}
		if !seen[title] { // an example may show a document before and after a change
			b.documents = append(b.documents, u.Object)
		}
		seen[title] = true
	}
	b.vary(random, n)
}

// extremes are documents at the limits of the API server, and beyond them with what compile adds.
func extremes() (out []any) {
	document := func(kind, namespace, name string, spec map[string]any) {
		out = append(out, map[string]any{"apiVersion": v1alpha1.GroupVersion.String(), "kind": kind, "metadata": map[string]any{"name": name, "namespace": namespace}, "spec": spec})
	}
	rule := func(expression string) map[string]any {
		return map[string]any{"expression": expression, "message": `it says "no": ünïcode, \ and %s`}
	}
	policy := func(name string, spec map[string]any) {
		all := map[string]any{
			"validationActions": []any{"Deny"}, "validations": []any{rule(`object.spec.containers.all(c, c.image != "x")`)},
			"matchConstraints": map[string]any{"resourceRules": []any{map[string]any{"apiGroups": []any{""}, "apiVersions": []any{"v1"}, "operations": []any{"CREATE", "UPDATE"}, "resources": []any{"pods"}}}},
		}
		maps.Copy(all, spec)
		if spec["podSecurity"] != nil {
			delete(all, "validations")
		}
		out = append(out, map[string]any{"apiVersion": v1alpha1.GroupVersion.String(), "kind": "AdmissionPolicy", "metadata": map[string]any{"name": name}, "spec": all})
	}
	exception := func(name, policy string, match map[string]any, rules ...any) {
		of := map[string]any{"name": policy}
		if len(rules) > 0 {
			of["rules"] = rules
		}
		document("PolicyException", system, name, map[string]any{"reason": "because", "policies": []any{of}, "match": match})
	}
	conditions := func(n int) (list []any) {
		for i := range n {
			list = append(list, map[string]any{"name": fmt.Sprintf("c%d", i), "expression": fmt.Sprintf(`object.metadata.?labels.?l%d.orValue("") == ""`, i)})
		}
		return list
	}
	shop := map[string]any{"namespaces": []any{"shop"}}
	label := strings.Repeat
	policy(label("a", 61)+"."+label("b", 61)+"."+label("c", 61)+"."+label("d", 60), nil)
	policy("long."+label("b", 61)+"."+label("c", 61)+"."+label("d", 61)+"."+label("e", 40), nil)
	policy("long-expression", map[string]any{"validations": []any{rule(`object.metadata.?labels.?a.orValue("") != "` + label("x", 9940) + `"`)}})
	exception("long-expression", "long-expression", shop, "validations[0]")
	policy("many-conditions", map[string]any{"matchConditions": conditions(64)})
	exception("many-conditions", "many-conditions", shop)
	policy("nearly-many-conditions", map[string]any{"matchConditions": conditions(60)})
	policy("many-exceptions", nil)
	for i := range 100 {
		exception(fmt.Sprintf("nearly-%d", i), "nearly-many-conditions", map[string]any{"namespaces": []any{fmt.Sprintf("shop-%d", i)}})
		exception(fmt.Sprintf("many-%d.%s", i, label("x", 60)), "many-exceptions", map[string]any{"names": []any{fmt.Sprintf("name-%d*", i)}, "objectSelector": map[string]any{"matchLabels": map[string]any{"example.com/a": "b"}}}, "validations[0]")
	}
	policy("taken-names", map[string]any{
		"variables":       []any{map[string]any{"name": "podSecurityContainers", "expression": "1"}, map[string]any{"name": "exception_gatehouse_system_taken", "expression": "2"}},
		"matchConditions": []any{map[string]any{"name": "gatehouse-template", "expression": "true"}},
	})
	exception("taken", "taken-names", map[string]any{"matchConditions": []any{map[string]any{"name": "a", "expression": "object.spec.containers.size() == 1 // one"}}})
	policy("comments", map[string]any{
		"variables":   []any{map[string]any{"name": "v", "expression": "object.spec // the spec"}},
		"validations": []any{map[string]any{"expression": "variables.v.containers.size() > 0 // some\n// more", "message": "no", "messageExpression": "'a' + // b\n'c' // d"}},
	})
	exception("comments", "comments", map[string]any{"matchConditions": []any{map[string]any{"name": "a", "expression": "true // yes"}}}, "validations[0]")
	var annotations, rules, variables []any
	for i := range 20 {
		annotations = append(annotations, map[string]any{"key": fmt.Sprintf("k%d", i), "valueExpression": "'v'"})
	}
	for i := range 100 {
		variables = append(variables, map[string]any{"name": fmt.Sprintf("v%d", i), "expression": fmt.Sprintf("object.spec.containers.size() + %d", i)})
		rules = append(rules, map[string]any{"expression": fmt.Sprintf("variables.v%d > 0", i), "message": label("m", 5000)})
	}
	policy("annotations", map[string]any{"auditAnnotations": annotations})
	policy("many-rules", map[string]any{"variables": variables, "validations": rules})
	policy("lines", map[string]any{"validations": []any{map[string]any{"expression": "object\n.spec\n.containers.size() > 0"}}})
	for i, version := range []string{"latest", "v1.0", "v1.24"} {
		policy(fmt.Sprintf("standard-%d", i), map[string]any{"podSecurity": map[string]any{"level": "restricted", "version": version}})
	}
	exception("standard", "standard-0", map[string]any{"namespaceSelector": map[string]any{"matchLabels": map[string]any{"a": "b"}}}, "podSecurity.hostPorts")
	// An API server of 1.37 takes what one of 1.36 knows, and a list has this function from 1.37 on.
	policy("later", map[string]any{"validations": []any{rule(`object.metadata.name.split("-").includes("x")`)}})
	out = append(out, map[string]any{"apiVersion": v1alpha1.GroupVersion.String(), "kind": "PolicyConfiguration", "celCompatibilityVersion": "1.37"})
	// Binding names of several sources.
	for _, of := range []string{"lines", "comments"} {
		document("AdmissionPolicyBinding", "", of, map[string]any{"policyName": "lines", "validationActions": []any{"Warn"}})
	}
	for _, one := range out {
		if metadata, _ := one.(map[string]any)["metadata"].(map[string]any); metadata["namespace"] == "" { //nolint:forcetypeassert // see above
			delete(metadata, "namespace")
		}
	}
	return out
}

// writeDocuments writes documents to a directory of their own.
func writeDocuments(t *testing.T, documents []any) (directory string) {
	t.Helper()
	directory = t.TempDir()
	var text bytes.Buffer
	for _, document := range documents {
		line, err := json.Marshal(document)
		must(t, err)
		text.WriteString("---\n" + string(line) + "\n")
	}
	must(t, os.WriteFile(filepath.Join(directory, "documents.yaml"), text.Bytes(), 0o600))
	return directory
}

// What compile writes, the API server accepts: of the library, of the mutating policies too, and at its limits.
func TestCompiledIsAccepted(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for name, directory := range map[string]string{"the library": library, "extremes": writeDocuments(t, extremes())} {
		t.Run(name, func(t *testing.T) {
			c := w.compileDirectory(t, directory)
			for _, p := range c.policies {
				if _, err := w.Client().AdmissionregistrationV1().ValidatingAdmissionPolicies().Create(t.Context(), p, dryRun); err != nil {
					t.Errorf("%s: %v", p.Name, err)
				}
			}
			for _, b := range c.bindings {
				if _, err := w.Client().AdmissionregistrationV1().ValidatingAdmissionPolicyBindings().Create(t.Context(), b, dryRun); err != nil {
					t.Errorf("%s: %v", b.Name, err)
				}
			}
			t.Logf("%d policies, %d bindings", len(c.policies), len(c.bindings))
			if len(c.policies) < 10 || len(c.bindings) < 10 {
				t.Error("these are too few")
			}
		})
	}
}
