package offline

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/admit"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/compile"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/testrunner"
	"github.com/gatehouse-dev/gatehouse/webhooks"
	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/config"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar/profile"
)

// compiledTests runs tests against what the configuration was compiled to, together with Gatehouse for what stays.
type compiledTests struct {
	config     *config.Config
	snapshot   *webhooks.Snapshot
	kubernetes string
	outputs    map[testrunner.Variant]*compile.Output
}

// compile returns the compiled documents for a case.
func (t *compiledTests) compile(v testrunner.Variant) (*webhooks.Snapshot, error) {
	c := configOf(t.config, t.snapshot, v)
	options := compile.Options{Kubernetes: t.kubernetes, Now: v.Now}
	if v.RealTime {
		options.Now = time.Now()
	}
	out, err := compile.Compile(c, options)
	if err != nil {
		return nil, err
	}
	t.outputs[v] = out
	spec := out.Spec(t.kubernetes)
	objects := allNamespaces{c.Policy.Objects}
	spec.Objects, spec.Authorizer, spec.Now = objects, c.Policy.Authorizer, c.Policy.Now
	c.Policy, c.Mutation.Objects = spec, objects
	mutating := out.Mutation()
	stays := func(kind, name string) bool {
		return slices.ContainsFunc(out.Items, func(i *compile.Item) bool { return i.Kind == kind && i.Name == name && i.Status == compile.Stays })
	}
	for i := range c.Mutation.Policies {
		if p := c.Mutation.Policies[i]; stays(admit.MutationKind, p.Name) {
			mutating.Policies = append(mutating.Policies, p)
		}
	}
	for i := range c.Mutation.Bindings {
		if b := c.Mutation.Bindings[i]; stays(admit.MutationKind, b.Spec.PolicyName) {
			mutating.Bindings = append(mutating.Bindings, b)
		}
	}
	c.Mutation.Policies, c.Mutation.Bindings = mutating.Policies, mutating.Bindings
	c.Sidecar.Profiles = slices.DeleteFunc(slices.Clone(c.Sidecar.Profiles), func(p profile.Document) bool { return !stays(admit.InjectionKind, p.Name) })
	compiled, found := config.Compile(c, nil)
	return compiled, found.Err()
}

// allNamespaces knows every namespace, as an API server does. Of one that is not known, Gatehouse's decision does not depend, or the case is not
// compared.
type allNamespaces struct{ policy.Objects }

// Namespace returns a namespace.
func (o allNamespaces) Namespace(name string) (*corev1.Namespace, bool) {
	if known, is := o.Objects.Namespace(name); is {
		return known, true
	}
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelMetadataName: name}}}, true
}

// add runs the cases that have passed against the compiled documents, and adds to the results what differs and what stays with Gatehouse.
func (t *compiledTests) add(ctx context.Context, runner testrunner.Runner, cases []*testrunner.Case, results []testrunner.Result) error {
	runner.Compile = t.compile
	native, err := runner.Run(ctx, cases)
	if err != nil {
		return err
	}
	for i := range results {
		// The API server knows what Gatehouse cannot decide without.
		if r := &results[i]; r.Passed() && r.Got.Verdict != v1alpha1.TestCannotDecide {
			t.judge(t.outputs[testrunner.VariantOf(r.Case)], r, native[i].Got)
		}
	}
	return nil
}

// judge compares a case with what became of it by the compiled documents. There, warnings, audit annotations and exceptions have other words or
// none, and pods no status annotation.
func (*compiledTests) judge(out *compile.Output, r *testrunner.Result, got testrunner.Outcome) {
	stays := func(items []*compile.Item) {
		for _, item := range items {
			if title := compiledTitle(item); item.Status == compile.Stays && !slices.Contains(r.Stays, title) {
				r.Stays = append(r.Stays, title)
			}
		}
	}
	isEmpty := !slices.ContainsFunc(out.Documents, func(d compile.Document) bool { return d.Policy != nil })
	for _, item := range out.Items {
		if isEmpty && item.Kind != admit.InjectionKind || item.Kind == admit.InjectionKind && slices.Contains(got.Profiles, item.Name) {
			stays([]*compile.Item{item})
		}
	}
	merge := func(ours, native []policy.Violation) (all []policy.Violation) {
		for _, v := range native {
			all = append(all, out.Source(v))
		}
		for i := range ours {
			if out.Stays(&ours[i]) {
				stays(out.Of(&ours[i]))
				all = append(all, ours[i])
				continue
			}
			for k := range all { // it also has the rule by its index
				if v := all[k]; ours[i].Kind == v.Kind && ours[i].Policy == v.Policy && ours[i].Binding == v.Binding && ours[i].Rule == v.Rule && ours[i].Template == v.Template {
					all[k] = ours[i]
					all[k].Outcome, all[k].Actions = v.Outcome, v.Actions
					words := func(i *compile.Item) bool { return len(i.Notes) > 0 || i.Kind == admit.InjectionKind }
					if !slices.ContainsFunc(out.Of(&v), words) { // its words differ
						all[k].Message = v.Message
					}
				}
			}
		}
		return all
	}
	got.Violations, got.Others = merge(r.Got.Violations, got.Violations), merge(r.Got.Others, got.Others)
	if len(got.Violations) > 0 && got.Verdict == v1alpha1.TestAllowed {
		got.Verdict = v1alpha1.TestDenied
	}
	expect := r.Case.Expect
	expect.Warnings, expect.AuditAnnotations, expect.Exceptions, expect.Patch = nil, nil, nil, nil
	r.Differences = testrunner.Judge(&expect, &got)
	if len(r.Differences) == 0 {
		return
	}
	for i := range r.Differences {
		r.Differences[i].Field = "compiled " + r.Differences[i].Field
	}
	for _, v := range slices.Concat(r.Got.Violations, r.Got.Others, got.Violations, got.Others) {
		for _, item := range out.Of(&v) {
			for _, reason := range item.Reasons {
				if text := fmt.Sprintf("%s: %s", compiledTitle(item), reason); !slices.Contains(r.Reasons, text) {
					r.Reasons = append(r.Reasons, text)
				}
			}
		}
	}
}

// compiledTitle returns the name of an item of the report.
func compiledTitle(item *compile.Item) string {
	if item.Rule == "" {
		return item.Kind + "/" + item.Name
	}
	return item.Kind + "/" + item.Name + " " + item.Rule
}
