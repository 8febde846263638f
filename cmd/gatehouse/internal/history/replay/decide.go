package replay

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"gomodules.xyz/jsonpatch/v2"
	authorizationv1 "k8s.io/api/authorization/v1"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	crdadmission "github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cluster/admission"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/history/record"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/admit"
	"github.com/gatehouse-dev/gatehouse/internal/truncate"
	"github.com/gatehouse-dev/gatehouse/webhooks"
	rawjson "github.com/gatehouse-dev/gatehouse/webhooks/json"
	"github.com/gatehouse-dev/gatehouse/webhooks/mutation"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy"
	"github.com/gatehouse-dev/gatehouse/webhooks/review"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar"
)

// Item is a review of a recording, on its way through a replay.
type Item struct {
	Source *Source
	Review *record.Review

	segment *segment
	// base is the configuration that has decided, and baseErr why it is not known.
	base    *configuration
	baseErr error
	// request is the decoded Request of an admission review, or access that of an access review, with its error.
	request    admission.Request
	access     authorizationv1.SubjectAccessReviewSpec
	requestErr error
}

// answer is an answer to a review.
type answer struct {
	// decision is review.Allowed, Denied or Unknown, or NoOpinion for an access review.
	decision review.Decision
	// undecided is why the replay cannot decide, and "" if it can.
	undecided string
	// failure says why the decision is Unknown.
	failure string

	// status, warnings, patch and audit are members of the answer as it is sent, the patch as JSON.
	status, warnings, patch, audit rawjson.Value

	// scope describes the scope of an access review, and reason says why that is denied.
	scope, reason string

	// by is the configuration that has decided, nil if it is not known.
	by *configuration

	// What follows is known of an answer that was computed.
	violations []policy.Violation
	verdicts   []sidecar.Verdict
	policy     *policy.Decision
	sidecar    *sidecar.Decision
	mutation   *mutation.Decision
}

// decider decides reviews by one configuration. It is for one goroutine.
type decider struct {
	configuration *configuration
	playback      playback
	// snapshots are views of that of the configuration, with and without an authorizer of the recording.
	snapshots [2]*webhooks.Snapshot
	explain   bool
	// compared is the configuration that hasProfilesOf has compared last, and same its result.
	compared *configuration
	same     bool
}

func newDecider(c *configuration) *decider {
	return &decider{configuration: c, playback: playback{candidate: c}}
}

// snapshot returns the compiled configuration for a review.
func (d *decider) snapshot(item *Item) (*webhooks.Snapshot, error) {
	without := 0
	if l := item.Review.Lookups; l != nil && l.NoAuthorizer {
		without = 1
	}
	if d.snapshots[without] == nil {
		compiled, err := d.configuration.snapshot()
		if err != nil {
			return nil, err
		}
		d.snapshots[without] = compiled.With(d.playback.answers(without == 1))
	}
	return d.snapshots[without], nil
}

// The reasons for which a replay cannot decide a review, and beginnings of reasons.
const (
	notDecided  = "it was not decided when it was recorded, and then the failurePolicy of the webhook decides, which the recording does not hold"
	ownResource = "it is about an object of Gatehouse itself, which no policy decides on"
	sidecars    = "sidecar profiles: "
	injected    = sidecars + "the pod has what the recorded profiles inject, and those of this configuration may inject something else"
	unreadable  = "it cannot be read where it is redacted: "
	mutations   = "mutating policies: "
	mutated     = mutations + "the object is what the recorded ones made of it, and those of this configuration may make something else"
)

// decide decides a review as the server does: the same function, the same answer.
func (d *decider) decide(ctx context.Context, item *Item) (out answer) {
	defer func() {
		if failed := recover(); failed != nil {
			out = answer{undecided: truncate.Runes(fmt.Sprintf("%s%v", programFailed, failed), maxName)}
		}
	}()
	s, err := d.snapshot(item)
	if err != nil {
		return answer{undecided: "the configuration cannot be used: " + firstLine(err.Error())}
	}
	if item.isAccess() {
		return authorize(s, item)
	}
	d.playback.begin(item)
	if item.Review.Endpoint == "mutate" {
		return d.mutate(ctx, s, item)
	}
	return d.validate(ctx, s, item)
}

const programFailed = "the program has failed on it: "

func firstLine(text string) string {
	text, _, _ = strings.Cut(text, "\n")
	return truncate.Runes(text, maxName)
}

// validate decides by policies.
func (d *decider) validate(ctx context.Context, s *webhooks.Snapshot, item *Item) answer {
	decision := s.Policy.Decide(ctx, policy.Input{Request: item.request, Checked: true, Violations: true, Explain: d.explain})
	response := decision.Response()
	out := d.answer(item, &response)
	out.violations, out.policy = decision.Violations, &decision
	missing := d.playback.missing
	switch undecided, ok := errors.AsType[*policy.UndecidedError](decision.Err); {
	case ok:
		out.undecided = reasonOf(undecided)
	case missing != nil && !slices.ContainsFunc(decision.Violations, func(v policy.Violation) bool { return v.Refuses() && v.Template == "" }):
		out.undecided = sidecars + missing.Error()
	case out.decision == review.Unknown && item.isRedacted("") && item.hasOwnPaths():
		out.undecided = unreadable + firstLine(out.failure)
	case d.configuration.hasPodSecurity && item.hasRedactedPod() && !slices.ContainsFunc(decision.Violations, refusesElse):
		out.undecided = "podSecurity: " + errRedacted.Error()
	case item.isRedacted("request.oldObject") && slices.ContainsFunc(decision.Violations, func(v policy.Violation) bool { return v.Outcome == policy.Existing }):
		out.undecided = "the update may change what a rule is violated by: " + errRedacted.Error()
	case d.injectsOtherwise(ctx, s, item):
		out.undecided = injected
	case d.mutatesOtherwise(ctx, s, item):
		out.undecided = mutated
	}
	return out
}

// reasonOf returns the reason without values.
func reasonOf(e *policy.UndecidedError) string {
	for err := e.Err; err != nil; err = errors.Unwrap(err) {
		if errors.Unwrap(err) == errMissing { //nolint:errorlint // the innermost text is wanted
			return e.Where + " " + firstLine(err.Error())
		}
	}
	return e.Where + ": " + errRedacted.Error()
}

func newItem(source *Source, of *segment, r *record.Review) *Item {
	i := &Item{Source: source, segment: of, Review: r}
	switch {
	case i.isLogin() || r.Request == nil:
	case i.isAccess():
		i.access, _, i.requestErr = review.DecodeAccess(r.Request)
	default:
		i.request, i.requestErr = review.DecodeAdmission(r.Request)
	}
	return i
}

// isLogin reports whether the review is one of the token endpoint.
func (i *Item) isLogin() bool { return i.Review.Token != nil || i.Review.Endpoint == "authenticate" }

// isAccess reports whether the review is one of access.
func (i *Item) isAccess() bool { return i.Review.Endpoint == webhooks.AuthorizeName }

// unreadable returns why a review cannot be replayed, "" if it can.
func (i *Item) unreadable() string {
	r := i.Review
	switch {
	case i.isLogin():
		return "it is a login, whose token is not recorded"
	case r.Endpoint != "validate" && r.Endpoint != "mutate" && !i.isAccess():
		return "there is no such endpoint"
	case r.Request == nil:
		return "it was not recorded: the server refused it before it was read"
	case i.requestErr != nil:
		return "the recorded request cannot be read: " + firstLine(i.requestErr.Error())
	case r.Endpoint == "validate" && crdadmission.Concerns(&i.request):
		return ownResource
	default:
		return ""
	}
}

// hasOwnPaths reports whether more is redacted than by default: then what must be a number or a
// boolean may be a string.
func (i *Item) hasOwnPaths() bool {
	return len(i.segment.Header.Redaction.Paths) > len(record.DefaultPaths())
}

// isRedacted reports whether anything is redacted in the part of a review with this path.
func (i *Item) isRedacted(part string) bool {
	return slices.ContainsFunc(i.Review.Redacted, func(path string) bool { return strings.HasPrefix(path, part) })
}

// hasRedactedObject reports whether anything in an object is redacted that policies may read.
func (i *Item) hasRedactedObject() bool {
	found := i.isRedacted("request.object") || i.isRedacted("request.oldObject")
	i.Review.Lookups.EachObject(func(digest string) {
		o := i.segment.object(digest)
		found = found || o != nil && o.redacted
	})
	return found
}

// hasRedactedPod reports whether anything is redacted that Pod Security may read: it reads no values of environment variables, and
// of annotations those of AppArmor and seccomp.
func (i *Item) hasRedactedPod() bool {
	return slices.ContainsFunc(i.Review.Redacted, func(path string) bool {
		return strings.Contains(path, "apparmor.security.") || strings.Contains(path, "seccomp.security.") ||
			strings.Contains(path, ".spec") && !strings.Contains(path, ".metadata.") && !strings.HasSuffix(path, ".env[*].value")
	})
}

// refusesElse reports whether a violation that refuses is of no Pod Security Standard.
func refusesElse(v policy.Violation) bool {
	return v.Refuses() && !strings.HasPrefix(v.Rule, "podSecurity")
}

// mutate decides by mutating policies, and then by sidecar profiles.
func (d *decider) mutate(ctx context.Context, s *webhooks.Snapshot, item *Item) answer {
	request := item.request
	changed := admit.Mutate(ctx, s.Mutation, &request, d.explain)
	if undecided := d.undecidedMutation(item, &changed); undecided != "" || changed.Err != nil || changed.Refusal != nil {
		response := changed.Response()
		out := d.answer(item, &response)
		out.mutation, out.undecided = &changed, undecided
		if changed.Refusal != nil {
			out.violations = admit.MutationViolations(&changed)
		}
		return out
	}
	decision := s.Sidecar.Decide(ctx, sidecar.Input{Request: request, Checked: true, Explain: d.explain})
	response := decision.Response()
	if response.Allowed && len(changed.Patch) > 0 {
		response.Patches = append(changed.Patch, response.Patches...)
	}
	out := d.answer(item, &response)
	out.verdicts, out.sidecar, out.mutation = decision.Verdicts, &decision, &changed
	out.violations = admit.Refusals(&decision)
	if made := d.madeInvalid(ctx, s, item, &response); len(made) > 0 {
		out.decision, out.violations = review.Denied, made
	}
	switch {
	case d.playback.missing != nil:
		out.undecided = sidecars + d.playback.missing.Error()
	case dependsOnRedacted(&decision):
		out.undecided = sidecars + errRedacted.Error()
	case out.decision == review.Unknown && item.isRedacted("") && item.hasOwnPaths():
		out.undecided = unreadable + firstLine(out.failure)
	}
	return out
}

// madeInvalid returns the violations for what the API server will refuse of the object as an answer makes it, and not as the recorded
// one has made it.
func (d *decider) madeInvalid(ctx context.Context, s *webhooks.Snapshot, item *Item, response *admission.Response) []policy.Violation {
	if !response.Allowed || len(response.Patches) == 0 {
		return nil
	}
	result := func(patches []jsonpatch.Operation) []policy.Violation {
		now, err := item.request, error(nil)
		if now.Object.Raw, err = admit.Patched(item.request.Object.Raw, patches); err != nil {
			return nil
		}
		_, made, _ := admit.Result(ctx, d.configuration.resources, s.Mutation, &item.request, &now)
		return made
	}
	made := result(response.Patches)
	if len(made) == 0 {
		return nil
	}
	var recorded []jsonpatch.Operation
	if json.Unmarshal(rawjson.Value(item.Review.Response).Get("patch"), &recorded) != nil {
		return made
	}
	had := result(recorded)
	return slices.DeleteFunc(made, func(v policy.Violation) bool {
		return slices.ContainsFunc(had, func(h policy.Violation) bool { return h.Message == v.Message })
	})
}

// undecidedMutation returns why a replay cannot know what mutating policies decide, "" if it can. Their expressions have no guard for
// redacted values.
func (d *decider) undecidedMutation(item *Item, changed *mutation.Decision) string {
	switch {
	case d.playback.lacking != nil:
		return mutations + d.playback.lacking.Error()
	case len(changed.Applied)+len(changed.Failures) > 0 && item.isRedacted("") && (d.configuration.readsUser || item.hasRedactedObject()):
		return mutations + errRedacted.Error()
	default:
		return ""
	}
}

// dependsOnRedacted reports whether what a decision says depends on a redacted value.
func dependsOnRedacted(d *sidecar.Decision) bool {
	return d.Err != nil && isUnclear(d.Err.Error()) || slices.ContainsFunc(d.Warnings, isUnclear) ||
		len(d.Refusals) > 0 && isUnclear(d.Refusals.Error()) ||
		slices.ContainsFunc(d.Verdicts, func(v sidecar.Verdict) bool { return isUnclear(v.Detail) })
}

// answer returns a response as it is sent.
func (d *decider) answer(item *Item, response *admission.Response) answer {
	if !response.Allowed && response.Result != nil && response.Result.Code >= http.StatusInternalServerError {
		return answer{decision: review.Unknown, failure: response.Result.Message}
	}
	if response.Allowed && len(response.Patches)+len(response.Warnings) == 0 {
		return answer{decision: review.Allowed} // the most frequent case
	}
	text, err := review.AppendAdmission(nil, item.request.UID, response)
	if err != nil {
		return answer{decision: review.Unknown, failure: err.Error()}
	}
	out := readAnswer(rawjson.Value(text).Get("response"))
	if out.patch.Kind() == rawjson.String {
		if out.patch, err = base64.StdEncoding.DecodeString(out.patch.Text()); err != nil {
			return answer{decision: review.Unknown, failure: err.Error()}
		}
	}
	return out
}

// readAnswer reads the response of an AdmissionReview.
func readAnswer(response rawjson.Value) (out answer) {
	out.decision = review.Denied
	for name, v := range response.Members() {
		switch {
		case name.Is("allowed") && v.IsTrue():
			out.decision = review.Allowed
		case name.Is("status"):
			out.status = v
		case name.Is("warnings"):
			out.warnings = v
		case name.Is("patch") && v.Kind() != rawjson.Null:
			out.patch = v
		case name.Is("auditAnnotations"):
			out.audit = v
		}
	}
	return out
}

// recordedAnswer returns the answer that was recorded to a review.
func (i *Item) recordedAnswer() answer {
	r := i.Review
	if i.isAccess() {
		return i.recordedAccess()
	}
	if (r.Decision != review.Allowed && r.Decision != review.Denied) || rawjson.Value(r.Response).Kind() != rawjson.Object {
		return answer{decision: review.Unknown, failure: r.Reason}
	}
	out := readAnswer(rawjson.Value(r.Response))
	out.decision = r.Decision
	return out
}

// public returns the answer for a Result.
func (a *answer) public() *Answer {
	out := &Answer{Decision: string(a.decision), Message: a.status.Get("message").Text(), Patch: string(a.patch), Violations: a.violations}
	switch {
	case a.decision == review.Unknown:
		out.Message = a.failure
	case a.reason != "":
		out.Message = a.reason
	}
	out.Warnings = texts(a.warnings)
	if verdicts := a.profiles(); len(verdicts) > 0 {
		out.Profiles = verdicts
	}
	return out
}

// texts returns the strings of a list.
func texts(list rawjson.Value) (out []string) {
	for _, v := range list.Elements() {
		out = append(out, v.Text())
	}
	return out
}

// profiles returns the verdicts about profiles by name.
func (a *answer) profiles() map[string]string {
	out := map[string]string{}
	for i := range a.verdicts {
		out[a.verdicts[i].Profile] = string(a.verdicts[i].Reason)
	}
	if a.verdicts != nil {
		return out
	}
	for _, key := range [...]string{sidecar.AuditKey, sidecar.AuditKeyAgain} {
		for one := range strings.SplitSeq(a.audit.Get(key).Text(), ",") {
			if name, reason, ok := strings.Cut(one, "="); ok {
				out[name] = reason
			}
		}
	}
	return out
}
