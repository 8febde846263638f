package lint_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/lint"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy"
)

// now returns the time of every test.
func now() time.Time { return time.Date(2026, time.November, 20, 12, 0, 0, 0, time.UTC) }

// context is what the documents of a test hold besides policies.
type context []*unstructured.Unstructured

func (context) Namespace(string) (*corev1.Namespace, bool) { return nil, false }

func (context) Namespaced(gvk schema.GroupVersionKind) (bool, error) {
	return !slices.Contains([]string{"Namespace", "Node", "PersistentVolume"}, gvk.Kind), nil
}

func (context) Get(schema.GroupVersionKind, string, string) (*unstructured.Unstructured, error) {
	return nil, nil //nolint:nilnil // there is none, as the interface says
}

func (c context) List(gvk schema.GroupVersionKind, _ string, _ labels.Selector) ([]*unstructured.Unstructured, error) {
	var out []*unstructured.Unstructured
	for _, u := range c {
		if u.GroupVersionKind() == gvk {
			out = append(out, u)
		}
	}
	return out, nil
}

// read returns the input that documents hold.
func read(t *testing.T, source, documents string) lint.Input {
	t.Helper()
	in := lint.Input{Now: now()}
	var others context
	for document := range strings.SplitSeq(documents, "\n---\n") {
		var meta metav1.TypeMeta
		decode(t, document, &meta, false)
		switch meta.Kind {
		case "ValidatingAdmissionPolicy":
			p := policy.Policy{Source: source}
			decode(t, document, &p.ValidatingAdmissionPolicy, true)
			in.Policy.Policies = append(in.Policy.Policies, p)
		case "AdmissionPolicy":
			p := policy.AdmissionPolicy{Source: source}
			decode(t, document, &p.AdmissionPolicy, true)
			in.Policy.AdmissionPolicies = append(in.Policy.AdmissionPolicies, p)
		case "ValidatingAdmissionPolicyBinding":
			b := policy.Binding{Source: source}
			decode(t, document, &b.ValidatingAdmissionPolicyBinding, true)
			in.Policy.Bindings = append(in.Policy.Bindings, b)
		case "AdmissionPolicyBinding":
			b := policy.AdmissionPolicyBinding{Source: source}
			decode(t, document, &b.AdmissionPolicyBinding, true)
			in.Policy.AdmissionPolicyBindings = append(in.Policy.AdmissionPolicyBindings, b)
		case "PolicyException":
			e := policy.Exception{Source: source}
			decode(t, document, &e.PolicyException, true)
			in.Policy.Exceptions = append(in.Policy.Exceptions, e)
		case "PolicyConfiguration":
			in.Policy.Configuration = new(policy.Configuration)
			decode(t, document, &in.Policy.Configuration.PolicyConfiguration, true)
		case "Namespace":
			n := new(corev1.Namespace)
			decode(t, document, n, true)
			in.Namespaces = append(in.Namespaces, n)
		default:
			u := new(unstructured.Unstructured)
			decode(t, document, &u.Object, false)
			others = append(others, u)
		}
	}
	in.Policy.Objects = others
	return in
}

func decode(t *testing.T, document string, into any, strict bool) {
	t.Helper()
	var options []yaml.JSONOpt
	if strict {
		options = append(options, yaml.DisallowUnknownFields)
	}
	if err := yaml.Unmarshal([]byte(document), into, options...); err != nil {
		t.Fatalf("%v in\n%s", err, document)
	}
}

// lint is the diagnostics about documents, one a line.
func lintText(t *testing.T, documents string) string {
	t.Helper()
	found, err := lint.Lint(read(t, "", documents))
	must(t, err)
	lines := make([]string, len(found))
	for i, f := range found {
		if f.Severity != "warning" || f.Code == "" {
			t.Errorf("diagnostic without code, or no warning: %+v", f)
		}
		lines[i] = f.String()
	}
	return strings.Join(lines, "\n")
}

// with returns a ValidatingAdmissionPolicy on pods with more of a spec.
func with(rule, spec string) string {
	if rule == "" {
		rule = "{apiGroups: [''], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [pods]}"
	}
	return "apiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingAdmissionPolicy\nmetadata: {name: p}\nspec:\n  matchConstraints: {resourceRules: [" +
		rule + "]}\n  " + strings.ReplaceAll(strings.TrimSpace(spec), "\n", "\n  ") + "\n"
}

// validations are expressions as validations that nothing else is wrong with.
func validations(expressions ...string) string {
	var b strings.Builder
	b.WriteString("validations:\n")
	for _, e := range expressions {
		b.WriteString("- {message: m, expression: \"" + strings.ReplaceAll(e, `"`, `\"`) + "\"}\n")
	}
	return b.String()
}

// TestExamples lints the configurations that users copy: nothing is wrong with
// them.
func TestExamples(t *testing.T) {
	t.Parallel()
	for _, root := range []string{"../../../../../manifests/examples", "../../../../manifests/policies"} {
		err := filepath.WalkDir(root, func(path string, entry os.DirEntry, err error) error {
			if os.IsNotExist(err) || err == nil && (entry.IsDir() || filepath.Ext(path) != ".yaml") {
				return nil
			}
			if err != nil {
				return err
			}
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			t.Run(path, func(t *testing.T) {
				t.Parallel()
				if found := lintText(t, string(text)); found != "" {
					t.Error("\n" + found)
				}
			})
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	}
}
