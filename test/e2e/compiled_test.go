package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os/exec"
	"slices"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gatehouse-dev/gatehouse/test/support"
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
		if item.Name == policy && item.Status != "native" && (rule == "" || rule == item.Rule || strings.HasPrefix(rule, item.Rule+".")) {
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
	for _, p := range c.policies {
		_, err := policies.Create(t.Context(), p, metav1.CreateOptions{})
		if apierrors.IsAlreadyExists(err) {
			var there *admissionregistrationv1.ValidatingAdmissionPolicy
			there, err = policies.Get(t.Context(), p.Name, metav1.GetOptions{})
			must(t, err)
			p.ResourceVersion = there.ResourceVersion
			_, err = policies.Update(t.Context(), p, metav1.UpdateOptions{})
		}
		if err != nil {
			t.Errorf("the API server refuses policy %s: %v", p.Name, err)
		}
	}
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
