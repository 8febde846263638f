package audit

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/admit"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/manifest"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/request"
	"github.com/gatehouse-dev/gatehouse/internal/truncate"
	rawjson "github.com/gatehouse-dev/gatehouse/webhooks/json"
	"github.com/gatehouse-dev/gatehouse/webhooks/kinds/workload"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar/podtext"
)

const (
	// objectTimeout bounds the decision about one object, as the API server bounds that of a webhook.
	objectTimeout = 10 * time.Second
	// maxMessage is how many bytes a message has at most.
	maxMessage = 4096
	// user is who would create the objects. Rules that read it are skipped.
	user = "gatehouse-audit"
)

var schemaSecrets = schema.GroupResource{Resource: "secrets"} //nolint:gochecknoglobals // a constant

// decider decides objects as the command check does.
type decider struct {
	admit.Decider

	resources *request.Resources
	workloads *workload.Kinds
	// text is a buffer for the object.
	text []byte
}

// objectOf identifies an object of a list.
func objectOf(t *Target, item rawjson.Value) Object {
	metadata := item.Get("metadata")
	o := Object{
		GroupVersionKind: t.GroupVersion().WithKind(t.Kind),
		Namespace:        metadata.Get("namespace").Text(), Name: metadata.Get("name").Text(), UID: metadata.Get("uid").Text(),
	}
	if o.GroupKind() == (schema.GroupKind{Kind: "Pod"}) {
		o.Controller.GroupKind, o.Controller.Name, _ = podtext.ControllerOf(metadata)
	}
	return o
}

// decide decides about one object of a list, and reports its results. The error is that of the context: then
// nothing is reported.
func (d *decider) decide(ctx context.Context, t *Target, object Object, item rawjson.Value, sink Sink) error {
	limited, cancel := context.WithTimeout(ctx, objectTimeout)
	defer cancel()
	d.text = appendObject(d.text[:0], object.GroupVersionKind, item)
	var decision admit.Decision
	var sent admission.Request
	req, err := admit.Request(d.resources, request.Spec{Object: d.text, User: request.WithGroups(authenticationv1.UserInfo{Username: user})})
	if err == nil {
		sent = req
		decision = d.Decide(limited, &req, d.template(&object, item), false)
	} else {
		decision.Err = err
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	sink.Object(object)
	r := reporter{sink, &object, t.GroupResource() == schemaSecrets, d.Entries && isSpent(&object, item)}
	r.report(&decision)
	r.mutations(limited, d.Snapshot.Mutation, &sent, &decision)
	if object.GroupKind() == (schema.GroupKind{Kind: "Pod"}) && decision.Injection != nil && !hasEnded(item) {
		d.reportInjection(&object, decision.Injection, sink)
	}
	return nil
}

// appendObject appends the JSON of an object of a list as a client would create it: with its kind, which lists of
// Kubernetes' own kinds do not repeat, and without managedFields.
func appendObject(dst []byte, kind schema.GroupVersionKind, item rawjson.Value) []byte {
	dst = rawjson.AppendString(append(dst, `{"apiVersion":`...), kind.GroupVersion().String())
	dst = rawjson.AppendString(append(dst, `,"kind":`...), kind.Kind)
	for name, value := range item.Members() {
		switch {
		case name.Is("apiVersion"), name.Is("kind"):
		case name.Is("metadata"):
			dst = append(dst, `,"metadata":{`...)
			separator := ""
			for name, value := range value.Members() {
				if !name.Is("managedFields") {
					dst = append(append(append(append(dst, separator...), name...), ':'), value...)
					separator = ","
				}
			}
			dst = append(dst, '}')
		default:
			dst = append(append(append(append(dst, ','), name...), ':'), value...)
		}
	}
	return append(dst, '}')
}

// template returns the pod template in an object, nil if there is none.
func (d *decider) template(object *Object, item rawjson.Value) *admit.Template {
	path, ok := d.workloads.Template(object.Group, object.Kind)
	if !ok {
		return nil
	}
	template := item.Get(path...)
	if template.Kind() != rawjson.Object {
		return nil
	}
	pod, ok := manifest.PodOfTemplate(template, object.Namespace)
	if !ok {
		return nil
	}
	return &admit.Template{Path: strings.Join(path, "."), Workload: object.Kind + "/" + object.Name, Pod: pod}
}

// hasEnded reports whether a pod has ended, so that nothing would be injected into it any more.
func hasEnded(pod rawjson.Value) bool {
	phase := pod.Get("status", "phase")
	return phase.Is("Succeeded") || phase.Is("Failed")
}

// isSpent reports whether an object makes no pod any more, so that nothing depends on what policies say of it.
func isSpent(object *Object, item rawjson.Value) bool {
	switch object.GroupKind() {
	case schema.GroupKind{Kind: "Pod"}:
		return hasEnded(item)
	case schema.GroupKind{Group: "batch", Kind: "Job"}:
		for _, c := range item.Get("status", "conditions").Elements() {
			if (c.Get("type").Is("Complete") || c.Get("type").Is("Failed")) && c.Get("status").Is("True") {
				return true
			}
		}
	case schema.GroupKind{Group: "apps", Kind: "ReplicaSet"}:
		return string(item.Get("spec", "replicas")) == "0" && item.Get("metadata", "ownerReferences").Len() > 0
	}
	return false
}

// reportInjection reports what each profile is to a pod.
func (d *decider) reportInjection(object *Object, injection *sidecar.Decision, sink Sink) {
	reported := map[string]bool{}
	for _, s := range d.Snapshot.Sidecar.Statuses(injection) {
		state := Current
		switch {
		case !s.Injected:
			state = Missing
		case !s.Matched && injection.Err == nil && len(injection.Refusals) == 0:
			state = Extra
		case s.Stale:
			state = Stale
		}
		reported[s.Profile] = true
		sink.Injection(*object, s.Profile, state)
	}
	for i := range injection.Verdicts {
		v := &injection.Verdicts[i]
		switch v.Reason { //nolint:exhaustive // others are neither the pod's choice nor its namespace's
		case sidecar.Declined, sidecar.DeclinedByNamespace, sidecar.NotAsked:
			if !reported[v.Profile] {
				sink.Injection(*object, v.Profile, Declined)
			}
		}
	}
}

// reporter reports the results of one object.
type reporter struct {
	sink   Sink
	object *Object
	// secret reports whether the object is a Secret, of which no value may be in a message, and spent is Result.HasEnded.
	secret, spent bool
}

// report reports violations, what cannot be decided, and then warnings.
func (r *reporter) report(d *admit.Decision) {
	for i := range d.Violations {
		r.violation(&d.Violations[i], d.UnknownSidecars)
	}
	if d.Err != nil {
		message := d.Err.Error()
		if r.secret {
			message = "cannot decide (the reason is left out: it may have a value of the Secret)"
		}
		r.add(Result{Status: Error, Message: message})
	}
	if r.secret {
		return // the texts of warnings are those of messages
	}
	injection := 0
	if d.Injection != nil {
		injection = len(d.Injection.Warnings)
	}
	for i, text := range d.Warnings {
		warning := Result{Status: Warn, Message: text}
		if i < injection {
			warning.Kind, warning.Rule = admit.InjectionKind, admit.InjectionRule
		}
		r.add(warning)
	}
}

// violation reports a violation. With unknown sidecars a template's violations refuse nothing.
func (r *reporter) violation(v *policy.Violation, unknownSidecars bool) {
	out := Result{
		Status: Warn, Kind: v.Kind, Policy: v.Policy, Binding: v.Binding, Rule: v.Rule, Template: v.Template, Exception: v.Exception, Baseline: v.Baseline, Message: v.Message,
		Entry: v.Entry, NotCovered: v.Unbaselined, HasEnded: r.spent,
	}
	switch {
	case v.Unknown != "":
		out.Status = Error // neither a violation nor an exemption
	case v.Outcome == policy.Excepted, v.Outcome == policy.Baselined:
		out.Status = Skip
	case v.Refuses() && unknownSidecars && v.Template != "":
		out.Status = Error
	case v.Refuses():
		out.Status = Fail
	}
	if r.secret {
		out.Message = cmp.Or(v.StaticMessage(), "the Secret violates the rule, or the rule cannot be evaluated for it")
	}
	if v.Unknown != "" {
		out.Message += fmt.Sprintf(" (the exception may allow this: %s, which an audit does not know)", v.Unknown)
	}
	r.add(out)
}

func (r *reporter) add(result Result) {
	result.Object = *r.object
	result.Message = truncate.Bytes(strings.ReplaceAll(result.Message, "\n", "; "), maxMessage)
	r.sink.Result(result)
}
