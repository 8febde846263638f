package convert

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/convert/pattern"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/manifest"
	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/document/diagnostic"
	rawjson "github.com/gatehouse-dev/gatehouse/webhooks/json"
)

// kyvernoTest is a kyverno-test.yaml.
type kyvernoTest struct {
	Name      string            `json:"name"`
	Metadata  metav1.ObjectMeta `json:"metadata"`
	Policies  []string          `json:"policies"`
	Resources []string          `json:"resources"`
	Variables string            `json:"variables"`
	Context   string            `json:"context"`
	UserInfo  string            `json:"userinfo"`
	Values    *kyvernoValues    `json:"values"`
	Results   []testResult      `json:"results"`
}

// testResult is what a test expects of rules and objects.
type testResult struct {
	Policy    string   `json:"policy"`
	Rule      string   `json:"rule"`
	Resource  string   `json:"resource"`
	Resources []string `json:"resources"`
	Kind      string   `json:"kind"`
	Namespace string   `json:"namespace"`
	Operation string   `json:"operation"`
	Specs     []struct {
		Kind      string `json:"kind"`
		Namespace string `json:"namespace"`
		Name      string `json:"name"`
	} `json:"resourceSpecs"`
	Result           string `json:"result"`
	Status           string `json:"status"`
	PatchedResource  string `json:"patchedResource"`
	PatchedResources string `json:"patchedResources"`
}

// kyvernoValues are the values of variables in tests.
type kyvernoValues struct {
	GlobalValues map[string]any `json:"globalValues"`
	Policies     []struct {
		Name  string `json:"name"`
		Rules []struct {
			Name   string         `json:"name"`
			Values map[string]any `json:"values"`
		} `json:"rules"`
		Resources []struct {
			Name   string         `json:"name"`
			Values map[string]any `json:"values"`
		} `json:"resources"`
	} `json:"policies"`
	Namespaces []struct {
		Metadata map[string]any `json:"metadata"`
	} `json:"namespaces"`
	NamespaceSelector []struct {
		Name   string            `json:"name"`
		Labels map[string]string `json:"labels"`
	} `json:"namespaceSelector"`
}

// ReadFile returns the objects of a file.
type ReadFile func(name string) (*manifest.File, error)

// testConverter converts a kyverno-test.yaml.
type testConverter struct {
	*converter
	source *manifest.Object
	test   kyvernoTest
	read   ReadFile
	dir    string
	// objects are the resources, and files those that were read.
	objects []*manifest.Object
	files   map[string][]*manifest.Object
	values  kyvernoValues
	user    *authenticationv1.UserInfo
	// lookups are the objects that policies in CEL look up.
	lookups struct {
		Spec struct {
			Resources []corev1.ConfigMap `json:"resources"`
		} `json:"spec"`
	}
	// skipped are expectations that have no form here.
	skipped []string
	// kept reports of each result whether it is expected in a case.
	kept []bool
}

// tests converts the Kyverno tests among objects, after their policies are converted. Files are read by their names.
func (c *converter) tests(objects []*manifest.Object, read ReadFile) {
	for _, object := range objects {
		if !IsTest(object) {
			continue
		}
		t := &testConverter{converter: c, source: object, read: read, dir: path.Dir(object.File), files: map[string][]*manifest.Object{}}
		outputs, err := t.convert()
		c.publish(object, nil, t.skipped, err)
		r := &c.out.Results[len(c.out.Results)-1]
		if r.Outputs = outputs; err == nil {
			t.report(r)
		}
	}
}

// IsTest reports whether an object is a test of Kyverno. Old ones have neither kind nor apiVersion.
func IsTest(o *manifest.Object) bool {
	kind, v := o.GroupVersionKind(), rawjson.Value(o.JSON())
	isOld := kind.Group == "" && (kind.Kind == "" || kind.Kind == "Test") && v.Get("policies").Kind() == rawjson.Array && v.Get("results").Kind() == rawjson.Array
	return isOld || kind.Group == "cli.kyverno.io" && kind.Kind == "Test"
}

// report adds the results that no case expects. A test of which nothing is left is not converted.
func (t *testConverter) report(r *Result) {
	if len(t.kept) == 0 {
		r.Problems = []Problem{problemOf(t.source, unsupported("results", "say what is expected", "a test without results"), nil)}
	}
	for i, kept := range t.kept {
		if !kept {
			r.Problems = append(r.Problems, problemOf(t.source, t.lost(i), []string{"results", fmt.Sprint(i)}))
		}
	}
	switch {
	case len(r.Outputs) == 0:
		r.Status, r.Differences = Not, nil
	case len(r.Problems) > 0:
		r.Status = Different
	}
}

// lost returns why no case expects a result.
func (t *testConverter) lost(i int) error {
	r := &t.test.Results[i]
	made := t.made(r.Policy, t.policyFiles()...)
	refused := slices.ContainsFunc(t.out.Results, func(of Result) bool { return of.Status == Not && path.Base(of.Policy) == r.Policy })
	switch {
	case len(made) == 0 && refused:
		return unsupported("policy", "see what is reported of the policy", "an expectation of the policy %q, which is not converted", r.Policy)
	case len(made) == 0:
		return unsupported("policy", cmp.Or(diagnostic.DidYouMean(r.Policy, sortedKeys(t.byPolicy)...), "convert it together with the policy"),
			"an expectation of the policy %q, which is not among the documents", r.Policy)
	case !slices.ContainsFunc(made, func(m converted) bool { return r.isAbout(&m) }):
		return unsupported("rule", "see what is reported of the policy", "an expectation of the rule %q of %q, which it does not have or which is not converted", r.Rule, r.Policy)
	case !slices.ContainsFunc(t.objects, r.names):
		return unsupported("resources", "correct the name, kind or namespace, or name the file in resources", "an expectation of %q, which is not among the resources", r.about())
	default:
		return unsupported("", "write the case by hand", "an expectation of %q that has no form in a test of Gatehouse", r.about())
	}
}

// about names the objects of a result.
func (r *testResult) about() string {
	names := append(slices.Clone(r.Resources), r.Resource)
	for _, s := range r.Specs {
		names = append(names, s.Name)
	}
	names = slices.DeleteFunc(names, func(name string) bool { return name == "" })
	return strings.TrimSpace(r.Kind + " " + strings.Join(names, ", "))
}

// isAbout reports whether a result is about a rule.
func (r *testResult) isAbout(m *converted) bool {
	return r.Rule == "" || m.rule == withoutAutogen(r.Rule) || m.rule == r.Rule
}

// policyFiles returns the files of the policies of the test, and its own if it names none.
func (t *testConverter) policyFiles() (out []string) {
	for _, name := range t.test.Policies {
		out = append(out, path.Join(t.dir, name))
	}
	if len(out) == 0 {
		out = []string{t.source.File}
	}
	return out
}

// convert converts the test, and returns what it became.
func (t *testConverter) convert() ([]string, error) {
	var outputs []string
	if err := json.Unmarshal(t.source.JSON(), &t.test); err != nil {
		return nil, unsupported("", "correct the document", "a test that cannot be read: %s", err)
	}
	for i, name := range t.test.Resources {
		f, err := t.file(name)
		if err != nil {
			return nil, unsupported(fmt.Sprintf("resources[%d]", i), "correct the path", "resources that cannot be read: %s", err)
		}
		t.objects = append(t.objects, f...)
	}
	if err := t.readValues(); err != nil {
		return nil, err
	}
	t.kept = make([]bool, len(t.test.Results))
	rules := map[string][]converted{}
	var order []string
	for i := range t.test.Results {
		name := path.Base(t.test.Results[i].Policy)
		t.test.Results[i].Policy = name
		for _, made := range t.made(name, t.policyFiles()...) {
			key := made.kind + "/" + made.name
			if made.mutates { // what is expected is the result of all rules
				key = name
			}
			order = union(order, key)
			if !slices.ContainsFunc(rules[key], func(o converted) bool { return o.rule == made.rule && o.name == made.name }) {
				rules[key] = append(rules[key], made)
			}
		}
	}
	for _, key := range order {
		name, err := t.emit(rules[key], len(order) > 1)
		if err != nil {
			return nil, err
		}
		if name != "" {
			outputs = append(outputs, "Test/"+name)
		}
	}
	return outputs, nil
}

// file returns the objects of a file that the test names.
func (t *testConverter) file(name string) ([]*manifest.Object, error) {
	if strings.Contains(name, "://") {
		return nil, fmt.Errorf("%s is no file", name)
	}
	if of, known := t.files[name]; known {
		return of, nil
	}
	f, err := t.read(path.Join(t.dir, name))
	if err != nil {
		return nil, err
	}
	t.files[name] = f.Objects
	return f.Objects, nil
}

// readValues reads the values of variables and the user.
func (t *testConverter) readValues() error {
	if t.test.Values != nil {
		t.values = *t.test.Values
	}
	var user struct {
		UserInfo *authenticationv1.UserInfo `json:"userInfo"`
	}
	for _, of := range []struct {
		field, file string
		into        any
	}{{"variables", t.test.Variables, &t.values}, {"userinfo", t.test.UserInfo, &user}, {"context", t.test.Context, &t.lookups}} {
		if of.file == "" {
			continue
		}
		objects, err := t.file(of.file)
		if err == nil && len(objects) == 0 {
			err = errors.New("it has no document")
		}
		if err == nil {
			err = json.Unmarshal(objects[0].JSON(), of.into)
		}
		if err != nil {
			return unsupported(of.field, "correct the path or file", "a file that cannot be read: %s", err)
		}
	}
	t.user = user.UserInfo
	return nil
}

// valuesOf returns the values of variables for rules and an object, or for all objects if its name is "".
func (t *testConverter) valuesOf(rules []converted, object string) map[string]any {
	out := map[string]any{}
	maps.Copy(out, t.values.GlobalValues)
	for _, p := range t.values.Policies {
		for _, r := range p.Rules {
			if slices.ContainsFunc(rules, func(c converted) bool { return c.rule == r.Name }) {
				maps.Copy(out, r.Values)
			}
		}
		for _, r := range p.Resources {
			if object == "" || r.Name == object {
				maps.Copy(out, r.Values)
			}
		}
	}
	return out
}

// emit writes the test of a policy, of which rules are what became of Kyverno's, and returns its name, "" for one without cases.
func (t *testConverter) emit(rules []converted, several bool) (string, error) {
	first := rules[0]
	name := cmp.Or(t.test.Metadata.Name, t.test.Name)
	if name == "" || several {
		name = strings.TrimPrefix(name+"-"+first.name, "-")
	}
	out := v1alpha1.Test{Metadata: v1alpha1.TestMetadata{Name: name}}
	out.APIVersion, out.Kind = v1alpha1.GroupVersion.String(), "Test"
	for _, r := range rules {
		out.Policies = union(out.Policies, r.kind+"/"+r.name)
	}
	context, err := t.context(rules)
	if err != nil {
		return "", err
	}
	out.Context = context
	var operations []string
	for i := range t.test.Results {
		operations = union(operations, t.test.Results[i].Operation)
	}
	names := map[string]int{}
	for _, object := range t.objects {
		for _, operation := range operations {
			one, ok, failed := t.testCase(object, rules, operation)
			if failed != nil {
				return "", failed
			}
			if !ok {
				continue
			}
			if names[one.Name]++; names[one.Name] > 1 {
				one.Name = fmt.Sprintf("%s (%d)", one.Name, names[one.Name])
			}
			out.Cases = append(out.Cases, *one)
		}
	}
	if len(out.Cases) == 0 {
		return "", nil
	}
	content, err := json.Marshal([]any{out.Policies, out.Context, out.Cases})
	if err != nil {
		return "", err
	}
	if first := t.first["Test"+string(content)]; first != nil {
		t.skip("the same test is made of " + placeOf(first))
		return name, nil
	}
	t.first["Test"+string(content)] = t.source
	out.Metadata.Name = t.free(out.Kind, "", name, t.source, &t.skipped)
	text, err := yaml.Marshal(out)
	if err != nil {
		return "", err
	}
	t.written[writtenKey(out.Kind, "", out.Metadata.Name)] = t.source
	t.out.Documents = append(t.out.Documents, Document{
		Kind: out.Kind, Name: out.Metadata.Name, From: title(t.source), File: t.source.File, Text: text, Test: true,
	})
	return out.Metadata.Name, nil
}

// names reports whether a result is about an object.
func (r *testResult) names(o *manifest.Object) bool {
	if _, _, kind, _ := splitKind(r.Kind); r.Kind != "" && !pattern.MatchWildcard(kind, o.Kind) {
		return false
	}
	all := r.Resources
	if r.Resource != "" {
		all = append([]string{r.Resource}, all...)
	}
	for _, s := range r.Specs {
		if (s.Kind == "" || s.Kind == o.Kind) && (s.Name == "" || s.Name == o.Name) && (s.Namespace == "" || s.Namespace == o.Namespace) {
			return true
		}
	}
	if len(all)+len(r.Specs) == 0 {
		return true
	}
	return slices.ContainsFunc(all, func(name string) bool {
		namespace, rest, found := strings.Cut(name, "/")
		if !found {
			return name == o.Name && (r.Namespace == "" || r.Namespace == o.Namespace)
		}
		return rest == o.Name && (namespace == o.Namespace || o.Namespace == "" && namespace == "default")
	})
}

// testCase returns the case about an operation with an object, and false if nothing is expected of it.
func (t *testConverter) testCase(o *manifest.Object, rules []converted, operation string) (_ *v1alpha1.TestCase, ok bool, _ error) {
	var about []int
	defer func() {
		for _, i := range about {
			t.kept[i] = t.kept[i] || ok
		}
	}()
	listed := map[string]bool{}
	failing := []v1alpha1.TestViolation{}
	var patched *manifest.Object
	mutates, fails, exact := rules[0].mutates, false, true
	for i := range t.test.Results {
		r := &t.test.Results[i]
		if r.Operation != operation || !r.names(o) {
			continue
		}
		result := strings.ToLower(r.Result + r.Status)
		of := slices.DeleteFunc(slices.Clone(rules), func(c converted) bool { return !r.isAbout(&c) })
		if len(of) == 0 || !slices.ContainsFunc(t.byPolicy[r.Policy], func(c converted) bool { return c.name == of[0].name }) {
			continue
		}
		about = append(about, i)
		for _, rule := range of {
			if listed[rule.rule] {
				continue
			}
			listed[rule.rule] = true
			if result == "fail" || result == "error" || result == "warn" {
				fails = true
				if exact = exact && len(rule.rules) == 1; exact {
					policy, name := rule.name, rule.rules[0]
					failing = append(failing, v1alpha1.TestViolation{Policy: &policy, Rule: &name})
				}
			}
		}
		if file := r.PatchedResource + r.PatchedResources; file != "" && result == "pass" {
			found, err := t.patchedObject(file, o)
			if err != nil {
				return nil, false, unsupported(fmt.Sprintf("results[%d]", i), "correct the path", "an expected object that cannot be read: %s", err)
			}
			if patched = found; found == nil {
				t.skip(fmt.Sprintf("%s has no object that is expected of %s", file, title(o)))
				return nil, false, nil
			}
		}
	}
	if len(listed) == 0 {
		return nil, false, nil
	}
	one := &v1alpha1.TestCase{Name: strings.TrimSpace(o.Kind + " " + o.Name + " " + operation), User: t.user}
	t.request(o, rules, operation, one)
	if mutates {
		if fails {
			return nil, false, nil // Kyverno compares a result, which is expected to differ
		}
		if resources().Of(o.GroupVersionKind()).Guessed {
			t.skip("the test needs the CustomResourceDefinition of " + o.Kind)
			return nil, false, nil
		}
		if patched != nil && patched.Kind == "Pod" && bytes.Contains(patched.JSON(), []byte(`"tolerations"`)) {
			t.skip("tolerations are not compared: the API server adds its own")
		}
		expectObject(one, patched)
		return one, true, nil
	}
	noInjection := false
	one.Inject = &noInjection
	exact = exact && !slices.ContainsFunc(rules, func(r converted) bool { return !listed[r.rule] })
	t.expect(one, rules[0].audit, exact, failing, fails)
	if one.Expect.Verdict == "" && one.Expect.Violations == nil && one.Expect.Audited == nil {
		t.skip(fmt.Sprintf("nothing is expected of %s by rules that are not tested with it", title(o)))
		return nil, false, nil
	}
	return one, true, nil
}

// withoutAutogen returns the name of the rule that Kyverno made a rule of.
func withoutAutogen(rule string) string {
	return strings.TrimPrefix(strings.TrimPrefix(rule, "autogen-cronjob-"), "autogen-")
}

func (t *testConverter) skip(text string) { t.skipped = union(t.skipped, text) }

// expect sets the expected violations. They are not exact if it is not known what rules do that the test does not name, or which
// expression of a rule is violated.
func (t *testConverter) expect(one *v1alpha1.TestCase, audit, exact bool, failing []v1alpha1.TestViolation, fails bool) {
	switch {
	case audit && exact:
		one.Expect.Audited = failing
	case audit:
	case exact:
		one.Expect.Violations = failing
	case fails:
		one.Expect.Verdict = v1alpha1.TestDenied
	}
}

// request sets the request of a case.
func (t *testConverter) request(o *manifest.Object, rules []converted, operation string, one *v1alpha1.TestCase) {
	raw := &runtime.RawExtension{Raw: bytes.Clone(o.JSON())}
	values := t.valuesOf(rules, o.Name)
	if text, ok := values["request.operation"].(string); ok {
		operation = cmp.Or(operation, text)
	}
	if text, ok := values["request.namespace"].(string); ok && o.Namespace == "" {
		one.Namespace = text
	}
	if name, ok := values["serviceAccountName"].(string); ok {
		one.User = &authenticationv1.UserInfo{Username: "system:serviceaccount:" + cmp.Or(o.Namespace, "default") + ":" + name}
	}
	one.Object = raw
	switch of := admissionv1.Operation(operation); of { //nolint:exhaustive // others are creations
	case admissionv1.Update:
		known := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: o.Name, Namespace: o.Namespace}}
		known.SetGroupVersionKind(o.GroupVersionKind())
		one.Operation, one.OldObject = of, &runtime.RawExtension{Object: known}
	case admissionv1.Delete:
		one.Operation, one.Object, one.OldObject = of, nil, raw
	}
}

// context returns the namespaces and params that the test defines.
func (t *testConverter) context(rules []converted) ([]runtime.RawExtension, error) {
	var objects []any
	for _, metadata := range t.namespaces(rules) {
		objects = append(objects, map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
	}
	done := map[configMapReference]bool{}
	for _, rule := range rules {
		if rule.params == nil || done[*rule.params] {
			continue
		}
		done[*rule.params] = true
		metadata := map[string]any{"name": rule.params.Name, "namespace": cmp.Or(rule.params.Namespace, "default")}
		objects = append(objects, map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": t.paramData(rule)})
	}
	out := make([]runtime.RawExtension, len(objects))
	var errs []error
	for i, o := range objects {
		raw, err := json.Marshal(o)
		out[i].Raw, errs = raw, append(errs, err)
	}
	return out, errors.Join(errs...)
}

// namespaces returns the metadata of the namespaces that the test defines, or that its objects are in if a policy needs them.
func (t *testConverter) namespaces(rules []converted) []map[string]any {
	all := map[string]map[string]any{}
	for _, n := range t.values.Namespaces {
		if name, _ := n.Metadata["name"].(string); name != "" {
			all[name] = n.Metadata
		}
	}
	for _, n := range t.values.NamespaceSelector {
		if n.Name != "" {
			all[n.Name] = map[string]any{"name": n.Name, "labels": n.Labels}
		}
	}
	if slices.ContainsFunc(rules, func(r converted) bool { return r.namespace }) {
		for _, o := range t.objects {
			name := cmp.Or(o.Namespace, "default")
			if all[name] == nil {
				all[name] = map[string]any{"name": name}
			}
		}
	}
	for _, rule := range rules {
		for variable, path := range rule.ofNamespace {
			if value, ok := t.valuesOf([]converted{rule}, "")[variable].(string); ok {
				for _, metadata := range all {
					metadata[path[0]] = map[string]any{path[1]: value}
				}
			}
		}
	}
	var out []map[string]any
	for _, name := range sortedKeys(all) {
		out = append(out, all[name])
	}
	return out
}

// paramData returns the data of a ConfigMap, from values such as NAME.data.KEY.
func (t *testConverter) paramData(rule converted) map[string]string {
	data := map[string]string{}
	for _, o := range t.lookups.Spec.Resources {
		if o.Kind == "ConfigMap" && o.Name == rule.params.Name && cmp.Or(o.Namespace, "default") == cmp.Or(rule.params.Namespace, "default") {
			maps.Copy(data, o.Data)
		}
	}
	for name, value := range t.valuesOf([]converted{rule}, "") {
		_, key, ok := strings.Cut(name, ".data.")
		if text, isText := value.(string); ok && isText {
			data[strings.Trim(key, `"`)] = text
		} else if raw, err := json.Marshal(value); ok && err == nil {
			data[strings.Trim(key, `"`)] = string(raw)
		}
	}
	return data
}

// patchedObject returns the expected object of a file.
func (t *testConverter) patchedObject(file string, o *manifest.Object) (*manifest.Object, error) {
	all, err := t.file(file)
	if err != nil {
		return nil, err
	}
	for _, p := range all {
		if p.Kind == o.Kind && p.Name == o.Name && (p.Namespace == o.Namespace || p.Namespace == "" || o.Namespace == "") {
			return p, nil
		}
	}
	return nil, nil
}

// expectObject sets the object that a mutation makes, or that nothing changes.
func expectObject(one *v1alpha1.TestCase, patched *manifest.Object) {
	if patched == nil {
		one.Expect.Patch = []v1alpha1.TestOperation{}
		return
	}
	one.Expect.Object = &runtime.RawExtension{Raw: bytes.Clone(patched.JSON())}
	var pod map[string]any
	if err := json.Unmarshal(patched.JSON(), &pod); err == nil && patched.Kind == "Pod" {
		unstructured.RemoveNestedField(pod, "spec", "tolerations")
		one.Expect.Object = &runtime.RawExtension{Object: &unstructured.Unstructured{Object: pod}}
	}
}
