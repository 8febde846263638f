package policy

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/gatehouse-dev/gatehouse/webhooks/document/diagnostic"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy/baseline"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy/validation"
)

const baselineKind = "PolicyBaseline"

// activeBaseline is a PolicyBaseline in force.
type activeBaseline struct {
	// title is namespace/name.
	title   string
	expires time.Time
	// namespace is the only one that it is about, "" for all.
	namespace string
}

// baselined is what a baseline allows of one rule. The digests are those of the document, and shared with it.
type baselined struct {
	*baseline.Rule

	by *activeBaseline
}

// baselines checks the baselines and gives their rules to the policies.
func (c *compilation) baselines(spec *Spec) {
	if len(spec.Baselines) == 0 {
		return
	}
	rules, seen := ExceptionRules(spec), map[string]string{}
	sorted := make([]*Baseline, len(spec.Baselines))
	for i := range spec.Baselines {
		sorted[i] = &spec.Baselines[i]
	}
	slices.SortStableFunc(sorted, func(a, b *Baseline) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	for _, b := range sorted {
		title := strings.TrimPrefix(b.Namespace+"/"+b.Name, "/")
		d := c.reporter(b.Source, baselineKind, title)
		before := c.errorCount()
		validation.CheckName(d, b.Name)
		if first, twice := seen[title]; twice && b.Name != "" {
			d.Errorf(field.NewPath("metadata", "name"), fmt.Sprintf("the first is in %s", first), "%q is taken by another document", b.Name)
		}
		seen[title] = b.Source
		if strings.TrimSpace(b.Spec.Reason) == "" {
			d.Required(field.NewPath("spec", "reason"), "explain the baseline to readers of the audit log")
		}
		if b.Spec.ExpiresAt.IsZero() {
			d.Required(field.NewPath("spec", "expiresAt"), "set the time until which the violations are to be mended")
		}
		by := &activeBaseline{title: title, expires: b.Spec.ExpiresAt.Time}
		inForce := true
		switch reach := reachOf(&rules, b.Namespace); {
		case b.Namespace == "":
			d.Required(field.NewPath("metadata", "namespace"), "the namespace decides which objects the baseline can be about")
		case reach == ReachesAll:
		case reach == ReachesOwn:
			by.namespace = b.Namespace
		default:
			inForce = false
			d.NoEffect(field.NewPath("metadata", "namespace"), fmt.Sprintf("allowed are %s, see exceptions of PolicyConfiguration", diagnostic.QuotedList(slices.Concat(rules.Namespaces, rules.OwnNamespaces))),
				"baselines in %q do nothing", b.Namespace)
		}
		found := c.baselinedRules(d, b, by)
		if wrong := c.errorCount() - before; wrong > 0 {
			c.broken += wrong // a baseline that is not in force lets nothing pass
			continue
		}
		if inForce {
			for p, all := range found {
				if p.baselined == nil {
					p.baselined = map[string][]baselined{}
				}
				for _, one := range all {
					p.baselined[one.Rule.Rule] = append(p.baselined[one.Rule.Rule], one)
				}
			}
		}
	}
}

// baselinedRules returns the rules of a baseline by their policies, and warns of rules that are not there.
func (c *compilation) baselinedRules(d validation.Reporter, b *Baseline, by *activeBaseline) map[*compiledPolicy][]baselined {
	const hint = `"gatehouse audit --baseline FILE --prune" drops its entries`
	found, warned := map[*compiledPolicy][]baselined{}, 0
	rulesOf := map[exceptedPolicy]sets.Set[string]{}
	for i := range b.Rules {
		r, at := &b.Rules[i], field.NewPath("spec", "rules").Index(i)
		if r.Kind != policyKind && r.Kind != admissionKind {
			d.NotSupported(at.Child("kind"), r.Kind, policyKind, admissionKind)
			continue
		}
		key := exceptedPolicy{r.Kind, r.Policy}
		n := slices.IndexFunc(c.set.policies, func(p *compiledPolicy) bool { return p.kind == r.Kind && p.name == r.Policy })
		if n >= 0 {
			found[c.set.policies[n]] = append(found[c.set.policies[n]], baselined{r, by})
		}
		if warned == maxDiagnostics {
			continue
		}
		if n < 0 {
			if !slices.Contains(c.named, key) {
				warned++
				d.Warnf(at.Child("policy"), hint, "there is no %s %q", r.Kind, r.Policy)
			}
			continue
		}
		if rulesOf[key] == nil {
			known, _ := c.rulesOf(key)
			rulesOf[key] = sets.New(known...)
		}
		if !rulesOf[key].Has(r.Rule) {
			warned++
			d.Warnf(at.Child("rule"), hint, "the policy has no rule %q", r.Rule)
		}
	}
	return found
}
