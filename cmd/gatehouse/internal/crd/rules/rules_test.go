package rules

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/install/registration"
)

func rulesAbout(resource string) []admissionregistrationv1.RuleWithOperations {
	return []admissionregistrationv1.RuleWithOperations{{
		Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
		Rule: admissionregistrationv1.Rule{
			APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{resource}, Scope: new(admissionregistrationv1.AllScopes),
		},
	}}
}

// Who manages which fields decides what is written, and what is left to others.
func TestPlans(t *testing.T) {
	t.Parallel()
	const us = "gatehouse-registration:security"
	managed := func(manager string, fields ...string) metav1.ManagedFieldsEntry {
		text := `{"f:webhooks":{"k:{\"name\":\"` + registration.FailValidate + `\"}":{".":{},"f:` + strings.Join(fields, `":{},"f:`) + `":{}}}}`
		return metav1.ManagedFieldsEntry{Manager: manager, Operation: metav1.ManagedFieldsOperationApply, FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(text)}
	}
	ours := managed(us, "name", "rules", "namespaceSelector", "objectSelector")
	rest := managed(us, "name", "namespaceSelector", "objectSelector")
	excluded := map[string]string{registration.ExcludedNamespaces: "kube-system,security"}
	maps, secrets := rulesAbout("configmaps"), rulesAbout("secrets")
	for name, c := range map[string]struct {
		annotations map[string]string
		managers    []metav1.ManagedFieldsEntry
		is, want    []admissionregistrationv1.RuleWithOperations
		// patched are the fields of the patch, in order, "" without one.
		patched, foreign, problem string
	}{
		"new":                              {excluded, nil, nil, maps, "name,namespaceSelector,objectSelector,rules", "", ""},
		"new, and as it should be":         {excluded, nil, maps, maps, "name,namespaceSelector,objectSelector,rules", "", ""},
		"as it should be":                  {excluded, []metav1.ManagedFieldsEntry{ours}, maps, maps, "", "", ""},
		"changed":                          {excluded, []metav1.ManagedFieldsEntry{ours}, maps, secrets, "name,namespaceSelector,objectSelector,rules", "", ""},
		"none any more":                    {excluded, []metav1.ManagedFieldsEntry{ours}, maps, nil, "name,namespaceSelector,objectSelector,rules", "", ""},
		"of an install before":             {excluded, []metav1.ManagedFieldsEntry{managed("gitops", "name", "rules")}, maps, secrets, "name,namespaceSelector,objectSelector,rules", "", ""},
		"taken":                            {excluded, []metav1.ManagedFieldsEntry{rest, managed("gitops", "name", "rules")}, maps, secrets, "", "gitops", ""},
		"taken, with what is needed":       {excluded, []metav1.ManagedFieldsEntry{rest, managed("gitops", "name", "rules")}, maps, maps, "", "", ""},
		"shared":                           {excluded, []metav1.ManagedFieldsEntry{ours, managed("gitops", "rules")}, maps, secrets, "name,namespaceSelector,objectSelector,rules", "", ""},
		"given back":                       {excluded, []metav1.ManagedFieldsEntry{rest, managed("gitops", "name")}, nil, maps, "name,namespaceSelector,objectSelector,rules", "", ""},
		"by Helm, which rendered it late":  {excluded, []metav1.ManagedFieldsEntry{rest, managed("helm", "name", "rules")}, maps, secrets, "name,namespaceSelector,objectSelector,rules", "", ""},
		"by another install":               {excluded, []metav1.ManagedFieldsEntry{rest, managed("gatehouse-registration:other", "name", "rules")}, maps, secrets, "", "gatehouse-registration:other", ""},
		"not made for it, or not any more": {nil, []metav1.ManagedFieldsEntry{ours}, maps, secrets, "", "", "has no annotation"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			namespaces, objects := registration.Requests{}.Selectors([]string{"kube-system", "security"})
			config := &configuration{
				kind: "ValidatingWebhookConfiguration", names: registration.ValidatingNames(),
				meta: &metav1.ObjectMeta{Name: "gatehouse", ResourceVersion: "7", Annotations: c.annotations, ManagedFields: c.managers},
			}
			config.add(registration.FailValidate, c.is, namespaces, objects)
			config.add("somebody.else", c.is, namespaces, objects)
			desired := registration.Needs{}
			if c.want != nil {
				desired[registration.FailValidate] = registration.Requests{Rules: c.want}
			}
			plans, foreign, problems := plansOf([]*configuration{config}, desired, us)
			patched, taken := "", ""
			if len(plans) > 0 {
				var patch struct {
					Metadata struct{ ResourceVersion string }
					Webhooks []map[string]any
				}
				if err := json.Unmarshal(plans[0].patch, &patch); err != nil || len(patch.Webhooks) != 1 || patch.Metadata.ResourceVersion != "7" {
					t.Fatalf("the patch is %s, %v", plans[0].patch, err)
				}
				var fields []string
				for field := range patch.Webhooks[0] {
					fields = append(fields, field)
				}
				slices.Sort(fields)
				patched = strings.Join(fields, ",")
			}
			if len(foreign) > 0 {
				taken = foreign[0].manager
			}
			if patched != c.patched || taken != c.foreign || !strings.Contains(strings.Join(problems, ""), c.problem) || (c.problem == "") != (len(problems) == 0) {
				t.Errorf("got a patch of %q, fields of %q and %q", patched, taken, problems)
			}
		})
	}
	problems := missing(nil, registration.Needs{registration.IgnoreMutate: {Rules: maps}})
	if len(problems) != 1 || !strings.Contains(problems[0], `there is no webhook "ignore.mutate.gatehouse.dev"`) {
		t.Errorf("without configurations: %q", problems)
	}
}

// A change is written when nothing has changed for a second, and after five at the latest. What was written and is missing is
// written at once.
func TestDebounce(t *testing.T) {
	t.Parallel()
	var s pending
	start := time.Now()
	at := func(ms int) time.Time { return start.Add(time.Duration(ms) * time.Millisecond) }
	for _, step := range []struct {
		needs string
		ms    int
		due   bool
	}{
		{"a", 0, false},
		{"a", 900, false},
		{"a", 1000, true},
		{"b", 1100, false},
		{"c", 2000, false},
		{"d", 2900, false},
		{"e", 3800, false},
		{"f", 4700, false},
		{"g", 5600, false},
		{"h", 6100, true},
		{"h", 20000, true},
	} {
		due := s.isDue(step.needs, at(step.ms))
		if due != step.due {
			t.Fatalf("%s after %d ms: due is %t", step.needs, step.ms, due)
		}
		if due {
			s.needs, s.written, s.writtenAt = "", step.needs, at(step.ms)
		}
	}
}

// A replica that says nothing has unknown needs, and one that is not ready does not count.
func TestDecode(t *testing.T) {
	t.Parallel()
	needs := registration.Needs{registration.FailValidate: {Rules: rulesAbout("secrets")}}
	for text, want := range map[string]struct{ known, counts bool }{
		"": {false, true}, "{": {false, true}, Unready: {false, false}, Encode(needs): {true, true}, Encode(registration.Needs{}): {true, true},
	} {
		if got, counts := decode(text); (got != nil) != want.known || counts != want.counts {
			t.Errorf("%q: got %v, %t", text, got, counts)
		}
	}
}
