package policy

import (
	"errors"
	"fmt"
	"strings"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gatehouse-dev/gatehouse/webhooks/policy/baseline"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy/expression"
)

// mostHashed is how much of objects is read for the entries of baselines in one review, in bytes that are read as often as they are
// read: some tens of milliseconds. Violations beyond it are in no baseline.
const mostHashed = 1 << 25

// applyBaselines lets a violation pass that is in an active baseline. One that is only in baselines that have expired says so. It returns
// the baselines that were tried in vain, if they are to be explained.
func applyBaselines(t target, result *ruleResult, v *Violation) (tried []TriedException) {
	d := t.request.decider
	all := t.policy.baselined[result.name]
	if len(all) == 0 && !d.entries {
		return nil
	}
	entry, why := entryOf(t, result)
	if d.entries {
		v.Entry, v.Unbaselined = entry, why
	}
	inVain := func(by *activeBaseline, why string) {
		if d.explain {
			tried = append(tried, TriedException{Baseline: by.title, Why: why})
		}
	}
	var expired *activeBaseline
	for _, one := range all {
		switch {
		case entry == nil:
			inVain(one.by, "the violation cannot be in a baseline: "+why)
			continue
		case one.by.namespace != "" && one.by.namespace != t.request.exceptionNamespace():
			inVain(one.by, fmt.Sprintf("it is about namespace %q alone", one.by.namespace))
			continue
		case !one.Has(entry.Digest):
			inVain(one.by, "it has no entry for this object with the values that the rule reads in it")
			continue
		}
		if now, known := d.time(); !known || !now.Before(one.by.expires) {
			expired = one.by
			inVain(one.by, "it expired at "+one.by.expires.UTC().Format(time.RFC3339))
			continue
		}
		until := one.by.expires.UTC()
		v.Outcome, v.Baseline, v.Until = Baselined, one.by.title, &until
		return nil
	}
	if expired != nil {
		v.Message += fmt.Sprintf(" (PolicyBaseline %s allowed this until %s)", expired.title, expired.expires.UTC().Format(time.RFC3339))
	}
	return tried
}

// entryOf returns what allows a violation in a baseline, nil if nothing can, and then why.
func entryOf(t target, result *ruleResult) (entry *baseline.Entry, why string) {
	r := t.request
	switch {
	case result.part != partRule:
		return nil, "the policy could not be evaluated"
	case r.Operation != admissionv1.Create && r.Operation != admissionv1.Update:
		return nil, "it is not about the creation or update of an object"
	}
	rule := baseline.RuleID{RuleName: baseline.RuleName{Kind: t.policy.kind, Policy: t.policy.name, Rule: result.name}}
	var reads, own *expression.Reads
	var uses expression.Uses
	if result.rule != nil {
		uses, reads, own = result.rule.Uses(), result.rule.Reads(), result.rule.OwnReads()
		rule.Source = result.rule.AppendSource(nil)
	} else {
		check, known := readsOfChecks()[result.standard.violation.Check]
		if !known {
			return nil, "it is not known what the check reads"
		}
		reads, rule.Annotations = check.Reads, check.annotations
	}
	if beyond := readsBeyondObject(uses); beyond != "" {
		return nil, "it reads " + beyond
	}
	s, why := r.subjectOf()
	if s == nil {
		return nil, why
	}
	if uses.Has(expression.UsesRequest) {
		if uses.Has(expression.UsesName) && s.IsMade() {
			return nil, "it reads request.name, which changes by itself"
		}
		asked := r.Kind
		if r.RequestKind != nil {
			asked = *r.RequestKind
		}
		rule.Request = []string{r.Kind.String(), asked.String(), r.Resource.String(), r.Requested.String(), r.SubResource, r.RequestSubResource}
	}
	if why := s.WhyUnbounded(own, reads); why != "" {
		return nil, why
	}
	if pod, isPod := r.podPath(); isPod {
		rule.Programs, rule.Pod = s.HasPower(reads, pod), pod
	}
	if r.decider.hashed += len(r.object.raw); r.decider.hashed > mostHashed {
		return nil, "the object is too large"
	}
	found := s.Entry(rule, reads)
	return &found, ""
}

// readsBeyondObject returns what an expression reads besides the object and its kind and name, "" for nothing.
func readsBeyondObject(uses expression.Uses) string {
	beyond := uses.OfRequest()
	if uses.Has(expression.UsesNamespace) {
		beyond = append(beyond, "namespaceObject")
	}
	if uses.Has(expression.UsesParams) {
		beyond = append(beyond, "params")
	}
	return strings.Join(beyond, ", ")
}

// subjectOf returns the object as baselines know it, nil if they cannot, and then why.
func (r *request) subjectOf() (*baseline.Subject, string) {
	if r.subject != nil || r.unbaselined != "" {
		return r.subject, r.unbaselined
	}
	var from baseline.Owner
	if r.owner != "" {
		kind, name, _ := strings.Cut(r.owner, "/")
		if from = (baseline.Owner{Group: r.ownerGroup, Kind: kind, Name: name}); r.ownerGenerated {
			from.Name = ""
		}
	}
	object, err := r.object.json()
	if err == nil {
		r.subject, err = baseline.NewSubject(schema.GroupVersionKind(r.Kind), r.exceptionNamespace(), from, object)
	}
	if unknown, is := errors.AsType[baseline.UnknownError](err); is {
		r.unbaselined = unknown.Error()
	} else if err != nil {
		r.unbaselined = "the object cannot be read"
	}
	return r.subject, r.unbaselined
}
