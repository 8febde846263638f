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

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/convert/pattern"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/manifest"
	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/document/diagnostic"
	rawjson "github.com/gatehouse-dev/gatehouse/webhooks/json"
)

// kyvernoTest is a kyverno-test.yaml. Its fields are found by their names in any case.
type kyvernoTest struct {
	Name                string
	Metadata            metav1.ObjectMeta
	Policies, Resources []string
	// Variables, Context and UserInfo are files, of which the first has Values.
	Variables, Context, UserInfo string
	Values                       kyvernoValues
	Results                      []testResult
}

// testResult is what a test expects of rules and objects, with the fields of all versions.
type testResult struct {
	Policy, Rule, Kind, Namespace, Operation string
	Result, Status                           string
	PatchedResource, PatchedResources        string
	Resource                                 string
	Resources                                []string
	ResourceSpecs                            []objectName
}

// objectName names objects. What is empty is any.
type objectName struct{ Kind, Namespace, Name string }

// normalize makes a result one of the last version, with ResourceSpecs, Result and PatchedResource.
func (r *testResult) normalize() {
	r.Operation, r.Result, r.PatchedResource = strings.ToUpper(r.Operation), strings.ToLower(r.Result+r.Status), r.PatchedResource+r.PatchedResources
	for _, name := range append(r.Resources, r.Resource) {
		of := objectName{Namespace: r.Namespace, Name: name}
		if namespace, rest, found := strings.Cut(name, "/"); found {
			of.Namespace, of.Name = namespace, rest
		}
		if name != "" {
			r.ResourceSpecs = append(r.ResourceSpecs, of)
		}
	}
}

// names reports whether a result is about an object.
func (r *testResult) names(o *manifest.Object) bool {
	_, _, kind, _ := splitKind(r.Kind)
	return (r.Kind == "" || pattern.MatchWildcard(kind, o.Kind)) && (len(r.ResourceSpecs) == 0 || slices.ContainsFunc(r.ResourceSpecs, func(s objectName) bool {
		return (s.Kind == "" || s.Kind == o.Kind) && (s.Name == "" || s.Name == o.Name) && (s.Namespace == "" || s.Namespace == cmp.Or(o.Namespace, metav1.NamespaceDefault))
	}))
}

// isKnown reports whether a result says what is expected.
func (r *testResult) isKnown() bool {
	return slices.Contains([]string{"pass", "fail", "skip", "warn", "error"}, r.Result)
}

// about names the objects of a result.
func (r *testResult) about() string {
	var names []string
	for _, s := range r.ResourceSpecs {
		names = append(names, strings.TrimPrefix(s.Namespace+"/"+s.Name, "/"))
	}
	return strings.TrimSpace(r.Kind + " " + strings.Join(names, ", "))
}

// means reports whether a result names a policy, perhaps with its namespace.
func (r *testResult) means(o *manifest.Object) bool {
	return r.Policy == o.Name || r.Policy == cmp.Or(o.Namespace, metav1.NamespaceDefault)+"/"+o.Name
}

// isAbout reports whether a result is about a rule.
func (r *testResult) isAbout(m converted) bool {
	return r.means(m.of) && (r.Rule == "" || m.rule == withoutAutogen(r.Rule) || m.rule == r.Rule)
}

// kyvernoValues are the values of variables in tests.
type kyvernoValues struct {
	GlobalValues map[string]any
	Policies     []struct {
		Name             string
		Rules, Resources []namedValues
	}
	Namespaces, NamespaceSelector []namedValues
}

// namedValues are those of a rule or an object, or of a namespace, which has Metadata or a Name with Labels.
type namedValues struct {
	Name             string
	Values, Metadata map[string]any
	Labels           map[string]string
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
	// policyFiles are the files of the policies of the test, and its own if it names none.
	policyFiles []string
	// objects are the resources, and files those that were read.
	objects []*manifest.Object
	files   map[string][]*manifest.Object
	user    struct{ UserInfo *authenticationv1.UserInfo }
	// lookups are the objects that policies in CEL look up.
	lookups struct {
		Spec struct{ Resources []corev1.ConfigMap }
	}
	// skipped are expectations that have no form here, and outputs what the test became.
	skipped, outputs []string
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
		err := t.convert()
		if c.publish(object, nil, t.skipped, err) {
			t.report(&c.out.Results[len(c.out.Results)-1])
		}
	}
}

// IsTest reports whether an object is a test of Kyverno. Old ones have neither kind nor apiVersion.
func IsTest(o *manifest.Object) bool {
	kind, v := o.GroupVersionKind(), rawjson.Value(o.JSON())
	isOld := kind.Group == "" && (kind.Kind == "" || kind.Kind == "Test") && v.Get("policies").Kind() == rawjson.Array && v.Get("results").Kind() == rawjson.Array
	return isOld || kind.Group == "cli.kyverno.io" && kind.Kind == "Test"
}

// report adds what the test became, and the results that no case expects. A test of which nothing is left is not converted.
func (t *testConverter) report(r *Result) {
	r.Outputs = t.outputs
	if len(t.kept) == 0 {
		r.Problems = []Problem{problemOf(t.source, unsupported("results", "say what is expected", "a test without results"), nil)}
	}
	for i, kept := range t.kept {
		if !kept {
			r.Problems = append(r.Problems, problemOf(t.source, t.lost(&t.test.Results[i]), []string{"results", fmt.Sprint(i)}))
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
func (t *testConverter) lost(r *testResult) error {
	made := t.made(r.Policy, r.means, t.policyFiles...)
	switch {
	case !r.isKnown():
		return unsupported("result", "write pass, fail, skip, warn or error", "the result %q", r.Result)
	case len(made) == 0 && len(t.named[path.Base(r.Policy)]) > 0:
		return unsupported("policy", "see what is reported of the policy", "an expectation of the policy %q, which is not converted", r.Policy)
	case len(made) == 0:
		return unsupported("policy", cmp.Or(diagnostic.DidYouMean(r.Policy, sortedKeys(t.named)...), "convert it together with the policy"),
			"an expectation of the policy %q, which is not among the documents", r.Policy)
	case !slices.ContainsFunc(made, r.isAbout):
		return unsupported("rule", "see what is reported of the policy", "an expectation of the rule %q of %q, which it does not have or which is not converted", r.Rule, r.Policy)
	case !slices.ContainsFunc(t.objects, r.names):
		return unsupported("resources", "correct the name, kind or namespace, or name the file in resources", "an expectation of %q, which is not among the resources", r.about())
	default:
		return unsupported("", "write the case by hand", "an expectation of %q that has no form in a test of Gatehouse", r.about())
	}
}

// convert converts the test.
func (t *testConverter) convert() error {
	if err := json.Unmarshal(t.source.JSON(), &t.test); err != nil {
		return unsupported("", "correct the document", "a test that cannot be read: %s", err)
	}
	for i, name := range t.test.Resources {
		f, err := t.file(name)
		if err != nil {
			return unsupported(fmt.Sprintf("resources[%d]", i), "correct the path", "resources that cannot be read: %s", err)
		}
		t.objects = append(t.objects, f...)
	}
	if err := t.readValues(); err != nil {
		return err
	}
	for _, name := range t.test.Policies {
		t.policyFiles = append(t.policyFiles, path.Join(t.dir, name))
	}
	if len(t.policyFiles) == 0 {
		t.policyFiles = []string{t.source.File}
	}
	t.kept = make([]bool, len(t.test.Results))
	rules := map[string][]converted{}
	var order []string
	for i := range t.test.Results {
		r := &t.test.Results[i]
		r.normalize()
		for _, made := range t.made(r.Policy, r.means, t.policyFiles...) {
			key := made.kind + "/" + made.name
			if made.mutates { // what is expected is the result of all rules
				key = r.Policy
			}
			order = union(order, key)
			if !slices.ContainsFunc(rules[key], func(o converted) bool { return o.name == made.name }) {
				rules[key] = append(rules[key], made)
			}
		}
	}
	for _, key := range order {
		if err := t.emit(rules[key], len(order) > 1); err != nil {
			return err
		}
	}
	return nil
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

// readValues reads the values of variables, the user, and what policies look up.
func (t *testConverter) readValues() error {
	for _, of := range []struct {
		field, file string
		into        any
	}{{"variables", t.test.Variables, &t.test.Values}, {"userinfo", t.test.UserInfo, &t.user}, {"context", t.test.Context, &t.lookups}} {
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
	return nil
}

// valuesOf returns the values of variables for rules and an object, or for all objects if its name is "".
func (t *testConverter) valuesOf(rules []converted, object string) map[string]any {
	out := map[string]any{}
	maps.Copy(out, t.test.Values.GlobalValues)
	for _, p := range t.test.Values.Policies {
		if !slices.ContainsFunc(rules, func(c converted) bool { return c.of.Name == path.Base(p.Name) }) {
			continue
		}
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

// testParts are the parts of a Test that have no spec.
type testParts struct {
	Policies []string               `json:"policies"`
	Context  []runtime.RawExtension `json:"context,omitempty"`
	Cases    []v1alpha1.TestCase    `json:"cases"`
}

// emit writes the test of a policy, of which rules are what became of Kyverno's, if it has cases.
func (t *testConverter) emit(rules []converted, several bool) error {
	name := cmp.Or(t.test.Metadata.Name, t.test.Name)
	if name == "" || several {
		name = strings.TrimPrefix(name+"-"+rules[0].name, "-")
	}
	out := testParts{Context: t.context(rules)}
	for _, r := range rules {
		out.Policies = union(out.Policies, r.kind+"/"+r.name)
	}
	var operations []string
	for i := range t.test.Results {
		operations = union(operations, t.test.Results[i].Operation)
	}
	names := map[string]int{}
	for _, object := range t.objects {
		for _, operation := range operations {
			one, about, err := t.testCase(object, rules, operation)
			if err != nil {
				return err
			}
			if one == nil {
				continue
			}
			for _, i := range about {
				t.kept[i] = true
			}
			if names[one.Name]++; names[one.Name] > 1 {
				one.Name = fmt.Sprintf("%s (%d)", one.Name, names[one.Name])
			}
			out.Cases = append(out.Cases, *one)
		}
	}
	content, err := json.Marshal(out)
	if err != nil || len(out.Cases) == 0 {
		return err
	}
	outputs := []string{"Test/" + name}
	if first := t.first["Test"+string(content)]; first != nil {
		t.skip("the same test is made of " + placeOf(first.Object))
	} else {
		t.first["Test"+string(content)] = &source{Object: t.source}
		outputs, err = t.write(t.source, []*object{{v1alpha1.GroupVersion.String(), "Test", metav1.ObjectMeta{Name: name}, nil, &out}}, &t.skipped)
	}
	t.outputs = append(t.outputs, outputs...)
	return err
}

func (t *testConverter) skip(text string) { t.skipped = union(t.skipped, text) }

// testCase returns the case about an operation with an object, and the results that it expects, and nil if there is none.
func (t *testConverter) testCase(o *manifest.Object, rules []converted, operation string) (_ *v1alpha1.TestCase, about []int, _ error) {
	var patched *manifest.Object
	listed, failing := map[string]bool{}, []v1alpha1.TestViolation{}
	fails, exact := false, true // not if it is not known what other rules do, or which expression of a rule is violated
	for i := range t.test.Results {
		r := &t.test.Results[i]
		if !r.isKnown() || r.Operation != operation || !r.names(o) || !slices.ContainsFunc(rules, r.isAbout) {
			continue
		}
		about = append(about, i)
		for _, rule := range rules {
			if listed[rule.rule] || !r.isAbout(rule) {
				continue
			}
			listed[rule.rule] = true
			if r.Result == "fail" || r.Result == "error" || r.Result == "warn" {
				if fails, exact = true, exact && len(rule.rules) == 1; exact {
					failing = append(failing, v1alpha1.TestViolation{Policy: new(rule.name), Rule: new(rule.rules[0])})
				}
			}
		}
		if r.PatchedResource == "" || r.Result != "pass" {
			continue
		}
		all, err := t.file(r.PatchedResource)
		if err != nil {
			return nil, nil, unsupported(fmt.Sprintf("results[%d]", i), "correct the path", "an expected object that cannot be read: %s", err)
		}
		at := slices.IndexFunc(all, func(p *manifest.Object) bool {
			return p.Kind == o.Kind && p.Name == o.Name && (p.Namespace == o.Namespace || p.Namespace == "" || o.Namespace == "")
		})
		if at < 0 {
			t.skip(fmt.Sprintf("%s has no object that is expected of %s", r.PatchedResource, title(o)))
			return nil, nil, nil
		}
		patched = all[at]
	}
	mutates := rules[0].mutates
	if len(about) == 0 || mutates && fails { // Kyverno compares a result, which is expected to differ
		return nil, nil, nil
	}
	one := &v1alpha1.TestCase{Name: strings.TrimSpace(o.Kind + " " + o.Name + " " + operation), User: t.user.UserInfo}
	t.request(o, rules, operation, one)
	if mutates {
		if resources().Of(o.GroupVersionKind()).Guessed {
			t.skip("the test needs the CustomResourceDefinition of " + o.Kind)
			return nil, nil, nil
		}
		return one, about, t.expectObject(one, patched)
	}
	one.Inject = new(false)
	audit := rules[0].audits()
	switch exact = exact && !slices.ContainsFunc(rules, func(r converted) bool { return !listed[r.rule] }); {
	case exact && audit:
		one.Expect.Audited = failing
	case exact:
		one.Expect.Violations = failing
	case fails && !audit:
		one.Expect.Verdict = v1alpha1.TestDenied
	default:
		t.skip(fmt.Sprintf("nothing is expected of %s by rules that are not tested with it", title(o)))
		return nil, nil, nil
	}
	return one, about, nil
}

// withoutAutogen returns the name of the rule that Kyverno made a rule of.
func withoutAutogen(rule string) string {
	return strings.TrimPrefix(strings.TrimPrefix(rule, "autogen-cronjob-"), "autogen-")
}

// request sets the request of a case.
func (t *testConverter) request(o *manifest.Object, rules []converted, operation string, one *v1alpha1.TestCase) {
	raw := &runtime.RawExtension{Raw: bytes.Clone(o.JSON())}
	values := t.valuesOf(rules, o.Name)
	text := func(name string) string {
		value, _ := values[name].(string)
		return value
	}
	if o.Namespace == "" {
		one.Namespace = text("request.namespace")
	}
	if name := text("serviceAccountName"); name != "" {
		one.User = &authenticationv1.UserInfo{Username: "system:serviceaccount:" + cmp.Or(o.Namespace, metav1.NamespaceDefault) + ":" + name}
	}
	one.Object = raw
	switch of := admissionv1.Operation(cmp.Or(operation, text("request.operation"))); of { //nolint:exhaustive // others are creations
	case admissionv1.Update:
		known := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: o.Name, Namespace: o.Namespace}}
		known.SetGroupVersionKind(o.GroupVersionKind())
		one.Operation, one.OldObject = of, &runtime.RawExtension{Object: known}
	case admissionv1.Delete:
		one.Operation, one.Object, one.OldObject = of, nil, raw
	}
}

// context returns the namespaces and params that the test defines.
func (t *testConverter) context(rules []converted) (out []runtime.RawExtension) {
	add := func(kind string, metadata map[string]any, data map[string]string) {
		object := map[string]any{"apiVersion": "v1", "kind": kind, "metadata": metadata}
		if data != nil {
			object["data"] = data
		}
		out = append(out, runtime.RawExtension{Object: &unstructured.Unstructured{Object: object}})
	}
	namespaces := t.namespaces(rules)
	for _, name := range sortedKeys(namespaces) {
		add("Namespace", namespaces[name], nil)
	}
	done := map[configMapReference]bool{}
	for _, rule := range rules {
		if rule.params != nil && !done[*rule.params] {
			done[*rule.params] = true
			add("ConfigMap", map[string]any{"name": rule.params.Name, "namespace": cmp.Or(rule.params.Namespace, metav1.NamespaceDefault)}, t.paramData(rule))
		}
	}
	return out
}

// namespaces returns the metadata of the namespaces that the test defines, or that its objects are in if a policy needs them.
func (t *testConverter) namespaces(rules []converted) map[string]map[string]any {
	all := map[string]map[string]any{}
	for _, n := range t.test.Values.Namespaces {
		name, _ := n.Metadata["name"].(string)
		all[name] = n.Metadata
	}
	for _, n := range t.test.Values.NamespaceSelector {
		all[n.Name] = map[string]any{"name": n.Name, "labels": n.Labels}
	}
	delete(all, "")
	if slices.ContainsFunc(rules, func(r converted) bool { return r.namespace }) {
		for _, o := range t.objects {
			name := cmp.Or(o.Namespace, metav1.NamespaceDefault)
			if all[name] == nil {
				all[name] = map[string]any{"name": name}
			}
		}
	}
	for _, rule := range rules {
		for _, variable := range sortedKeys(rule.ofNamespace) {
			path := rule.ofNamespace[variable]
			if value, ok := t.valuesOf([]converted{rule}, "")[variable].(string); ok {
				for _, metadata := range all {
					metadata[path[0]] = map[string]any{path[1]: value}
				}
			}
		}
	}
	return all
}

// paramData returns the data of a ConfigMap, from values such as NAME.data.KEY, or NAME with data.
func (t *testConverter) paramData(rule converted) map[string]string {
	data := map[string]string{}
	for _, o := range t.lookups.Spec.Resources {
		if o.Kind == "ConfigMap" && o.Name == rule.params.Name && cmp.Or(o.Namespace, metav1.NamespaceDefault) == cmp.Or(rule.params.Namespace, metav1.NamespaceDefault) {
			maps.Copy(data, o.Data)
		}
	}
	values := t.valuesOf([]converted{rule}, "")
	for _, name := range sortedKeys(values) {
		object, _ := values[name].(map[string]any)
		of, _ := object["data"].(map[string]any)
		if _, key, ok := strings.Cut(name, ".data."); ok {
			of = map[string]any{strings.Trim(key, `"`): values[name]}
		}
		for key, value := range of {
			text, isText := value.(string)
			if raw, err := json.Marshal(value); !isText && err == nil {
				text = string(raw)
			}
			data[key] = text
		}
	}
	return data
}

// expectObject sets the object that a mutation makes, or that nothing changes.
func (t *testConverter) expectObject(one *v1alpha1.TestCase, patched *manifest.Object) error {
	if patched == nil {
		one.Expect.Patch = []v1alpha1.TestOperation{}
		return nil
	}
	one.Expect.Object = &runtime.RawExtension{Raw: bytes.Clone(patched.JSON())}
	if patched.Kind != "Pod" || !bytes.Contains(patched.JSON(), []byte(`"tolerations"`)) {
		return nil
	}
	t.skip("tolerations are not compared: the API server adds its own")
	var pod unstructured.Unstructured
	err := json.Unmarshal(patched.JSON(), &pod.Object)
	unstructured.RemoveNestedField(pod.Object, "spec", "tolerations")
	one.Expect.Object = &runtime.RawExtension{Object: &pod}
	return err
}
